/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SeerAttention's selection on the device; the rule is in seer.c.  Four kernels:
 *
 *   pool      grid (query block, KV heads + query heads, half of the channels): RoPE undone and
 *             pooled, keys of the page that the query block covers or its rows.
 *   project   grid (16 query blocks, gate head, 32 channels), heads of keys and, where these are
 *             projected, of queries: pooled vectors times a head's matrix, RoPE, to the page's
 *             state (keys) or to work (queries).  The warps share the summed elements, so that each
 *             asks for all of its own at once.
 *   score     grid (128 key blocks, query head, request): logits in bf16,
 *             [query block][head][block].
 *   mask      grid (query block, query head): softmax in place, threshold or rank, bit words.
 *
 * A product's two operands are both read along the summed index.  Lane 4g + t takes elements
 * 8t .. 8t + 7 of each 32 of row g of either: the mma's k index then runs over the elements in
 * another order, but the same for both.  No shared memory is needed.
 *
 * At 128K of context, batch 8, chunk 1024, 16 query heads over 4 KV heads, D 128:
 *
 *   pool      42 MB of Q and K read once: 10 us; 10 M sines and cosines take as long
 *   project   0.2 GFLOP on 136 rows; latency, 5 us
 *   score     67 MB of gate keys, 1.1 GFLOP: 16 us at 4.2 TB/s, and 8 MB of logits
 *   mask      8 MB of logits, three times out of the L2 cache: 10 us
 *
 * or 50 us with launches, by these figures.  On an H200 it takes 0.10 ms, dense attention 11.5.
 */
#include "config.h"
#include "kernels/select/seer/seer.h"

#include <cfloat>
#include <cmath>
#include <cuda_bf16.h>

#include "base/workspace.h"
#include "kernels/prim/cuda.h"
#include "kernels/prim/device.cuh"
#include "kernels/select/qblk.cuh"
#include "kernels/select/top.cuh"

namespace {

constexpr int BLOCK = SEER_BLOCK;
constexpr int WARPS = 8;
constexpr int SLAB = 16;		// key blocks that a warp scores

/* Whether the query block keeps everything up to the diagonal; it needs no scores then. */
__device__ bool is_open(const struct attn_batch &b, const struct qblk &s, const struct seer &rule)
{
	const int ctx = b.rows.pos0[s.req], end = ctx + b.rows.row0[s.req + 1] - b.rows.row0[s.req];

	return end - ctx == 1 || (rule.dense_first && !ctx) ||
	       (rule.dense_tail && !b.rows.left[s.req] &&
		s.blk >= (end + BLOCK - 1) / BLOCK - SEER_TAIL);
}

__device__ __forceinline__ float2 unpack(uint32_t x)
{
	return make_float2(__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000));
}

__device__ __forceinline__ float round_bf16(float x)
{
	return __bfloat162float(__float2bfloat16_rn(x));
}

/* Sine and cosine, to 2^-22, of every angle that a position makes.  The angle is reduced in quarter
 * turns: whole ones are dropped before the low part is added.  A series follows. */
__device__ __forceinline__ void trig(float angle, float *s, float *c)
{
	constexpr float high = 0.636619747f, low = 2.5682553e-8f;	// 2 / pi
	const float quarters = rintf(__fmul_rn(angle, high));
	const float rest = __fmaf_rn(angle, low, __fmaf_rn(angle, high, -quarters));
	const float x = rest * 1.57079637f, x2 = x * x;
	const float odd = fmaf(fmaf(fmaf(1.f / 362880, x2, -1.f / 5040), x2, 1.f / 120), x2,
			       -1.f / 6);
	const float even = fmaf(fmaf(fmaf(1.f / 40320, x2, -1.f / 720), x2, 1.f / 24), x2, -.5f);
	const float sine = fmaf(odd * x2, x, x), cosine = fmaf(even, x2, 1);
	const int n = (int)quarters;
	const float first = n & 1 ? cosine : sine, second = n & 1 ? sine : cosine;

	*s = n & 2 ? -first : first;
	*c = (n + 1) & 2 ? -second : second;
}

