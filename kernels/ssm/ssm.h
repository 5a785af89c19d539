/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The token mixer of a Mamba-2 layer, as in Nemotron-H and 3, Granite 4 and Falcon-H1: everything
 * between its input projection and its output projection.  References in C and CUDA.
 *
 * A sequence has a slot, which keeps its state between calls; see kernels/state/state.h.  For each
 * row, in order:
 *
 *   x, B, C   the projection through a causal depthwise convolution over the last `conv` rows of
 *             the sequence, with a bias, then SiLU
 *   dt        log(1 + exp(dt + dt_bias)) per head, at least dt_min and, if dt_max > 0, at most that
 *   h         exp(-exp(a_log) dt) h + dt x B^T per head
 *   y         h C + d x per head, times silu(z)
 *   out       y over its RMS in the heads of a group, times `norm`; without norm: y
 *
 * Group g serves heads / groups heads, from g * (heads / groups) on.  Source: Dao, Gu,
 * "Transformers are SSMs" (2024), and Hugging Face Transformers 4.57, modeling_mamba2.py.
 *
 *   in     [row][z heads * head_dim | x heads * head_dim | B groups * state | C groups * state |
 *          dt heads]
 *   out    [row][heads * head_dim]
 *
 * Both are bf16.  The convolution works on the channels of x, then B, then C.  On the device all
 * arrays are aligned to 32 bytes.
 */
#ifndef AR_SSM_H
#define AR_SSM_H

#include "base/both.h"
#include "base/workspace.h"
#include "kernels/state/state.h"
#include "model/layer_size.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In the references. */
enum {
	SSM_MAX_DIM = 256,     /* of a head and of the state */
	SSM_MAX_GROUP = 16384, /* channels of the heads of a group */
};

struct ssm_weights {
	const bf16_t *conv;	      /* [channels][conv]; the last one is for the row itself */
	const bf16_t *conv_bias;      /* [channels]; NULL: none */
	const float *a_log, *dt_bias; /* [heads] */
	const float *d;		      /* [heads] */
	const bf16_t *norm;	      /* [heads * head_dim]; NULL: no norm */
	float eps;		      /* of the RMS norm */
};

/* The slots of a layer.  See ssm_state_len() and ssm_tail_len(). */
struct ssm_state {
	float *h;     /* [slot][heads][head_dim][state] */
	bf16_t *tail; /* [slot][conv - 1][channels]: last rows of x, B and C, oldest first */
};

/* One call.  The caller owns all of it. */
struct ssm_call {
	struct ssm_spec spec;
	struct ssm_weights w;
	struct ssm_state state;
	const bf16_t *in;
	int in_stride; /* elements from a row to the next, a multiple of 8 */
	bf16_t *out;
	void *work;   /* ssm_work_bytes() on the device; the references and decode: unused */
	void *stream; /* of CUDA */
};

/* The convolution of a call, over the channels of x, B and C. */
AR_BOTH static inline struct state_conv ssm_conv_of(const struct ssm_call *c)
{
	const int inner = c->spec.heads * c->spec.head_dim;
	const struct state_conv v = { c->in + inner, c->in_stride,
				      c->state.tail, inner + 2 * c->spec.groups * c->spec.state,
				      c->spec.conv,  c->w.conv,
				      c->w.conv_bias };

	return v;
}

/* Width of the projection. */
static inline int ssm_in_width(const struct ssm_spec *s)
{
	return ssm_inner(s) + ssm_channels(s) + s->heads;
}

/* Rows of prompts.  Any cuts of a prompt give the same rows and the same state. */
void ssm_prefill_ref(const struct ssm_call *c, const struct state_batch *b);

/* One row of each sequence: row i continues slot[i]. */
void ssm_decode_ref(const struct ssm_call *c, int n_row, const int32_t *slot);

/* Ask whether CUDA runs the layer on GPUs of compute capability cc; cc 0: on any GPU.  AR_USAGE: it
 * does not; the message names the supported sizes. */
enum ar_status ssm_supported(const struct ssm_spec *s, int cc, struct ar_err *err);

/* Bytes of call.work for batches of at most max_req sequences and max_row rows. */
size_t ssm_work_bytes(const struct ssm_spec *s, int max_req, int max_row);

/* Run the references' work on the device; only enqueue on call.stream.  The launch of decode
 * depends on n_row alone.  Padded rows may share a slot of no sequence; its state stays finite. */
enum ar_status ssm_prefill(const struct ssm_call *c, const struct state_batch *b,
			   struct ar_err *err);
enum ar_status ssm_decode(const struct ssm_call *c, int n_row, const int32_t *slot,
			  struct ar_err *err);

#ifdef __cplusplus
}
#endif
#endif
