/* SPDX-License-Identifier: Apache-2.0 */
/* Comparison of a selector on the device with its reference, on batches with shuffled pages. */
#ifndef AR_TESTS_SELECT_GPU_H
#define AR_TESTS_SELECT_GPU_H

#include "kernels/select/selector.h"
#include "tests/batch_case.h"
#include "tests/gpu_test.h"

/* Set the members before c and zero the rest; then make c with case_make() or case_chunks(). */
struct select_pair {
	const struct selector *selector;
	const void *self;
	int layer;
	selector_fn *enqueue; /* NULL: the selector's */

	struct batch_case c; /* the reference's masks in c.mask */
	void *state_ref;     /* of c.n_page pages, at first all 0xff */
	size_t state_bytes;

	/* On the device: */
	struct attn_batch b;
	struct kv_cache kv;
	bf16_t *q;
	void *state, *work;
	uint32_t *mask;

	uint32_t *got; /* the device's masks, read back */
};

/* Run the last cut batch of the case through the reference or through the device.  Cache and state
 * stay on the device between batches; the workspace is new.  Failures bail out. */
void select_ref(struct select_pair *p, const struct selection *out);
void select_device(struct select_pair *p, const struct selection *out);

const uint32_t *select_masks(struct select_pair *p); /* the device's; returns got */
const uint32_t *select_both(struct select_pair *p);  /* and the reference's */

/* Copy cache and state to the device.  The first batch does it if the test did not. */
void select_load(struct select_pair *p);
void select_release(struct select_pair *p);

struct attn_limits select_limits(const struct attn_batch *b); /* exactly the sizes of b */

/* Number of bits of row (request r, its query block i, head h) that differ by more than rounding
 * explains. */
typedef int select_faults_fn(const struct select_pair *p, int r, int i, int h, const uint32_t *got,
			     const uint32_t *want);

/* Return whether rounding explains all different rows. */
bool select_agrees(const struct select_pair *p, select_faults_fn *faults);

/* Shapes of random batches.  Chunks have a context of fewer than most_ctx tokens.  Each shape ends
 * with a report. */
struct select_shape {
	struct attn_shape s;
	const char *of;
};
typedef void select_case_fn(struct attn_shape s, uint64_t seed, int n, const int *ctx,
			    const int *rows);
void select_shapes(const struct select_shape *shape, int n_shape, int most_ctx, select_case_fn *run,
		   void (*report)(const char *of));

int select_draw(struct rng *rng, int lo, int hi); /* lo ... hi */

#endif
