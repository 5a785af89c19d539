/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Activations from captures, as the row kernels read them: of every capture the layers that are
 * executed and this rank's heads, [layer][q heads, k heads, v heads][token][head_dim], one
 * after another in one memory, on the host or on a device.
 *
 * Position p of a request is token p of its capture.  Where requests may be longer (tile),
 * the capture repeats, and Q and K are turned by the distance to the repeated token; a capture
 * from before RoPE is turned by the position itself.
 */
#ifndef AR_ACT_CAPTURE_H
#define AR_ACT_CAPTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "replay/engine/activations.h"

struct source_seq {
	int64_t n_tok;
	size_t off;		/* elements from the start of the memory */
	bool rope_applied;
	const char *name;
};

/* The state of activations_capture. */
struct source {
	struct attn_shape shape;	/* of this rank */
	struct capture **capture;	/* [n_seq] borrowed */
	struct source_seq *seq;		/* [n_seq] one per capture */
	size_t n_seq;
	const uint16_t *capture_of;	/* [requests] borrowed */
	const int *run_layer;		/* [n_run_layers] borrowed */
	int *layer;			/* [n_layers] indices into the captures' layers */
	int n_layers;
	int *layer_of;			/* [n_run_layers] which of layer[] each one reads */
	struct rope rope;
	int64_t n_turn;			/* rotations needed: by 0 ... n_turn - 1 */
	size_t elems;			/* of the whole memory */
	bool tile;

	bf16_t *data;			/* the memory */
	struct layer_seq *table;	/* [n_seq] */
	float *trig;			/* [n_turn][head_dim / 2] cos and sin */
	bool owned;			/* these three are on the host */
	struct activations_device device;	/* if not */
};

/* The captures fit the model and each other (prepare_run).  Heads of rank 0 are the first ones, so
 * a capture of the whole model serves. */
extern const struct activations activations_capture;

/* A block of the memory: rows of width elements, pitch elements apart, from off on.  from
 * is packed. */
typedef enum ar_status source_put(void *ctx, size_t off, size_t pitch, const bf16_t *from,
				  size_t width, size_t rows, struct ar_err *err);
/* Read the captures and hand over all of them in pieces, from several threads. */
enum ar_status source_load(const struct source *s, source_put *put, void *ctx, struct ar_err *err);

/* The table that the kernels read; data is where the memory lies.  out: [n_seq]. */
void source_seqs(const struct source *s, const bf16_t *data, struct layer_seq *out);

/* load() and qkv() of activations_capture. */
enum ar_status capture_load(void *self, const struct activations_device *d, struct ar_err *err);
enum ar_status capture_qkv(const void *self, int i, const struct layer_row *row, int n_row,
			   const struct qkv *out, struct ar_err *err);

#endif
