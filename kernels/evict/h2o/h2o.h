/* SPDX-License-Identifier: Apache-2.0 */
/* H2O: its parameters, for the reference and the CUDA file. */
#ifndef AR_H2O_H
#define AR_H2O_H

#include "kernels/evict/evictor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct h2o {
	int64_t heavy, recent;
	bool norm;
};

/* Of a key under a KV head. */
struct h2o_state {
	float sum;	       /* of probabilities, over rows and query heads */
	float rows;	       /* that saw it */
	float more, more_rows; /* CUDA: the same of rows that are not committed */
};

evict_add_fn h2o_add, h2o_commit;
size_t h2o_add_bytes(const struct attn_shape *s, const struct attn_limits *l);
size_t h2o_work_bytes(const void *param, const struct attn_shape *s, int n_key);
evictor_fn h2o_enqueue;

#ifdef __cplusplus
}
#endif

#endif
