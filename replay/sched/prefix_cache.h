/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prefix cache: block tables, a free list, and a hash table of full blocks by content.
 *
 * The key of a block stands for its tokens and all tokens before it.  Each id of a trace stands for
 * its block and all blocks before it.  So the key is the id at the last token of the engine's
 * block, and the number of that block.  The two block sizes can differ.  A block that no id covers
 * (outputs, or a trace without ids) is private to its request.  The request finds it again after a
 * preemption.
 *
 * Keys of ids include a root, a hash of the method: from the second layer on, the keys and values
 * of two methods differ.
 *
 * The blocks, and the order in which they are evicted: kv_blocks.h.
 */
#ifndef AR_PREFIX_CACHE_H
#define AR_PREFIX_CACHE_H

#include "base/status.h"
#include "replay/sched/block_pool.h"
#include "traces/trace.h"

struct prefix_cache;

/* Block tables for n_row sequences at a time, of at most row_len blocks each.  The cache updates
 * pool->n_free.  Pool and trace outlive the cache. */
enum ar_status prefix_cache_open(struct prefix_cache **out, struct block_pool *pool,
				 const struct trace *t, uint64_t root, size_t n_row,
				 int64_t row_len, struct ar_err *err);
void prefix_cache_close(struct prefix_cache *c); /* NULL is fine */

/* The root of a method: a hash of the text of its parameters.  NULL, no method: 0. */
uint64_t prefix_cache_root(const char *params);
/* A hash of the key of block k of request req. */
uint64_t prefix_cache_hash(const struct prefix_cache *c, uint32_t req, uint32_t k);

/* Find the first blocks of request req, at most max and up to the first gap.  Returns their number,
 * and stores them in the table that the next sequence gets from prefix_cache_grow(). */
uint32_t prefix_cache_match(struct prefix_cache *c, uint32_t req, uint32_t max);

/* Number of free blocks that a sequence takes to grow from owned to want blocks.  The n_hit matched
 * blocks count only if no sequence owns them.  n_hit is 0 if owned > 0. */
int64_t prefix_cache_need(const struct prefix_cache *c, uint32_t owned, uint32_t n_hit,
			  uint32_t want);

/* Take blocks until *owned is want.  If *owned is 0, the sequence gets table *row, which begins
 * with the n_hit blocks just matched.  False: too few blocks are free, and nothing changed. */
bool prefix_cache_grow(struct prefix_cache *c, uint32_t *row, uint32_t *owned, uint32_t n_hit,
		       uint32_t want);
/* Enter blocks [from, to) of req, to be found.  They are full, or will be after this iteration. */
void prefix_cache_enter(struct prefix_cache *c, uint32_t req, uint32_t row, uint32_t from,
			uint32_t to);
/* The request leaves and will come back: let it find those of its n entered blocks that are private
 * to it.  Before, they only count as entered, as most requests never ask for them. */
void prefix_cache_list(struct prefix_cache *c, uint32_t req, uint32_t row, uint32_t n);
/* Release all blocks, the last one first, so that a sequence's tail is evicted before its head.
 * unnamed_first: blocks that were never entered are taken before all other free ones. */
void prefix_cache_release(struct prefix_cache *c, uint32_t row, uint32_t *owned,
			  bool unnamed_first);

/* Release the last blocks of a table, down to `want`. */
void prefix_cache_shrink(struct prefix_cache *c, uint32_t row, uint32_t *owned, uint32_t want);
/* Take n blocks without names into table *to: an event moves keys there from the `owned` blocks of
 * `row`.  With drop, a block that only this row owns loses its name and is used again.  False: too
 * few blocks are free, and nothing changed. */
bool prefix_cache_set_aside(struct prefix_cache *c, uint32_t row, uint32_t owned, uint32_t n,
			    bool drop, uint32_t *to);

const uint32_t *prefix_cache_table(const struct prefix_cache *c, uint32_t row); /* borrowed */
/* The free block that is taken after block b; the first one if b is 0.  Returns 0 at the end. */
uint32_t prefix_cache_next_free(const struct prefix_cache *c, uint32_t b);

#endif
