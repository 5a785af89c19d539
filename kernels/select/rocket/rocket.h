/* SPDX-License-Identifier: Apache-2.0 */
/* Pages by their bounds in the heaviest channels: shared by the reference and the CUDA file. */
#ifndef AR_ROCKET_H
#define AR_ROCKET_H

#include <math.h>

#include "kernels/select/bounds/bounds.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rocket {
	int64_t budget, page; /* tokens */
	int64_t topr;	      /* channels */
	double alpha;	      /* 0: 1/sqrt(head_dim) */
	int type, round;
};

AR_BOTH static inline struct bounds rocket_bounds(const struct rocket *p)
{
	struct bounds x = { (int)p->page, (enum bounds_type)p->type, (enum bounds_round)p->round };

	return x;
}

/* Pages of a list. */
static inline int64_t rocket_kept(const struct rocket *p)
{
	return p->budget > p->page ? p->budget / p->page : 1;
}

static inline float rocket_alpha(const struct rocket *p, int head_dim)
{
	return (float)(p->alpha > 0 ? p->alpha : 1 / sqrt((double)head_dim));
}

selector_work_fn rocket_work_bytes;
selector_append_fn rocket_append;
selector_fn rocket_enqueue;

#ifdef __cplusplus
}
#endif
#endif
