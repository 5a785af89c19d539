/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The row kernels of a decoder layer: everything around its matrix products and its
 * attention.  Each exists as a C reference (NAME_ref) and as CUDA.
 *
 * Q, K and V come from captures, or with real weights from the product of the QKV projection.  With
 * captures each row names a token.  The RoPE and cache kernels read it in the capture, and so move
 * as many bytes as from a product.
 *
 * Widths and head sizes are multiples of 8 (head_dim: of 16) and arrays are aligned to 16
 * bytes, so that accesses can be 16 bytes wide.  On the device head_dim is at most 1024.
 */
#ifndef AR_LAYER_H
#define AR_LAYER_H

#include <stddef.h>
#include <stdint.h>

#include "base/bf16.h"
#include "base/status.h"
#include "kernels/attn.h"
#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where Q, K and V come from; order of heads: Q, K, V.  Captured tokens are
 * [layers][q_heads + 2 kv_heads][n_tok][head_dim].  With n_tok 0 it is the QKV product of the rows,
 * without gates: [n_row][q_heads + 2 kv_heads][head_dim]; layer and tok do not count. */
struct layer_seq {
	const bf16_t *data;
	int64_t n_tok;
};

/* Where a row's activations come from and where its K and V go. */
struct layer_row {
	int32_t tok;	  /* captured token, or id in the vocabulary */
	int32_t rotation; /* position to rotate Q and K by; 0 changes nothing */
	int32_t slot;	  /* page * page_tok + place in the page */
};

/* Residual and RMS norm: x[r] += d, the mean over j < n_add of add[j * n_row + r]; y[r] = x[r] /
 * rms(x[r]) * w.  x is rounded to bf16 before it is squared.  With post d is normalised first: it
 * becomes d / rms(d) * post, rounded to bf16. */
struct layer_norm_args {
	bf16_t *x;
	const bf16_t *add;
	int n_add;
	const bf16_t *w;
	bf16_t *y;
	int n_row, width;
	float eps;
	const bf16_t *post; /* NULL: d is added as it is */
	float plus;	    /* added to w and post before they multiply */
};

/* The QKV product.  A row has q_heads heads of Q, each followed by its gate if gated; then kv_heads
 * of K, then of V. */
struct layer_qkv {
	bf16_t *x;
	int n_row, q_heads, kv_heads, head_dim, gated;
	float plus; /* as in layer_norm_args, of the norms of heads */
};

/* Elements of a row, and before head h of a row: Q heads, then K heads. */
AR_BOTH static inline int64_t layer_qkv_row(const struct layer_qkv *p)
{
	return (int64_t)((1 + p->gated) * p->q_heads + 2 * p->kv_heads) * p->head_dim;
}

AR_BOTH static inline int64_t layer_qkv_head(const struct layer_qkv *p, int h)
{
	return (int64_t)(h + p->gated * (h < p->q_heads ? h : p->q_heads)) * p->head_dim;
}

/* Sum of the outputs of a row's experts: add[r] = mean over j < n_add of add[j * n_row + r], plus
 * shared[r] times the sigmoid of gate[r]. */
struct layer_sum_args {
	bf16_t *add;
	int n_add;
	const bf16_t *shared; /* NULL: none */
	const bf16_t *gate;   /* [n_row]; NULL: shared is taken as it is */
	int n_row, width;
};

/* How Q and K of a layer rotate. */
struct layer_angles {
	const float *trig; /* of layer_trig(), half = dim / 2 */
	int dim;	   /* channels that rotate, the first of each head; the others are copied.
			    * On the device a multiple of 16 */
	float q_scale;	   /* Q is multiplied by it */
};

/* trig[(t * half + k) * 2 ...] = cos and sin of t * inv[k], times factor, for t < n_rotation,
 * k < half.  factor: rope_attention_factor(); 1 where rows are after RoPE already. */
void layer_trig_ref(const float *inv, int half, int n_rotation, float factor, float *trig);

/* q[row][q_heads][head_dim] and k[row][kv_heads][head_dim] of a layer, with the pairs
 * (i, i + dim / 2) rotated. */
void layer_rope_ref(const struct attn_shape *s, const struct layer_seq *seq, int layer,
		    const struct layer_row *row, int n_row, const struct layer_angles *a, bf16_t *q,
		    bf16_t *k);

/* K from k[row][kv_heads][head_dim], and V from seq, into the rows' slots. */
void layer_cache_ref(const struct attn_shape *s, const struct layer_seq *seq, int layer,
		     const struct layer_row *row, int n_row, const bf16_t *k,
		     const struct kv_cache *kv);

void layer_norm_ref(const struct layer_norm_args *a);

/* gelu(x) by tanh is x times the sigmoid of SCALE (x + CUBE x^3), with SCALE = 2 sqrt(2 / pi). */
#define LAYER_GELU_SCALE 1.5957691216057308f
#define LAYER_GELU_CUBE 0.044715f
/* Of ACT_SWIGLU_CLAMP. */
#define LAYER_CLAMP 7.f
#define LAYER_CLAMP_ALPHA 1.702f

