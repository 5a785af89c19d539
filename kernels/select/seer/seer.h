/* SPDX-License-Identifier: Apache-2.0 */
/* SeerAttention: shared by the reference, the CUDA file and the calibration. */
#ifndef AR_SEER_H
#define AR_SEER_H

#include <math.h>

#include "base/both.h"
#include "kernels/select/selector.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Name of a layer's projection of pooled keys (k) or queries (q) in the gate's file. */
#define SEER_TENSOR "model.layers.%d.self_attn.attn_gate.mask_linear_%c.weight"

enum {
	SEER_BLOCK = 64, /* tokens */
	SEER_POOLS = 3,	 /* of keys: maximum, minimum, mean, in this order */
	SEER_TAIL = 2,	 /* query blocks that dense-tail opens */
};

struct seer {
	char *gate; /* file, or NULL */
	double threshold;
	double nz_ratio; /* 0: by threshold */
	bool dense_tail, diagonal, dense_first;
};

/* Matrices stand transposed, as products read them. */
struct seer_weights {
	bf16_t *k;  /* [n_layers][k_heads][head_dim][SEER_POOLS * head_dim] */
	bf16_t *q;  /* [n_layers][q_heads][head_dim][head_dim]; NULL: queries are not
				 * projected */
	float *inv; /* [head_dim / 2], of RoPE */
};

struct seer_self {
	struct seer rule; /* its gate is not used */
	int n_layers;	  /* in the file, at most the model's */
	int model_layers;
	int q_heads, k_heads; /* k_heads: query heads or KV heads, as in the file */
	int repeats;	      /* the heads are the file's, repeated that often */
	int head_dim;
	struct seer_weights host, device; /* device.k NULL: not there */
};

/* The file's layer for a layer of the model.  If the file has fewer layers, each serves an equal
 * stretch of the model, as in a capture of fewer. */
static inline int seer_layer(const struct seer_self *g, int layer)
{
	return (int)((int64_t)layer * g->n_layers / g->model_layers);
}

static inline size_t seer_k_size(const struct seer_self *g) /* elements of a layer */
{
	return (size_t)g->k_heads * SEER_POOLS * (size_t)g->head_dim * (size_t)g->head_dim;
}

static inline size_t seer_q_size(const struct seer_self *g)
{
	return (size_t)g->q_heads * (size_t)g->head_dim * (size_t)g->head_dim;
}

/* Blocks that a row keeps by nz-ratio; n: blocks of the request. */
AR_BOTH static inline int seer_kept(double nz_ratio, int n)
{
	int k = (int)((1 - sqrt(1 - nz_ratio)) * n);

	return k > 1 ? k : 1;
}

/* ---- the reference's parts; vectors of head_dim values, rounded to bf16 ---- */

/* Maximum, minimum and mean of n vectors as they were before RoPE.  They lie at `from`, pitch
 * elements apart, and RoPE turned them by positions pos, pos + 1 ...  max and min may be NULL. */
void seer_pool(const bf16_t *from, size_t pitch, int n, int pos, const float *inv, int head_dim,
	       float *max, float *min, float *mean);

/* RoPE as the gate applies it: cos and sin are rounded to bf16. */
void seer_turn(int pos, const float *inv, int head_dim, float *x);

/* ---- CUDA ---- */

/* Copy g->host to g->device. */
enum ar_status seer_upload(struct seer_self *g, struct ar_err *err);
void seer_device_free(struct seer_self *g);

selector_work_fn seer_work_bytes;
selector_fn seer_enqueue;

#ifdef __cplusplus
}
#endif
#endif
