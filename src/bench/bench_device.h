/* SPDX-License-Identifier: Apache-2.0 */
/* Benchmarks on the GPU: the median of many launches, over inputs that take turns so that none is
 * found in the L2 cache, and how far the results are from the reference. */
#ifndef AR_BENCH_DEVICE_H
#define AR_BENCH_DEVICE_H

#include "base/status.h"
#include "src/bench/bench_case.h"

enum { BENCH_PARTS = 2, BENCH_REPEATS = 4000 };

struct bench_env {
	int device;
	int repeat;		/* timed launches, at most BENCH_REPEATS */
	int sample;		/* (row, head) pairs of a case that are recomputed; 0: none */
	uint64_t seed;
};

/* What was not measured or does not apply stays as the caller left it. */
struct bench_result {
	double us, min_us;	/* median and least, first kernel's start to last kernel's end */
	double event_us;	/* median between CUDA events, launch gaps included */
	bool traced;		/* false: us and min_us are between CUDA events, too */
	double rel_l2, max_abs;	/* of the sampled outputs */
	double kept;		/* select: share of the blocks before the chunk that is kept */
	double bits_off;	/* select: share of bits that are not the reference's */
};

struct bench_device;

/* Must precede the first CUDA call of the process.  AR_NODEV: no CUDA in this build, no GPU, or
 * none that the build has code for. */
enum ar_status bench_open(struct bench_device **out, const struct bench_env *env,
			  struct ar_err *err);
void bench_close(struct bench_device *d);		/* NULL is fine */
const char *bench_gpu(const struct bench_device *d);	/* its name */

/* The ceilings: a bf16 product of n x n matrices, and a copy of n x n bf16.  The product is
 * AR_NODEV where there is no cuBLAS. */
enum ar_status bench_product(struct bench_device *d, int n, struct bench_result *r,
			     struct ar_err *err);
enum ar_status bench_copy(struct bench_device *d, int n, struct bench_result *r,
			  struct ar_err *err);

/* result[0] is the case; of BENCH_SELECT it is the selector, and result[1] union and lists; of
 * BENCH_COPY and BENCH_GATHER the copies, and result[1] attention. */
enum ar_status bench_run(struct bench_device *d, const struct bench_case *c,
			 struct bench_result result[BENCH_PARTS], struct ar_err *err);

#endif
