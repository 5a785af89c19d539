/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "tests/state_case.h"

#include <stdlib.h>

#include "tests/tap.h"

void *state_case_array(size_t n, size_t size)
{
	void *p = calloc(n + 1, size);

	if (!p)
		bail_out("out of memory");
	return p;
}

bf16_t *state_case_normal(struct rng *rng, size_t n, float scale)
{
	bf16_t *x = state_case_array(n, sizeof *x);

	for (size_t i = 0; i < n; i++)
		x[i] = bf16_from_f32(rng_normal(rng) * scale);
	return x;
}

float *state_case_floats(struct rng *rng, size_t n, float mean, float scale)
{
	float *x = state_case_array(n, sizeof *x);

	for (size_t i = 0; i < n; i++)
		x[i] = mean + rng_normal(rng) * scale;
	return x;
}

struct state_batch state_case_plan(int n_req, const int32_t *row0, const int32_t *pos0,
				   const int32_t *slot)
{
	const struct attn_rows rows = {
		.n_req = n_req, .n_row = row0[n_req], .row0 = row0, .pos0 = pos0
	};
	struct state_seq *seq = state_case_array((size_t)n_req, sizeof *seq);
	struct state_chunk *chunk = state_case_array((size_t)state_max_chunk(n_req, row0[n_req]),
						     sizeof *chunk);

	return state_plan(&rows, slot, seq, chunk);
}

void state_case_plan_release(struct state_batch *b)
{
	free((void *)b->seq);
	free((void *)b->chunk);
}
