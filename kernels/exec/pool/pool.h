/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool: the keys and values of each list side by side, so that attention over them is dense.
 *
 * To the attention kernel every list is a request of its own, with one KV head: the kept tokens
 * come first, in order, then the chunk's.  Positions in the pool are smaller than in the
 * sequence but in the same order, hence causality is the same.
 *
 *   k, v    [block][page_tok][head_dim]    a list: from block pool_page() on
 *   page    [block]                        the block's own number
 *   ctx     [list]                         kept tokens
 */
#ifndef AR_POOL_H
#define AR_POOL_H

#include "kernels/attend/attend.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pool {
	struct kv_bf16 kv;
	int32_t *ctx, *page;
	void *rest; /* the rest of work, for attend_enqueue */
};

/* The first pool page of list number `list`.  lists: lists per request. */
AR_BOTH static inline int32_t pool_page(const int32_t *page0, int lists, int list)
{
	const int r = list / lists;

	return page0[r] * lists + list % lists * (page0[r + 1] - page0[r]);
}

/* executor->plan: the tiles of attend_plan_rows, with pages of the pool.  Their positions count
 * from the chunk's start; kernels add attn_batch.kept. */
int pool_plan(const struct attn_batch *b, int heads, struct attn_tile *tile);

/* lists: per request. */
size_t pool_work_bytes(const struct attn_shape *s, const struct attn_limits *l, int lists);
struct pool pool_at(const struct attn_batch *b, int lists, void *work);

/* CUDA.  pool_move_blocks: lists->blocks, a table with every block of the chunk; pool_move_tokens:
 * lists->tokens. */
enum ar_status pool_move_blocks(const struct attn_call *call, const struct executor_lists *lists,
				struct ar_err *err);
enum ar_status pool_move_tokens(const struct attn_call *call, const struct executor_lists *lists,
				struct ar_err *err);

/* Dense attention over the pool.  heads: query heads of a list; lists: lists per request. */
enum ar_status pool_attend(const struct attn_call *call, int heads, int lists, struct ar_err *err);

#ifdef __cplusplus
}
#endif
#endif
