/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of a decoder outside attention: embeddings, norms, projections, MLP and language-model
 * head, on the device, at the shapes of one tensor-parallel rank.  Layers may differ.
 *
 * With weights a pass is that of the model.  Values are rounded where the forward pass on the CPU
 * rounds them (replay/forward/forward.h), logits not at all.  On one rank of several, the outputs
 * of projections and MLP are partial sums.  If the other ranks run, too, each is added up in place
 * on the stream, and all ranks get the logits of all: the messages of replay/cost/comm.h.  If not,
 * nothing is added.
 *
 * Without, weights and initial hidden states are random.  Attention reads Q, K and V from captures,
 * so the QKV projection is computed, but its product is not used.  A linear layer's mixer works on
 * it.
 *
 * Experts (MoE): the router is computed, but its product is not used.  With k experts per token,
 * min(experts, rows * k) experts run, with the same number of rows each.  One rank of several adds
 * up the k rows by a kernel, as the sum over ranks is of one row; else the next norm adds them.
 */
#ifndef AR_DECODER_H
#define AR_DECODER_H

#include <stdbool.h>

#include "kernels/layer/gemm.h"
#include "kernels/layer/layer.h"
#include "kernels/phase.h"
#include "model/model.h"

struct decoder;
struct weights;
struct world;

/* Bytes of the weights of all layers, and of the weights outside the layers: norm, embeddings and,
 * unless the model is tied, head.  Of the embeddings a rank of an engine has its share. */
size_t decoder_layers_bytes(const struct model *m);
size_t decoder_head_bytes(const struct model *m);

struct decoder_env {
	const struct model *model;
	const int *layer; /* [n_layers] executed layers of the model */
	int n_layers;
	int max_row, max_emit;	       /* most rows of a pass, most rows that output a token */
	bool drops;		       /* decoder_keep() may be called */
	bool back;		       /* and decoder_bring_back() */
	const struct weights *weights; /* copied; NULL: they are drawn */
	struct world *world;	       /* ranks that add up their results; NULL: there is one */
	uint64_t seed;
	void *stream;
	phase_fn *phase; /* called before each group of launches */
	void *phase_ctx;
};

/* Allocate all memory, and copy or draw the weights.  Run each matrix product at many sizes, so
 * that no library loads code later.  AR_USAGE: the kernels cannot run the model's sizes.  AR_CUDA:
 * too little memory, or the hidden states of a few rows are not finite after a layer. */
enum ar_status decoder_open(struct decoder **out, const struct decoder_env *env,
			    struct ar_err *err);
void decoder_close(struct decoder *d); /* NULL is fine */

/* Enqueue a pass, in this order: decoder_begin(), outside the timed region; decoder_enter(), the
 * sum of the ranks' embeddings; for each executed layer i decoder_before(), attention or the mixer,
 * decoder_after(); decoder_head().  row: [n_row] on the
 * device, whose tokens name the embeddings; not read without weights.  layer: number in the model,
 * for phase().  attn: [n_row][q_heads][head_dim], output of attention; of a linear layer
 * [n_row][v_heads][v_dim], of a state-space layer [n_row][heads][head_dim].  The calls after
 * decoder_begin() can be captured as a CUDA graph of n_row rows.  Call decoder_begin() before each
 * launch of that graph. */
enum ar_status decoder_begin(struct decoder *d, const struct layer_row *row, int n_row,
			     struct ar_err *err);
enum ar_status decoder_enter(struct decoder *d, struct ar_err *err);
enum ar_status decoder_before(struct decoder *d, int i, int layer, struct ar_err *err);
enum ar_status decoder_after(struct decoder *d, int i, int layer, const bf16_t *attn,
			     struct ar_err *err);

/* The QKV product of layer i after decoder_before(), on the device: Q and K after their norms. */
struct layer_qkv decoder_product(const struct decoder *d, int i);

/* The two halves of decoder_after(): up to the output projection, and from the norm before the MLP
 * on.  Rows may be dropped in between. */
enum ar_status decoder_project(struct decoder *d, int i, int layer, const bf16_t *attn,
			       struct ar_err *err);
enum ar_status decoder_mlp(struct decoder *d, int i, int layer, struct ar_err *err);

/* The inputs of the mixer of layer i, which has a state, after decoder_before(), on the device.
 * Valid until decoder_after() or decoder_project().  See kernels/delta/delta.h and
 * kernels/ssm/ssm.h; NULL: the mixer has none. */
struct decoder_mix {
	const bf16_t *in, *ba;	      /* [n_row] products of the projections */
	int in_stride, ba_stride;     /* elements from a row to the next */
	const bf16_t *conv;	      /* [channels][conv] */
	const bf16_t *conv_bias;      /* [channels] */
	const bf16_t *norm;	      /* [v_dim], or [heads * head_dim] */
	const float *a_log, *dt_bias; /* [v_heads], or [heads] */
	const float *d;		      /* [heads] */
	float eps;		      /* of the norm */
};
struct decoder_mix decoder_mix(const struct decoder *d, int i);

/* Go on with n > 0 of the pass's rows, after a layer or between its two halves.  index: [n] their
 * numbers, ascending, on the device.  Only enqueues, but buffers change places: do not capture it
 * in a CUDA graph. */
enum ar_status decoder_keep(struct decoder *d, int layer, const int32_t *index, int n,
			    struct ar_err *err);

/* After a layer: copy rows to x, an aux cache [slots][hidden], where the slots of their rows say.
 * index: as in layer_put().  skip: of the pass's rows, the first ones, which row and index do not
 * count.  Then go on with the first n_keep of the pass's rows, and n more from slot[n] of x. */
enum ar_status decoder_put(struct decoder *d, int layer, const struct layer_row *row,
			   const int32_t *index, int n, int skip, bf16_t *x, struct ar_err *err);
enum ar_status decoder_take(struct decoder *d, int layer, int n_keep, const bf16_t *x,
			    const int32_t *slot, int n, struct ar_err *err);

/* Before a layer, go on with all n rows that the pass began with.  A row that was dropped has the
 * state it was dropped with.  whole: [n] as in struct drops, on the device. */
enum ar_status decoder_bring_back(struct decoder *d, int layer, const int32_t *whole, int n,
				  struct ar_err *err);

/* Between layers: wait, and copy the hidden states of the pass's rows to the host,
 * out[n_row][hidden]. */
enum ar_status decoder_hidden(struct decoder *d, bf16_t *out, struct ar_err *err);

/* emit: [n_emit] rows that output a token, on the device. */
enum ar_status decoder_head(struct decoder *d, const int32_t *emit, int n_emit, struct ar_err *err);

/* Wait, and copy the logits of emitted row i to the host: out[vocab], of all ranks that run.  With
 * weights, after decoder_head(), or a graph whose rows all emit. */
enum ar_status decoder_logits(const struct decoder *d, int i, float *out, struct ar_err *err);

#endif
