/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle's masks on the device; the rule is in oracle.c.  Two kernels:
 *
 *   means   grid (query block, query head), a warp per 16 rows.  Two passes over the keys: the
 *           maximum and sum of every row, then the probabilities, summed up by block.  Each is
 *           the Q K^T of dense attention, so the two cost about as much as dense attention; a bound
 *           to compare with need not be fast.
 *   pick    a thread block per request, by pick.cuh over the cells of its mask rows.  Means are
 *           not negative, so their bits sort as they do.  A cell's key is these bits plus one; 0 is
 *           the key of cells past the diagonal, which are never taken.
 */
#include "config.h"
#include "kernels/select/oracle/oracle.h"

#include <cfloat>
#include <climits>
#include <cmath>

#include "kernels/prim/cuda.h"
#include "kernels/prim/device.cuh"
#include "kernels/select/pick.cuh"
#include "kernels/select/qblk.cuh"

namespace {

constexpr int KEYS = 64;	// of a step

/* ---- means ---- */

/* Lane 4g + t of an mma's a operand: rows g and g + 8 of the warp's 16. */
template <int D>
__device__ __forceinline__ void load_rows(uint32_t (&a)[D / 16][4], const struct attn_batch &b,
					  const struct qblk &s, const bf16_t *__restrict__ q,
					  int head)
{
	const int lane = threadIdx.x % 32, base = threadIdx.x / 32 * 16 + lane / 4;

#pragma unroll
	for (int half = 0; half < 2; half++) {
		const int row = base + 8 * half;
		const bool own = row >= s.lo && row < s.hi;
		const size_t at = (size_t)(own ? s.row + row : 0) * b.shape.q_heads + head;
		const uint32_t *src = (const uint32_t *)(q + at * D) + lane % 4;

#pragma unroll
		for (int k = 0; k < D / 16; k++) {
			a[k][half] = own ? src[k * 8] : 0;
			a[k][half + 2] = own ? src[k * 8 + 4] : 0;
		}
	}
}

/* Keys [key, key + KEYS) of the request to shared memory, zeros from end on. */
template <int D>
__device__ __forceinline__ void load_keys(bf16_t *tile, const struct attn_batch &b, int req,
					  int key, int end, int kv_head,
					  const bf16_t *__restrict__ k)
{
	const int tok = b.shape.page_tok;
	const size_t page = b.keys.page[b.keys.page0[req] + key / tok];
	const bf16_t *src = k + ((page * b.shape.kv_heads + kv_head) * tok + key % tok) * D;

	for (int i = threadIdx.x; i < KEYS * D / 8; i += blockDim.x) {
		const int row = i / (D / 8), c = i % (D / 8);
		const int bytes = key + row < end ? 16 : 0;

		cp_async_16(smem_addr(tile) + swizzle<D>(row, c),
			    src + (bytes ? row * D + c * 8 : 0), bytes);
	}
	cp_async_commit();
	cp_async_wait<0>();
	__syncthreads();
}

/* x[n]: keys 8n .. 8n + 7 of the step against the warp's rows, in units of log2; -inf where a row
 * does not see a key or is none of the chunk. */
template <int D>
__device__ __forceinline__ void scores(float (&x)[KEYS / 8][4], const uint32_t (&a)[D / 16][4],
				       const bf16_t *tile, const struct qblk &s, int pos0, int key,
				       float scale)
{
	const int lane = threadIdx.x % 32, base = threadIdx.x / 32 * 16 + lane / 4;

#pragma unroll
	for (int n = 0; n < KEYS / 8; n++) {
		x[n][0] = x[n][1] = x[n][2] = x[n][3] = 0;
#pragma unroll
		for (int k = 0; k < D / 16; k += 2) {
			uint32_t r[4];

			ldmatrix_x4(r, smem_addr(tile) +
				    swizzle<D>(n * 8 + lane % 8, k * 2 + lane / 8));
			mma_m16n8k16(x[n], a[k], r[0], r[1]);
			mma_m16n8k16(x[n], a[k + 1], r[2], r[3]);
		}
#pragma unroll
		for (int i = 0; i < 4; i++) {
			const int row = base + i / 2 * 8, at = key + n * 8 + lane % 4 * 2 + i % 2;

			x[n][i] = row >= s.lo && row < s.hi && at <= pos0 + row ? x[n][i] * scale :
										 -INFINITY;
		}
	}
}

template <int D>
__global__ void __launch_bounds__(256)
oracle_means(struct attn_batch b, const bf16_t *__restrict__ q, const bf16_t *__restrict__ k,
	     float scale, float *__restrict__ mean)
{
	__shared__ __align__(128) bf16_t tile[KEYS * D];
	__shared__ float part[8];
	const struct qblk s = qblk_at(b, blockIdx.x);
	const int tok = b.shape.page_tok, pos0 = s.blk * tok, end = pos0 + s.hi;
	const int head = blockIdx.y, kv_head = head / (b.shape.q_heads / b.shape.kv_heads);
	uint32_t a[D / 16][4];
	float x[KEYS / 8][4], max[2] = { -FLT_MAX, -FLT_MAX }, sum[2] = { 0, 0 };

	load_rows<D>(a, b, s, q, head);
	for (int key = 0; key < end; key += KEYS) {
		load_keys<D>(tile, b, s.req, key, end, kv_head, k);
		scores<D>(x, a, tile, s, pos0, key, scale);
		for (int i = 0; i < 2; i++) {
			float top = max[i], add = 0;

#pragma unroll
			for (int n = 0; n < KEYS / 8; n++)
				top = fmaxf(top, fmaxf(x[n][2 * i], x[n][2 * i + 1]));
			top = quad_max(top);
#pragma unroll
			for (int n = 0; n < KEYS / 8; n++)
				add += ex2(x[n][2 * i] - top) + ex2(x[n][2 * i + 1] - top);
			sum[i] = sum[i] * ex2(max[i] - top) + quad_sum(add);
			max[i] = top;
		}
		__syncthreads();
	}
	for (int i = 0; i < 2; i++)	/* a row outside the chunk has no mass: x is -inf */
		max[i] += log2f(fmaxf(sum[i], FLT_MIN));
	mean += ((size_t)blockIdx.x * b.shape.q_heads + head) * b.keys.max_kv_blk;
	for (int j = 0; j <= s.blk; j++) {
		float here = 0;

		for (int key = j * tok; key < (j + 1) * tok && key < end; key += KEYS) {
			load_keys<D>(tile, b, s.req, key, end, kv_head, k);
			scores<D>(x, a, tile, s, pos0, key, scale);
#pragma unroll
			for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
				for (int i = 0; i < 4; i++)
					here += ex2(x[n][i] - max[i / 2]);
			__syncthreads();
		}
		here = warp_sum(here);
		if (threadIdx.x % 32 == 0)
			part[threadIdx.x / 32] = here;
		__syncthreads();
		if (threadIdx.x == 0) {
			for (int w = 1; w < (int)blockDim.x / 32; w++)
				here += part[w];
			mean[j] = here;
		}
	}
	__syncthreads();
	for (int j = threadIdx.x; j <= s.blk; j += blockDim.x)
		mean[j] /= (float)oracle_pairs(s.lo, s.hi, j < s.blk ? tok : 0);
}

/* ---- pick ---- */

__global__ void __launch_bounds__(PICK_THREADS)
oracle_pick(struct attn_batch b, struct oracle rule, const float *__restrict__ mean,
	    uint32_t *__restrict__ mask)
{
	__shared__ struct pick_smem sm;
	const int first = b.rows.qblk0[blockIdx.x], rows = b.rows.qblk0[blockIdx.x + 1] - first;
	const int q_heads = b.shape.q_heads, qa = b.rows.pos0[blockIdx.x] / b.shape.page_tok;
	const int width = b.keys.mask_words * 32, n = rows * q_heads * width;
	const int stride = b.keys.max_kv_blk;
	const float *own = mean + (size_t)first * q_heads * stride;
	uint32_t *words = mask + (size_t)first * q_heads * b.keys.mask_words;
	const auto key = [=](int i) {
		const int row = i / width, j = i % width;

		return j <= qa + row / q_heads ?
			__float_as_uint(own[(size_t)row * stride + j]) + 1 : 0;
	};
	const int64_t keep = oracle_count(&rule, oracle_cells(q_heads, qa, rows));
	const struct pick p = pick_find<PICK_COUNT>(sm, n, (uint32_t)keep, key);

	pick_walk(sm, p, n, key, [=](int i, bool taken, int) {
		const uint32_t bits = __ballot_sync(~0u, taken);

		if (i % 32 == 0)
			words[i / 32] = bits;
	});
}

}

