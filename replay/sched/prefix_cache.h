/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KV blocks with contents: block tables, a free list, and a table of the full blocks by content.
 *
 * A block is named by what it holds and all that comes before it.  The ids of a trace are chained,
 * so the id under the last token of an engine's block, with the number of that block, names
 * it whatever the two block sizes are.  What no id covers (outputs, or a trace without ids) is
 * private to its request, which finds it again after a preemption.
 *
 * Every name is chained to a root, which stands for what computed the contents: from the second
 * layer on, the keys and values of one method are not those of another.
 *
 * A free block keeps its name until it is handed out: the free list is the order of eviction.
 * Blocks with the same content may coexist; the one entered first is found.  Block 0 is never
 * handed out; it ends the free list and means "none".  Every operation takes O(1) a block.
 */
#ifndef AR_PREFIX_CACHE_H
#define AR_PREFIX_CACHE_H

#include "base/status.h"
#include "replay/sched/block_pool.h"
#include "traces/trace.h"

struct prefix_cache;

/* Block tables for n_row sequences at a time, of at most row_len blocks each.  The pool's count of
 * free blocks is kept; pool and trace outlive the cache. */
enum ar_status prefix_cache_open(struct prefix_cache **out, struct block_pool *pool,
				 const struct trace *t, uint64_t root, size_t n_row,
				 int64_t row_len, struct ar_err *err);
void prefix_cache_close(struct prefix_cache *c);	/* NULL is fine */

/* The root of a method, from the text of its parameters; of none, NULL, it is 0. */
uint64_t prefix_cache_root(const char *params);
/* A hash of the name of block k of request req. */
uint64_t prefix_cache_hash(const struct prefix_cache *c, uint32_t req, uint32_t k);

/* How many of the first max blocks of request req are there without a gap.  They begin the
 * table of the next sequence that takes one. */
uint32_t prefix_cache_match(struct prefix_cache *c, uint32_t req, uint32_t max);

/* Free blocks that a sequence takes to own want blocks: new ones, and those of the n_hit just
 * matched that nobody owns.  A sequence with *owned > 0 has no hits. */
int64_t prefix_cache_need(const struct prefix_cache *c, uint32_t owned, uint32_t n_hit,
			  uint32_t want);

/* Own want blocks.  The first time, *row becomes the sequence's table and the n_hit blocks just
 * matched its start.  False, and nothing changed, when there are not enough free blocks. */
bool prefix_cache_grow(struct prefix_cache *c, uint32_t *row, uint32_t *owned, uint32_t n_hit,
		       uint32_t want);
/* Blocks from...to - 1 of req are full, or will be when this iteration has run. */
void prefix_cache_enter(struct prefix_cache *c, uint32_t req, uint32_t row, uint32_t from,
			uint32_t to);
/* The last block first, so that a sequence loses its tail before its head. */
void prefix_cache_release(struct prefix_cache *c, uint32_t row, uint32_t *owned);

const uint32_t *prefix_cache_table(const struct prefix_cache *c, uint32_t row);	/* borrowed */
/* The next block to be handed out after block b, 0 to begin with, 0 at the end. */
uint32_t prefix_cache_next_free(const struct prefix_cache *c, uint32_t b);

#endif
