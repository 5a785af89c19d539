/* SPDX-License-Identifier: Apache-2.0 */
/* Backend "cuda" as its parts know it. */
#ifndef AR_BACKEND_CUDA_H
#define AR_BACKEND_CUDA_H

#include "kernels/prim/cuda.h"
#include "replay/engine/attn_engine.h"
#include "replay/engine/backends_attn.h"
#include "replay/engine/decoder.h"
#include "replay/engine/graphs.h"
#include "replay/engine/rows.h"

struct cuda_opts {
	double utilization;
	int64_t device;
	bool enforce_eager;
};

enum { CUDA_ALLOCS = 32 };

struct cuda {
	struct backend_env env;
	struct cuda_opts opts;
	struct attn_engine engine;
	struct store_gpu gpu;
	cudaStream_t stream;		/* in order with plain copies */
	cudaEvent_t begin, head, end;
	struct method *dense;
	struct decoder *decoder;	/* NULL: attention only */

	void *alloc[CUDA_ALLOCS];		/* device memory, freed at close */
	int n_alloc;
	bf16_t *q, *k, *out;		/* of the rows of an iteration */
	float *lse;
	void *work;			/* of the method or of decode, one after the other */

	struct kv_cache *kv;		/* [n_run_layers] */
	void **state;			/* [n_run_layers], or all NULL */
	struct rows_env rows;		/* its memory is pinned */
	void *rows_dev;
	struct graphs graphs;

	struct dense_out {		/* of compare(): prefill rows */
		bf16_t *out;
		float *lse;
		void *work;		/* of accuracy_measure_device() */
	} compared;
	volatile int *go;		/* pinned; releases the GPU, see hold() */
	bool stale;			/* there may be traced kernels of no iteration */
	bool slow_host;			/* it enqueues for longer than the GPU waits */
};

/* backend_cuda_memory.c: functions of struct backend, and all memory that a pool of num_blocks
 * takes. */
enum ar_status cuda_open(void **self, const void *opts, const struct backend_env *env,
			 struct ar_err *err);
void cuda_close(void *self);
int64_t cuda_fit_blocks(void *self);
enum ar_status cuda_take_pool(struct cuda *c, int64_t num_blocks, struct ar_err *err);

#endif
