/* SPDX-License-Identifier: Apache-2.0 */
/* Random inputs of a gated DeltaNet layer, on the host. */
#ifndef AR_TESTS_DELTA_CASE_H
#define AR_TESTS_DELTA_CASE_H

#include "base/rng.h"
#include "kernels/delta/delta.h"

enum delta_fill {
	DELTA_MIXED,  /* heads differ: decays from near 0 to near 1 */
	DELTA_KEEP,   /* decays and beta near 1: the state remembers longest */
	DELTA_FORGET, /* decays near 0 */
	DELTA_REPEAT, /* as DELTA_KEEP, and all keys are equal */
	DELTA_FILLS
};

struct delta_case {
	struct delta_call call; /* its arrays belong to the case; work: NULL */
	int n_row, n_slot;
};

/* Elements of the arrays of call. */
size_t delta_case_qkvz(const struct delta_case *c);
size_t delta_case_ba(const struct delta_case *c);
size_t delta_case_out(const struct delta_case *c);
size_t delta_case_state(const struct delta_case *c);
size_t delta_case_tail(const struct delta_case *c);

/* Slots hold random states and tails; out holds NaN.  Strides are wider than rows.  Bails out
 * without memory. */
void delta_case_make(struct delta_case *c, struct rng *rng, const struct delta_spec *s,
		     enum delta_fill fill, int n_row, int n_slot);
void delta_case_release(struct delta_case *c);

#endif
