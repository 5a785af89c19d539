/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What surrounds attention in a decoder: norms, projections, MLP and language-model head, on
 * the device, at the shapes of one tensor-parallel rank.  Weights are random and so are the
 * hidden states an iteration begins with; attention gets its Q, K and V from captures, so the
 * product of the QKV projection is computed and not used.
 *
 * Experts (MoE): the router's product is computed, and the rows are dealt to the experts in
 * turn: min(experts, rows * k) of them get the same number of rows each.  Communication
 * between ranks is not modelled.
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
	const int *layer;		/* [n_layers] of the model, that are executed */
	int n_layers;
	int max_row, max_emit;
	uint64_t seed;
	void *stream;
	phase_fn *phase;		/* called before each group of launches */
	void *phase_ctx;
};

/* Allocate and draw everything, and run each product once at many sizes, so that later no
 * library code is loaded.  AR_USAGE: sizes that the kernels cannot run.  The hidden states
 * stay finite through all layers: a few rows are run and looked at. */
enum ar_status decoder_open(struct decoder **out, const struct decoder_env *env,
			    struct ar_err *err);
void decoder_close(struct decoder *d);	/* NULL is fine */

/* Enqueue, in this order: begin once (outside the timed region); for each executed layer i
 * before, attention, after with its output [n_row][q_heads][head_dim]; head.  What follows
 * begin may be captured as a graph of n_row rows, and begin precedes each launch of it. */
enum ar_status decoder_begin(struct decoder *d, int n_row, struct ar_err *err);
enum ar_status decoder_before(struct decoder *d, int i, int layer, struct ar_err *err);
enum ar_status decoder_after(struct decoder *d, int i, int layer, const bf16_t *attn,
			     struct ar_err *err);
/* emit: on the device, the rows that a token comes out of. */
enum ar_status decoder_head(struct decoder *d, const int32_t *emit, int n_emit,
			    struct ar_err *err);

#endif
