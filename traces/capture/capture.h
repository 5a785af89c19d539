/* Captures: Q, K and V of some layers of a real model over one token sequence. */
#ifndef AR_CAPTURE_H
#define AR_CAPTURE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/bf16.h"
#include "base/status.h"
#include "model/model.h"

enum capture_tensor { CAPTURE_Q, CAPTURE_K, CAPTURE_V };

/* Beyond these a file is taken for damaged. */
enum {
	CAPTURE_MAX_LAYER = 4094,
	CAPTURE_MAX_HEADS = 4096,
	CAPTURE_MAX_DIM = 4096,
	CAPTURE_MAX_TOK = INT32_MAX,
};

struct capture_info {
	char *name;		/* file name without folders */
	char *model;		/* of the model, as the file says, or "" */
	const char *container;	/* "arc" or "safetensors" */
	int n_layers;		/* captured ones */
	int *layer;		/* their numbers in the model, ascending */
	int q_heads, kv_heads, head_dim;
	int64_t n_tok;		/* tokens of the sequence */
	int64_t n_prompt;	/* of them prompt; the rest was decoded */
	bool rope_applied;	/* Q and K are after RoPE */
	struct rope rope;	/* theta 0: the file does not say */
	int64_t frame_tok;	/* of an arc: tokens a frame; 0: no frames */
	uint64_t file_bytes;
};

struct capture;

/* Open an .arc or a safetensors file, told apart by content.  AR_DATA with "FILE: ..." when
 * it is neither, truncated, or its tensors do not fit together. */
enum ar_status capture_open(struct capture **out, const char *path, struct ar_err *err);
void capture_close(struct capture *c);	/* NULL is fine */
const struct capture_info *capture_info(const struct capture *c);

/* Index of the captured layer with that number in the model, -1: none. */
int capture_find_layer(const struct capture_info *info, uint64_t number);

/* Copy tokens [tok0, tok0 + n) of the i-th captured layer (an index into
 * info->layer) into out, [heads][n][head_dim].  Reads only the frames that hold them;
 * a damaged one is AR_DATA and named.  Not thread-safe per capture. */
enum ar_status capture_read(struct capture *c, int i, enum capture_tensor t,
			    int64_t tok0, int64_t n, bf16_t *out, struct ar_err *err);

/* The same to compute with: AR_DATA, too, where a value is infinite or not a number. */
enum ar_status capture_read_finite(struct capture *c, int i, enum capture_tensor t,
				   int64_t tok0, int64_t n, bf16_t *out, struct ar_err *err);

/* Write c as an .arc file: tokens [0, n_tok) (0: all) of the layers given by number
 * (n_layers 0: all).  The file appears whole or not at all. */
struct capture_pack {
	const int *layer;
	int n_layers;
	int64_t n_tok;
	int level;		/* zstd; 0: its default */
	int64_t frame_tok;	/* tokens a frame; 0: 1024 */
};
enum ar_status capture_pack(struct capture *c, const char *path, const struct capture_pack *p,
			    struct ar_err *err);

/* Write c as safetensors. */
enum ar_status capture_unpack(struct capture *c, const char *path, struct ar_err *err);

#endif
