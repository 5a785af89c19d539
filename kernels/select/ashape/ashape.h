/* SPDX-License-Identifier: Apache-2.0 */
/* A-shape and tri-shape by tokens: shared by the reference and the CUDA file. */
#ifndef AR_ASHAPE_H
#define AR_ASHAPE_H

#include "base/both.h"
#include "kernels/select/selector.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ashape {
	int64_t init, local, last; /* tokens */
	int block;		   /* index into 64, 128 */
};

AR_BOTH static inline struct attn_band ashape_band(const struct ashape *p)
{
	struct attn_band band = { (int32_t)p->init, (int32_t)p->local, (int32_t)p->last };

	return band;
}

/* Write, as runs, the blocks of which query block qa of request r sees any key under band.  Returns
 * how many. */
AR_BOTH static inline int ashape_runs(const struct attn_band *band, const struct attn_batch *b,
				      int r, int qa, int32_t *run)
{
	int tok = b->shape.page_tok, end = b->keys.len[r], n = 0;
	int64_t first = qa * tok > b->rows.pos0[r] ? qa * tok : b->rows.pos0[r];
	int64_t past = (qa + 1) * tok < end ? (qa + 1) * tok : end;
	bool open = !band->local || past > end + b->rows.left[r] - band->last;
	int64_t near = open || first < band->local ? 0 : first - band->local + 1;

	for (int j = 0; j <= qa; j++)
		if ((int64_t)j * tok < band->init || (int64_t)(j + 1) * tok > near)
			run[n++] = j * tok;
	return n;
}

selector_fn ashape_enqueue;

#ifdef __cplusplus
}
#endif
#endif