/* Rotate the pair (lo, hi) by the angle, as the gate does. */
__device__ __forceinline__ float2 turn(float lo, float hi, float angle)
{
	float s, c;

	trig(angle, &s, &c);
	s = round_bf16(s);
	c = round_bf16(c);
	return make_float2(__fsub_rn(__fmul_rn(lo, c), __fmul_rn(hi, s)),
			   __fadd_rn(__fmul_rn(hi, c), __fmul_rn(lo, s)));
}

/* ---- pool ---- */

constexpr int POOL_THREADS = 128;

// A thread block pools a quarter of a head's channels, and their partners in RoPE half a head on.
// A thread pools two neighbours and their partners, of every GROUPS-th token.
template <int D>
struct pool_shape {
	static constexpr int LANES = D / 8;
	static constexpr int GROUPS = POOL_THREADS / LANES;
	static constexpr int TOKENS = BLOCK / GROUPS;
};

template <int D>
struct pool_smem {
	float max[pool_shape<D>::GROUPS][D / 2], min[pool_shape<D>::GROUPS][D / 2];
	float sum[pool_shape<D>::GROUPS][D / 2];
	float mean[D / 2];
};

struct pool4 {		// channels c, c + half, c + 1, c + 1 + half
	float max[4], min[4], sum[4];
};

__device__ __forceinline__ void pool_add(struct pool4 &p, int at, float x)
{
	x = round_bf16(x);
	p.max[at] = fmaxf(p.max[at], x);
	p.min[at] = fminf(p.min[at], x);
	p.sum[at] += x;
}

/* Rows [lo, hi) of a block at position pos, pitch elements apart, at src. */
template <int D>
__device__ __forceinline__ void pool_rows(struct pool4 &p, const bf16_t *src, size_t pitch, int lo,
					  int hi, int pos, const float *inv)
{
	using shape = pool_shape<D>;
	const int c = blockIdx.z * (D / 4) + threadIdx.x % shape::LANES * 2;
	const int group = threadIdx.x / shape::LANES;
	const float inv0 = inv[c], inv1 = inv[c + 1];
	uint32_t x[shape::TOKENS], y[shape::TOKENS];

#pragma unroll
	for (int i = 0; i < shape::TOKENS; i++) {
		const int t = i * shape::GROUPS + group;
		const bool own = t >= lo && t < hi;
		const bf16_t *v = src + (own ? t : lo) * pitch + c;

		x[i] = *(const uint32_t *)v;
		y[i] = *(const uint32_t *)(v + D / 2);
	}
#pragma unroll
	for (int i = 0; i < shape::TOKENS; i++) {
		const int t = i * shape::GROUPS + group;
		const float2 a = unpack(x[i]), b = unpack(y[i]);
		float s, co;

		if (t < lo || t >= hi)
			continue;
		trig((float)(pos + t) * inv0, &s, &co);
		pool_add(p, 0, __fadd_rn(__fmul_rn(a.x, co), __fmul_rn(b.x, s)));
		pool_add(p, 1, __fsub_rn(__fmul_rn(b.x, co), __fmul_rn(a.x, s)));
		trig((float)(pos + t) * inv1, &s, &co);
		pool_add(p, 2, __fadd_rn(__fmul_rn(a.y, co), __fmul_rn(b.y, s)));
		pool_add(p, 3, __fsub_rn(__fmul_rn(b.y, co), __fmul_rn(a.y, s)));
	}
}

/* Merge the groups into the maximum and minimum of channel threadIdx.x, and sm.mean. */
template <int D>
__device__ __forceinline__ float2 pool_reduce(struct pool_smem<D> &sm, const struct pool4 &p, int n)
{
	using shape = pool_shape<D>;
	const int c = threadIdx.x % shape::LANES * 2, group = threadIdx.x / shape::LANES;
	float max = -FLT_MAX, min = FLT_MAX, sum = 0;

#pragma unroll
	for (int i = 0; i < 4; i++) {
		const int d = c + i / 2 + i % 2 * (D / 4);

		sm.max[group][d] = p.max[i];
		sm.min[group][d] = p.min[i];
		sm.sum[group][d] = p.sum[i];
	}
	__syncthreads();
	if (threadIdx.x < D / 2) {
#pragma unroll
		for (int g = 0; g < shape::GROUPS; g++) {
			max = fmaxf(max, sm.max[g][threadIdx.x]);
			min = fminf(min, sm.min[g][threadIdx.x]);
			sum += sm.sum[g][threadIdx.x];
		}
		sm.mean[threadIdx.x] = round_bf16(sum / (float)n);
	}
	__syncthreads();
	return make_float2(max, min);
}

