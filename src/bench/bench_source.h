/* SPDX-License-Identifier: Apache-2.0 */
/* What a benchmark of methods computes with: Q, K and V of one layer over one sequence, drawn or
 * captured, on the host.  Position p is token p % n_tok of the sequence; query head h, and KV head
 * h, of a shape with more than a capture has is its head h modulo their number. */
#ifndef AR_BENCH_SOURCE_H
#define AR_BENCH_SOURCE_H

#include <stdbool.h>

#include "base/status.h"
#include "kernels/attn.h"
#include "traces/capture/capture.h"

struct bench_source {
	struct attn_shape shape;	/* page_tok is not used */
	int64_t n_tok, asked;		/* tokens, and how many were asked for */
	int repeats;			/* how often the heads of a capture come, 1: once */
	int layer, n_layers;		/* its number in the model, which has at least n */
	struct rope rope;
	bool rope_applied;
	bf16_t *data;			/* [q heads, k heads, v heads][n_tok][head_dim] */
};

/* Queries of a head lean one way for a thousand tokens, keys for one block: what makes some blocks
 * matter more than others.  A longer sequence begins with the shorter one of the same seed. */
enum ar_status bench_source_random(struct bench_source *s, const struct attn_shape *shape,
				   int64_t n_tok, uint64_t seed, struct ar_err *err);

/* Whether a capture has the heads of a shape, as its first ones or repeated: the same number for a
 * KV head, of the same size. */
bool bench_source_fits(const struct capture_info *info, const struct attn_shape *shape);
int bench_source_repeats(const struct capture_info *info, const struct attn_shape *shape);

/* The i-th captured layer: heads that fit, and its first tokens, at most n_tok.  AR_DATA where
 * there are fewer and they cannot be repeated, since the file does not say its RoPE. */
enum ar_status bench_source_capture(struct bench_source *s, struct capture *c, int i,
				    const struct attn_shape *shape, int64_t n_tok,
				    struct ar_err *err);
void bench_source_release(struct bench_source *s);	/* may be called twice */

#endif
