/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KV blocks with numbers: their contents and the free list.  Block tables consist of these blocks
 * (prefix_cache.h, kv_groups.h).  The functions are inline, as a schedule takes and frees many.
 *
 * A free block keeps its key until it is taken: the free list is the order of eviction.  Blocks
 * with the same content may coexist; the one entered first is found.  Block 0 is never taken; it
 * ends the free list and means "none".  Every function takes O(1) per block.
 *
 * A pool may have millions of blocks for a trace that takes a hundred.  So blocks that nobody had
 * yet are one item of the free list, kv_blocks.fresh, and the memory of the others is not written.
 */
#ifndef AR_KV_BLOCKS_H
#define AR_KV_BLOCKS_H

#include <stdbool.h>

#include "base/rng.h"
#include "base/status.h"
#include "replay/sched/block_pool.h"
#include "traces/trace.h"

/* Key of a block.  k: its number in the sequence.  own: id is the number of a request; else id is
 * a trace's id mixed with the root.  Mixing keeps different ids of one root different.  The bits
 * of own from KV_GROUP_BIT on are the number of the KV cache group. */
struct kv_key {
	uint64_t id;
	uint32_t k, own;
};

enum { KV_GROUP_BIT = 20, KV_GROUPS_MAX = 1 << (32 - KV_GROUP_BIT) };

/* A block whose own is this has a name that nobody looks for, see kv_name(). */
#define KV_UNLISTED UINT32_MAX

struct kv_block {
	struct kv_key key;
	uint32_t chain;	  /* next key in the bucket; only in the oldest of a ring */
	uint32_t older;	  /* ring of equal contents, oldest first; 0: no content */
	uint32_t entered; /* kv_blocks.step when it got its key */
	uint32_t hash;	  /* of its key */
};

/* Who has a block, and its neighbours in the free list if nobody has.  This is apart from the keys,
 * so that the memory caches hold it for many blocks. */
struct kv_place {
	uint32_t n_owner, prev, next;
	uint32_t newer; /* in the ring of equal contents; 0: no content */
};

struct kv_blocks {
	struct block_pool *pool; /* its n_free is kept up to date */
	const struct trace *trace;
	uint64_t root;
	struct kv_block *block;
	struct kv_place *place; /* [0] ends the free list: next its head, prev its tail */
	uint32_t *bucket, mask; /* more buckets as blocks are taken for the first time */
	uint32_t n;		/* the last block */
	uint32_t fresh;		/* the first one that nobody had yet; above n: there is none */
	uint32_t step;		/* number of the plan, set by who asks for it */
};

/* All blocks of the pool, free and in order.  Release *b even after a failure.  AR_NOMEM. */
enum ar_status kv_blocks_init(struct kv_blocks *b, struct block_pool *pool, const struct trace *t,
			      uint64_t root, struct ar_err *err);
void kv_blocks_release(struct kv_blocks *b);

/* ---- contents ---- */

/* First blocks of request req that have ids of the trace, with block_tok tokens each. */
static inline uint32_t kv_n_shared(const struct kv_blocks *b, uint32_t req, int64_t block_tok)
{
	const struct request *r = &b->trace->req[req];

	return r->n_block ? r->prompt_tok / (uint32_t)block_tok : 0;
}

/* Of block k of request req, which only that request has. */
static inline struct kv_key kv_own_key(uint32_t req, uint32_t k, uint32_t group)
{
	return (struct kv_key){ req, k, group << KV_GROUP_BIT | true };
}

/* Of block k of request req, which ends in block `at` of its trace. */
static inline struct kv_key kv_shared_key(const struct kv_blocks *b, uint32_t req, uint32_t k,
					  uint32_t at, uint32_t group)
{
	uint64_t id = trace_block(b->trace, &b->trace->req[req], at);

	return (struct kv_key){ rng_mix(b->root ^ id), k, group << KV_GROUP_BIT };
}

/* Of block k of request req, in a group with blocks of block_tok tokens. */
static inline struct kv_key kv_key_of(const struct kv_blocks *b, uint32_t req, uint32_t k,
				      int64_t block_tok, uint32_t group)
{
	const struct request *r = &b->trace->req[req];
	uint64_t last = ((uint64_t)k + 1) * (uint64_t)block_tok - 1;

	if (!r->n_block || last >= r->prompt_tok)
		return kv_own_key(req, k, group);
	return kv_shared_key(b, req, k, (uint32_t)(last / b->trace->block_tok), group);
}

/* Blocks of one request that have its own id are side by side, for the sake of memory caches. */
static inline uint32_t kv_hash_of(const struct kv_key *key)
{
	return (uint32_t)rng_mix(key->id ^ (uint64_t)key->own << 32) + key->k;
}

static inline bool kv_same(const struct kv_key *x, const struct kv_key *y)
{
	return x->id == y->id && x->k == y->k && x->own == y->own;
}

/* The link to the oldest block with this key.  If there is none: the link at the bucket's end,
 * which is 0. */
static inline uint32_t *kv_find_at(const struct kv_blocks *b, uint32_t hash,
				   const struct kv_key *key)
{
	uint32_t *link = &b->bucket[hash & b->mask];

	while (*link && (b->block[*link].hash != hash || !kv_same(&b->block[*link].key, key)))
		link = &b->block[*link].chain;
	return link;
}

