/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FlashPrefill's selection on the device; the rule is in flashprefill.c.  After the means, two
 * kernels:
 *
 *   score   grid (query block, query head): (max, sum) over the block's rows of every key
 *           block, float2 [query block][head][max_kv_blk] in work.
 *   mask    the same grid: one maximum, weights, threshold, bit words.
 *
 * Score is a product of 128 or 64 query rows with up to 2^16 mean keys: 1/128 or 1/64 of the
 * products that dense attention needs for Q K^T.  Because the result is reduced over rows,
 * warps split the key blocks, not the rows: each warp keeps 16 mean keys in registers and streams
 * all rows from shared memory past them.  So the running (max, sum) of a column stays in one warp.
 * It is combined across lanes only once, at the end.
 *
 *   registers   keys 2 x 4 x D/32 = 32 (D 128) or 64 (D 256), accumulators 2 x 2 x 4 = 16,
 *               rows 8, (max, sum) 8: two blocks of 256 threads a SM
 *   shared      128 x (D + 8) x 2 B = 34 KiB (D 128) or 66 KiB (D 256); padded by 16 B so that
 *               the eight rows of an ldmatrix fall into different banks
 *   per step    2 ldmatrix.x4 feed 4 mma: 8 KiB of multiply-adds per 1 KiB read
 *
 * A mean key's elements go to the mma's k index in the order in which 16-byte loads bring
 * them; the query rows are stored in the same order (see load_rows).
 *
 * At 128K of context, batch 8, chunk 1024, 16 query heads over 4 KV heads, D 128, it takes 0.18 ms
 * on an H200, dense attention 11.5.
 */
#include "config.h"
#include "kernels/select/flashprefill/flashprefill.h"

#include <cfloat>
#include <cmath>

#include "kernels/prim/cuda.h"
#include "kernels/prim/device.cuh"
#include "kernels/select/means/means.h"
#include "kernels/select/qblk.cuh"

static constexpr int WARPS = 8;
static constexpr int SLAB = 16;		// mean keys a warp holds
static constexpr int STEP = 32;		// rows between updates of (max, sum)

// BLOCK, of the templates below: tokens of a page, rows of a query block.

struct rule {
	float alpha;
	int sink, window, last_n, drop, dense_first;
};

/* Blocks [0, n) have a score. */
template <int BLOCK>
static __device__ __forceinline__ int n_seen(const struct qblk &s)
{
	return s.blk + (s.hi == BLOCK);
}

template <int BLOCK>
static __device__ __forceinline__ bool is_last(const struct attn_batch &b, const struct qblk &s,
					       const struct rule &rule)
{
	const int end = b.rows.pos0[s.req] + b.rows.row0[s.req + 1] - b.rows.row0[s.req];

	return !b.rows.left[s.req] && s.blk >= (end + BLOCK - 1) / BLOCK - rule.last_n;
}

/* Rows that keep everything up to the diagonal; they have no scores. */
template <int BLOCK>
static __device__ bool is_open(const struct attn_batch &b, const struct qblk &s,
			       const struct rule &rule)
{
	return b.rows.row0[s.req + 1] - b.rows.row0[s.req] == 1 ||
	       (rule.dense_first && !b.rows.pos0[s.req]) ||
	       (!rule.drop && is_last<BLOCK>(b, s, rule));
}

/* ---- score ---- */

template <int D, int BLOCK>
struct score_smem {
	bf16_t q[BLOCK][D + 8];
};
static_assert(2 * sizeof(struct score_smem<256, 128>) <= 225 * 1024, "two blocks a SM");

/* Copy rows of one head to shared memory; rows outside the chunk become zeros.  Within each 32
 * elements, 16-byte piece c takes pair c of each 16-byte piece of the source.  A lane that loads
 * piece t of a mean key then holds the pairs of two consecutive k steps. */
