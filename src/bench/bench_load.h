/* SPDX-License-Identifier: Apache-2.0 */
/* What one case keeps on the device: its batch, and as many sets of random inputs as it takes to
 * fill the L2 cache several times over. */
#ifndef AR_BENCH_LOAD_H
#define AR_BENCH_LOAD_H

#include <cuda_runtime_api.h>

#include "kernels/layer/gemm.h"
#include "kernels/methods/method.h"
#include "profiler/cupti/prof.h"
#include "src/bench/bench_device.h"

enum { BENCH_ALLOCS = 32, BENCH_STAGES = 4 };

struct bench_device {
	struct bench_env env;
	struct prof *prof;	/* NULL: CUDA events are the clock */
	cudaStream_t stream;
	cudaEvent_t *event;	/* [repeat][BENCH_STAGES + 1] */
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
	uint32_t *mask, *table;
	void *work;
	struct gemm *gemm;
	void *alloc[BENCH_ALLOCS];
	int n_alloc;

	bf16_t *busy;		/* what is drawn while the host gets ahead, and from which seed */
	size_t busy_len;
	uint64_t busy_seed;

	int repeat;		/* of the launch that is going on; -1: not timed */
	enum phase stage[BENCH_STAGES];
	int n_stage;
};

/* Device memory of a load, zeroed by nobody; *to becomes a pointer to it.  bench_drop() gives back
 * all but the first keep allocations. */
enum ar_status bench_take(struct bench_load *l, void *to, size_t bytes, struct ar_err *err);
enum ar_status bench_upload(struct bench_load *l, void *to, const void *host, size_t bytes,
			    struct ar_err *err);
void bench_drop(struct bench_load *l, int keep);

/* The arrays of c's batch, its tiles under c->executor, and its lists. */
enum ar_status bench_take_batch(struct bench_load *l, struct ar_err *err);

/* At least two, of which n read several times the L2 cache, while they fit into memory.  used,
 * taken: bytes that a launch reads of a set, and that a set takes. */
int bench_sets(const struct bench_load *l, size_t used, size_t taken);
struct kv_cache bench_kv_at(const struct bench_load *l, int set);
const bf16_t *bench_q_at(const struct bench_load *l, int set);

/* Attention of the batch over a set, in layer 0 and without state. */
struct attn_call bench_call(const struct bench_load *l, int set);

/* A launch calls bench_stage(), a phase_fn of its load, before each of its stages. */
typedef enum ar_status bench_launch_fn(struct bench_load *l, int set, struct ar_err *err);
void bench_stage(void *load, int layer, enum phase phase);
enum ar_status bench_launch(struct bench_load *l, bench_launch_fn *launch, int repeat, int set,
			    struct ar_err *err);

/* The times of all repeats: r[k] of the k-th stage, l->stage[k]. */
enum ar_status bench_measure(struct bench_load *l, bench_launch_fn *launch, struct bench_result *r,
			     struct ar_err *err);

/* After the steps of a case ran on set 0: its sampled outputs against bench_row_ref(). */
enum ar_status bench_check_rows(const struct bench_load *l, struct bench_result *r,
				struct ar_err *err);

/* The same of a selection: what request 0 kept of its past, against the selector's reference, and
 * its tables against the union of what the device selected. */
enum ar_status bench_check_selection(const struct bench_load *l,
				     struct bench_result r[BENCH_PARTS], struct ar_err *err);

#endif
