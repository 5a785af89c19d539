/* What a benchmark of methods computes with: Q, K and V of one layer over one sequence, drawn or
 * captured, on the host.  Position p is token p % n_tok of the sequence. */
#ifndef AR_BENCH_SOURCE_H
#define AR_BENCH_SOURCE_H

#include <stdbool.h>

#include "kernels/attn.h"
#include "src/base/status.h"
#include "traces/capture.h"

struct bench_source {
	struct attn_shape shape;	/* page_tok is not used */
	int64_t n_tok, asked;		/* tokens, and how many were asked for */
	int layer, n_layers;		/* its number in the model, which has at least n */
	struct rope rope;
	bool rope_applied;
	bf16_t *data;			/* [q heads, k heads, v heads][n_tok][head_dim] */
};

/* Queries of a head lean one way for a thousand tokens, keys for one block: what makes some blocks
 * matter more than others.  A longer sequence begins with the shorter one of the same seed. */
enum ar_status bench_source_random(struct bench_source *s, const struct attn_shape *shape,
				   int64_t n_tok, uint64_t seed, struct ar_err *err);

/* The i-th captured layer: its first heads, and its first tokens, at most n_tok.  AR_DATA where
 * there are fewer and they cannot be repeated, since the file does not say its RoPE. */
enum ar_status bench_source_capture(struct bench_source *s, struct capture *c, int i,
				    const struct attn_shape *shape, int64_t n_tok,
				    struct ar_err *err);
void bench_source_release(struct bench_source *s);	/* may be called twice */

#endif
