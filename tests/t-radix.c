/* SPDX-License-Identifier: Apache-2.0 */
/* The radix cache beside a slow one that compares token by token and looks at all nodes.  Then each
 * allocation failing in turn.  Its schedules are in tests/t-engines.sh. */
#include "config.h"
#include "replay/sched/policy.h"

#include <inttypes.h>
#include <string.h>

#include "base/rng.h"
#include "tests/letters.h"
#include "tests/tap.h"

enum { BLOCKS = 40, ROWS = 6, REQS = 14, LEN = 60, NODES = 4000 };

struct slow_node {
	int parent, lock;
	uint32_t req, start, end;
	double used;
	bool there;
};

struct slow {
	struct slow_node node[NODES]; /* [0] is the root */
	int n;
	double clock;
	int64_t n_empty; /* blocks that nobody has */
};

struct live { /* a running sequence in both caches */
	uint32_t req, node, n_block, n_named, n_tok;
	int slow;
};

struct pair {
	struct trace *t;
	struct block_pool pool;
	struct radix_cache *fast;
	struct slow slow;
	struct live live[ROWS];
	uint32_t n_live, last[REQS]; /* nodes where requests ended; they may be gone */
	int64_t hits, emptied, splits, twice, bad;
};

static bool same_token(const struct trace *t, uint32_t a, uint32_t b, uint32_t pos)
{
	const struct request *x = &t->req[a], *y = &t->req[b];

	return a == b ||
	       (x->n_block && y->n_block && pos < x->prompt_tok && pos < y->prompt_tok &&
		trace_block(t, x, pos / t->block_tok) == trace_block(t, y, pos / t->block_tok));
}

/* ---- the slow cache ---- */

static uint32_t slow_until(const struct pair *p, int n, uint32_t req, uint32_t end)
{
	const struct slow_node *x = &p->slow.node[n];
	uint32_t pos = x->start;

	while (pos < end && pos < x->end && same_token(p->t, x->req, req, pos))
		pos++;
	return pos - pos % (uint32_t)p->pool.block_tok;
}

static int slow_child(const struct pair *p, int parent, uint32_t req, uint32_t pos, uint32_t end)
{
	for (int n = 1; n < p->slow.n; n++)
		if (p->slow.node[n].there && p->slow.node[n].parent == parent &&
		    slow_until(p, n, req, end) > pos)
			return n;
	return 0;
}

static int slow_add(struct slow *c, struct slow_node x)
{
	if (c->n == NODES)
		bail_out("the slow cache has too few nodes");
	x.there = true;
	x.used = c->clock++;
	c->node[c->n] = x;
	return c->n++;
}

static int slow_split(struct pair *p, int n, uint32_t pos)
{
	struct slow_node above = p->slow.node[n];
	int new;

	above.end = pos;
	new = slow_add(&p->slow, above);
	p->slow.node[n].parent = new;
	p->slow.node[n].start = pos;
	p->slow.node[n].used = p->slow.clock++;
	p->splits++;
	return new;
}

static uint32_t slow_walk(struct pair *p, uint32_t req, uint32_t end, int *node, bool inserts)
{
	uint32_t pos = 0;
	int n;

	for (*node = 0; pos < end && (n = slow_child(p, *node, req, pos, end)); *node = n) {
		if (inserts)
			p->slow.node[n].used = p->slow.clock++;
		pos = slow_until(p, n, req, end);
		if (pos < p->slow.node[n].end)
			n = slow_split(p, n, pos);
	}
	return pos;
}

static uint32_t slow_match(struct pair *p, uint32_t req, uint32_t max, int *node)
{
	uint32_t n = slow_walk(p, req, max - max % (uint32_t)p->pool.block_tok, node, false);
	double time = p->slow.clock++;

	for (int i = *node; i; i = p->slow.node[i].parent, time -= 1e-5)
		p->slow.node[i].used = time;
	return n;
}

