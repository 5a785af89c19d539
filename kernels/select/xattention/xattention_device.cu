/* SPDX-License-Identifier: Apache-2.0 */
/*
 * XAttention's selection on the device; the rule is in xattention.c.  Two kernels:
 *
 *   score   a product of reduced queries and reduced keys: xattention_sm90.cu, and for devices
 *           before Hopper xattention_sm80.cu.
 *   select  a thread block per (query block, head): every row's sum, the masses, and the bits.
 *
 * Arithmetic: 2 Hq Nq Nkv D / S, at S = 8 1/16 of dense attention's.  For 8 chunks of 1024 on 128K
 * tokens, 16 heads of 128 over 4 KV heads that is 550 GFLOP.  Bytes: K once from memory, 1.1 GB or
 * 0.25 ms; 67 MB of sums, written once and read three times.
 */
#include "config.h"
#include "kernels/select/xattention/xattention.cuh"

#include <cfloat>

#include "base/gpu.h"
#include "base/workspace.h"
#include "kernels/prim/cuda.h"
#include "kernels/select/qblk.cuh"
#include "kernels/select/selectors.h"
#include "kernels/select/top.cuh"

namespace {

constexpr int MAX_HEADS = 256;

struct rule {
	int stride;
	int tail;
	int64_t last_dense;
	float threshold[MAX_HEADS];
};

__device__ __forceinline__ bool in_tail(const struct attn_batch &b, const struct rule &rule, int r)
{
	return xattention_in_tail(rule.last_dense, rule.tail, b.rows.left[r]);
}

/* ---- select ---- */

/* Write the masses of blocks [0, blk] into the first row of lse, as bits of floats.  lo, hi: range
 * of the reduced rows that take part. */
__device__ void masses(float *lse, int stride, int lo, int hi, int blk)
{
	__shared__ float base[32];	// log2 of a reduced row's sum
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

	for (int row = lo + warp; row < hi; row += TOP_WARPS) {
		const float *x = lse + (size_t)row * stride;
		float top = -FLT_MAX, sum = 0;

		for (int j = lane; j <= blk; j += 32)
			top = fmaxf(top, x[j]);
		top = warp_max(top);
		for (int j = lane; j <= blk; j += 32)
			sum += ex2(x[j] - top);
		sum = warp_sum(sum);
		if (lane == 0)
			base[row] = top + __log2f(sum);
	}
	__syncthreads();
	for (int j = threadIdx.x; j <= blk; j += TOP_THREADS) {
		float w = 0;

		for (int row = lo; row < hi; row++)
			w += ex2(lse[(size_t)row * stride + j] - base[row]);
		lse[j] = __uint_as_float(xattention_units(w));
	}
	__syncthreads();
}

/* Find the kept blocks between the first one and the diagonal. */
__device__ struct top find_kept(const float *mass, int blk, float threshold, struct top_smem &sm)
{
	const auto key = [=](int i) { return __float_as_uint(mass[i]); };
	const auto own = [](uint32_t key) { return key; };
	const uint32_t forced = key(0) + (blk ? key(blk) : 0);
	const uint32_t total = (uint32_t)top_sum(key, blk + 1, 0, own, sm);
	const uint32_t need = xattention_need(threshold, total);

	if (need <= forced)
		return top_none();
	return top_find([=](int i) { return key(i + 1); }, blk - 1, need - forced, own, sm);
}

__global__ void __launch_bounds__(TOP_THREADS)
xattention_select(struct attn_batch b, const __grid_constant__ struct rule rule, float *lse,
		  uint32_t *__restrict__ mask)
{
	__shared__ struct top_smem sm;
	const struct qblk s = qblk_at(b, blockIdx.x);
	const int per = b.shape.page_tok / rule.stride;
	const size_t row = (size_t)blockIdx.x * b.shape.q_heads + blockIdx.y;
	const float threshold = rule.threshold[blockIdx.y];
	const bool one = b.rows.row0[s.req + 1] - b.rows.row0[s.req] == 1;
	const bool all = threshold >= 1 || one || in_tail(b, rule, s.req);
	struct top kept = top_none();

	lse += row * per * b.keys.max_kv_blk;
	if (!all) {
		masses(lse, b.keys.max_kv_blk, s.lo / rule.stride,
		       (s.hi + rule.stride - 1) / rule.stride, s.blk);
		kept = find_kept(lse, s.blk, threshold, sm);
	}
	top_write([=](int i) { return __float_as_uint(lse[i]); }, s.blk, all, kept,
		  mask + row * b.keys.mask_words, b.keys.mask_words, sm);
}

/* ---- launch ---- */

enum ar_status check(const struct attn_shape *s, int stride, struct ar_err *err)
{
	const int per = s->page_tok / stride;

