/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "kernels/layer/gemm.h"

#include <pthread.h>
#include <stdlib.h>

#include <cublasLt.h>
#include <cublas_v2.h>

#include "base/dynlib.h"
#include "kernels/prim/cuda.h"

enum { WORKSPACE = 32 << 20 }; /* NVIDIA's advice for Hopper */

/* clang-format off */
#define CUBLAS_NEEDED(X) \
	X(cublasCreate_v2) X(cublasDestroy_v2) X(cublasSetStream_v2) X(cublasSetWorkspace_v2) \
	X(cublasGemmEx) X(cublasGemmStridedBatchedEx) X(cublasGetStatusString) \
	X(cublasLtMatmul) X(cublasLtMatmulAlgoGetHeuristic) \
	X(cublasLtMatmulDescCreate) X(cublasLtMatmulDescDestroy) X(cublasLtMatmulDescSetAttribute) \
	X(cublasLtMatmulPreferenceCreate) X(cublasLtMatmulPreferenceDestroy) \
	X(cublasLtMatmulPreferenceSetAttribute) \
	X(cublasLtMatrixLayoutCreate) X(cublasLtMatrixLayoutDestroy) \
	X(cublasLtMatrixLayoutSetAttribute)
/* clang-format on */

enum { A, W, C, N_MATRIX };

struct gemm {
	cublasHandle_t handle;
	void *workspace, *stream;
	cublasLtMatmulDesc_t op; /* of products with a bias, as all below */
	cublasLtMatmulPreference_t preference;
	cublasLtMatrixLayout_t matrix[N_MATRIX];
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

/* Make the descriptors of products with a bias; set_matrix() gives the sizes. */
static enum ar_status open_bias(struct gemm *g, struct ar_err *err)
{
	const cublasOperation_t turn = CUBLAS_OP_T;
	const cublasLtEpilogue_t bias = CUBLASLT_EPILOGUE_BIAS;
	const size_t workspace = WORKSPACE;
	enum ar_status st = AR_OK;

	CUBLAS(g->cublasLtMatmulDescCreate(&g->op, CUBLAS_COMPUTE_32F, CUDA_R_32F));
	CUBLAS(g->cublasLtMatmulDescSetAttribute(g->op, CUBLASLT_MATMUL_DESC_TRANSA, &turn,
						 sizeof turn));
	CUBLAS(g->cublasLtMatmulDescSetAttribute(g->op, CUBLASLT_MATMUL_DESC_EPILOGUE, &bias,
						 sizeof bias));
	CUBLAS(g->cublasLtMatmulPreferenceCreate(&g->preference));
	CUBLAS(g->cublasLtMatmulPreferenceSetAttribute(g->preference,
						       CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
						       &workspace, sizeof workspace));
	for (int i = 0; i < N_MATRIX; i++)
		CUBLAS(g->cublasLtMatrixLayoutCreate(&g->matrix[i], CUDA_R_16BF, 1, 1, 1));
out:
	return st;
}

static enum ar_status load(const struct dynlib_sym *syms, struct ar_err *err)
{
	return dynlib_load("libcublas.so." CUDA_MAJOR, "ATTNREPLAY_CUBLAS", syms, err);
}

static void *load_early(void *syms)
{
	struct ar_err later; /* gemm_open() finds the same error */

	load(syms, &later);
	return NULL;
}

/* Nobody joins the thread: dlopen() of gemm_open() waits for the loader's lock. */
void gemm_load_early(void)
{
	static struct dynlib_sym none[] = { { NULL, NULL } };
	pthread_t thread;

	if (!pthread_create(&thread, NULL, load_early, none))
		pthread_detach(thread);
}

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

	st = load(syms, err);
	if (st)
		goto out;
	g->stream = stream;
	CUBLAS(g->cublasCreate_v2(&g->handle));
	CUBLAS(g->cublasSetStream_v2(g->handle, stream));
	CU(cudaMalloc(&g->workspace, WORKSPACE));
	CUBLAS(g->cublasSetWorkspace_v2(g->handle, g->workspace, WORKSPACE));
	st = open_bias(g, err);
	if (st)
		goto out;
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
	for (int i = 0; i < N_MATRIX; i++)
		if (g->matrix[i])
			g->cublasLtMatrixLayoutDestroy(g->matrix[i]);
	if (g->preference)
		g->cublasLtMatmulPreferenceDestroy(g->preference);
	if (g->op)
		g->cublasLtMatmulDescDestroy(g->op);
	if (g->handle)
		g->cublasDestroy_v2(g->handle);
	cudaFree(g->workspace);
	free(g);
}

