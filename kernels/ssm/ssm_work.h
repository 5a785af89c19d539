/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays that the CUDA kernels of a Mamba-2 layer share.  They are for one list of kernels or for
 * the other.
 *
 * For all devices: rows after the convolution, chunk by chunk, as slabs of STATE_CHUNK rows and 64
 * channels of x, then B, then C.  A slab is swizzled as in shared memory (swizzle<64> of
 * device.cuh), so it is copied as it lies.  A last chunk is filled up with rows of zeros.
 *
 * On Hopper: states where segments of the batch begin and end; see ssm_sm90.cu.
 */
#ifndef AR_SSM_WORK_H
#define AR_SSM_WORK_H

#include "kernels/ssm/ssm.h"

enum {
	SSM_SLAB = 64,	   /* channels of a slab; a multiple of them are a head and a state */
	SSM_OCTET = 8,	   /* heads of a cluster of thread blocks on Hopper */
	SSM_CLUSTERS = 64, /* of them, at most */
};

struct ssm_work {
	bf16_t *slab; /* [chunk][channels / 64][64][64] */
	float *begin; /* [segment][head][head_dim * state]: where a sequence begins that goes on */
	float *part;  /* the same: what a segment adds to the state of its last sequence */
	float *decay; /* [segment][head]: log2 of what it leaves of the state before */
	size_t bytes;
};

/* The shape that asks kernels/support.h for the kernels of a layer. */
static inline struct attn_shape ssm_shape(const struct ssm_spec *s)
{
	return (struct attn_shape){ s->heads, s->groups, s->head_dim, STATE_CHUNK };
}

/* Most segments of a batch on Hopper. */
static inline int ssm_max_segment(const struct ssm_spec *s)
{
	const int octets = (s->heads - 1) / SSM_OCTET + 1;

	return octets < SSM_CLUSTERS ? SSM_CLUSTERS / octets : 1;
}

/* mem NULL: measure. */
static inline struct ssm_work ssm_work_at(void *mem, const struct ssm_spec *s, int n_chunk)
{
	const size_t segments = (size_t)ssm_max_segment(s), heads = segments * (size_t)s->heads;
	struct workspace all = workspace_at(mem), own = all;
	struct ssm_work w;

	w.slab = (bf16_t *)workspace_take(&all, (size_t)n_chunk * (size_t)ssm_channels(s),
					  STATE_CHUNK * sizeof *w.slab);
	w.begin = (float *)workspace_take(&own, segments * ssm_state_len(s), sizeof *w.begin);
	w.part = (float *)workspace_take(&own, segments * ssm_state_len(s), sizeof *w.part);
	w.decay = (float *)workspace_take(&own, heads, sizeof *w.decay);
	w.bytes = all.used > own.used ? all.used : own.used;
	return w;
}

/* Arguments of the kernels, the call and its arrays. */
struct ssm_args {
	struct ssm_call c;
	struct state_batch b;
	struct ssm_work w;
	int inner, channels;
	int group; /* heads of a group */
	int len;   /* chunks of a segment, on Hopper */
};

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ar_status ssm_enqueue_fn(const struct ssm_args *a, struct ar_err *err);

/* The kernels of prefill, in this order. */
ssm_enqueue_fn ssm_conv_enqueue; /* slab */
ssm_enqueue_fn ssm_scan_enqueue; /* the states; out before its gate */
ssm_enqueue_fn ssm_norm_enqueue; /* out */

/* The kernels of prefill on Hopper; see ssm_sm90.cu for the sizes. */
ssm_enqueue_fn ssm_sm90_enqueue; /* the states; out, before its gate if !ssm_sm90_fused() */

/* Gate and norm of decoded rows; the tails. */
enum ar_status ssm_norm_step(const struct ssm_args *a, int n_row, const int32_t *slot,
			     struct ar_err *err);

/* Whether a cluster has all heads whose norm is one. */
static inline int ssm_sm90_fused(const struct ssm_args *a)
{
	return !a->c.w.norm || a->group == SSM_OCTET;
}

/* ssm_prefill() by one of the two lists. */
typedef enum ar_status ssm_prefill_fn(const struct ssm_call *c, const struct state_batch *b,
				      struct ar_err *err);
ssm_prefill_fn ssm_prefill_sm80, ssm_prefill_sm90;

#ifdef __cplusplus
}
#endif
#endif
