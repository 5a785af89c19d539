/* SPDX-License-Identifier: Apache-2.0 */
/* Benchmarks on the GPU: the median time of many launches and the error against the reference.
 * Launches take turns on several sets of inputs, so that the L2 cache holds no set. */
#ifndef AR_BENCH_DEVICE_H
#define AR_BENCH_DEVICE_H

#include "base/status.h"
#include "src/bench/bench_case.h"

enum { BENCH_PARTS = 2, BENCH_REPEATS = 4000 };

struct bench_env {
	int device;
	int repeat; /* timed launches, at most BENCH_REPEATS */
	int sample; /* (row, head) pairs of a case that are recomputed; 0: none */
	uint64_t seed;
};

/* Members that were not measured or do not apply keep the caller's values. */
struct bench_result {
	double us, min_us;	/* median and least, first kernel's start to last kernel's end */
	double event_us;	/* median between CUDA events, launch gaps included */
	bool traced;		/* false: us and min_us are between CUDA events, too */
	double rel_l2, max_abs; /* errors of the sampled outputs */
	double kept;		/* select: share of the blocks before the chunk that is kept */
	double bits_off;	/* select: share of bits that differ from the reference */
};

struct bench_device;

/* Must precede the first CUDA call of the process.  AR_NODEV: no CUDA in this build, no GPU, or
 * none that the build has code for. */
enum ar_status bench_open(struct bench_device **out, const struct bench_env *env,
			  struct ar_err *err);
void bench_close(struct bench_device *d);	     /* NULL is fine */
const char *bench_gpu(const struct bench_device *d); /* its name */

/* The ceilings: a bf16 product of n x n matrices, and a copy of n x n bf16.  bench_product() is
 * AR_NODEV without cuBLAS. */
enum ar_status bench_product(struct bench_device *d, int n, struct bench_result *r,
			     struct ar_err *err);
enum ar_status bench_copy(struct bench_device *d, int n, struct bench_result *r,
			  struct ar_err *err);

/* Measure a case to result[0].  Two parts: of BENCH_SELECT the selector, then union and lists; of
 * BENCH_COPY and BENCH_GATHER the copies, then attention. */
enum ar_status bench_run(struct bench_device *d, const struct bench_case *c,
			 struct bench_result result[BENCH_PARTS], struct ar_err *err);

#endif