template <int D, int BLOCK>
static __device__ void load_rows(bf16_t (&rows)[BLOCK][D + 8], const struct qblk &s,
				 const bf16_t *__restrict__ q, int q_heads, int head)
{
	for (int i = threadIdx.x; i < BLOCK * D / 32; i += WARPS * 32) {
		const int row = i / (D / 32), d = i % (D / 32) * 32;
		uint4 v[4] = {};

		if (row >= s.lo && row < s.hi) {
			const size_t at = (size_t)(s.row + row) * q_heads + head;
			const uint4 *src = (const uint4 *)(q + at * D + d);

			for (int c = 0; c < 4; c++)
				v[c] = src[c];
		}
		uint4 *dst = (uint4 *)&rows[row][d];

		dst[0] = make_uint4(v[0].x, v[1].x, v[2].x, v[3].x);
		dst[1] = make_uint4(v[0].y, v[1].y, v[2].y, v[3].y);
		dst[2] = make_uint4(v[0].z, v[1].z, v[2].z, v[3].z);
		dst[3] = make_uint4(v[0].w, v[1].w, v[2].w, v[3].w);
	}
}

/* Lane 4g + t takes elements 8t..8t+7 of each 32 of the mean keys first + g and first + 8 + g. */
template <int D>
static __device__ __forceinline__ void load_keys(uint4 (&key)[2][D / 32],
						 const struct attn_batch &b, const struct qblk &s,
						 int seen, int first, int kv_head,
						 const bf16_t *__restrict__ mean)
{
	const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;

#pragma unroll
	for (int n = 0; n < 2; n++) {
		const int j = first + n * 8 + g;

		if (j < seen) {
			const size_t page = b.keys.page[b.keys.page0[s.req] + j];
			const bf16_t *src = mean + (page * b.shape.kv_heads + kv_head) * D + t * 8;

#pragma unroll
			for (int c = 0; c < D / 32; c++)
				key[n][c] = *(const uint4 *)(src + c * 32);
		} else {
#pragma unroll
			for (int c = 0; c < D / 32; c++)
				key[n][c] = make_uint4(0, 0, 0, 0);
		}
	}
}

/* acc[i][n]: rows row + 16 i .. + 15 against mean keys 8 n .. + 7 of the slab. */
template <int D, int BLOCK>
static __device__ __forceinline__ void multiply(float (&acc)[2][2][4],
						const bf16_t (&rows)[BLOCK][D + 8], int row,
						const uint4 (&key)[2][D / 32])
{
	const int lane = threadIdx.x % 32;

#pragma unroll
	for (int k = 0; k < D / 16; k++) {
#pragma unroll
		for (int i = 0; i < 2; i++) {
			uint32_t a[4];

			ldmatrix_x4(a, smem_addr(&rows[row + 16 * i + lane % 16]
						     [k * 16 + lane / 16 * 8]));
#pragma unroll
			for (int n = 0; n < 2; n++) {
				const uint4 &b = key[n][k / 2];

				mma_m16n8k16(acc[i][n], a, k % 2 ? b.z : b.x, k % 2 ? b.w : b.y);
			}
		}
	}
}

struct peak {		// of the rows seen so far: largest logit, sum of 2^(logit - max)
	float max, sum;
};

static __device__ __forceinline__ void peak_merge(struct peak &p, float max, float sum)
{
	const float m = fmaxf(p.max, max);

	p.sum = p.sum * ex2(p.max - m) + sum * ex2(max - m);
	p.max = m;
}

template <int BLOCK>
static __device__ __forceinline__ bool sees(const struct qblk &s, int row, int j)
{
	return row >= s.lo && row < s.hi && (j < s.blk || (j == s.blk && row == BLOCK - 1));
}

/* Take 32 rows of products into this lane's four columns.  masked: some rows lie outside the chunk
 * or do not see some keys.  max begins at -FLT_MAX, because -inf would lead to inf - inf. */
