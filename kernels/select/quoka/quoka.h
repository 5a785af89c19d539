/* SPDX-License-Identifier: Apache-2.0 */
/* QUOKA: shared by the reference and the CUDA file. */
#ifndef AR_QUOKA_H
#define AR_QUOKA_H

#include "base/both.h"
#include "kernels/select/selector.h"

#ifdef __cplusplus
extern "C" {
#endif

struct quoka {
	double query_ratio, kv_ratio;
	int64_t queries, tokens; /* if not 0, used in place of the ratios */
};

AR_BOTH static inline int quoka_share(double ratio, int64_t count, int n)
{
	int64_t k = count ? count : (int64_t)(ratio * n);

	return k > n ? n : k < 1 ? 1 : (int)k;
}

/* Queries that stand for a chunk of `rows` rows. */
AR_BOTH static inline int quoka_queries(const struct quoka *p, int rows)
{
	return quoka_share(p->query_ratio, p->queries, rows);
}

/* Tokens that a list keeps of the ctx before the chunk; a single row sees them all. */
AR_BOTH static inline int quoka_keep(const struct quoka *p, int ctx, int rows)
{
	return !ctx || rows == 1 ? ctx : quoka_share(p->kv_ratio, p->tokens, ctx);
}

/* bfloat16 as an integer of the same order; both zeros are equal. */
AR_BOTH static inline uint16_t quoka_order(bf16_t x)
{
	return (uint16_t)(x & 0x7fff ? x & 0x8000 ? ~x : x | 0x8000 : 0x8000);
}

AR_BOTH static inline bf16_t quoka_unorder(uint16_t x)
{
	return (bf16_t)(x & 0x8000 ? x & 0x7fff : ~x);
}

/* The reference's scores, quoka_order() of each, of the tokens before the chunk of request r:
 * [ctx]. */
enum ar_status quoka_scores(const struct attn_batch *b, const struct quoka *p, int r, int kv_head,
			    const bf16_t *q, const bf16_t *k, uint16_t *score, struct ar_err *err);

/* The scores lie first in work, in rows as token lists have them. */
selector_work_fn quoka_work_bytes;
selector_fn quoka_enqueue;

/* The same with the kernels of one kind, for sizes that they support.  n_qblk > 0. */
selector_fn quoka_sm80_enqueue, quoka_sm90_enqueue;

#ifdef __cplusplus
}
#endif
#endif
