/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What token mixers with a state share: the parts of a batch, and the causal depthwise convolution
 * with SiLU, which reads the last rows of a sequence.
 *
 * A sequence has a slot, which keeps its state and its tail between calls.
 */
#ifndef AR_STATE_H
#define AR_STATE_H

#include "base/bf16.h"
#include "base/status.h"
#include "kernels/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
	STATE_CHUNK = 64, /* rows that CUDA takes at once */
	STATE_CONV = 4,	  /* width of the convolution in CUDA */
};

/* A prompt's chunk in a batch. */
struct state_seq {
	int32_t row, n_row; /* its rows, consecutive; n_row > 0 */
	int32_t slot;
	int32_t fresh;	/* 1: the sequence begins here; the content of the slot is ignored */
	int32_t chunk0; /* its first entry in state_batch.chunk */
};

/* Up to STATE_CHUNK rows of a sequence. */
struct state_chunk {
	int32_t seq;
	int32_t first; /* first row, counted from seq.row */
};

/* Made by state_plan().  The arrays lie where the call runs, on the host or on the device. */
struct state_batch {
	int n_seq, n_chunk;
	const struct state_seq *seq;	 /* [n_seq] */
	const struct state_chunk *chunk; /* [n_chunk] */
};

/* Most chunks of a batch. */
static inline int state_max_chunk(int max_req, int max_row)
{
	return max_row / STATE_CHUNK + max_req;
}

/* Fill seq[n_req] and chunk[state_max_chunk()] for the requests of a batch and return their
 * counts, with these arrays.  A request without rows gets no entry.  One without tokens before the
 * batch, pos0 == 0, is fresh.  slot: [n_req]. */
struct state_batch state_plan(const struct attn_rows *rows, const int32_t *slot,
			      struct state_seq *seq, struct state_chunk *chunk);

/* The convolution: its inputs, and the last rows of each sequence, which it moves on. */
struct state_conv {
	const bf16_t *rows; /* [row][stride]; the first `channels` elements of each */
	int stride;
	bf16_t *tail; /* [slot][width - 1][channels]: oldest first */
	int channels, width;
	const bf16_t *w;    /* [channels][width]; the last one is for the row itself */
	const bf16_t *bias; /* [channels]; NULL: none */
};

/* ---- the references ---- */

double state_silu(double x);

/* log(1 + exp(x)), without overflow. */
double state_softplus(double x);

/* n channels from `first` on, of row t of the sequence, through the convolution and SiLU. */
void state_convolve(const struct state_conv *c, const struct state_seq *seq, int t, int first,
		    int n, double *to);

/* Keep the last rows of the sequence. */
void state_keep_tail(const struct state_conv *c, const struct state_seq *seq);

/* ---- on the device ---- */

/* state_keep_tail() of each sequence, of channels in multiples of 8; enqueue on a stream. */
enum ar_status state_keep_tails(const struct state_conv *c, const struct state_batch *b,
				void *stream, struct ar_err *err);

#ifdef __cplusplus
}
#endif
#endif