/* Pool keys and queries.  f: [query block][KV head][SEER_POOLS * D].  query: [query block][query
 * head][D], rotated unless a projection follows. */
template <int D>
__global__ void __launch_bounds__(POOL_THREADS)
seer_pool(struct attn_batch b, bool projected, const float *__restrict__ inv,
	  const bf16_t *__restrict__ q, const bf16_t *__restrict__ k,
	  __nv_bfloat16 *__restrict__ f, __nv_bfloat16 *__restrict__ query)
{
	__shared__ struct pool_smem<D> sm;
	const struct qblk s = qblk_at(b, blockIdx.x);
	const int kv_heads = b.shape.kv_heads, head = (int)blockIdx.y - kv_heads, t = threadIdx.x;
	const int d = blockIdx.z * (D / 4) + t % (D / 4) + t / (D / 4) * (D / 2);
	struct pool4 p;

	for (int i = 0; i < 4; i++) {
		p.max[i] = -FLT_MAX;
		p.min[i] = FLT_MAX;
		p.sum[i] = 0;
	}
	if (head < 0) {
		const size_t page = b.keys.page[b.keys.page0[s.req] + s.blk];
		const bf16_t *src = k + (page * kv_heads + blockIdx.y) * BLOCK * D;

		pool_rows<D>(p, src, D, 0, s.hi, s.blk * BLOCK, inv);
		const float2 ends = pool_reduce<D>(sm, p, s.hi);

		if (t < D / 2) {
			f += ((size_t)blockIdx.x * kv_heads + blockIdx.y) * SEER_POOLS * D + d;
			f[0] = __float2bfloat16_rn(ends.x);
			f[D] = __float2bfloat16_rn(ends.y);
			f[2 * D] = __float2bfloat16_rn(sm.mean[t]);
		}
		return;
	}
	const size_t pitch = (size_t)b.shape.q_heads * D;
	const bf16_t *src = q + (int64_t)s.row * (int64_t)pitch + (size_t)head * D;

	pool_rows<D>(p, src, pitch, s.lo, s.hi, s.blk * BLOCK, inv);
	pool_reduce<D>(sm, p, s.hi - s.lo);
	query += ((size_t)blockIdx.x * b.shape.q_heads + head) * D + d;
	if (projected && t < D / 2) {
		query[0] = __float2bfloat16_rn(sm.mean[t]);
	} else if (!projected && t < D / 4) {
		const float2 y = turn(sm.mean[t], sm.mean[t + D / 4],
				      (float)(s.blk * BLOCK) * inv[d]);

		query[0] = __float2bfloat16_rn(y.x);
		query[D / 2] = __float2bfloat16_rn(y.y);
	}
}

/* ---- products ---- */

/* Multiply both 16-wide steps of 32 summed elements: rows lo (g) and hi (g + 8) against column
 * w. */
__device__ __forceinline__ void multiply(float (&acc)[4], const uint4 &lo, const uint4 &hi,
					 const uint4 &w)
{
	const uint32_t first[4] = { lo.x, hi.x, lo.y, hi.y };
	const uint32_t second[4] = { lo.z, hi.z, lo.w, hi.w };

	mma_m16n8k16(acc, first, w.x, w.y);
	mma_m16n8k16(acc, second, w.z, w.w);
}

/* ---- project ---- */

constexpr int PROJECT_ROWS = 16;	// query blocks of a thread block
template <int D> constexpr int PROJECT_WARPS = D / 32;

/* Of keys or queries: x [query block][from][summed], w [head][D][summed], out [row][head][D]. */
struct projection {
	int heads, from;
	const bf16_t *x, *w;
	bf16_t *out;
};

template <int D>
struct project_smem {
	float part[PROJECT_WARPS<D>][PROJECT_ROWS][40];	// of 32; 8 for the banks
	int pos[PROJECT_ROWS];
	int64_t row[PROJECT_ROWS];	// of out; -1: there is none
};

