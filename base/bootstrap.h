/* SPDX-License-Identifier: Apache-2.0 */
/* Bootstrap of percentiles (Efron 1979): how far a percentile would move if the same process were
 * observed again.
 *
 * A sample is sorted once.  Independent values: the percentile of a resample depends on two of its
 * order statistics alone.  These are beta distributed, so a resample costs the same for any n.
 * Values in order of time that depend on their neighbours: a resample is put together from blocks
 * of consecutive values, which wrap around at the end (Politis and Romano 1992).  Only values near
 * the percentile are counted one by one: 1,000 resamples of 1 M values in blocks of 100 take 1 to
 * 1.6 s.
 *
 * The percentile is that of base/stats.h. */
#ifndef AR_BOOTSTRAP_H
#define AR_BOOTSTRAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* n values, some of which may be equal and stored once. */
struct sample {
	size_t n, n_sorted;
	double *sorted;
	size_t *upto;	/* values up to and with sorted[i]; NULL: i + 1 */
	uint32_t *rank; /* place in sorted of the value number i in time; NULL: no order of time */
};

struct bootstrap {
	size_t resamples;
	uint64_t seed; /* equal seeds, sizes and blocks draw the same positions */
	size_t block;  /* values of a block; 0: the values are independent */
};

/* Copy and sort x[0..n), values in order of time, 0 < n < 2^32.  Release it also after a
 * failure. */
enum ar_status sample_of_values(struct sample *s, const double *x, size_t n, struct ar_err *err);
/* Copy the ascending x[0..n); x[i] occurred times[i] > 0 times. */
enum ar_status sample_of_counts(struct sample *s, const double *x, const int64_t *times, size_t n,
				struct ar_err *err);
void sample_release(struct sample *s);

double sample_percentile(const struct sample *s, double p);

/* Set draw[0..b->resamples) to percentile p of each resample.  With a block, samples of equal size
 * and seed are drawn at the same positions: draws of paired values are pairs.  A block needs an
 * order of time and has at most n values. */
enum ar_status bootstrap_draw(const struct bootstrap *b, const struct sample *s, double p,
			      double *draw, struct ar_err *err);

/* The central share of the draws, 0.95 for an interval of 95 %.  Sorts them. */
void bootstrap_interval(double *draw, size_t n, double share, double *lo, double *hi);

/* Block length for n values that depend on their neighbours: the cube root of n, the order that
 * Kuensch (1989) gives. */
size_t bootstrap_block(size_t n);

#endif
