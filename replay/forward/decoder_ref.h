/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of a decoder outside attention, with real weights, on the host: embedding, norms,
 * projections, MLP and language-model head.  The steps are as in replay/engine/decoder.h.
 *
 * Products, norms and softmax are computed in fp32.  Values are rounded to bf16 where the framework
 * stores a tensor in bf16: the scaled embedding, each norm's output, the output of each product,
 * and the residual stream after each addition.  Between a norm and its weight, and within the MLP's
 * activation, the framework rounds more often; here the result is rounded once.  Logits are not
 * rounded.  A row's result does not depend on the rows beside it.
 */
#ifndef AR_DECODER_REF_H
#define AR_DECODER_REF_H

#include <stdint.h>

#include "base/bf16.h"
#include "base/status.h"
#include "kernels/layer/layer.h"
#include "kernels/phase.h"
#include "model/weights.h"

struct decoder_ref;
struct world;

/* w outlives the decoder.  note: called before each group of steps, with ctx; NULL: nobody asks.
 * On one rank of several, the outputs of project() and mlp() are partial sums, to which nothing is
 * added.  Its logits are of its share of the vocabulary. */
enum ar_status decoder_ref_open(struct decoder_ref **out, const struct weights *w, phase_fn *note,
				void *ctx, struct ar_err *err);
/* The other ranks run the same passes: all add up their embeddings and partial sums, and have the
 * logits of all.  world outlives the passes. */
void decoder_ref_join(struct decoder_ref *d, struct world *world);
void decoder_ref_close(struct decoder_ref *d); /* NULL is fine */

/* Have room for passes of n_row rows; and the bytes that it takes. */
enum ar_status decoder_ref_room(struct decoder_ref *d, int n_row, struct ar_err *err);
double decoder_ref_bytes(const struct model *m, int n_row);

/* A pass over n_row rows, for which there is room, in this order: begin(); for each layer before(),
 * attention over product(), then project() and mlp(); end().  The residual stream of a row begins
 * as the embedding of its tok, an id of the vocabulary.  attn: [n_row][q_heads][head_dim]. */
enum ar_status decoder_ref_begin(struct decoder_ref *d, const struct layer_row *row, int n_row,
				 struct ar_err *err);
enum ar_status decoder_ref_before(struct decoder_ref *d, int layer, struct ar_err *err);
struct layer_qkv decoder_ref_product(const struct decoder_ref *d, int layer);
enum ar_status decoder_ref_project(struct decoder_ref *d, int layer, const bf16_t *attn,
				   struct ar_err *err);
enum ar_status decoder_ref_mlp(struct decoder_ref *d, int layer, struct ar_err *err);
enum ar_status decoder_ref_end(struct decoder_ref *d, struct ar_err *err);

/* Go on with n of the pass's rows, after project() or mlp().  index: [n] their numbers,
 * ascending. */
void decoder_ref_keep(struct decoder_ref *d, int layer, const int32_t *index, int n);

/* After mlp(): finish the residual stream, which decoder_ref_hidden() then is as it leaves the
 * layer.  Then keep() may follow.  add() goes on with n more rows, for which there is room, behind
 * the others: their residual streams are at slot[n] of x, [slots][hidden]. */
enum ar_status decoder_ref_settle(struct decoder_ref *d, int layer, struct ar_err *err);
void decoder_ref_add(struct decoder_ref *d, int layer, const bf16_t *x, const int32_t *slot, int n);

/* The residual stream [n_row][hidden]: after before() as it enters the layer, after end() as it
 * leaves the last one. */
const bf16_t *decoder_ref_hidden(const struct decoder_ref *d);

/* After end(): logits of n > 0 rows to out[n][vocab], of all ranks that have joined.  index: the
 * rows' numbers. */
enum ar_status decoder_ref_logits(struct decoder_ref *d, const int32_t *index, int n, float *out,
				  struct ar_err *err);

#endif
