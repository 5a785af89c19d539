/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of a decoder outside attention: norms, projections, MLP and language-model head, on
 * the device, at the shapes of one tensor-parallel rank.  Weights and the initial hidden states
 * are random.  Attention reads Q, K and V from captures, so the QKV projection is computed, but
 * its product is not used.
 *
 * Experts (MoE): the router is computed, but its product is not used.  With k experts per token,
 * min(experts, rows * k) experts run, with the same number of rows each.  Communication between
 * ranks is not modelled.
 */
#ifndef AR_DECODER_H
#define AR_DECODER_H

#include "kernels/layer/gemm.h"
#include "kernels/phase.h"
#include "model/model.h"

struct decoder;

/* Bytes of the weights of all layers, and of those outside the layers. */
size_t decoder_layers_bytes(const struct model *m);
size_t decoder_head_bytes(const struct model *m);

struct decoder_env {
	const struct model *model;
	const int *layer; /* [n_layers] executed layers of the model */
	int n_layers;
	int max_row, max_emit; /* most rows of a pass, most rows that output a token */
	uint64_t seed;
	void *stream;
	phase_fn *phase; /* called before each group of launches */
	void *phase_ctx;
};

/* Allocate all memory and draw the weights.  Run each matrix product at many sizes, so that no
 * library loads code later.  AR_USAGE: the kernels cannot run the model's sizes.  AR_CUDA: too
 * little memory, or the hidden states of a few rows are not finite after all layers. */
enum ar_status decoder_open(struct decoder **out, const struct decoder_env *env,
			    struct ar_err *err);
void decoder_close(struct decoder *d); /* NULL is fine */

/* Enqueue a pass, in this order: decoder_begin(), outside the timed region; for each executed layer
 * i decoder_before(), attention, decoder_after(); decoder_head().  layer: number in the model, for
 * phase().  attn: [n_row][q_heads][head_dim], output of attention.  The calls after
 * decoder_begin() can be captured as a CUDA graph of n_row rows.  Call decoder_begin() before each
 * launch of that graph. */
enum ar_status decoder_begin(struct decoder *d, int n_row, struct ar_err *err);
enum ar_status decoder_before(struct decoder *d, int i, int layer, struct ar_err *err);
enum ar_status decoder_after(struct decoder *d, int i, int layer, const bf16_t *attn,
			     struct ar_err *err);
/* emit: [n_emit] rows that output a token, on the device. */
enum ar_status decoder_head(struct decoder *d, const int32_t *emit, int n_emit, struct ar_err *err);

#endif
