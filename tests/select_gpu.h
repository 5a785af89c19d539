/* A selector on the device beside its reference: one batch through both, on shuffled pages. */
#ifndef AR_TESTS_SELECT_GPU_H
#define AR_TESTS_SELECT_GPU_H

#include "kernels/select/selector.h"
#include "tests/batch_case.h"
#include "tests/gpu.h"

/* Zero but for what comes before c; then case_make() or case_chunks() make c. */
struct select_pair {
	const struct selector *selector;
	const void *self;
	int layer;
	selector_fn *enqueue;	/* NULL: the selector's */

	struct batch_case c;		/* the reference's masks in c.mask */
	void *state_ref;		/* of c.n_page pages, at first all 0xff */
	size_t state_bytes;

	/* Of the device. */
	struct attn_batch b;
	struct kv_cache kv;
	bf16_t *q;
	void *state, *work;
	uint32_t *mask;

	uint32_t *got;			/* the device's masks, read back */
};

/* The batch that the case was cut to last, through the reference and through the device.  Cache
 * and state stay on the device from one batch to the next; work is fresh.  Failures bail out. */
void select_ref(struct select_pair *p, const struct selection *out);
void select_device(struct select_pair *p, const struct selection *out);

const uint32_t *select_masks(struct select_pair *p);	/* the device's; returns got */
const uint32_t *select_both(struct select_pair *p);	/* and the reference's */

/* Bring cache and state to the device, before anything else; the first batch does it if need be. */
void select_load(struct select_pair *p);
void select_release(struct select_pair *p);

struct attn_limits select_limits(const struct attn_batch *b);	/* that the batch just keeps */

/* Bits of row (request r, its query block i, head h) that differ and that rounding does not
 * explain. */
typedef int select_faults_fn(const struct select_pair *p, int r, int i, int h, const uint32_t *got,
			     const uint32_t *want);

/* Whether there are none in the rows that differ. */
bool select_agrees(const struct select_pair *p, select_faults_fn *faults);

/* Random batches of several shapes, of chunks on top of less than most_ctx tokens; each shape ends
 * with a report. */
struct select_shape {
	struct attn_shape s;
	const char *of;
};
typedef void select_case_fn(struct attn_shape s, uint64_t seed, int n, const int *ctx,
			    const int *rows);
void select_shapes(const struct select_shape *shape, int n_shape, int most_ctx,
		   select_case_fn *run, void (*report)(const char *of));

int select_draw(struct rng *rng, int lo, int hi);	/* lo ... hi */

#endif