/* Where query block first + i stands. */
template <int D, bool KEYS>
__device__ __forceinline__ void place_row(struct project_smem<D> &sm, const struct attn_batch &b,
					  int first, int i)
{
	sm.row[i] = -1;
	if (first + i >= b.rows.n_qblk)
		return;
	const struct qblk s = qblk_at(b, first + i);

	sm.pos[i] = s.blk * BLOCK;
	sm.row[i] = KEYS ? b.keys.page[b.keys.page0[s.req] + s.blk] : first + i;
}

/* Compute this warp's part of the sums: 16 query blocks, 16 channels from `channel` on and their
 * partners half a head on, for RoPE. */
template <int D, bool KEYS>
__device__ __forceinline__ void project_part(struct project_smem<D> &sm,
					     const struct attn_batch &b,
					     const struct projection &p, int head, int channel)
{
	constexpr int STEPS = KEYS ? SEER_POOLS : 1, IN = STEPS * D;
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
	const int first = blockIdx.x * PROJECT_ROWS, at = first + g;
	const size_t pitch = (size_t)p.from * IN, c = warp * STEPS * 32 + t * 8;
	const bf16_t *x = p.x + at * pitch + head / (p.heads / p.from) * IN + c;
	const bf16_t *w = p.w + ((size_t)head * D + channel + g) * IN + c;
	const uint4 zero = make_uint4(0, 0, 0, 0);
	uint4 lo[STEPS], hi[STEPS], m[STEPS][4];
	float acc[4][4] = {};

#pragma unroll
	for (int i = 0; i < STEPS; i++) {
		lo[i] = at < b.rows.n_qblk ? *(const uint4 *)(x + i * 32) : zero;
		hi[i] = at + 8 < b.rows.n_qblk ? *(const uint4 *)(x + 8 * pitch + i * 32) : zero;
#pragma unroll
		for (int n = 0; n < 4; n++)
			m[i][n] = *(const uint4 *)(w + (n / 2 * (D / 2) + n % 2 * 8) * IN + i * 32);
	}
	if (threadIdx.x < PROJECT_ROWS)
		place_row<D, KEYS>(sm, b, first, threadIdx.x);
#pragma unroll
	for (int i = 0; i < STEPS; i++)
#pragma unroll
		for (int n = 0; n < 4; n++)
			multiply(acc[n], lo[i], hi[i], m[i][n]);
#pragma unroll
	for (int n = 0; n < 4; n++)
#pragma unroll
		for (int h = 0; h < 2; h++)
			*(float2 *)&sm.part[warp][g + 8 * h][8 * n + 2 * t] =
				make_float2(acc[n][2 * h], acc[n][2 * h + 1]);
}

/* Two sums of a row from `column` on, rounded. */
template <int D>
__device__ __forceinline__ float2 project_sum(const struct project_smem<D> &sm, int row, int column)
{
	float2 sum = make_float2(0, 0);

#pragma unroll
	for (int w = 0; w < PROJECT_WARPS<D>; w++) {
		const float2 x = *(const float2 *)&sm.part[w][row][column];

		sum.x += x.x;
		sum.y += x.y;
	}
	return make_float2(round_bf16(sum.x), round_bf16(sum.y));
}

template <int D, bool KEYS>
__device__ __forceinline__ void project(struct project_smem<D> &sm, const struct attn_batch &b,
					const float *inv, const struct projection &p, int head)
{
	const int channel = blockIdx.z * 16, c = threadIdx.x % 8 * 2, d = channel + c;
	const float inv0 = inv[d], inv1 = inv[d + 1];

	project_part<D, KEYS>(sm, b, p, head, channel);
	__syncthreads();
	for (int i = threadIdx.x / 8; i < PROJECT_ROWS; i += PROJECT_WARPS<D> * 4) {
		if (sm.row[i] < 0)
			continue;
		const float2 lo = project_sum<D>(sm, i, c), hi = project_sum<D>(sm, i, 16 + c);
		const float pos = (float)sm.pos[i];
		const float2 y0 = turn(lo.x, hi.x, pos * inv0), y1 = turn(lo.y, hi.y, pos * inv1);
		uint32_t *to = (uint32_t *)(p.out + (sm.row[i] * p.heads + head) * D + d);

		to[0] = pack_bf16(y0.x, y1.x);
		to[D / 4] = pack_bf16(y0.y, y1.y);
	}
}

