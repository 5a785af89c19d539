/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "kernels/layer/gemm.h"

#include <stdlib.h>

#include <cublas_v2.h>

#include "base/dynlib.h"
#include "kernels/prim/cuda.h"

enum { WORKSPACE = 32 << 20 }; /* what NVIDIA advises for Hopper */

/* clang-format off */
#define CUBLAS_NEEDED(X) \
	X(cublasCreate_v2) X(cublasDestroy_v2) X(cublasSetStream_v2) X(cublasSetWorkspace_v2) \
	X(cublasGemmEx) X(cublasGemmStridedBatchedEx) X(cublasGetStatusString)
/* clang-format on */

struct gemm {
	cublasHandle_t handle;
	void *workspace;
#define X(f) __typeof__(f) *f;
	CUBLAS_NEEDED(X)
#undef X
};

/* Like CU, with g in scope. */
#define CUBLAS(call) \
	do { \
		cublasStatus_t cb_e_ = (call); \
		if (cb_e_ != CUBLAS_STATUS_SUCCESS) { \
			st = ar_fail(err, AR_CUDA, "%s:%d: %s: %s", __FILE__, __LINE__, #call, \
				     g->cublasGetStatusString(cb_e_)); \
			goto out; \
		} \
	} while (0)

enum ar_status gemm_open(struct gemm **out, void *stream, struct ar_err *err)
{
	enum ar_status st;
	struct gemm *g = calloc(1, sizeof *g);

	*out = NULL;
	if (!g)
		return ar_nomem(err);

	const struct dynlib_sym syms[] = {
#define X(f) { #f, (void **)&g->f },
		CUBLAS_NEEDED(X)
#undef X
			{ NULL, NULL },
	};

	st = dynlib_load("libcublas.so.13", "ATTNREPLAY_CUBLAS", syms, err);
	if (st)
		goto out;
	CUBLAS(g->cublasCreate_v2(&g->handle));
	CUBLAS(g->cublasSetStream_v2(g->handle, stream));
	CU(cudaMalloc(&g->workspace, WORKSPACE));
	CUBLAS(g->cublasSetWorkspace_v2(g->handle, g->workspace, WORKSPACE));
	*out = g;
	g = NULL;
out:
	gemm_close(g);
	return st;
}

void gemm_close(struct gemm *g)
{
	if (!g)
		return;
	if (g->handle)
		g->cublasDestroy_v2(g->handle);
	cudaFree(g->workspace);
	free(g);
}

/* cuBLAS counts columns first: what it computes is c^T = w a^T. */
enum ar_status gemm_run(struct gemm *g, int n_batch, int m, int n, int k, const bf16_t *a,
			const bf16_t *w, bf16_t *c, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	const float one = 1, zero = 0;

	if (n_batch == 1)
		CUBLAS(g->cublasGemmEx(g->handle, CUBLAS_OP_T, CUBLAS_OP_N, n, m, k, &one, w,
				       CUDA_R_16BF, k, a, CUDA_R_16BF, k, &zero, c, CUDA_R_16BF, n,
				       CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
	else
		CUBLAS(g->cublasGemmStridedBatchedEx(g->handle, CUBLAS_OP_T, CUBLAS_OP_N, n, m, k,
						     &one, w, CUDA_R_16BF, k, (long long)n * k, a,
						     CUDA_R_16BF, k, (long long)m * k, &zero, c,
						     CUDA_R_16BF, n, (long long)m * n, n_batch,
						     CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
out:
	return st;
}
