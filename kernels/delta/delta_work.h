/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays that the CUDA kernels of a gated DeltaNet layer share, chunk by chunk.  A last chunk is
 * filled up with rows that change nothing: q, k and v are 0, decay is 1, beta is 0.
 *
 * q, k, solve and mix are tiles of STATE_CHUNK rows, swizzled as in shared memory (swizzle<> of
 * device.cuh).  So a tile is copied as it lies.  v is in the order of the accumulators of mma: for
 * 16 channels, 8 rows and 8 of the channels, lane l has the rows 2 (l % 4), + 1 of channel l / 4,
 * as one word.
 *
 * The kernels for Hopper have q and k in slabs of 64 channels, [k_dim / 64][64][64].  There v
 * stays in shared memory.
 */
#ifndef AR_DELTA_WORK_H
#define AR_DELTA_WORK_H

#include "kernels/delta/delta.h"

#define DELTA_L2_EPS 1e-6

enum { DELTA_CLUSTERS = 64 }; /* of thread blocks of the scan on Hopper, at most */

/* Per row of a chunk, with g the sum of the log decays from the chunk's first row on. */
struct delta_gates {
	float from_start[STATE_CHUNK]; /* exp(g): decay from the chunk's begin to the row */
	float to_end[STATE_CHUNK];     /* exp(g of the last row - g) */
};

struct delta_work {
	bf16_t *q, *k;		   /* [chunk][k_head][64][k_dim] */
	uint32_t *v;		   /* [chunk][v_head][v_dim / 16][8][2][32] */
	bf16_t *solve;		   /* [chunk][v_head][64][64]: inverse of (1 + L), times beta */
	bf16_t *mix;		   /* [chunk][v_head][64][64]: q k^T, decayed and causal */
	struct delta_gates *gates; /* [chunk][v_head] */
	int32_t *stored;	   /* [DELTA_CLUSTERS][2]: on Hopper */
	size_t bytes;
};

/* The shape that asks kernels/support.h for the kernels of a layer. */
static inline struct attn_shape delta_shape(const struct delta_spec *s)
{
	return (struct attn_shape){ s->v_heads, s->k_heads, s->k_dim, STATE_CHUNK };
}

/* mem NULL: measure. */
static inline struct delta_work delta_work_at(void *mem, const struct delta_spec *s, int n_chunk)
{
	const size_t tok = STATE_CHUNK, keys = (size_t)n_chunk * (size_t)s->k_heads,
		     values = (size_t)n_chunk * (size_t)s->v_heads;
	struct workspace ws = workspace_at(mem);
	struct delta_work w;

	w.q = (bf16_t *)workspace_take(&ws, keys * tok * (size_t)s->k_dim, sizeof *w.q);
	w.k = (bf16_t *)workspace_take(&ws, keys * tok * (size_t)s->k_dim, sizeof *w.k);
	w.v = (uint32_t *)workspace_take(&ws, values * tok * (size_t)s->v_dim / 2, sizeof *w.v);
	w.solve = (bf16_t *)workspace_take(&ws, values * tok * tok, sizeof *w.solve);
	w.mix = (bf16_t *)workspace_take(&ws, values * tok * tok, sizeof *w.mix);
	w.gates = (struct delta_gates *)workspace_take(&ws, values, sizeof *w.gates);
	w.stored = (int32_t *)workspace_take(&ws, 2 * DELTA_CLUSTERS, sizeof *w.stored);
	w.bytes = ws.used;
	return w;
}

/* Arguments of the kernels, the call and its arrays. */
struct delta_args {
	struct delta_call c;
	struct state_batch b;
	struct delta_work w;
	int channels, group; /* group: value heads of a key head */
};

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ar_status delta_enqueue_fn(const struct delta_args *a, struct ar_err *err);

/* The kernels of prefill, in this order. */
delta_enqueue_fn delta_conv_enqueue;  /* q, k, v */
delta_enqueue_fn delta_chunk_enqueue; /* solve, mix, gates */
delta_enqueue_fn delta_scan_enqueue;  /* the states; out before its norm */
delta_enqueue_fn delta_norm_enqueue;  /* out; the tails */

/* The kernels of prefill on Hopper at head size 128, in this order. */
delta_enqueue_fn delta_keys_sm90_enqueue; /* q, k, solve, mix, gates */
delta_enqueue_fn delta_scan_sm90_enqueue; /* v; the states; out; the tails */

/* delta_prefill() by one of the two lists. */
typedef enum ar_status delta_prefill_fn(const struct delta_call *c, const struct state_batch *b,
					struct ar_err *err);
delta_prefill_fn delta_prefill_sm80, delta_prefill_sm90;

/* delta_decode() by a kernel for all devices, or for Hopper. */
typedef enum ar_status delta_decode_fn(const struct delta_call *c, int n_row, const int32_t *slot,
				       struct ar_err *err);
delta_decode_fn delta_decode_sm80, delta_decode_sm90;

#ifdef __cplusplus
}
#endif
#endif
