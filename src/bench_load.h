/* What one case keeps on the device: its batch, and as many sets of random inputs as it takes to
 * fill the L2 cache several times over. */
#ifndef AR_BENCH_LOAD_H
#define AR_BENCH_LOAD_H

#include <cuda_runtime_api.h>

#include "kernels/gemm.h"
#include "kernels/method.h"
#include "profiler/prof.h"
#include "src/bench_device.h"

enum { BENCH_ALLOCS = 24 };

struct bench_device {
	struct bench_env env;
	struct prof *prof;	/* NULL: CUDA events are the clock */
	cudaStream_t stream;
	cudaEvent_t *event;	/* [repeat][MARKS] */
	double *time;		/* [repeat] */
	int64_t (*span)[2];	/* [repeat] start and end, ns */
	struct method *method;	/* compact-fp */
	size_t l2_bytes;
	char name[256];
};

struct bench_load {
	struct bench_device *d;
	const struct bench_case *c;	/* on the host; NULL: product, copy */
	struct attn_batch b;		/* on the device, as is all below */
	struct executor_lists lists;
	int n_set, side;		/* side: of the product's matrices */
	size_t q_len, kv_len, state_len;	/* elements of one set */
	bf16_t *q, *out, *state;
	struct kv_cache kv;
	uint64_t k_seed;
	uint32_t *mask, *table;
	void *work;
	struct gemm *gemm;
	void *alloc[BENCH_ALLOCS];
	int n_alloc;
};

/* After the steps of a case ran on set 0: its sampled outputs against bench_row_ref(). */
enum ar_status bench_check_rows(const struct bench_load *l, struct bench_result *r,
				struct ar_err *err);

/* The same of a selection: what request 0 kept of its past, against the selector's reference, and
 * its tables against the union of what the device selected. */
enum ar_status bench_check_selection(const struct bench_load *l,
				     struct bench_result r[BENCH_PARTS], struct ar_err *err);

#endif
