/* SPDX-License-Identifier: Apache-2.0 */
/* Tri-shape: shared by the reference and the CUDA file. */
#ifndef AR_TRISHAPE_H
#define AR_TRISHAPE_H

#include "base/both.h"
#include "kernels/select/selector.h"

#ifdef __cplusplus
extern "C" {
#endif

struct trishape {
	int64_t start, recent, last_dense; /* tokens */
	int block;			   /* index into 64, 128 */
};

/* One mask row: query block qa of a chunk that has ctx tokens before it and left after it. */
AR_BOTH static inline void trishape_row(const struct trishape *p, int page_tok, int ctx, int left,
					int qa, int words, uint32_t *row)
{
	int full = ctx / page_tok, start = (int)(p->start / page_tok);
	int end = left < p->last_dense ? start : full - (int)(p->recent / page_tok);

	for (int w = 0; w < words; w++) {
		uint32_t bits = 0;

		for (int j = w * 32; j <= qa && j < w * 32 + 32; j++)
			bits |= (uint32_t)(j < start || j >= end) << j % 32;
		row[w] = bits;
	}
}

selector_fn trishape_enqueue;

#ifdef __cplusplus
}
#endif
#endif
