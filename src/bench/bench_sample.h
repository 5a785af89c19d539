/* SPDX-License-Identifier: Apache-2.0 */
/* Which chunks of a prefill a benchmark measures, and how they add up. */
#ifndef AR_BENCH_SAMPLE_H
#define AR_BENCH_SAMPLE_H

#include <stdint.h>

/* Number of samples.  The prefill is cut into n runs of about equal length; one of the middle
 * chunks stands for each run.  n = 0: measure every chunk, each for itself. */
int bench_samples(int n_chunk, int n);

struct bench_sample {
	int chunk, weight; /* weight: number of chunks it stands for; all weights add
					 * up to n_chunk */
};
struct bench_sample bench_sample_at(int n_chunk, int n, int i);

/* sel / total; NaN where there is nothing to select from. */
double bench_ratio(int64_t sel, int64_t total);

#endif