template <int BLOCK, bool masked>
static __device__ __forceinline__ void reduce_rows(struct peak (&p)[2][2],
						   const float (&acc)[2][2][4],
						   const struct qblk &s, int row, int first,
						   float scale)
{
	const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;

#pragma unroll
	for (int n = 0; n < 2; n++)
#pragma unroll
		for (int c = 0; c < 2; c++) {
			float x[4], m = p[n][c].max, sum = 0;

#pragma unroll
			for (int i = 0; i < 4; i++) {
				x[i] = acc[i / 2][n][i % 2 * 2 + c] * scale;
				if (masked && !sees<BLOCK>(s, row + 8 * i + g,
							   first + 8 * n + 2 * t + c))
					x[i] = -INFINITY;
				m = fmaxf(m, x[i]);
			}
#pragma unroll
			for (int i = 0; i < 4; i++)
				sum += ex2(x[i] - m);
			p[n][c].sum = p[n][c].sum * ex2(p[n][c].max - m) + sum;
			p[n][c].max = m;
		}
}

/* Combine the eight lanes that share a column and write the slab's columns. */
static __device__ __forceinline__ void store_peaks(struct peak (&p)[2][2], int seen, int first,
						   float2 *__restrict__ score)
{
	const int lane = threadIdx.x % 32;

#pragma unroll
	for (int n = 0; n < 2; n++)
#pragma unroll
		for (int c = 0; c < 2; c++) {
			const int j = first + 8 * n + 2 * (lane % 4) + c;

#pragma unroll
			for (int d = 4; d < 32; d *= 2) {
				float max = __shfl_xor_sync(~0u, p[n][c].max, d);
				float sum = __shfl_xor_sync(~0u, p[n][c].sum, d);

				peak_merge(p[n][c], max, sum);
			}
			if (lane < 4 && j < seen)
				score[j] = make_float2(p[n][c].max, p[n][c].sum);
		}
}

template <int D, int BLOCK>
static __global__ void __launch_bounds__(WARPS * 32, 2)
flashprefill_score(struct attn_batch b, struct rule rule, const bf16_t *__restrict__ q,
		   const bf16_t *__restrict__ mean, float scale, float2 *__restrict__ score)
{
	extern __shared__ __align__(16) char dynamic[];
	struct score_smem<D, BLOCK> &smem = *(struct score_smem<D, BLOCK> *)dynamic;
	const struct qblk s = qblk_at(b, blockIdx.x);
	const int head = blockIdx.y, kv_head = head / (b.shape.q_heads / b.shape.kv_heads);
	const int seen = n_seen<BLOCK>(s);

	if (is_open<BLOCK>(b, s, rule))
		return;
	load_rows<D, BLOCK>(smem.q, s, q, b.shape.q_heads, head);
	__syncthreads();
	score += ((size_t)blockIdx.x * b.shape.q_heads + head) * b.keys.max_kv_blk;
	for (int first = threadIdx.x / 32 * SLAB; first < seen; first += WARPS * SLAB) {
		struct peak p[2][2] = { { { -FLT_MAX, 0 }, { -FLT_MAX, 0 } },
					{ { -FLT_MAX, 0 }, { -FLT_MAX, 0 } } };
		uint4 key[2][D / 32];

		load_keys<D>(key, b, s, seen, first, kv_head, mean);
		for (int row = s.lo / STEP * STEP; row < s.hi; row += STEP) {
			float acc[2][2][4] = {};

			multiply<D, BLOCK>(acc, smem.q, row, key);
			if (row < s.lo || row + STEP > s.hi || first + SLAB > s.blk)
				reduce_rows<BLOCK, true>(p, acc, s, row, first, scale);
			else
				reduce_rows<BLOCK, false>(p, acc, s, row, first, scale);
		}
		store_peaks(p, seen, first, score);
	}
}

/* ---- mask ---- */

/* The largest x of the thread block, in every thread. */
static __device__ float block_max(float x, float (&part)[WARPS])
{
	x = warp_max(x);
	__syncthreads();	// the last use of part is over
	if (threadIdx.x % 32 == 0)
		part[threadIdx.x / 32] = x;
	__syncthreads();
	for (int w = 0; w < WARPS; w++)
		x = fmaxf(x, part[w]);
	return x;
}