template <int D>
__global__ void __launch_bounds__(PROJECT_WARPS<D> * 32)
seer_project(struct attn_batch b, const float *__restrict__ inv, struct projection keys,
	     struct projection queries)
{
	__shared__ struct project_smem<D> sm;

	if ((int)blockIdx.y < keys.heads)
		project<D, true>(sm, b, inv, keys, blockIdx.y);
	else
		project<D, false>(sm, b, inv, queries, blockIdx.y - keys.heads);
}

/* ---- score ---- */

/* z: [query block][query head][stride]; key: the state, of k_heads. */
template <int D>
__global__ void __launch_bounds__(WARPS * 32)
seer_score(struct attn_batch b, struct seer rule, int k_heads, const bf16_t *__restrict__ query,
	   const bf16_t *__restrict__ key, float scale, int stride, bf16_t *__restrict__ z)
{
	const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
	const int r = blockIdx.z, heads = b.shape.q_heads, head = blockIdx.y;
	const int first = (blockIdx.x * WARPS + threadIdx.x / 32) * SLAB;
	const int q0 = b.rows.qblk0[r], n = b.rows.qblk0[r + 1] - q0, qa = b.rows.pos0[r] / BLOCK;
	const size_t pitch = (size_t)heads * D;
	uint4 w[2][D / 32];

	if (first > qa + n - 1 || (rule.dense_first && !b.rows.pos0[r]))
		return;
#pragma unroll
	for (int i = 0; i < 2; i++) {
		const int j = first + 8 * i + g;
		const size_t page = j < qa + n ? b.keys.page[b.keys.page0[r] + j] : 0;
		const bf16_t *src =
			key + (page * k_heads + head / (heads / k_heads)) * D + t * 8;

#pragma unroll
		for (int c = 0; c < D / 32; c++)
			w[i][c] = j < qa + n ? *(const uint4 *)(src + c * 32) :
					       make_uint4(0, 0, 0, 0);
	}
	query += ((size_t)q0 * heads + head) * D + t * 8;
	z += ((size_t)q0 * heads + head) * stride + first + 2 * t;
	for (int m = max((first - qa) / 16 * 16, 0); m < n; m += 16) {
		const int at[2] = { m + g, m + g + 8 };
		float acc[2][4] = {};

#pragma unroll
		for (int c = 0; c < D / 32; c++) {
			uint4 v[2];

#pragma unroll
			for (int i = 0; i < 2; i++)
				v[i] = at[i] < n ?
				       *(const uint4 *)(query + at[i] * pitch + c * 32) :
				       make_uint4(0, 0, 0, 0);
			multiply(acc[0], v[0], v[1], w[0][c]);
			multiply(acc[1], v[0], v[1], w[1][c]);
		}
#pragma unroll
		for (int i = 0; i < 4; i++) {
			const float *x = &acc[i % 2][i / 2 * 2];

			if (at[i / 2] < n)
				*(uint32_t *)(z + (size_t)at[i / 2] * heads * stride + i % 2 * 8) =
					pack_bf16(x[0] * scale, x[1] * scale);
		}
	}
}

/* ---- mask ---- */

struct mask_smem {
	float part[WARPS];
	int ties[WARPS];
	struct top_smem top;
};
static_assert(WARPS * 32 == TOP_THREADS, "it is found by all threads");

template <typename Op>
__device__ float block_reduce(float x, struct mask_smem &sm, Op op)
{
	for (int i = 16; i; i >>= 1)
		x = op(x, __shfl_xor_sync(~0u, x, i));
	__syncthreads();	// the last use of part is over
	if (threadIdx.x % 32 == 0)
		sm.part[threadIdx.x / 32] = x;
	__syncthreads();
	x = sm.part[0];
	for (int w = 1; w < WARPS; w++)
		x = op(x, sm.part[w]);
	return x;
}

