/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of a tensor-parallel group, one after another: their results add up to the whole
 * model's.  Any failure but that of a check bails out. */
#ifndef AR_TESTS_RANK_CASE_H
#define AR_TESTS_RANK_CASE_H

#include "base/bf16.h"
#include "kernels/layer/layer.h"
#include "model/weights.h"
#include "tests/tiny_model.h"

enum { RANK_ROWS = 5, RANK_LAYER = 1, RANK_VOCAB = 72 };

/* The part of a layer whose result is added to the embeddings of the rows. */
enum rank_part { RANK_NOTHING, RANK_PROJECT, RANK_MLP };

struct rank_out {
	bf16_t x[RANK_ROWS][TINY_HIDDEN]; /* the residual stream */
	float logit[RANK_ROWS * RANK_VOCAB];
};

/* Run a part of layer RANK_LAYER and the head.  w: the weights of a rank; attn: [RANK_ROWS][its
 * heads * head_dim], the output of attention; row: tokens.  False: there is no cuBLAS. */
typedef bool rank_run(const struct weights *w, enum rank_part part, const struct layer_row *row,
		      const bf16_t *attn, struct rank_out *out);

/* Check model m on tp ranks. */
void rank_case(const struct tiny *m, int tp, rank_run *run);

#endif