static inline uint32_t *kv_find(const struct kv_blocks *b, const struct kv_key *key)
{
	return kv_find_at(b, kv_hash_of(key), key);
}

static inline void kv_enter_at(struct kv_blocks *b, uint32_t n, uint32_t hash, struct kv_key key)
{
	uint32_t *link = kv_find_at(b, hash, &key), first = *link;
	struct kv_block *q = &b->block[n];

	q->key = key;
	q->hash = hash;
	q->entered = b->step;
	q->chain = 0;
	if (!first) {
		q->older = b->place[n].newer = n;
		*link = n;
		return;
	}
	b->place[n].newer = first;
	q->older = b->block[first].older;
	b->place[q->older].newer = n;
	b->block[first].older = n;
}

static inline void kv_enter(struct kv_blocks *b, uint32_t n, struct kv_key key)
{
	kv_enter_at(b, n, kv_hash_of(&key), key);
}

/* Block n has a name, but cannot be found: only its request could ask for it, and has it. */
static inline void kv_name(struct kv_blocks *b, uint32_t n)
{
	struct kv_block *q = &b->block[n];

	q->key.own = KV_UNLISTED;
	q->older = b->place[n].newer = n;
}

static inline bool kv_unlisted(const struct kv_blocks *b, uint32_t n)
{
	return b->place[n].newer && b->block[n].key.own == KV_UNLISTED;
}

static inline void kv_forget(struct kv_blocks *b, uint32_t n)
{
	struct kv_block *q = &b->block[n];
	uint32_t *link, newer = b->place[n].newer, older = q->older;

	b->place[n].newer = q->older = 0;
	if (q->key.own == KV_UNLISTED)
		return;
	link = &b->bucket[q->hash & b->mask];
	while (*link && *link != n)
		link = &b->block[*link].chain;
	if (*link) {
		*link = newer == n ? q->chain : newer;
		if (newer != n)
			b->block[newer].chain = q->chain;
	}
	if (newer == n)
		return;
	b->place[older].newer = newer;
	b->block[newer].older = older;
}

/* ---- the free list ---- */

/* Block b->fresh is taken: the next one that nobody had yet follows it in the free list. */
void kv_take_fresh(struct kv_blocks *b);

/* The block that is taken after the free block n; 0: the first one, or none. */
static inline uint32_t kv_next_free(const struct kv_blocks *b, uint32_t n)
{
	if (n < b->fresh)
		return b->place[n].next;
	return n < b->n ? n + 1 : b->place[b->fresh].next;
}

static inline void kv_unlink(struct kv_blocks *b, uint32_t n)
{
	struct kv_place *p = b->place, at = p[n];

	p[at.prev].next = at.next;
	p[at.next].prev = at.prev;
	b->pool->n_free--;
}

/* Free block n.  It is taken right after block prev, a free one; prev 0: first of all. */
static inline void kv_insert_free(struct kv_blocks *b, uint32_t n, uint32_t prev)
{
	struct kv_place *p = b->place;
	uint32_t next = p[prev].next;

	p[n].prev = prev;
	p[n].next = next;
	p[prev].next = n;
	p[next].prev = n;
	b->pool->n_free++;
}

/* Take the first n free blocks into table.  One pass finds them and a further one clears them, so
 * that memory is asked for many at a time. */
static inline void kv_take(struct kv_blocks *b, uint32_t *table, uint32_t n)
{
	enum { AHEAD = 8 };
	struct kv_place *p = b->place;
	uint32_t next = p[0].next;

	for (uint32_t i = 0; i < n; i++) {
		__builtin_prefetch(&b->block[next]);
		if (next == b->fresh)
			kv_take_fresh(b);
		table[i] = next;
		p[next].n_owner = 1;
		next = p[next].next;
	}
	p[0].next = next;
	p[next].prev = 0;
	b->pool->n_free -= n;
	for (uint32_t i = 0; i < n; i++) {
		if (i + AHEAD < n)
			__builtin_prefetch(&b->bucket[b->block[table[i + AHEAD]].hash & b->mask]);
		if (p[table[i]].newer)
			kv_forget(b, table[i]);
	}
}

/* One more owner of a block that was found. */
static inline void kv_touch(struct kv_blocks *b, uint32_t n)
{
	if (!b->place[n].n_owner++)
		kv_unlink(b, n);
}

/* One owner less; the block of none is taken last of all free ones. */
static inline void kv_drop(struct kv_blocks *b, uint32_t n)
{
	if (!--b->place[n].n_owner)
		kv_insert_free(b, n, b->place[0].prev);
}

/* One owner less.  A block without a key is taken before all others, in the order of the calls with
 * the same *last, which is 0 at first. */
static inline void kv_drop_unnamed_first(struct kv_blocks *b, uint32_t n, uint32_t *last)
{
	if (b->place[n].newer) {
		kv_drop(b, n);
	} else if (!--b->place[n].n_owner) {
		kv_insert_free(b, n, *last);
		*last = n;
	}
}

#endif