/* Turn logits into shares.  A thread writes only elements that it reads. */
__device__ void softmax_row(uint16_t *z, int n, struct mask_smem &sm)
{
	constexpr float log2e = 1.4426950408889634f;
	float max = -FLT_MAX, sum = 0;

	for (int j = threadIdx.x; j < n; j += WARPS * 32)
		max = fmaxf(max, __uint_as_float((uint32_t)z[j] << 16));
	max = block_reduce(max, sm, [](float x, float y) { return fmaxf(x, y); });
	for (int j = threadIdx.x; j < n; j += WARPS * 32)
		sum += ex2((__uint_as_float((uint32_t)z[j] << 16) - max) * log2e);
	sum = block_reduce(sum, sm, [](float x, float y) { return x + y; });
	for (int j = threadIdx.x; j < n; j += WARPS * 32) {
		const float a = ex2((__uint_as_float((uint32_t)z[j] << 16) - max) * log2e) / sum;

		z[j] = __bfloat16_as_ushort(__float2bfloat16_rn(a));
	}
	__syncthreads();
}

/* Count the lanes before this one, of earlier warps and of this warp, that have the bit set.  *all:
 * the count of all warps. */
__device__ int count_before(bool set, int *all, struct mask_smem &sm)
{
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const uint32_t bits = __ballot_sync(~0u, set);
	int n = __popc(bits & ((1u << lane) - 1));

	__syncthreads();	// the last use of ties is over
	if (lane == 0)
		sm.ties[warp] = __popc(bits);
	__syncthreads();
	*all = 0;
	for (int w = 0; w < WARPS; w++) {
		n += w < warp ? sm.ties[w] : 0;
		*all += sm.ties[w];
	}
	return n;
}

__global__ void __launch_bounds__(WARPS * 32)
seer_mask(struct attn_batch b, struct seer rule, int stride, bf16_t *__restrict__ z,
	  uint32_t *__restrict__ mask)
{
	__shared__ struct mask_smem sm;
	const struct qblk s = qblk_at(b, blockIdx.x);
	const size_t row = (size_t)blockIdx.x * b.shape.q_heads + blockIdx.y;
	const int ctx = b.rows.pos0[s.req], end = ctx + b.rows.row0[s.req + 1] - b.rows.row0[s.req];
	const int n = s.blk + 1;
	const bool open = is_open(b, s, rule);
	uint16_t *a = z + row * stride;
	/* Shares are not negative, so their bits sort like they do. */
	const auto key = [=](int j) { return (uint32_t)a[j] << 16; };
	struct top top = { __float_as_uint((float)rule.threshold), 0 };
	int before = 0;

	if (!open)
		softmax_row(a, n, sm);
	if (!open && rule.nz_ratio > 0) {
		const int k = seer_kept(rule.nz_ratio, (end + BLOCK - 1) / BLOCK);

		top = top_find<2>(key, n, min(k, n), [](uint32_t) -> uint32_t { return 1; },
				  sm.top);
	}
	for (int first = 0; first < b.keys.mask_words; first += WARPS) {
		const int word = first + threadIdx.x / 32, j = word * 32 + threadIdx.x % 32;
		const uint32_t x = !open && j < n ? key(j) : 0;
		bool tie = !open && top.ties && j < n && x == top.key;
		int all = 0;

		if (top.ties) {
			tie = count_before(tie, &all, sm) + before < top.ties && tie;
			before += all;
		}
		const bool keep = j < n && (open || x > top.key || tie ||
					    (rule.diagonal && j == s.blk));
		const uint32_t bits = __ballot_sync(~0u, keep);

		if (threadIdx.x % 32 == 0 && word < b.keys.mask_words)
			mask[row * b.keys.mask_words + word] = bits;
	}
}

/* ---- launch ---- */

/* The arrays in work. */
struct room {
	bf16_t *f, *mean, *query, *z;
	int stride;
};

struct room room_at(const struct seer_self *g, const struct attn_shape *s, size_t n_qblk,
		    int max_kv_blk, struct workspace *w)
{
	const size_t pools = n_qblk * s->kv_heads * SEER_POOLS, q = n_qblk * s->q_heads;
	struct room r;

	r.stride = (max_kv_blk + SLAB - 1) / SLAB * SLAB;
	r.f = (bf16_t *)workspace_take(w, pools * s->head_dim, sizeof *r.f);
	r.mean = (bf16_t *)workspace_take(w, g->host.q ? q * s->head_dim : 0, sizeof *r.mean);
	r.query = (bf16_t *)workspace_take(w, q * s->head_dim, sizeof *r.query);
	r.z = (bf16_t *)workspace_take(w, q * r.stride, sizeof *r.z);
	return r;
}

