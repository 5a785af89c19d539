/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs of a method benchmark: Q, K and V of one layer over one sequence, random or captured, on
 * the host.  Position p has token p % n_tok.  Head h is the capture's head h modulo the capture's
 * number of heads, as the shape may have more. */
#ifndef AR_BENCH_INPUT_H
#define AR_BENCH_INPUT_H

#include <stdbool.h>

#include "base/status.h"
#include "kernels/attn.h"
#include "traces/capture/capture.h"

struct bench_input {
	struct attn_shape shape; /* page_tok is not used */
	int64_t n_tok, asked;	 /* tokens, and how many were asked for */
	int repeats;		 /* copies of the capture's heads, at least 1 */
	int layer, n_layers;	 /* number of the layer in the model; the model has at least
					 * n_layers */
	struct rope rope;
	bool rope_applied;
	bf16_t *data; /* [q heads, k heads, v heads][n_tok][head_dim] */
};

/* Random inputs.  A common offset for 1024 queries of a head, and for 128 keys, makes some blocks
 * matter more than others.  A longer sequence begins with the shorter one of the same seed. */
enum ar_status bench_input_random(struct bench_input *s, const struct attn_shape *shape,
				  int64_t n_tok, uint64_t seed, struct ar_err *err);

/* True if the capture's first heads, or repetitions of all, make the shape: same head size, and as
 * many query heads for each KV head. */
bool bench_input_fits(const struct capture_info *info, const struct attn_shape *shape);
int bench_input_repeats(const struct capture_info *info, const struct attn_shape *shape);

/* Read the i-th captured layer: heads of shape, which must fit, and the first n_tok tokens or
 * fewer.  AR_DATA: the capture is too short or before RoPE, and does not state its RoPE. */
enum ar_status bench_input_capture(struct bench_input *s, struct capture *c, int i,
				   const struct attn_shape *shape, int64_t n_tok,
				   struct ar_err *err);
void bench_input_release(struct bench_input *s); /* may be called twice */

#endif
