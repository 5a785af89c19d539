/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/sched/radix_cache.h"

#include <assert.h>
#include <stdlib.h>

#include "base/rng.h"
#include "replay/sched/blocks.h"

/* Tokens [start, end) of req, below parent. */
struct node {
	uint64_t used;			  /* when it was used last, or a node that was below it */
	uint64_t first, last;		  /* key_of() its first and its last block */
	uint32_t parent, req, start, end; /* end: 0 if it is not in the tree */
	uint32_t n_child;
	uint32_t n_lock; /* of requests that end here, and children that are locked */
	uint32_t next;	 /* in the bucket, or of the unused nodes */
	uint32_t heap;	 /* its place in the heap; 0: it is locked, or has children */
};

struct radix_cache {
	struct block_pool *pool;
	const struct trace *trace;
	uint32_t block_tok;
	struct node *node; /* [0] is the root */
	uint32_t n_node;   /* nodes that were used so far, with the root */
	uint32_t unused;   /* a list of nodes below n_node; 0: none */
	uint32_t *bucket, mask;
	uint32_t *heap; /* [1, n_heap] nodes that can be emptied, a heap by the time of use */
	uint32_t n_heap;
	uint64_t now;
	struct blocks *blocks;	  /* told of tokens that leave; or NULL */
	int64_t n_block, n_loose; /* blocks in nodes, and in nodes that are not locked */
};

/* Each node has a block at least, of a request, so pool and trace bound their number. */
static size_t most_nodes(const struct block_pool *pool, const struct trace *t)
{
	int64_t n = 0;

	for (size_t i = 0; i < t->n && n < pool->n_usable; i++)
		n += ((int64_t)t->req[i].prompt_tok + t->req[i].output_tok) / pool->block_tok + 1;
	return (size_t)(n < pool->n_usable ? n : pool->n_usable) + 1;
}

enum ar_status radix_cache_open(struct radix_cache **out, struct block_pool *pool,
				const struct trace *t, struct ar_err *err)
{
	struct radix_cache *c = calloc(1, sizeof *c);
	size_t n = most_nodes(pool, t), n_bucket = 1;

	*out = NULL;
	if (!c)
		return ar_nomem(err);
	while (n_bucket < n)
		n_bucket *= 2;
	*c = (struct radix_cache){ .pool = pool,
				   .trace = t,
				   .block_tok = (uint32_t)pool->block_tok,
				   .node = calloc(n, sizeof *c->node),
				   .n_node = 1,
				   .bucket = calloc(n_bucket, sizeof *c->bucket),
				   .mask = (uint32_t)(n_bucket - 1),
				   .heap = calloc(n, sizeof *c->heap) };
	if (!c->node || !c->bucket || !c->heap) {
		radix_cache_close(c);
		return ar_nomem(err);
	}
	*out = c;
	return AR_OK;
}

void radix_cache_close(struct radix_cache *c)
{
	if (!c)
		return;
	free(c->node);
	free(c->bucket);
	free(c->heap);
	free(c);
}

/* ---- tokens ---- */

