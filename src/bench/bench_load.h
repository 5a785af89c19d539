/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory of one case: its batch, and enough sets of random inputs to fill the L2 cache
 * several times. */
#ifndef AR_BENCH_LOAD_H
#define AR_BENCH_LOAD_H

#include <cuda_runtime_api.h>

#include "kernels/layer/gemm.h"
#include "kernels/methods/method.h"
#include "profiler/cupti/prof.h"
#include "src/bench/bench_device.h"

enum { BENCH_ALLOCS = 32, BENCH_STAGES = 5 };

struct bench_device {
	struct bench_env env;
	struct prof *prof; /* NULL: CUDA events are the clock */
	cudaStream_t stream;
	volatile int *go;      /* of layer_hold(), on the host; stays 0 until the hold is over */
	cudaEvent_t *event;    /* [repeat][BENCH_STAGES + 1] */
	double *time;	       /* [repeat] */
	int64_t (*span)[2];    /* [repeat] start and end, ns */
	struct method *method; /* compact-fp */
	size_t l2_bytes;
	char name[256];
};

struct bench_load {
	struct bench_device *d;
	const struct bench_case *c; /* on the host; NULL: product, copy */
	struct attn_batch b;	    /* on the device, as is all below */
	struct executor_lists lists;
	int n_set, side;		 /* side: rows of the product's matrices */
	size_t q_len, kv_len, state_len; /* elements of one set */
	bf16_t *q, *out, *state;
	struct kv_cache kv;
	uint32_t *mask, *table;
	void *work;
	struct attn_batch decodes; /* of BENCH_MIXED, the requests after the first */
	void *beside;		   /* their work */
	struct gemm *gemm;
	void *alloc[BENCH_ALLOCS];
	int n_alloc;

	int repeat; /* of the current launch; -1: not timed */
	enum phase stage[BENCH_STAGES];
	int n_stage;
};

/* Allocate device memory, not zeroed, and set *to, a pointer, to it.  bench_drop() frees all but
 * the first keep allocations. */
enum ar_status bench_take(struct bench_load *l, void *to, size_t bytes, struct ar_err *err);
enum ar_status bench_upload(struct bench_load *l, void *to, const void *host, size_t bytes,
			    struct ar_err *err);
void bench_drop(struct bench_load *l, int keep);

/* Allocate n elements for each set, about normal.  Each call draws new values. */
enum ar_status bench_take_random(struct bench_load *l, bf16_t **to, size_t n, float scale,
				 struct ar_err *err);

/* Upload the arrays of the batch of l->c, its tiles under its executor, and its lists. */
enum ar_status bench_take_batch(struct bench_load *l, struct ar_err *err);

/* Number of sets.  Launches on all sets read several times the size of the L2 cache.  At
 * least 2, if memory fits them.  used: bytes that a launch reads of a set; taken: size of a set
 * in bytes. */
int bench_sets(const struct bench_load *l, size_t used, size_t taken);
struct kv_cache bench_kv_at(const struct bench_load *l, int set);
const bf16_t *bench_q_at(const struct bench_load *l, int set);

/* The arguments of attention on a set, in layer 0 and without state. */
struct attn_call bench_call(const struct bench_load *l, int set);

/* A launch function enqueues work on a set.  It calls bench_stage(), a phase_fn, with its load
 * before each stage. */
typedef enum ar_status bench_launch_fn(struct bench_load *l, int set, struct ar_err *err);
void bench_stage(void *load, int layer, enum phase phase);
enum ar_status bench_launch(struct bench_load *l, bench_launch_fn *launch, int repeat, int set,
			    struct ar_err *err);

/* Launch all repeats and measure them; r[k] gets the k-th stage, l->stage[k]. */
enum ar_status bench_measure(struct bench_load *l, bench_launch_fn *launch, struct bench_result *r,
			     struct ar_err *err);

/* Compare sampled outputs with bench_row_ref().  The last launch must have run on set 0. */
enum ar_status bench_check_rows(const struct bench_load *l, struct bench_result *r,
				struct ar_err *err);

/* The same for BENCH_SELECT and request 0: compare the mask with the selector's reference, and the
 * tables with the union of the device's mask.  Also set r[].kept. */
enum ar_status bench_check_selection(const struct bench_load *l, struct bench_result r[BENCH_PARTS],
				     struct ar_err *err);

#endif
