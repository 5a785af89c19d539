/* SPDX-License-Identifier: Apache-2.0 */
/* FlexPrefill: shared by the reference and the CUDA file. */
#ifndef AR_FLEXPREFILL_H
#define AR_FLEXPREFILL_H

#include <stdbool.h>

#include "base/both.h"
#include "kernels/select/selector.h"

#ifdef __cplusplus
extern "C" {
#endif

struct flexprefill {
	double gamma, tau;
	int64_t min_budget, max_budget; /* tokens; max_budget 0: none */
};

AR_BOTH static inline int flexprefill_blocks_of(int64_t tokens, int page_tok)
{
	return (int)((tokens + page_tok - 1) / page_tok);
}

AR_BOTH static inline int flexprefill_least(const struct flexprefill *p, int page_tok)
{
	int n = flexprefill_blocks_of(p->min_budget, page_tok);

	return n > 1 ? n : 1;
}

/* Whether a chunk of `rows` rows that ends at position end keeps everything. */
AR_BOTH static inline bool flexprefill_open(const struct flexprefill *p, int page_tok, int rows,
					    int end)
{
	int least = flexprefill_least(p, page_tok);

	return rows <= 1 || end <= page_tok * (least > 2 ? least : 2);
}

/* How many of nb vertical blocks or slashes a head takes.  tokens: how many of its largest columns
 * or diagonals add up to at most gamma. */
AR_BOTH static inline int flexprefill_count(const struct flexprefill *p, int page_tok, int nb,
					    int tokens)
{
	int n = (tokens + 1) / page_tok + 1, least = flexprefill_least(p, page_tok);
	int most = p->max_budget ? flexprefill_blocks_of(p->max_budget, page_tok) : nb;

	n = n > least ? n : least;
	n = n < most ? n : most;
	return n < nb ? n : nb;
}

/* Masses are integers, in units of 2^-31 of their total: sums are then the same in every order, and
 * below 2^32.  If `rows` rows have a total of 1 each, units are 2^-flexprefill_shift(rows). */
AR_BOTH static inline int flexprefill_shift(int rows)
{
	int shift = 31;

	while (shift && (1u << (31 - shift)) < (unsigned)rows)
		shift--;
	return shift;
}

AR_BOTH static inline uint32_t flexprefill_units(float mass, int shift)
{
	return (uint32_t)(mass * (float)(1u << shift) + 0.5f);
}

/* The mass that kept cells may add up to, for `rows` rows: gamma * total.  gamma 1: no limit, so
 * rounding excludes none. */
AR_BOTH static inline uint32_t flexprefill_budget(const struct flexprefill *p, int rows)
{
	if (p->gamma >= 1)
		return UINT32_MAX;
	return (uint32_t)(p->gamma * rows * (double)(1u << flexprefill_shift(rows)));
}

/* The reference after lastq.h: the mask rows of one head of request r.  mean: of each block's keys;
 * column, slash: the sums of lastq.h.  pool: V and S, already added up, in units of 2^-31; NULL:
 * they are added up from the sums. */
enum ar_status flexprefill_head(const struct attn_batch *b, const struct flexprefill *p, int r,
				int head, const bf16_t *q, const float *mean, const float *column,
				const float *slash, const uint32_t *const *pool, uint32_t *mask,
				struct ar_err *err);

selector_work_fn flexprefill_work_bytes;
selector_fn flexprefill_enqueue;

#ifdef __cplusplus
}
#endif
#endif