	if ((per == 4 || per == 8 || per == 16 || per == 32) && s->page_tok % stride == 0 &&
	    s->q_heads <= MAX_HEADS)
		return AR_OK;
	return ar_fail(err, AR_USAGE, "xattention on CUDA wants blocks of 4 to 32 strides and at "
		       "most %d query heads, not %d tokens and %d", MAX_HEADS, s->page_tok,
		       s->q_heads);
}

/* Point j into work; returns the bytes that takes. */
size_t lay_out(struct xattention_job *j, const struct attn_shape *s, int n_qblk, int n_row,
	       int n_req, int max_kv_blk, void *work)
{
	const size_t sums = (size_t)n_qblk * s->q_heads * (s->page_tok / j->stride) * max_kv_blk;
	const size_t rows = xattention_rows(n_row, n_req, j->stride) * s->q_heads * j->stride;
	const size_t last = (size_t)n_req * s->kv_heads * s->page_tok;
	struct workspace w = workspace_at(work);

	j->lse = (float *)workspace_take(&w, sums, sizeof *j->lse);
	j->row = (bf16_t *)workspace_take(&w, rows * s->head_dim, sizeof *j->row);
	j->last = (bf16_t *)workspace_take(&w, last * s->head_dim, sizeof *j->last);
	return w.used;
}

/* n_sm: multiprocessors of the device, for the kernel for Hopper; 0: take the other one. */
enum ar_status enqueue(const struct attn_call *call, const struct xattention_self *x, int n_sm,
		       uint32_t *mask, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const struct attn_shape *s = &b->shape;
	cudaStream_t stream = (cudaStream_t)call->stream;
	struct xattention_job j = { *b, call->q, call->kv.k };
	struct rule rule = { x->stride, x->tail, x->last_dense, {} };
	enum ar_status st;

	j.scale = (float)(1.4426950408889634 / (sqrt((double)s->head_dim) * x->stride));
	j.stride = x->stride;
	j.tail = x->tail;
	j.last_dense = x->last_dense;
	lay_out(&j, s, b->rows.n_qblk, b->rows.n_row, b->rows.n_req, b->keys.max_kv_blk,
		call->work);
	for (int h = 0; h < s->q_heads; h++)
		rule.threshold[h] = x->threshold[(size_t)call->layer * x->q_heads + h];
	st = n_sm ? xattention_score_sm90(&j, n_sm, stream, err) :
		    xattention_score_sm80(&j, stream, err);
	if (st)
		return st;
	xattention_select<<<dim3(b->rows.n_qblk, s->q_heads), TOP_THREADS, 0, stream>>>
		(*b, rule, j.lse, mask);
	CU_LAUNCHED();
out:
	return st;
}

}

size_t xattention_work_bytes(const void *self, const struct attn_shape *s,
			     const struct attn_limits *l)
{
	struct xattention_job j = {};

	j.stride = ((const struct xattention_self *)self)->stride;
	return lay_out(&j, s, attn_max_qblk(l, s->page_tok), l->max_row, l->max_req, l->max_kv_blk,
		       NULL);
}

enum ar_status xattention_enqueue(const struct attn_call *call, const void *self,
				  const struct selection *out, struct ar_err *err)
{
	const struct xattention_self *x = (const struct xattention_self *)self;
	enum ar_status st = check(&call->b->shape, x->stride, err);

	return st ? st : selector_dispatch("xattention", call, self, out, err);
}

enum ar_status xattention_sm90_enqueue(const struct attn_call *call, const void *self,
				       const struct selection *out, struct ar_err *err)
{
	const struct gpu *gpu;
	enum ar_status st = gpu_current(&gpu, err);

	return st ? st :
		    enqueue(call, (const struct xattention_self *)self, gpu->n_sm, out->mask, err);
}

enum ar_status xattention_sm80_enqueue(const struct attn_call *call, const void *self,
				       const struct selection *out, struct ar_err *err)
{
	return enqueue(call, (const struct xattention_self *)self, 0, out->mask, err);
}