static uint32_t slow_insert(struct pair *p, uint32_t req, uint32_t n_tok, int *node)
{
	uint32_t had = slow_walk(p, req, n_tok, node, true);

	if (had < n_tok)
		*node = slow_add(&p->slow,
				 (struct slow_node){
					 .parent = *node, .req = req, .start = had, .end = n_tok });
	return had;
}

static void slow_lock(struct slow *c, int n, int more)
{
	for (; n; n = c->node[n].parent)
		c->node[n].lock += more;
}

static int64_t slow_loose(const struct pair *p, int from)
{
	int64_t sum = 0;

	for (int n = from < 0 ? p->slow.n - 1 : from; n;
	     n = from < 0 ? n - 1 : p->slow.node[n].parent) {
		const struct slow_node *x = &p->slow.node[n];

		if (x->there && !x->lock)
			sum += (x->end - x->start) / p->pool.block_tok;
	}
	return sum;
}

static bool slow_leaf(const struct slow *c, int n)
{
	for (int i = 1; i < c->n; i++)
		if (c->node[i].there && c->node[i].parent == n)
			return false;
	return c->node[n].there && !c->node[n].lock;
}

static void slow_make_room(struct pair *p, int64_t n_block)
{
	while (p->slow.n_empty < n_block) {
		int first = 0;

		for (int n = 1; n < p->slow.n; n++)
			if (slow_leaf(&p->slow, n) &&
			    (!first || p->slow.node[n].used < p->slow.node[first].used))
				first = n;
		if (!first)
			return;
		p->slow.node[first].there = false;
		p->slow.n_empty += (p->slow.node[first].end - p->slow.node[first].start) /
				   p->pool.block_tok;
		p->emptied++;
	}
}

/* ---- both ---- */

static bool same_state(const struct pair *p)
{
	int64_t n_tok, n_node, slow_tok = 0, slow_nodes = 0;

	radix_cache_size(p->fast, &n_tok, &n_node);
	for (int n = 1; n < p->slow.n; n++) {
		const struct slow_node *x = &p->slow.node[n];

		slow_tok += x->there ? x->end - x->start : 0;
		slow_nodes += x->there;
	}
	return n_tok == slow_tok && n_node == slow_nodes &&
	       p->pool.n_free == p->slow.n_empty + slow_loose(p, -1);
}

static uint32_t look_up(struct pair *p, uint32_t req, uint32_t max, uint32_t *node, int *slow)
{
	uint32_t n;

	*node = p->last[(req + max) % REQS];
	n = radix_cache_match(p->fast, req, max, node);
	p->last[req] = *node;
	p->bad += n != slow_match(p, req, max, slow) ||
		  radix_cache_loose(p->fast, *node) != slow_loose(p, *slow);
	p->hits += n;
	return n;
}

static void lock(struct pair *p, struct live *q, uint32_t node, int slow)
{
	radix_cache_unlock(p->fast, q->node);
	radix_cache_lock(p->fast, node);
	slow_lock(&p->slow, q->slow, -1);
	slow_lock(&p->slow, slow, 1);
	q->node = node;
	q->slow = slow;
}

static void admit(struct pair *p, struct rng *r)
{
	struct live *q = &p->live[p->n_live++];
	uint32_t node, req = (uint32_t)rng_below(r, REQS), hit;
	int slow;

	*q = (struct live){ .req = req };
	hit = look_up(p, req, p->t->req[req].prompt_tok - 1, &node, &slow);
	lock(p, q, node, slow);
	q->n_tok = hit;
	q->n_block = q->n_named = hit / (uint32_t)p->pool.block_tok;
}

static void grow(struct pair *p, struct live *q, uint32_t n)
{
	int64_t more = block_pool_need(&p->pool, q->n_tok + n) - q->n_block;

	if (q->n_tok + n > LEN || more > p->pool.n_free)
		return;
	radix_cache_make_room(p->fast, more);
	slow_make_room(p, more);
	p->pool.n_free -= more;
	p->slow.n_empty -= more;
	q->n_block += (uint32_t)more;
	q->n_tok += n;
}

