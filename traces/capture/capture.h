/* SPDX-License-Identifier: Apache-2.0 */
/* Captures: Q, K and V of some layers of a real model over one token sequence; or random values in
 * their place, or the caller's. */
#ifndef AR_CAPTURE_H
#define AR_CAPTURE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/bf16.h"
#include "base/status.h"
#include "model/model.h"

enum capture_tensor { CAPTURE_Q, CAPTURE_K, CAPTURE_V };

/* Limits; a file that exceeds them counts as damaged. */
enum {
	CAPTURE_MAX_LAYER = 4094,
	CAPTURE_MAX_HEADS = 4096,
	CAPTURE_MAX_DIM = 4096,
	CAPTURE_MAX_TOK = INT32_MAX,
};

struct capture_info {
	char *name;	       /* file name without folders, or random:SEED */
	char *model;	       /* name of the model in the file, or "" */
	const char *container; /* "arc", "safetensors", "random" or "memory" */
	bool random;	       /* its values are of no model */
	char sha256[65];       /* .arc: of its header and index, as the file states; else "" */
	int n_layers;	       /* captured layers */
	int *layer;	       /* their numbers in the model, ascending */
	int q_heads, kv_heads, head_dim;
	int64_t n_tok;	   /* tokens of the sequence */
	int64_t n_prompt;  /* prompt tokens; the rest was decoded */
	bool rope_applied; /* Q and K are after RoPE */
	struct rope rope;  /* theta 0: not in the file */
	int64_t frame_tok; /* tokens of an .arc frame; 0: no frames */
	uint64_t file_bytes;
};

struct capture;

/* Open an .arc or a safetensors file; the content tells which.  AR_DATA with "FILE: ..." when it
 * is neither, is truncated, or has tensors of inconsistent shapes.  AR_USAGE: path is random:SEED,
 * so the caller does not take random captures. */
enum ar_status capture_open(struct capture **out, const char *path, struct ar_err *err);
/* Make the capture that arg, random:SEED, names.  Of shape it takes n_layers, the heads, head_dim
 * and n_tok; its layers have the numbers from 0 on.  Its values count as after RoPE, and nothing is
 * stored: capture_read() computes them.  AR_USAGE: SEED is no number. */
enum ar_status capture_random(struct capture **out, const char *arg,
			      const struct capture_info *shape, struct ar_err *err);
/* Make a capture of values [n_layers][q heads, k heads, v heads][n_tok][head_dim] in memory, which
 * are borrowed.  Of shape it takes name, layer, the sizes and RoPE. */
enum ar_status capture_memory(struct capture **out, const struct capture_info *shape,
			      const bf16_t *values, struct ar_err *err);
void capture_close(struct capture *c); /* NULL is fine */
const struct capture_info *capture_info(const struct capture *c);

/* SHA-256 in hex that stands for an .arc's values, without reading them; "" for other captures. */
enum ar_status capture_sum(const struct capture *c, char hex[65], struct ar_err *err);

/* Where the values of a capture are from, for a run of the model of this name. */
enum capture_origin {
	CAPTURE_SAME,	 /* the model */
	CAPTURE_OTHER,	 /* another one */
	CAPTURE_UNKNOWN, /* the file does not say */
	CAPTURE_RANDOM,	 /* none */
	CAPTURE_ORIGINS
};
extern const char *const capture_origin_names[]; /* by origin */
/* Names are compared without folders and regardless of case. */
enum capture_origin capture_origin(const struct capture_info *info, const char *model);
/* Warn if the capture is not of this model: accuracy and selections will be of another one. */
void capture_warn(const struct capture_info *info, const char *model);

/* Index in info->layer of the model layer with this number; -1: not captured. */
int capture_find_layer(const struct capture_info *info, uint64_t number);

/* Copy tokens [tok0, tok0 + n) of the i-th captured layer (an index into info->layer) into out,
 * [heads][n][head_dim].  Only the frames of these tokens are read.  AR_DATA names a damaged frame.
 * Threads may read one capture. */
enum ar_status capture_read(struct capture *c, int i, enum capture_tensor t, int64_t tok0,
			    int64_t n, bf16_t *out, struct ar_err *err);

/* Read like capture_read, for computing: also AR_DATA when a value is not finite. */
enum ar_status capture_read_finite(struct capture *c, int i, enum capture_tensor t, int64_t tok0,
				   int64_t n, bf16_t *out, struct ar_err *err);

/* Write c as an .arc file: tokens [0, n_tok) of the layers with these numbers in the model.
 * n_tok 0 is all tokens, n_layers 0 all layers.  The file appears only when it is complete. */
struct capture_pack {
	const int *layer;
	int n_layers;
	int64_t n_tok;
	int level;	   /* zstd; 0: its default */
	int64_t frame_tok; /* tokens of a frame; 0: 1024 */
};
enum ar_status capture_pack(struct capture *c, const char *path, const struct capture_pack *p,
			    struct ar_err *err);

/* Write c as safetensors. */
enum ar_status capture_unpack(struct capture *c, const char *path, struct ar_err *err);

#endif