template <int D>
enum ar_status launch(const struct attn_batch *b, const struct seer_self *g, int layer,
		      const bf16_t *q, const bf16_t *k, bf16_t *state, uint32_t *mask, void *work,
		      cudaStream_t stream, struct ar_err *err)
{
	const struct attn_shape *s = &b->shape;
	struct workspace w = workspace_at(work);
	const struct room r = room_at(g, s, b->rows.n_qblk, b->keys.max_kv_blk, &w);
	const bool projected = g->host.q != NULL;
	const unsigned tiles = (b->rows.n_qblk + PROJECT_ROWS - 1) / PROJECT_ROWS;
	const unsigned heads = g->k_heads + (projected ? s->q_heads : 0);
	const unsigned slabs = (b->keys.max_kv_blk + WARPS * SLAB - 1) / (WARPS * SLAB);
	const float scale = (float)(1 / sqrt((double)D));
	const size_t at = seer_layer(g, layer);
	const struct projection keys = { g->k_heads, s->kv_heads, r.f,
					 g->device.k + at * seer_k_size(g), state };
	const struct projection queries = { s->q_heads, s->q_heads, r.mean,
					    projected ? g->device.q + at * seer_q_size(g) : NULL,
					    r.query };
	enum ar_status st = AR_OK;

	seer_pool<D><<<dim3(b->rows.n_qblk, s->kv_heads + s->q_heads, 2), POOL_THREADS, 0, stream>>>
		(*b, projected, g->device.inv, q, k, (__nv_bfloat16 *)r.f,
		 (__nv_bfloat16 *)(projected ? r.mean : r.query));
	CU_LAUNCHED();
	seer_project<D><<<dim3(tiles, heads, D / 32), PROJECT_WARPS<D> * 32, 0, stream>>>
		(*b, g->device.inv, keys, queries);
	CU_LAUNCHED();
	seer_score<D><<<dim3(slabs, s->q_heads, b->rows.n_req), WARPS * 32, 0, stream>>>
		(*b, g->rule, g->k_heads, r.query, state, scale, r.stride, r.z);
	CU_LAUNCHED();
	seer_mask<<<dim3(b->rows.n_qblk, s->q_heads), WARPS * 32, 0, stream>>>
		(*b, g->rule, r.stride, r.z, mask);
	CU_LAUNCHED();
out:
	return st;
}

}

size_t seer_work_bytes(const void *self, const struct attn_shape *s, const struct attn_limits *l)
{
	struct workspace w = workspace_at(NULL);

	room_at((const struct seer_self *)self, s, attn_max_qblk(l, s->page_tok), l->max_kv_blk,
		&w);
	return w.used;
}

enum ar_status seer_enqueue(const struct attn_call *call, const void *self,
			    const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const struct attn_shape *s = &b->shape;
	auto run = s->head_dim == 64 ? launch<64> : s->head_dim == 128 ? launch<128> : launch<256>;

	if (!b->rows.n_qblk)
		return AR_OK;
	return run(b, (const struct seer_self *)self, call->layer, call->q, call->kv.k,
		   (bf16_t *)call->state, out->mask, call->work,
		   (cudaStream_t)call->stream, err);
}

/* ---- weights ---- */

static enum ar_status upload(void **to, const void *from, size_t bytes, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	CU(cudaMalloc(to, bytes));
	CU(cudaMemcpy(*to, from, bytes, cudaMemcpyHostToDevice));
out:
	return st;
}

enum ar_status seer_upload(struct seer_self *g, struct ar_err *err)
{
	const size_t n = g->n_layers * sizeof(bf16_t);
	enum ar_status st = upload((void **)&g->device.k, g->host.k, n * seer_k_size(g), err);

	if (!st && g->host.q)
		st = upload((void **)&g->device.q, g->host.q, n * seer_q_size(g), err);
	return st ? st : upload((void **)&g->device.inv, g->host.inv,
				g->head_dim / 2 * sizeof *g->host.inv, err);
}

/* Free the gate's weights on the device, if it has any.  Otherwise CUDA is not called: it would
 * start here and not survive a fork. */
void seer_device_free(struct seer_self *g)
{
	if (!g->device.k)
		return;
	cudaFree(g->device.k);
	cudaFree(g->device.q);
	cudaFree(g->device.inv);
}
