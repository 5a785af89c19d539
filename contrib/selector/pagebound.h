/* SPDX-License-Identifier: Apache-2.0 */
/* pagebound: shared by the reference and the CUDA file. */
#ifndef PAGEBOUND_H
#define PAGEBOUND_H

#include <math.h>

#include "kernels/select/selector.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pagebound {
	double density;
	int64_t sink; /* blocks */
	int block;    /* index into 64, 128 */
};

/* The state of a page: [kv_heads][2][head_dim], of each channel of K the minimum, then the
 * maximum. */
AR_BOTH static inline size_t pagebound_at(const struct attn_shape *s, size_t page, int kv_head)
{
	return (page * (size_t)s->kv_heads + (size_t)kv_head) * 2 * (size_t)s->head_dim;
}

/* Whether block j is kept for a query block in block own.  score: of the blocks before own; of
 * equal scores the lower number is first. */
AR_BOTH static inline bool pagebound_keeps(const struct pagebound *p, const float *score, int own,
					   int j)
{
	int rank = 0, keep = (int)ceil(p->density * own);

	if (j == own || j < p->sink)
		return true;
	for (int i = 0; i < own && rank < keep; i++)
		rank += score[i] > score[j] || (score[i] == score[j] && i < j);
	return rank < keep;
}

selector_work_fn pagebound_work_bytes;
selector_fn pagebound_enqueue;

#ifdef __cplusplus
}
#endif
#endif
