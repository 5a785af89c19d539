/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Distances between attention outputs on the device.
 *
 *   accuracy_rows    one thread per (row, head): the row's values, in the order of its elements.
 *   accuracy_heads   one thread per (head, value): over the rows, in their order.
 *
 * Both kernels add in the order of accuracy_measure(), so their sums have its bits.  2,048 rows of
 * 32 heads of 128 are 33 MB to read.
 */
#include "config.h"
#include "kernels/methods/accuracy.h"

#include <limits.h>
#include <stdlib.h>

#include "base/workspace.h"
#include "kernels/methods/accuracy_row.h"
#include "kernels/prim/cuda.h"

static constexpr int THREADS = 128, PIECE = 8;	/* elements of a load */

/* first: the least head * n_row + row that is not finite, else INT_MAX. */
struct accuracy_work {
	double *value;		/* [ACC_VALUES][n_row][heads] */
	double *head;		/* [ACC_VALUES][heads] */
	int *first;
};

static struct accuracy_work lay(struct workspace *w, const struct attn_shape *s, int n_row)
{
	size_t heads = (size_t)s->q_heads;
	struct accuracy_work x;

	x.value = (double *)workspace_take(w, ACC_VALUES * heads * (size_t)n_row,
					   sizeof *x.value);
	x.head = (double *)workspace_take(w, ACC_VALUES * heads, sizeof *x.head);
	x.first = (int *)workspace_take(w, 1, sizeof *x.first);
	return x;
}

size_t accuracy_work_bytes(const struct attn_shape *s, int n_row)
{
	struct workspace w = workspace_at(NULL);

	lay(&w, s, n_row);
	return w.used;
}

/* Element k of a pair of bf16. */
static __device__ __forceinline__ double widen(uint32_t pair, int k)
{
	return __uint_as_float(k ? pair & 0xffff0000u : pair << 16);
}

static __device__ __forceinline__ void add_pair(struct accuracy_sums *s, uint32_t out,
						uint32_t dense)
{
	accuracy_add(s, widen(out, 0), widen(dense, 0));
	accuracy_add(s, widen(out, 1), widen(dense, 1));
}

static __global__ void __launch_bounds__(THREADS)
accuracy_rows(int n_row, int heads, int dim, const bf16_t *__restrict__ out,
	      const bf16_t *__restrict__ dense, const float *__restrict__ lse,
	      const float *__restrict__ lse_dense, struct accuracy_work w)
{
	const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x, n = (size_t)n_row * heads;
	struct accuracy_sums s = { 0, 0, 0, 0, 0 };

	if (i >= n)
		return;
	const uint4 *a = (const uint4 *)(out + i * dim), *b = (const uint4 *)(dense + i * dim);

	for (int k = 0; k < dim / PIECE; k++) {
		const uint4 x = a[k], y = b[k];

		add_pair(&s, x.x, y.x);
		add_pair(&s, x.y, y.y);
		add_pair(&s, x.z, y.z);
		add_pair(&s, x.w, y.w);
	}
	if (!accuracy_is_finite(&s, lse[i], lse_dense[i]))
		atomicMin(w.first, (int)(i % heads) * n_row + (int)(i / heads));
#pragma unroll
	for (int v = 0; v < ACC_VALUES; v++)
		w.value[v * n + i] = accuracy_value(&s, lse[i], lse_dense[i], v);
}

/* Block v: value v of all heads. */
static __global__ void __launch_bounds__(THREADS)
accuracy_heads(int n_row, int heads, struct accuracy_work w)
{
	const int v = blockIdx.x;
	const double *value = w.value + (size_t)v * n_row * heads;

	for (int h = threadIdx.x; h < heads; h += THREADS) {
		double x = 0;

#pragma unroll 8
		for (int r = 0; r < n_row; r++)
			x = accuracy_join(x, value[(size_t)r * heads + h], v);
		w.head[v * heads + h] = x;
	}
}

static enum ar_status enqueue(const struct attn_shape *s, int n_row, const bf16_t *out,
			      const bf16_t *dense, const float *lse, const float *lse_dense,
			      struct accuracy_work w, cudaStream_t stream, struct ar_err *err)
{
	const size_t n = (size_t)n_row * (size_t)s->q_heads;
	const int none = INT_MAX;
	enum ar_status st = AR_OK;

	CU(cudaMemcpyAsync(w.first, &none, sizeof none, cudaMemcpyHostToDevice, stream));
	accuracy_rows<<<(unsigned)((n + THREADS - 1) / THREADS), THREADS, 0, stream>>>(
		n_row, s->q_heads, s->head_dim, out, dense, lse, lse_dense, w);
	CU_LAUNCHED();
	accuracy_heads<<<ACC_VALUES, THREADS, 0, stream>>>(n_row, s->q_heads, w);
	CU_LAUNCHED();
out:
	return st;
}

enum ar_status accuracy_measure_device(const struct attn_shape *s, int n_row, const bf16_t *out,
				       const bf16_t *dense, const float *lse,
				       const float *lse_dense, void *work, void *stream,
				       struct accuracy *acc, struct ar_err *err)
{
	struct workspace at = workspace_at(work);
	const struct accuracy_work w = lay(&at, s, n_row);
	const size_t heads = (size_t)s->q_heads, bytes = ACC_VALUES * heads * sizeof(double);
	double *head = (double *)malloc(bytes), value[ACC_VALUES];
	int first = INT_MAX;
	enum ar_status st = head ? AR_OK : ar_nomem(err);

	if (!st)
		st = enqueue(s, n_row, out, dense, lse, lse_dense, w, (cudaStream_t)stream, err);
	if (st)
		goto out;
	CU(cudaMemcpyAsync(head, w.head, bytes, cudaMemcpyDeviceToHost, (cudaStream_t)stream));
	CU(cudaMemcpyAsync(&first, w.first, sizeof first, cudaMemcpyDeviceToHost,
			   (cudaStream_t)stream));
	CU(cudaStreamSynchronize((cudaStream_t)stream));
	if (first != INT_MAX) {
		st = accuracy_refuse(first / n_row, first % n_row, err);
		goto out;
	}
	for (size_t h = 0; h < heads; h++) {
		for (size_t v = 0; v < ACC_VALUES; v++)
			value[v] = head[v * heads + h];
		acc[h] = accuracy_of(value, n_row);
	}
out:
	free(head);
	return st;
}
