/* SPDX-License-Identifier: Apache-2.0 */
/* Random arrays and plans for mixers with a state, on the host.  All bail out without memory. */
#ifndef AR_TESTS_STATE_CASE_H
#define AR_TESTS_STATE_CASE_H

#include "base/rng.h"
#include "kernels/state/state.h"

/* n elements of size bytes, 0; never NULL. */
void *state_case_array(size_t n, size_t size);
/* Of a normal distribution. */
bf16_t *state_case_normal(struct rng *rng, size_t n, float scale);
float *state_case_floats(struct rng *rng, size_t n, float mean, float scale);

/* A plan of n_req requests, owned by the caller of state_case_plan_release(). */
struct state_batch state_case_plan(int n_req, const int32_t *row0, const int32_t *pos0,
				   const int32_t *slot);
void state_case_plan_release(struct state_batch *b);

#endif
