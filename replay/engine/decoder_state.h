/* SPDX-License-Identifier: Apache-2.0 */
/* State that the files of the decoder share; nothing else includes it but their test. */
#ifndef AR_DECODER_STATE_H
#define AR_DECODER_STATE_H

#include <stdint.h>

#include "replay/engine/decoder.h"

/* Weights of a layer.  Products: [out][in], one expert after another. */
enum layer_weight {
	W_NORM1,
	W_QKV, /* or what a mixer with a state reads */
	W_O,
	W_NORM2,
	W_ROUTER,
	W_GATE_UP,
	W_DOWN,
	W_QKV_BIAS,
	W_QK_NORM, /* [2][head_dim] */
	W_O_BIAS,
	W_POST1, /* norms of the outputs of attention and of the MLP */
	W_POST2,
	W_ROUTER_BIAS,
	W_GATE_UP_BIAS,
	W_DOWN_BIAS,
	W_SHARED_GATE_UP,
	W_SHARED_DOWN,
	W_SHARED_GATE,
	W_EXPERT_DOWN, /* of rows before and after experts of their own width */
	W_EXPERT_UP,
	W_BA,
	W_CONV, /* this and all below: as in struct decoder_mix */
	W_A_LOG,
	W_DT_BIAS,
	W_MIX_NORM,
	W_CONV_BIAS,
	W_D,
	W_COUNT
};

struct layer_weights {
	const struct layer_spec *spec;
	bf16_t *w[W_COUNT]; /* NULL: the layer has none */
};

/* Buffers of rows.  decoder_keep() exchanges x with y, and add with spare. */
struct row_buffers {
	bf16_t *x;     /* the residual stream */
	bf16_t *y;     /* after a norm */
	bf16_t *add;   /* [n_add][n_row][hidden] the next norm adds their mean to x */
	bf16_t *spare; /* the rows of each expert, one expert after another; the shared expert's */
};

struct decoder {
	struct decoder_env env;
	struct gemm *gemm;
	int n_row, vocab, n_emit;
	struct layer_weights *layer;
	bf16_t *norm, *head;
	bf16_t *embed;		      /* [vocabulary of all ranks][hidden], or NULL */
	bf16_t *x0;		      /* initial hidden states; NULL: from the embeddings */
	struct row_buffers home, now; /* home: where each pass begins, and every CUDA graph */
	bf16_t *wide;		      /* products of QKV and gate/up, router, logits */
	float *logits;		      /* [max_emit][vocab]; NULL: they are in wide */
	void *gathered;		      /* logits of all ranks, [ranks][rows][vocab]; NULL: of one */
	bf16_t *act;		      /* inputs of the products o, down and head */
	bf16_t *stale; /* [2 max_row][hidden] all rows as they were at the last drop; then the kept
			* rows as they are now.  NULL: no rows come back */
	int n_add;
	const bf16_t *post;	 /* weights of the norm of now.add; NULL: none */
	int32_t *token;		 /* [max_emit] sampled, or the best of each rank */
	struct layer_row *first; /* [max_row] zeros: the rows of the warm-up */
	int32_t *zero;		 /* [max_emit] zeros: emit of the warm-up */
	void *mem;
};

/* Set and check the executed layers.  AR_USAGE: the kernels cannot run one's sizes. */
enum ar_status decoder_open_layers(struct decoder *d, struct ar_err *err);

/* Allocate all memory, and copy or draw the weights. */
enum ar_status decoder_open_memory(struct decoder *d, struct ar_err *err);

#endif
