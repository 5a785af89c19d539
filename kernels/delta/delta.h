/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The token mixer of a gated DeltaNet layer, as in Qwen3-Next: everything between its input
 * projection and its output projection.  References in C and CUDA.
 *
 * A sequence has a slot, which keeps its state between calls.  For each row, in order:
 *
 *   q, k, v   the projection through a causal depthwise convolution over the last `conv` rows of
 *             the sequence, then SiLU
 *   q, k      divided by sqrt(sum of squares + 1e-6) per key head; q also by sqrt(k_dim)
 *   decay     exp(-exp(a_log) * softplus(a + dt_bias)) per value head
 *   beta      sigmoid(b) per value head
 *   S         decay * S, then S + beta k (v - S^T k)^T per value head
 *   out       S^T q, RMS norm with weight `norm` per value head, times silu(z)
 *
 * Key head h serves the value heads from h * (v_heads / k_heads) on.  Source: Yang, Kautz,
 * Hatamizadeh, "Gated Delta Networks" (2025), and the configuration of Qwen3-Next.
 *
 *   qkvz   [row][q k_heads * k_dim | k k_heads * k_dim | v v_heads * v_dim | z v_heads * v_dim]
 *   ba     [row][b v_heads | a v_heads]
 *   out    [row][v_heads * v_dim]
 *
 * All are bf16.  The convolution works on the channels of q, then k, then v.  On the device all
 * arrays are aligned to 32 bytes.
 */
#ifndef AR_DELTA_H
#define AR_DELTA_H

#include "base/bf16.h"
#include "base/both.h"
#include "base/status.h"
#include "base/workspace.h"
#include "kernels/state/state.h"
#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DELTA_MAX_DIM = 256 /* of a head, in the references */ };

struct delta_weights {
	const bf16_t *conv;	      /* [channels][conv]; the last one is for the row itself */
	const float *a_log, *dt_bias; /* [v_heads] */
	const bf16_t *norm;	      /* [v_dim] */
	float eps;		      /* of the RMS norm */
};

/* The slots of a layer.  See delta_state_len() and delta_tail_len(). */
struct delta_state {
	float *s;     /* [slot][v_heads][k_dim][v_dim] */
	bf16_t *tail; /* [slot][conv - 1][channels]: last rows of the projection, oldest first */
};

/* One call.  The caller owns all of it. */
struct delta_call {
	struct delta_spec spec;
	struct delta_weights w;
	struct delta_state state;
	const bf16_t *qkvz, *ba;
	int qkvz_stride, ba_stride; /* elements from a row to the next; qkvz: a multiple of 8 */
	bf16_t *out;
	void *work;   /* delta_work_bytes() on the device; the references and decode: unused */
	void *stream; /* of CUDA */
};

AR_BOTH static inline int delta_channels(const struct delta_spec *s)
{
	return 2 * s->k_heads * s->k_dim + s->v_heads * s->v_dim;
}

/* Widths of the projections. */
static inline int delta_qkvz_width(const struct delta_spec *s)
{
	return delta_channels(s) + s->v_heads * s->v_dim;
}

static inline int delta_ba_width(const struct delta_spec *s)
{
	return 2 * s->v_heads;
}

/* Elements of one slot of a layer: of state.s, of state.tail. */
static inline size_t delta_state_len(const struct delta_spec *s)
{
	return (size_t)s->v_heads * (size_t)s->k_dim * (size_t)s->v_dim;
}

static inline size_t delta_tail_len(const struct delta_spec *s)
{
	return (size_t)(s->conv - 1) * (size_t)delta_channels(s);
}

/* The convolution of a call, over the channels of q, k and v. */
AR_BOTH static inline struct state_conv delta_conv_of(const struct delta_call *c)
{
	const struct state_conv v = { c->qkvz,	     c->qkvz_stride,
				      c->state.tail, delta_channels(&c->spec),
				      c->spec.conv,  c->w.conv,
				      NULL };

	return v;
}

/* Rows of prompts.  Any cuts of a prompt give the same rows and the same state. */
void delta_prefill_ref(const struct delta_call *c, const struct state_batch *b);

/* One row of each sequence: row i continues slot[i]. */
void delta_decode_ref(const struct delta_call *c, int n_row, const int32_t *slot);

/* Ask whether CUDA runs the layer on GPUs of compute capability cc; cc 0: on any GPU.  AR_USAGE: it
 * does not; the message names the supported sizes. */
enum ar_status delta_supported(const struct delta_spec *s, int cc, struct ar_err *err);

/* Bytes of call.work for batches of at most max_req sequences and max_row rows. */
size_t delta_work_bytes(const struct delta_spec *s, int max_req, int max_row);

/* Run the references' work on the device; only enqueue on call.stream.  The launch of decode
 * depends on n_row alone.  Padded rows may share a slot of no sequence; its state stays finite. */
enum ar_status delta_prefill(const struct delta_call *c, const struct state_batch *b,
			     struct ar_err *err);
enum ar_status delta_decode(const struct delta_call *c, int n_row, const int32_t *slot,
			    struct ar_err *err);

#ifdef __cplusplus
}
#endif
#endif