static uint32_t lesser(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* Tokens of req that ids of the trace cover. */
static uint32_t covered(const struct radix_cache *c, uint32_t req)
{
	const struct request *r = &c->trace->req[req];

	return r->n_block ? r->prompt_tok : 0;
}

/* Of block k of the trace. */
static uint64_t id_of(const struct radix_cache *c, uint32_t req, uint32_t k)
{
	return trace_block(c->trace, &c->trace->req[req], k);
}

/* Where the tokens of a and b differ, from pos on, or end.  The tokens before pos are equal.  Equal
 * ids stand for equal blocks before them, too.  The last block comes first, as most nodes are
 * matched whole. */
static uint32_t equal_until(const struct radix_cache *c, uint32_t a, uint32_t b, uint32_t pos,
			    uint32_t end)
{
	uint32_t tok = c->trace->block_tok, from, to;

	if (a == b)
		return end;
	end = lesser(end, lesser(covered(c, a), covered(c, b)));
	if (pos >= end)
		return end;
	from = pos / tok;
	to = (end - 1) / tok + 1;
	for (uint32_t k = to - 1; from < to; k = from + (to - from) / 2)
		if (id_of(c, a, k) == id_of(c, b, k))
			from = k + 1;
		else
			to = k;
	return from > pos / tok ? lesser(from * tok, end) : pos;
}

/* The same in whole blocks. */
static uint32_t blocks_until(const struct radix_cache *c, uint32_t a, uint32_t b, uint32_t pos,
			     uint32_t end)
{
	uint32_t until = equal_until(c, a, b, pos, end);

	return until - until % c->block_tok;
}

static int64_t blocks_of(const struct radix_cache *c, const struct node *x)
{
	return (x->end - x->start) / c->block_tok;
}

/* ---- children ---- */

/* What the block of req from pos on has in common with equal ones below the same node: the id, or
 * the request, of its last token. */
static uint64_t key_of(const struct radix_cache *c, uint32_t req, uint32_t pos)
{
	uint32_t last = pos + c->block_tok - 1;

	return last < covered(c, req) ? id_of(c, req, last / c->trace->block_tok) : ~(uint64_t)req;
}

/* The bucket of a child of parent whose first block has this key. */
static uint32_t *bucket_of(const struct radix_cache *c, uint32_t parent, uint64_t key)
{
	return &c->bucket[rng_mix(key ^ rng_mix(parent)) & c->mask];
}

/* The child that begins with the block of req from pos on, or 0. */
static uint32_t find_child(const struct radix_cache *c, uint32_t parent, uint32_t req, uint32_t pos)
{
	uint64_t key = key_of(c, req, pos);
	uint32_t n = *bucket_of(c, parent, key);

	while (n && (c->node[n].parent != parent || c->node[n].first != key))
		n = c->node[n].next;
	return n;
}

static void link_child(struct radix_cache *c, uint32_t n)
{
	struct node *x = &c->node[n];
	uint32_t *link;

	x->first = key_of(c, x->req, x->start);
	x->last = key_of(c, x->req, x->end - c->block_tok);
	link = bucket_of(c, x->parent, x->first);
	x->next = *link;
	*link = n;
}

static void unlink_child(struct radix_cache *c, uint32_t n)
{
	struct node *x = &c->node[n];
	uint32_t *link = bucket_of(c, x->parent, x->first);

	while (*link != n)
		link = &c->node[*link].next;
	*link = x->next;
}

/* ---- the heap ---- */

static bool used_before(const struct radix_cache *c, uint32_t a, uint32_t b)
{
	return c->node[a].used < c->node[b].used;
}

static void put(struct radix_cache *c, uint32_t i, uint32_t n)
{
	c->heap[i] = n;
	c->node[n].heap = i;
}

/* Put n at place i or where it belongs above or below. */
static void settle(struct radix_cache *c, uint32_t i, uint32_t n)
{
	for (; i > 1 && used_before(c, n, c->heap[i / 2]); i /= 2)
		put(c, i, c->heap[i / 2]);
	for (uint32_t child; (child = 2 * i) <= c->n_heap; i = child) {
		child += child < c->n_heap && used_before(c, c->heap[child + 1], c->heap[child]);
		if (!used_before(c, c->heap[child], n))
			break;
		put(c, i, c->heap[child]);
	}
	put(c, i, n);
}

static void leave_heap(struct radix_cache *c, uint32_t n)
{
	uint32_t i = c->node[n].heap, last = c->heap[c->n_heap--];

	c->node[n].heap = 0;
	if (last != n)
		settle(c, i, last);
}

/* Bring n into the heap or out of it. */
static void update(struct radix_cache *c, uint32_t n)
{
	const struct node *x = &c->node[n];
	bool can = n && !x->n_lock && !x->n_child;

	if (can && !x->heap)
		settle(c, ++c->n_heap, n);
	else if (!can && x->heap)
		leave_heap(c, n);
}

static void use(struct radix_cache *c, uint32_t n)
{
	c->node[n].used = ++c->now;
	if (c->node[n].heap)
		settle(c, c->node[n].heap, n);
}

/* ---- the tree ---- */

static uint32_t new_node(struct radix_cache *c)
{
	uint32_t n = c->unused;

	if (!n)
		return c->n_node++;
	c->unused = c->node[n].next;
	return n;
}

/* Cut node n at token pos.  Returns the new node above n, with the tokens before pos. */
static uint32_t split(struct radix_cache *c, uint32_t n, uint32_t pos)
{
	uint32_t above = new_node(c);
	struct node *x = &c->node[n];

	unlink_child(c, n);
	c->node[above] = (struct node){ .used = ++c->now,
					.parent = x->parent,
					.req = x->req,
					.start = x->start,
					.end = pos,
					.n_child = 1,
					.n_lock = x->n_lock > 0 };
	x->parent = above;
	x->start = pos;
	link_child(c, above);
	link_child(c, n);
	use(c, n);
	return above;
}

/* Does req have the tokens of the path to node n, and does that end at `end` at most? */
static bool on_path(const struct radix_cache *c, uint32_t n, uint32_t req, uint32_t end)
{
	const struct node *x = &c->node[n];

	return x->end <= end && key_of(c, req, x->end - c->block_tok) == x->last;
}

/* Step from *node to the child that req goes on with, at most to end.  The child is cut where the
 * tokens differ.  False: there is none. */
static bool descend(struct radix_cache *c, uint32_t req, uint32_t end, uint32_t *node)
{
	uint32_t pos = c->node[*node].end, n = pos < end ? find_child(c, *node, req, pos) : 0;

	if (!n)
		return false;
	*node = n;
	if (!on_path(c, n, req, end))
		*node = split(c, n,
			      blocks_until(c, c->node[n].req, req, pos + c->block_tok,
					   lesser(end, c->node[n].end)));
	return true;
}

/* The last node of req that ends at `end` at most, on the path to node n; 0: n is not of req. */
static uint32_t start_from(const struct radix_cache *c, uint32_t n, uint32_t req, uint32_t end)
{
	if (!c->node[n].end || !on_path(c, n, req, UINT32_MAX))
		return 0;
	while (c->node[n].end > end)
		n = c->node[n].parent;
	return n;
}

/* Find the tokens of req, at most to end.  They count as used now. */
static uint32_t find(struct radix_cache *c, uint32_t req, uint32_t end, uint32_t *node)
{
	*node = start_from(c, *node, req, end);
	while (descend(c, req, end, node))
		;
	use(c, *node);
	return c->node[*node].end;
}

uint32_t radix_cache_match(struct radix_cache *c, uint32_t req, uint32_t max, uint32_t *node)
{
	return find(c, req, max - max % c->block_tok, node);
}

uint32_t radix_cache_insert(struct radix_cache *c, uint32_t req, uint32_t n_tok, uint32_t *node)
{
	uint32_t had = find(c, req, n_tok, node), above = *node, n;

	assert(n_tok % c->block_tok == 0);
	if (had == n_tok)
		return had;
	*node = n = new_node(c);
	c->node[n] = (struct node){
		.used = ++c->now, .parent = above, .req = req, .start = had, .end = n_tok
	};
	link_child(c, n);
	c->node[above].n_child++;
	update(c, above);
	update(c, n);
	c->n_block += blocks_of(c, &c->node[n]);
	c->n_loose += blocks_of(c, &c->node[n]);
	c->pool->n_free += blocks_of(c, &c->node[n]);
	return had;
}

int64_t radix_cache_loose(const struct radix_cache *c, uint32_t node)
{
	int64_t sum = 0;

	for (; node && !c->node[node].n_lock; node = c->node[node].parent)
		sum += blocks_of(c, &c->node[node]);
	return sum;
}

void radix_cache_lock(struct radix_cache *c, uint32_t node)
{
	int64_t more = radix_cache_loose(c, node);

	c->n_loose -= more;
	c->pool->n_free -= more;
	for (; node && !c->node[node].n_lock++; node = c->node[node].parent)
		update(c, node);
}

void radix_cache_unlock(struct radix_cache *c, uint32_t node)
{
	for (; node && !--c->node[node].n_lock; node = c->node[node].parent) {
		int64_t n = blocks_of(c, &c->node[node]);

		c->n_loose += n;
		c->pool->n_free += n;
		update(c, node);
	}
}

uint32_t radix_cache_request(const struct radix_cache *c, uint32_t node, uint32_t pos)
{
	while (c->node[node].start > pos)
		node = c->node[node].parent;
	return c->node[node].req;
}

uint32_t radix_cache_own(const struct radix_cache *c, uint32_t node, uint32_t req)
{
	while (node && c->node[node].req != req)
		node = c->node[node].parent;
	return c->node[node].end;
}

void radix_cache_tell(struct radix_cache *c, struct blocks *b)
{
	c->blocks = b;
}

/* Empty the leaf that was not used for the longest time. */
static void empty_leaf(struct radix_cache *c)
{
	uint32_t n = c->heap[1], above = c->node[n].parent, req = c->node[n].req;

	if (c->blocks)
		blocks_forget(c->blocks, req, radix_cache_own(c, above, req), c->node[n].end);
	leave_heap(c, n);
	unlink_child(c, n);
	c->n_block -= blocks_of(c, &c->node[n]);
	c->n_loose -= blocks_of(c, &c->node[n]);
	c->node[n].next = c->unused;
	c->node[n].end = 0;
	c->unused = n;
	c->node[above].n_child--;
	if (used_before(c, above, n))
		c->node[above].used = c->node[n].used;
	update(c, above);
}

void radix_cache_make_room(struct radix_cache *c, int64_t n_block)
{
	while (c->pool->n_free - c->n_loose < n_block && c->n_heap)
		empty_leaf(c);
}

void radix_cache_size(const struct radix_cache *c, int64_t *n_tok, int64_t *n_node)
{
	*n_tok = c->n_block * c->block_tok;
	*n_node = (int64_t)c->n_node - 1;
	for (uint32_t n = c->unused; n; n = c->node[n].next)
		--*n_node;
}
