/* SPDX-License-Identifier: Apache-2.0 */
/* Random inputs of a Mamba-2 layer, on the host. */
#ifndef AR_TESTS_SSM_CASE_H
#define AR_TESTS_SSM_CASE_H

#include "base/rng.h"
#include "kernels/ssm/ssm.h"

enum ssm_fill {
	SSM_MIXED,  /* heads differ: decays from near 0 to near 1 */
	SSM_KEEP,   /* decays near 1: the state remembers longest */
	SSM_FORGET, /* decays whose product over a chunk, and over a few rows, is 0 in fp32 */
	SSM_BOUNDS, /* as SSM_MIXED, with limits of the time step and without a norm and biases */
	SSM_FILLS
};

struct ssm_case {
	struct ssm_call call; /* its arrays belong to the case; work: NULL */
	int n_row, n_slot;
};

/* Elements of the arrays of call. */
size_t ssm_case_in(const struct ssm_case *c);
size_t ssm_case_out(const struct ssm_case *c);
size_t ssm_case_state(const struct ssm_case *c);
size_t ssm_case_tail(const struct ssm_case *c);

/* Slots hold random states and tails; out holds NaN.  Strides are wider than rows.  Bails out
 * without memory. */
void ssm_case_make(struct ssm_case *c, struct rng *rng, const struct ssm_spec *s,
		   enum ssm_fill fill, int n_row, int n_slot);
void ssm_case_release(struct ssm_case *c);

#endif
