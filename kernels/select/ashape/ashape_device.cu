/* SPDX-License-Identifier: Apache-2.0 */
/* A-shape on the device: one thread per row of lists. */
#include "config.h"
#include "kernels/select/ashape/ashape.h"

#include "kernels/prim/cuda.h"
#include "kernels/select/qblk.cuh"

static constexpr int THREADS = 64;

static __global__ void __launch_bounds__(THREADS)
ashape_lists(struct attn_batch b, struct attn_band band, struct column_lists l)
{
	const int i = blockIdx.x * THREADS + threadIdx.x;

	if (i >= b.rows.n_qblk * b.shape.q_heads)
		return;
	const struct qblk s = qblk_at(b, i / b.shape.q_heads);

	l.n_run[i] = ashape_runs(&band, &b, s.req, s.blk, l.run + (size_t)i * l.max_run);
	l.n_col[i] = 0;
	l.band[i] = band;
}

enum ar_status ashape_enqueue(const struct attn_call *call, const void *self,
			      const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const int n = b->rows.n_qblk * b->shape.q_heads;
	enum ar_status st = AR_OK;

	if (!n)
		return AR_OK;
	ashape_lists<<<(n + THREADS - 1) / THREADS, THREADS, 0, (cudaStream_t)call->stream>>>
		(*b, ashape_band((const struct ashape *)self), out->columns);
	CU_LAUNCHED();
out:
	return st;
}