size_t oracle_work_bytes(const void *, const struct attn_shape *s, const struct attn_limits *l)
{
	return (size_t)attn_max_qblk(l, s->page_tok) * s->q_heads * l->max_kv_blk * sizeof(float);
}

enum ar_status oracle_enqueue(const struct attn_call *call, const void *self,
			      const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const struct attn_shape *s = &b->shape;
	const float scale = (float)(1.4426950408889634 / sqrt((double)s->head_dim));
	const int64_t bits = (int64_t)b->rows.n_qblk * s->q_heads * b->keys.mask_words * 32;
	const dim3 grid(b->rows.n_qblk, s->q_heads);
	auto kernel = s->head_dim == 64 ? oracle_means<64> :
		      s->head_dim == 128 ? oracle_means<128> : oracle_means<256>;
	enum ar_status st = AR_OK;

	if (bits > INT_MAX - PICK_BATCH * PICK_THREADS)
		return ar_fail(err, AR_USAGE, "oracle on CUDA cannot rank a batch of %lld blocks "
			       "of all heads; make chunks shorter", (long long)bits);
	if (!b->rows.n_qblk)
		return AR_OK;
	kernel<<<grid, s->page_tok / 16 * 32, 0, (cudaStream_t)call->stream>>>
		(*b, call->q, call->kv.k, scale, (float *)call->work);
	CU_LAUNCHED();
	oracle_pick<<<b->rows.n_req, PICK_THREADS, 0, (cudaStream_t)call->stream>>>
		(*b, *(const struct oracle *)self, (const float *)call->work, out->mask);
	CU_LAUNCHED();
out:
	return st;
}
