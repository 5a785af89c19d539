/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SGLang's prefix cache: a radix tree of token sequences, as UnifiedRadixCache of SGLang 0.5.23 has
 * it with full attention alone (mem_cache/unified_radix_cache.py, unified_cache/).
 *
 * A node has the tokens of some blocks in a row, and those blocks.  The path from the root to a
 * node is a prefix.  A request is matched token by token; what it finds is cut to whole blocks.
 * Two tokens are equal if they and all before them are: the ids of a trace say so, for each block
 * of the trace.  Tokens that no id covers are equal only to themselves.
 *
 * A node is locked while a request uses it or a node below it.  Blocks of other nodes can be taken
 * back: pool->n_free counts them as free.  radix_cache_make_room() empties them in earnest.  It
 * takes the leaf that was not used for the longest time, whole.  Then its parent may be a leaf.
 *
 * Nodes have numbers; the root is 0.  A search begins at the node that the last one for the request
 * ended at, if that is still there.
 */
#ifndef AR_RADIX_CACHE_H
#define AR_RADIX_CACHE_H

#include "base/status.h"
#include "replay/sched/block_pool.h"
#include "traces/trace.h"

struct blocks;
struct radix_cache;

/* An empty tree.  It keeps pool->n_free up to date.  Pool and trace outlive it.  AR_NOMEM. */
enum ar_status radix_cache_open(struct radix_cache **out, struct block_pool *pool,
				const struct trace *t, struct ar_err *err);
void radix_cache_close(struct radix_cache *c); /* NULL is fine */

/* The tokens of request req that the tree has, at most max, in whole blocks.  *node: where they
 * end; before: any node that there was, the faster the closer.  They count as used now. */
uint32_t radix_cache_match(struct radix_cache *c, uint32_t req, uint32_t max, uint32_t *node);
/* Put the first n_tok tokens of req into the tree, whole blocks.  *node: as above.  They count as
 * used now.  Returns the tokens that it had.  The blocks of the others are its own from
 * now on; the caller took them from the pool. */
uint32_t radix_cache_insert(struct radix_cache *c, uint32_t req, uint32_t n_tok, uint32_t *node);

/* Blocks that a lock of this node would take from those that count as free. */
int64_t radix_cache_loose(const struct radix_cache *c, uint32_t node);
void radix_cache_lock(struct radix_cache *c, uint32_t node);
void radix_cache_unlock(struct radix_cache *c, uint32_t node);

/* The request of the node with token pos, on the path to this node. */
uint32_t radix_cache_request(const struct radix_cache *c, uint32_t node, uint32_t pos);
/* The last node of req on the path to this node ends here; 0: there is none. */
uint32_t radix_cache_own(const struct radix_cache *c, uint32_t node, uint32_t req);
/* The pages of b are told which tokens leave the tree.  b outlives it. */
void radix_cache_tell(struct radix_cache *c, struct blocks *b);

/* Empty leaves until n_block blocks are in no node, or all nodes are locked. */
void radix_cache_make_room(struct radix_cache *c, int64_t n_block);

/* Tokens of the tree, and nodes without the root. */
void radix_cache_size(const struct radix_cache *c, int64_t *n_tok, int64_t *n_node);

#endif
