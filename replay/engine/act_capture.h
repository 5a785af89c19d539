/*
 * The captures of a run as the row kernels read them: of every capture the layers that are
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

#include "kernels/layer/layer.h"
#include "replay/engine/backend.h"

struct source_seq {
	int64_t n_tok;
	size_t off;		/* elements from the start of the memory */
	bool rope_applied;
	const char *name;
};

struct source {
	struct attn_shape shape;	/* of this rank */
	struct source_seq *seq;		/* [n_seq] one per capture */
	size_t n_seq;
	int *layer;			/* [n_layers] indices into the captures' layers */
	int n_layers;
	int *layer_of;			/* [n_run_layers] which of layer[] each one reads */
	struct rope rope;
	int64_t n_turn;			/* rotations needed: by 0 ... n_turn - 1 */
	size_t elems;			/* of the whole memory */
	bool tile;
};

/* The captures fit the model and each other (prepare_run).  Heads of rank 0 are the first ones, so
 * a capture of the whole model serves. */
enum ar_status source_init(struct source *s, const struct backend_env *env,
			   const struct attn_shape *shape, struct ar_err *err);
void source_release(struct source *s);

/* A block of the memory: rows of width elements, pitch elements apart, from off on.  from
 * is packed. */
typedef enum ar_status source_put(void *ctx, size_t off, size_t pitch, const bf16_t *from,
				  size_t width, size_t rows, struct ar_err *err);
/* Read the captures and hand over all of them in pieces. */
enum ar_status source_load(const struct source *s, struct capture **c, source_put *put, void *ctx,
			   struct ar_err *err);

/* The table that the kernels read; data is where the memory lies.  out: [n_seq]. */
void source_seqs(const struct source *s, const bf16_t *data, struct layer_seq *out);

/* Position pos of capture seq; the slot is left alone.  AR_DATA past the capture's end
 * without tile. */
enum ar_status source_row(const struct source *s, size_t seq, int64_t pos, struct layer_row *row,
			  struct ar_err *err);

#endif
