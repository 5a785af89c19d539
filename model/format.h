/* SPDX-License-Identifier: Apache-2.0 */
/* Number formats of weights: their bytes in memory, scales included, and the format of the rows
 * that they are multiplied with.  Sources: the files that vLLM 0.33 and
 * compressed-tensors 0.20 read. */
#ifndef AR_FORMAT_H
#define AR_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum format_kind {
	FORMAT_BF16,
	FORMAT_FP8_TENSOR,  /* e4m3, a scale for the matrix */
	FORMAT_FP8_CHANNEL, /* e4m3, a scale for each output */
	FORMAT_FP8_BLOCK, /* e4m3, a scale for each block of block[0] outputs and block[1] inputs */
	FORMAT_MXFP8,	  /* e4m3, a power of two for each group of inputs */
	FORMAT_INT4_GROUP, /* a scale, and perhaps a zero point, for each group of inputs */
	FORMAT_MXFP4,	   /* e2m1, a power of two for each group of inputs */
	FORMAT_NVFP4, /* e2m1, an e4m3 scale for each group of inputs, and one for the matrix */
	FORMATS
};

/* How the rows of a product are scaled before they become e4m3. */
enum format_rows {
	ROWS_BF16,   /* they stay bf16: the weights are widened */
	ROWS_TENSOR, /* by a scale of the file */
	ROWS_TOKEN,  /* by a scale for each row */
	ROWS_GROUP   /* by a scale for each 128 inputs of a row */
};

/* All 0: bf16. */
struct linear_format {
	enum format_kind kind;
	enum format_rows rows;
	int group;    /* inputs that share a scale; 0: all of a row */
	int block[2]; /* FORMAT_FP8_BLOCK: outputs and inputs */
	bool zero;    /* FORMAT_INT4_GROUP: with zero points of 4 bits */
};

/* The weights of a layer that engines may quantize.  Routers, norms and biases are none of them. */
enum linear {
	LINEAR_NONE,
	LINEAR_Q,
	LINEAR_K,
	LINEAR_V,
	LINEAR_O,
	LINEAR_IN, /* q, k, v and z of a gated DeltaNet; what a state-space mixer takes */
	LINEAR_BA, /* its b and a */
	LINEAR_OUT,
	LINEAR_GATE, /* of a dense MLP, as the next two */
	LINEAR_UP,
	LINEAR_DOWN,
	LINEAR_EXPERTS, /* all three of each expert */
	LINEAR_SHARED,	/* all three of a shared expert */
	LINEAR_Q_UP,	/* of low-rank Q; LINEAR_Q and LINEAR_K are the first products */
	LINEAR_KV_UP,	/* of a latent */
	LINEAR_INDEX,	/* queries and key of an indexer */
	LINEAR_AROUND,	/* the products before and after experts of other widths */
	LINEARS
};

/* "fp8-block". */
const char *format_name(enum format_kind kind);
/* -1: no kind has this name. */
int format_find(const char *name);
/* Whether codes are e4m3 and rows as well, so that fp8 units multiply them. */
bool format_is_fp8_product(const struct linear_format *f);
/* Members, not bytes. */
bool format_equal(const struct linear_format *a, const struct linear_format *b);
/* Bytes of a weight of rows outputs and cols inputs, with its scales and zero points. */
int64_t format_bytes(const struct linear_format *f, int64_t rows, int64_t cols);

#endif