/* Describe a batch of n matrices, which cuBLAS sees as columns of rows elements. */
static enum ar_status set_matrix(struct gemm *g, int which, uint64_t rows, uint64_t cols, int32_t n,
				 struct ar_err *err)
{
	const int64_t stride = (int64_t)(rows * cols), ld = (int64_t)rows;
	const struct {
		cublasLtMatrixLayoutAttribute_t name;
		const void *value;
		size_t size;
	} set[] = {
		{ CUBLASLT_MATRIX_LAYOUT_ROWS, &rows, sizeof rows },
		{ CUBLASLT_MATRIX_LAYOUT_COLS, &cols, sizeof cols },
		{ CUBLASLT_MATRIX_LAYOUT_LD, &ld, sizeof ld },
		{ CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &n, sizeof n },
		{ CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride },
	};
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < sizeof set / sizeof *set; i++)
		CUBLAS(g->cublasLtMatrixLayoutSetAttribute(g->matrix[which], set[i].name,
							   set[i].value, set[i].size));
out:
	return st;
}

static enum ar_status set_bias(struct gemm *g, const struct gemm_args *x, struct ar_err *err)
{
	const int64_t stride = x->n;
	enum ar_status st = AR_OK;

	CUBLAS(g->cublasLtMatmulDescSetAttribute(g->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &x->bias,
						 sizeof x->bias));
	CUBLAS(g->cublasLtMatmulDescSetAttribute(g->op, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE,
						 &stride, sizeof stride));
out:
	return st;
}

/* A handle of cuBLAS serves as one of cuBLASLt. */
static enum ar_status run_bias(struct gemm *g, const struct gemm_args *x, struct ar_err *err)
{
	const uint64_t m = (uint64_t)x->m, n = (uint64_t)x->n, k = (uint64_t)x->k;
	const float one = 1, zero = 0;
	cublasLtHandle_t lt = (cublasLtHandle_t)g->handle;
	cublasLtMatmulHeuristicResult_t best;
	int found = 0;
	enum ar_status st = set_bias(g, x, err);

	if (!st)
		st = set_matrix(g, W, k, n, x->n_batch, err);
	if (!st)
		st = set_matrix(g, A, k, m, x->n_batch, err);
	if (!st)
		st = set_matrix(g, C, n, m, x->n_batch, err);
	if (st)
		return st;
	CUBLAS(g->cublasLtMatmulAlgoGetHeuristic(lt, g->op, g->matrix[W], g->matrix[A],
						 g->matrix[C], g->matrix[C], g->preference, 1,
						 &best, &found));
	CUBLAS(found ? best.state : CUBLAS_STATUS_NOT_SUPPORTED);
	CUBLAS(g->cublasLtMatmul(lt, g->op, &one, x->w, g->matrix[W], x->a, g->matrix[A], &zero,
				 x->c, g->matrix[C], x->c, g->matrix[C], &best.algo, g->workspace,
				 WORKSPACE, g->stream));
out:
	return st;
}

/* cuBLAS counts columns first: it computes c^T = w a^T. */
enum ar_status gemm_run(struct gemm *g, const struct gemm_args *x, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	const float one = 1, zero = 0;
	int m = x->m, n = x->n, k = x->k;

	if (x->bias)
		return run_bias(g, x, err);
	if (x->n_batch == 1)
		CUBLAS(g->cublasGemmEx(g->handle, CUBLAS_OP_T, CUBLAS_OP_N, n, m, k, &one, x->w,
				       CUDA_R_16BF, k, x->a, CUDA_R_16BF, k, &zero,
				       x->real ? (void *)x->real : x->c,
				       x->real ? CUDA_R_32F : CUDA_R_16BF, n, CUBLAS_COMPUTE_32F,
				       CUBLAS_GEMM_DEFAULT));
	else
		CUBLAS(g->cublasGemmStridedBatchedEx(
			g->handle, CUBLAS_OP_T, CUBLAS_OP_N, n, m, k, &one, x->w, CUDA_R_16BF, k,
			(long long)n * k, x->a, CUDA_R_16BF, k, (long long)m * k, &zero, x->c,
			CUDA_R_16BF, n, (long long)m * n, x->n_batch, CUBLAS_COMPUTE_32F,
			CUBLAS_GEMM_DEFAULT));
out:
	return st;
}