template <int BLOCK>
static __global__ void __launch_bounds__(WARPS * 32)
flashprefill_mask(struct attn_batch b, struct rule rule, const float2 *__restrict__ score,
		  uint32_t *__restrict__ mask)
{
	__shared__ float part[WARPS];
	const struct qblk s = qblk_at(b, blockIdx.x);
	const size_t row = (size_t)blockIdx.x * b.shape.q_heads + blockIdx.y;
	const bool open = is_open<BLOCK>(b, s, rule);
	const int n = open ? 0 : n_seen<BLOCK>(s);
	float top = -INFINITY, least = 0;

	score += row * b.keys.max_kv_blk;
	for (int j = threadIdx.x; j < n; j += WARPS * 32)
		top = fmaxf(top, score[j].x);
	top = block_max(top, part);
	for (int j = threadIdx.x; j < n; j += WARPS * 32)
		least = fmaxf(least, score[j].y * ex2(score[j].x - top));
	least = rule.alpha * block_max(least, part);
	if (rule.drop && is_last<BLOCK>(b, s, rule) && blockIdx.x != b.rows.qblk0[s.req])
		least = INFINITY;
	for (int word = threadIdx.x / 32; word < b.keys.mask_words; word += WARPS) {
		const int j = word * 32 + threadIdx.x % 32;
		const float w = j < n ? score[j].y * ex2(score[j].x - top) : 0;
		const bool keep = j <= s.blk &&
				  (open || w >= least || j < rule.sink || s.blk - j < rule.window);
		const uint32_t bits = __ballot_sync(~0u, keep);

		if (threadIdx.x % 32 == 0)
			mask[row * b.keys.mask_words + word] = bits;
	}
}

/* ---- launch ---- */

size_t flashprefill_work_bytes(const void *, const struct attn_shape *s,
			       const struct attn_limits *l)
{
	return (size_t)attn_max_qblk(l, s->page_tok) * s->q_heads * l->max_kv_blk * sizeof(float2);
}

/* Arguments of the kernels. */
struct job {
	struct attn_batch b;
	struct rule rule;
	const bf16_t *q, *mean;
	uint32_t *mask;
	float2 *score;
	cudaStream_t stream;
};

template <int D, int BLOCK>
static enum ar_status launch(const struct job &j, struct ar_err *err)
{
	const float scale = (float)(1.4426950408889634 / sqrt((double)D));
	const int bytes = (int)sizeof(struct score_smem<D, BLOCK>);
	const dim3 grid(j.b.rows.n_qblk, j.b.shape.q_heads);
	enum ar_status st = AR_OK;

	CU(cudaFuncSetAttribute(flashprefill_score<D, BLOCK>,
				cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
	flashprefill_score<D, BLOCK><<<grid, WARPS * 32, bytes, j.stream>>>
		(j.b, j.rule, j.q, j.mean, scale, j.score);
	CU_LAUNCHED();
	flashprefill_mask<BLOCK><<<grid, WARPS * 32, 0, j.stream>>>
		(j.b, j.rule, j.score, j.mask);
	CU_LAUNCHED();
out:
	return st;
}

template <int D>
static enum ar_status launch_dim(const struct job &j, struct ar_err *err)
{
	return j.b.shape.page_tok == 64 ? launch<D, 64>(j, err) : launch<D, 128>(j, err);
}

enum ar_status flashprefill_enqueue(const struct attn_call *call, const void *self,
				    const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const struct flashprefill *p = (const struct flashprefill *)self;
	enum ar_status st;

	if (!b->rows.n_qblk)
		return AR_OK;
	const struct job j = {
		*b,
		{ (float)p->alpha, (int)p->sink, (int)p->window, (int)p->last_n, p->last_rule,
		  p->dense_first },
		call->q, (bf16_t *)call->state, out->mask, (float2 *)call->work,
		(cudaStream_t)call->stream
	};

	st = means_update_bf16_enqueue(b, call->kv.k, (bf16_t *)call->state, call->stream, err);
	if (st)
		return st;
	switch (b->shape.head_dim) {
	case 64:
		return launch_dim<64>(j, err);
	case 128:
		return launch_dim<128>(j, err);
	default:
		return launch_dim<256>(j, err);
	}
}
