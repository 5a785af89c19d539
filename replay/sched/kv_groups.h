/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KV cache groups: block tables of layers that keep different things of a request.  As vLLM 0.16.0
 * has them: v1/core/single_type_kv_cache_manager.py, v1/core/kv_cache_coordinator.py.
 *
 * The groups share one pool.  A block of it holds the same bytes in each group, and every sequence
 * has a table for each group.  A group of full attention keeps all tokens.  A group of window
 * attention releases blocks that are wholly before the window of the next token.  Their places in
 * the table are then empty.  A group of linear layers keeps one block per sequence, its state.
 */
#ifndef AR_KV_GROUPS_H
#define AR_KV_GROUPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "model/model.h"
#include "replay/sched/block_pool.h"
#include "traces/trace.h"

struct kv_group {
	enum mixer mixer; /* of all its layers */
	int type;	  /* groups of one type follow each other and are found together */
	int n_layers;
	int64_t window;	   /* MIX_WINDOW: tokens that a token sees, itself included */
	int64_t block_tok; /* tokens of a block; MIX_LINEAR: 0, a block holds a state */
};

struct kv_groups;

/* Tables for n_row sequences at a time, of at most longest tokens each.  pool->n_free is kept up to
 * date.  group[n_group], pool and trace outlive *out. */
enum ar_status kv_groups_open(struct kv_groups **out, struct block_pool *pool,
			      const struct trace *t, uint64_t root, const struct kv_group *group,
			      size_t n_group, size_t n_row, int64_t longest, struct ar_err *err);
void kv_groups_close(struct kv_groups *g); /* NULL is fine */

/* The most blocks that a sequence of n_tok tokens owns at a time.  An iteration computes at most
 * max_tok tokens.  vLLM checks that this much memory is there: v1/kv_cache_interface.py. */
int64_t kv_groups_most(const struct kv_group *group, size_t n_group, int64_t n_tok,
		       int64_t max_tok);

/* Tokens of request req, at most max, that every group holds: a multiple of all block sizes.  The
 * blocks are stored in the tables that the next sequence gets from kv_groups_grow().  No group is
 * of linear layers. */
uint32_t kv_groups_match(struct kv_groups *g, uint32_t req, uint32_t max);

/* Free blocks that a sequence with comp computed tokens needs for tokens [0, n_tok).  row: its
 * tables; 0: it has none, and comp are the tokens just matched. */
int64_t kv_groups_need(const struct kv_groups *g, uint32_t row, uint32_t comp, uint32_t n_tok);

/* Release blocks before the windows, then take the blocks of tokens [0, n_tok).  If *row is 0, the
 * sequence gets tables *row.  *owned is kept as the number of its blocks.  False: too few blocks
 * are free, and none is taken. */
bool kv_groups_grow(struct kv_groups *g, uint32_t *row, uint32_t *owned, uint32_t comp,
		    uint32_t n_tok);
/* Blocks of req that n_tok tokens fill can be found from now on. */
void kv_groups_enter(struct kv_groups *g, uint32_t req, uint32_t row, uint32_t n_tok);
/* Release all blocks, group by group and the last one of each first.  *row becomes 0. */
void kv_groups_release(struct kv_groups *g, uint32_t *row, uint32_t *owned);

/* Blocks that sequences own in group i now, and the most so far. */
int64_t kv_groups_used(const struct kv_groups *g, size_t i);
int64_t kv_groups_peak(const struct kv_groups *g, size_t i);

/* The table of group i, borrowed: *n blocks, 0 where one was released. */
const uint32_t *kv_groups_table(const struct kv_groups *g, uint32_t row, size_t i, uint32_t *n);
/* The free block that is taken after block b; the first one if b is 0.  Returns 0 at the end. */
uint32_t kv_groups_next_free(const struct kv_groups *g, uint32_t b);

#endif
