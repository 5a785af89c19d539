/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The forward pass of a dense model over one sequence, on the CPU.
 *
 * decoder_ref.h says where values are rounded.  Besides, Q and K after RoPE and the output of
 * attention are rounded to bf16.  Within RoPE the framework rounds more often; here the result is
 * rounded once.
 */
#ifndef AR_FORWARD_H
#define AR_FORWARD_H

#include <stdint.h>

#include "base/bf16.h"
#include "base/status.h"
#include "model/weights.h"

struct forward;

/* One layer of a chunk before its attention.  The arrays are valid during the call. */
struct forward_layer {
	int layer, n_row; /* rows of the chunk */
	int64_t pos0;	  /* position of the first one */
	const bf16_t *x;  /* [n_row][hidden], the residual stream that enters the layer */
	const bf16_t *q;  /* [n_row][q_heads][head_dim], after RoPE, before any score_scale */
	const bf16_t *k;  /* [n_row][kv_heads][head_dim], after RoPE */
	const bf16_t *v;  /* row r has its [kv_heads][head_dim] at v + r * v_step */
	int64_t v_step;
};

/* Called for each layer in order.  A failure ends the pass. */
typedef enum ar_status forward_see(void *ctx, const struct forward_layer *l, struct ar_err *err);

/* Make a pass over at most max_tok tokens.  w outlives it; its K and V of all layers are allocated
 * here.  see may be NULL.  AR_DATA: RoPE of the model is not known.  AR_USAGE: max_tok exceeds
 * the model's length. */
enum ar_status forward_open(struct forward **out, const struct weights *w, int max_tok,
			    forward_see *see, void *ctx, struct ar_err *err);
void forward_close(struct forward *f); /* NULL is fine */

/* Run the next n > 0 tokens of the sequence, all in one chunk.  The result does not depend on how
 * a sequence is cut into chunks.  AR_DATA: an id is not below the vocabulary's size.  AR_USAGE:
 * there are more than max_tok tokens.  After another failure only forward_close() is allowed. */
enum ar_status forward_run(struct forward *f, const int32_t *id, int n, struct ar_err *err);

/* The residual stream behind the last layer, [n][hidden] of the last chunk, before the last
 * norm. */
const bf16_t *forward_hidden(const struct forward *f);

/* Logits of n rows of the last chunk, from row on, to out[n][vocab]. */
enum ar_status forward_logits(const struct forward *f, int row, int n, float *out,
			      struct ar_err *err);

#endif
