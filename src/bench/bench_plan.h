/* SPDX-License-Identifier: Apache-2.0 */
/* Which chunks of a prefill a benchmark measures, and how they add up. */
#ifndef AR_BENCH_PLAN_H
#define AR_BENCH_PLAN_H

#include <stdint.h>

/* Where n of n_chunk chunks are measured, the prefill is cut into n runs of about equal length, and
 * one of the middle chunks of each stands for all of it.  0: all, each for itself. */
int bench_samples(int n_chunk, int n);

struct bench_sample {
	int chunk, weight;		/* weights of all samples are n_chunk together */
};
struct bench_sample bench_sample_at(int n_chunk, int n, int i);

/* sel / total; NaN where there is nothing to select from. */
double bench_ratio(int64_t sel, int64_t total);

#endif