/* out[n_row][width] from gate_up[n_row][2 * width]: the first half is the gate, the second up.
 * ACT_RELU2: from [n_row][width], up alone. */
void layer_act_ref(enum mlp_act act, const bf16_t *gate_up, int n_row, int width, bf16_t *out);

/* RMS norm of each head of Q and K, in place.  w: [2][head_dim], of Q and of K.  On the device
 * head_dim is at most 256. */
void layer_qk_norm_ref(const struct layer_qkv *p, const bf16_t *w, float eps);

/* out[n_row][q_heads][head_dim] = attn times the sigmoid of the gates in p. */
void layer_out_gate_ref(const struct layer_qkv *p, const bf16_t *attn, bf16_t *out);

void layer_sum_ref(const struct layer_sum_args *a);

/* Row i of out is row index[i] of in; index NULL: row i mod n_in. */
void layer_gather_ref(const bf16_t *in, int n_in, const int32_t *index, int n_out, int width,
		      bf16_t *out);

/* For all k < n, row i of in goes to row row[i].slot of out.  i is index[k]; index NULL: k. */
void layer_put_ref(const bf16_t *in, const struct layer_row *row, const int32_t *index, int n,
		   int width, bf16_t *out);

/* out[r] = table[row[r].tok] times scale.  table: [vocab][width]; out: [n_row][width]. */
void layer_embed_ref(const bf16_t *table, const struct layer_row *row, int n_row, int width,
		     float scale, bf16_t *out);

/* Rows of width logits, in one of two types.  Row r begins at element r * stride. */
struct layer_logits {
	const bf16_t *x; /* NULL: real is set */
	const float *real;
	int n_row, width, stride;
};

/* index[r]: number of the largest logit of row r, the first of equals. */
void layer_argmax_ref(const struct layer_logits *l, int32_t *index);

/* Element i is drawn from (seed, i): about normal with mean 0 and deviation scale, the sum
 * of four 16-bit uniforms. */
void layer_fill_ref(bf16_t *x, size_t n, uint64_t seed, float scale);

/* The same on the device; they only enqueue on stream.  seq is on the host, its data on the
 * device. */
enum ar_status layer_trig(const float *inv, int half, int n_rotation, float factor, float *trig,
			  void *stream, struct ar_err *err);
enum ar_status layer_rope(const struct attn_shape *s, const struct layer_seq *seq, int layer,
			  const struct layer_row *row, int n_row, const struct layer_angles *a,
			  bf16_t *q, bf16_t *k, void *stream, struct ar_err *err);
enum ar_status layer_cache(const struct attn_shape *s, const struct layer_seq *seq, int layer,
			   const struct layer_row *row, int n_row, const bf16_t *k,
			   const struct kv_cache *kv, void *stream, struct ar_err *err);
enum ar_status layer_norm(const struct layer_norm_args *a, void *stream, struct ar_err *err);
enum ar_status layer_act(enum mlp_act act, const bf16_t *gate_up, int n_row, int width, bf16_t *out,
			 void *stream, struct ar_err *err);
enum ar_status layer_qk_norm(const struct layer_qkv *p, const bf16_t *w, float eps, void *stream,
			     struct ar_err *err);
enum ar_status layer_out_gate(const struct layer_qkv *p, const bf16_t *attn, bf16_t *out,
			      void *stream, struct ar_err *err);
enum ar_status layer_sum(const struct layer_sum_args *a, void *stream, struct ar_err *err);
enum ar_status layer_gather(const bf16_t *in, int n_in, const int32_t *index, int n_out, int width,
			    bf16_t *out, void *stream, struct ar_err *err);
enum ar_status layer_put(const bf16_t *in, const struct layer_row *row, const int32_t *index, int n,
			 int width, bf16_t *out, void *stream, struct ar_err *err);
enum ar_status layer_embed(const bf16_t *table, const struct layer_row *row, int n_row, int width,
			   float scale, bf16_t *out, void *stream, struct ar_err *err);
enum ar_status layer_argmax(const struct layer_logits *l, int32_t *index, void *stream,
			    struct ar_err *err);
/* Hold the stream until *go is not 0, for max_ns nanoseconds at most; when they have passed, *go
 * becomes LAYER_HOLD_OVER.  go lies in memory that host and device share. */
enum { LAYER_HOLD_OVER = -1 };
enum ar_status layer_hold(volatile int *go, int64_t max_ns, void *stream, struct ar_err *err);
enum ar_status layer_fill(bf16_t *x, size_t n, uint64_t seed, float scale, void *stream,
			  struct ar_err *err);

/* AR_NODEV when this build has no code for the current device. */
enum ar_status layer_supported(struct ar_err *err);

#ifdef __cplusplus
}
#endif
#endif
