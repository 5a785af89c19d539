/* SPDX-License-Identifier: Apache-2.0 */
/* RoPE and the KV cache for the rows of a QKV product, on the host. */
#ifndef AR_ROTATE_H
#define AR_ROTATE_H

#include "kernels/layer/layer.h"

struct rotate {
	struct attn_shape shape;
	struct layer_angles angles;
	struct layer_qkv product;    /* without gates */
	const struct layer_row *row; /* [product.n_row] positions in rotation, and slots */
	bf16_t *q, *k;		     /* [n_row][heads][head_dim] the results */
	const struct kv_cache *kv;   /* K and V go to the slots of the rows; NULL: nowhere */
};

/* AR_INTERRUPTED, or AR_OK. */
enum ar_status rotate_ref(const struct rotate *r, struct ar_err *err);

/* Cosines and sines for struct layer_angles: positions 0 ... n - 1, dim channels, times factor.
 * Owned by the caller; NULL: there is no memory. */
float *rotate_trig(const struct rope *r, int dim, int n, float factor);

#endif