static void enter(struct pair *p, struct live *q)
{
	uint32_t bt = (uint32_t)p->pool.block_tok, n = q->n_tok - q->n_tok % bt, had;
	uint32_t node = p->last[(q->req + n / bt) % REQS];
	int slow;

	if (!n)
		return;
	had = radix_cache_insert(p->fast, q->req, n, &node);
	p->last[q->req] = node;
	p->bad += had != slow_insert(p, q->req, n, &slow);
	p->pool.n_free += had / bt - q->n_named;
	p->slow.n_empty += had / bt - q->n_named;
	p->twice += had / bt - q->n_named;
	lock(p, q, node, slow);
	q->n_named = n / bt;
}

static void leave(struct pair *p, struct live *q)
{
	lock(p, q, 0, 0);
	p->pool.n_free += q->n_block - q->n_named;
	p->slow.n_empty += q->n_block - q->n_named;
	*q = p->live[--p->n_live];
}

static void step(struct pair *p, struct rng *r)
{
	uint32_t i = (uint32_t)rng_below(r, ROWS), node;
	int slow;

	if (i >= p->n_live) {
		admit(p, r);
	} else {
		switch (rng_below(r, 6)) {
		case 0: look_up(p, p->live[i].req, p->live[i].n_tok, &node, &slow); break;
		case 1: enter(p, &p->live[i]); break;
		case 2:
			enter(p, &p->live[i]);
			leave(p, &p->live[i]);
			break;
		case 3: leave(p, &p->live[i]); break;
		default: grow(p, &p->live[i], 1 + (uint32_t)rng_below(r, 16));
		}
	}
	p->bad += !same_state(p);
}

static struct pair p;

static void compare_caches(uint32_t trace_tok, uint32_t block_tok)
{
	static char prompt[REQS][LEN + 1];
	struct rng r = { trace_tok * 100 + block_tok };
	struct request req[REQS];
	struct block_run run[REQS * LEN];
	struct trace t = { .req = req, .run = run, .cap_run = REQS * LEN, .block_tok = trace_tok };

	p = (struct pair){ .t = &t, .slow = { .n = 1, .n_empty = BLOCKS } };
	letters_draw(&t, &r, *prompt, REQS, LEN);
	block_pool_init(&p.pool, BLOCKS + 1, block_tok);
	if (radix_cache_open(&p.fast, &p.pool, &t, NULL))
		bail_out("out of memory");
	for (int i = 0; i < 5000; i++)
		step(&p, &r);
	is_int(p.bad, 0,
	       "blocks of %u in traces of %u: 5000 random steps as a slow cache takes them",
	       block_tok, trace_tok);
	diag("%" PRId64 " tokens found, %" PRId64 " nodes cut, %" PRId64 " emptied, %" PRId64
	     " blocks twice",
	     p.hits, p.splits, p.emptied, p.twice);
	ok(p.hits > 1000 && p.splits > 10 && p.emptied > 100 && p.twice > 10,
	   "... with hits, nodes that are cut and emptied, and blocks that are there already");
	radix_cache_close(p.fast);
}

static void test_faults(void)
{
	struct request req[2];
	struct trace t = { .req = req };
	struct sched_limits lim = { .policy = policy_find("sglang-0.5.23"),
				    .max_batched_tok = 8,
				    .max_seqs = 8,
				    .block_tok = 4,
				    .num_blocks = 9,
				    .prefix_cache = true };

	letters_add(&t, 0, "abcdefgh", 1);
	letters_fail(&t, &lim, 10);
}

int main(void)
{
	plan(0);
	compare_caches(4, 4);
	compare_caches(8, 2);
	compare_caches(6, 4);
	compare_caches(2, 3);
	compare_caches(4, 1);
	compare_caches(1, 1);
	compare_caches(0, 4);
	test_faults();
	return done_testing();
}
