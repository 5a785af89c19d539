/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Activations from captures, in the layout that the row kernels read.  One memory, on the host
 * or on a device, holds the executed layers and this rank's heads of all captures.  It is
 * [layer][q heads, k heads, v heads][token][head_dim]; the tokens of captures follow each other.
 *
 * Position p of a request is token p of its capture.  With --extend=tile (tile) the capture of
 * n_tok tokens repeats: position p is token p mod n_tok, and RoPE rotates Q and K by
 * p - p mod n_tok.  A capture from before RoPE is rotated by p.
 */
#ifndef AR_ACT_CAPTURE_H
#define AR_ACT_CAPTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "replay/engine/act_rope.h"
#include "replay/engine/activations.h"

struct capture_seq {
	int64_t n_tok;
	int64_t first;	   /* its first token in the memory */
	bool rope_applied; /* Q and K were captured after RoPE */
	const char *name;
};

/* The state of activations_capture. */
struct act_capture {
	struct attn_shape shape;  /* of this rank */
	struct capture **capture; /* [n_seq] borrowed */
	struct capture_seq *seq;  /* [n_seq] one per capture */
	size_t n_seq;
	const uint16_t *capture_of; /* [requests] borrowed */
	int *layer;		    /* [n_layers] indices into the captures' layers */
	int n_layers;
	int *layer_of; /* [n_run_layers] index into layer[]; -1: it has no Q, K and V */
	struct act_ropes ropes;
	int64_t n_tok; /* of all captures */
	size_t elems;  /* of the whole memory */
	bool tile;
	int rank;

	bf16_t *data;			  /* the memory */
	bool owned;			  /* it and the cosines are on the host, freed at close */
	struct activations_device device; /* lends their memory if not owned */
};

/* prepare_run() has checked that the captures fit the model and each other.  From a capture with
 * the heads of all ranks, those of env.world's rank are used; of rank 0 without it. */
extern const struct activations activations_capture;

/* Copy from[rows][width] to the memory: row r goes to offset off + r * pitch.  Units: elements. */
typedef enum ar_status act_capture_put(void *ctx, size_t off, size_t pitch, const bf16_t *from,
				       size_t width, size_t rows, struct ar_err *err);
/* Read all captures and pass them to put() in pieces, from several threads. */
enum ar_status act_capture_read(const struct act_capture *s, act_capture_put *put, void *ctx,
				struct ar_err *err);

/* load() and qkv() of activations_capture. */
enum ar_status capture_load(void *self, const struct activations_device *d, struct ar_err *err);
enum ar_status capture_qkv(const void *self, int i, const struct layer_row *row, int n_row,
			   const struct layer_qkv *product, const struct qkv *out,
			   struct ar_err *err);

#endif
