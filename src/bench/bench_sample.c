/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/bench/bench_sample.h"

#include <math.h>

int bench_samples(int n_chunk, int n)
{
	return n && n < n_chunk ? n : n_chunk;
}

/* A run of even length has two middle chunks.  Even runs take the first, odd runs the second.  So
 * times that grow with the context are not underrated. */
struct bench_sample bench_sample_at(int n_chunk, int n, int i)
{
	int samples = bench_samples(n_chunk, n);
	int first = (int)((int64_t)n_chunk * i / samples);
	int end = (int)((int64_t)n_chunk * (i + 1) / samples);

	return (struct bench_sample){ (first + end - !(i % 2)) / 2, end - first };
}

double bench_ratio(int64_t sel, int64_t total)
{
	return total ? (double)sel / (double)total : NAN;
}
