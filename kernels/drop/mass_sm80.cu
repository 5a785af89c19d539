/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mass of blocks on the device; mass.h defines it.  Scores are computed twice, as there are too
 * many to keep: 128 rows, 32 heads and 128 Ki keys have 1 GiB of scores in bf16.
 *
 *   mass_scan   (max, sum) of every row's exponentials over a split of SPLIT keys
 *   mass_merge  merges the splits of a row: the log2 of its sum of exponentials
 *   mass_add    the probabilities again, added up over rows, heads and the keys of a block
 *
 * The rows of all query heads of a KV head are numbered in one sequence, `pad` places for each
 * head.  So they share the reads of K.  Both passes keep a tile of OWN rows of mma's A operand in
 * shared memory, 16 M rows a warp.  Tiles of 64 of the other operand pass by.  The first pass keeps
 * queries: a thread's maximum and sum belong to a query.  The second keeps keys: a thread adds up a
 * key's probabilities over all rows without a shuffle.
 *
 * All sums have a fixed order.  A head's rows stand at the end of its places; places without a row
 * have a total of +inf, hence probability 0.
 *
 * At 128 Ki tokens, 32 heads of 128 channels and 128 rows the passes have 2 x 137 GFLOP and 2 x
 * 5.4e8 exponentials a request.  They read K (256 MiB) twice and once.  The products are 0.2 % of
 * dense attention's for the whole prompt.
 */
#include "config.h"
#include "kernels/drop/mass.h"

#include <cfloat>
#include <cmath>

#include "base/workspace.h"
#include "kernels/prim/cuda.h"
#include "kernels/prim/products.cuh"

namespace {

constexpr int WARPS = 8, THREADS = WARPS * 32;
constexpr int STEP = 64;		// rows of a tile that passes by
constexpr int TILES = STEP / 8;		// columns of mma in it
constexpr int UNIT = 32;		// places of a head are a multiple of it
constexpr int SPLIT = 2048;

template <int D> constexpr int M = D == 256 ? 1 : 2;
template <int D> constexpr int OWN = WARPS * 16 * M<D>;
static_assert(OWN<256> % MASS_BLOCK == 0, "blocks do not cross tiles");

struct args {
	struct attn_batch b;
	struct mass_rule rule;
	const bf16_t *q, *k;
	float2 *row;		/* [first_split() + split][query head][pad] */
	float *total;		/* [request][query head][pad] */
	float *part;		/* [KV head][room]; with rule.heads [query head][room] */
	int64_t room;
	int pad;
};

template <int D>
struct smem {
	bf16_t own[OWN<D> * D];
	bf16_t step[2][STEP * D];
	float total[2][STEP];	/* of the rows in step */
	float key[OWN<D>];
};
static_assert(sizeof(struct smem<128>) <= 99 * 1024, "GPUs of compute capability 8.6 have it");
static_assert(2 * sizeof(struct smem<128>) <= 225 * 1024, "two thread blocks fit");
static_assert(sizeof(struct smem<256>) <= 163 * 1024, "GPUs of compute capability 8.0 have it");

/* A request's keys [base, end), and the rows that take part. */
struct span {
	int base, end, n;
};

__device__ struct span span_of(const struct args &a, int r)
{
	return { mass_base(&a.rule, &a.b, r), a.b.keys.len[r] - a.rule.skip,
		 mass_rows(&a.rule, &a.b, r) };
}

/* The number of a request's first split, where the pages before it have room. */
__device__ __forceinline__ size_t first_split(const struct args &a, int r)
{
	return (size_t)a.b.keys.page0[r] * a.b.shape.page_tok / SPLIT + r;
}

/* Start the copy of n keys from `key` on; keys past the end become zeros. */
template <int D>
__device__ __forceinline__ void copy_keys(bf16_t *tile, const struct args &a, const struct span &s,
					  int kv_head, int key, int n)
{
	const int tok = a.b.shape.page_tok;
	const int32_t *page = a.b.keys.page + a.b.keys.page0[blockIdx.z];

	for (int i = threadIdx.x; i < n * (D / 8); i += THREADS) {
		const int row = i / (D / 8), c = i % (D / 8), t = key + row;
		const bool there = t < s.end;
		const size_t at = there ? ((size_t)page[t / tok] * a.b.shape.kv_heads + kv_head) *
					  tok + t % tok : 0;

		cp_async_16(smem_addr(tile) + swizzle<D>(row, c), a.k + at * D + c * 8,
			    there ? 16 : 0);
	}
}

/* Start the copy of the queries in n places from `place` on; places without a row become zeros. */
template <int D>
__device__ __forceinline__ void copy_rows(bf16_t *tile, const struct args &a, const struct span &s,
					  int kv_head, int place, int n)
{
	const int group = a.b.shape.q_heads / a.b.shape.kv_heads;
	const int first = a.b.rows.row0[blockIdx.z + 1] - a.rule.skip - a.pad;

	for (int i = threadIdx.x; i < n * (D / 8); i += THREADS) {
		const int row = i / (D / 8), c = i % (D / 8);
		const int head = (place + row) / a.pad, at = (place + row) % a.pad;
		const bool there = head < group && at >= a.pad - s.n;
		const size_t from = there ? (size_t)(first + at) * a.b.shape.q_heads +
					    kv_head * group + head : 0;

		cp_async_16(smem_addr(tile) + swizzle<D>(row, c), a.q + from * D + c * 8,
			    there ? 16 : 0);
	}
}

/* Two neighbouring scores in units of log2. */
template <int D, bool ROUND>
__device__ __forceinline__ float2 scaled(float lo, float hi)
{
	if (ROUND) {
		const uint32_t x = pack_bf16(lo, hi);

		lo = __uint_as_float(x << 16);
		hi = __uint_as_float(x & 0xffff0000u);
	}
	return make_float2(lo * softmax_scale_log2<D>, hi * softmax_scale_log2<D>);
}

/* ---- rows ---- */

/* Take a step's scores into the maxima and sums of the warp's rows. */
template <int D, bool ROUND>
__device__ __forceinline__ void take(float (&max)[M<D>][2], float (&sum)[M<D>][2],
				     float (&s)[M<D>][TILES][4])
{
#pragma unroll
	for (int m = 0; m < M<D>; m++)
#pragma unroll
		for (int half = 0; half < 2; half++) {
			float top = max[m][half], add = 0;

#pragma unroll
			for (int n = 0; n < TILES; n++) {
				float &lo = s[m][n][2 * half], &hi = s[m][n][2 * half + 1];
				const float2 x = scaled<D, ROUND>(lo, hi);

				lo = x.x;
				hi = x.y;
				top = fmaxf(top, fmaxf(lo, hi));
			}
#pragma unroll
			for (int n = 0; n < TILES; n++)
				add += ex2(s[m][n][2 * half] - top) +
				       ex2(s[m][n][2 * half + 1] - top);
			sum[m][half] = sum[m][half] * ex2(max[m][half] - top) + add;
			max[m][half] = top;
		}
}

/* Grid (split, KV head and slab of OWN places, request). */
template <int D, bool ROUND>
__global__ void __launch_bounds__(THREADS, D == 256 ? 1 : 2)
mass_scan(const __grid_constant__ struct args a)
{
	extern __shared__ __align__(128) char dynamic[];
	struct smem<D> &sm = *(struct smem<D> *)dynamic;
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const int group = a.b.shape.q_heads / a.b.shape.kv_heads;
	const int slabs = gridDim.y / a.b.shape.kv_heads;
	const int kv_head = blockIdx.y / slabs, slab = blockIdx.y % slabs * OWN<D>;
	const struct span span = span_of(a, blockIdx.z);
	const int first = span.base + blockIdx.x * SPLIT, end = min(first + SPLIT, span.end);
	// the warp's places, all of one head, and the position of the first
	const int head = (slab + warp * 16 * M<D>) / a.pad;
	const int place = (slab + warp * 16 * M<D>) % a.pad, pos = span.end - a.pad + place;
	const bool rows = head < group && place + 16 * M<D> > a.pad - span.n;
	const int past = span.end - span.n - 1;	// the last key before the rows
	const uint32_t lane_at = swizzle<D>(lane % 16, lane / 16);
	float max[M<D>][2], sum[M<D>][2];

	if (first >= end || !span.n)
		return;
	copy_rows<D>(sm.own, a, span, kv_head, slab, OWN<D>);
	copy_keys<D>(sm.step[0], a, span, kv_head, first, STEP);
	cp_async_commit();
#pragma unroll
	for (int m = 0; m < M<D>; m++)
#pragma unroll
		for (int half = 0; half < 2; half++) {
			max[m][half] = -FLT_MAX;	/* not -inf: differences are numbers */
			sum[m][half] = 0;
		}
	for (int key = first, stage = 0; key < end; key += STEP, stage ^= 1) {
		float s[M<D>][TILES][4];

		cp_async_wait<0>();
		__syncthreads();
		if (key + STEP < end)
			copy_keys<D>(sm.step[stage ^ 1], a, span, kv_head, key + STEP, STEP);
		cp_async_commit();
		if (!rows)
			continue;
		multiply_qk<D, M<D>, TILES>(s, smem_addr(sm.own + warp * 16 * M<D> * D) + lane_at,
					    smem_addr(sm.step[stage]) + lane_at);
		if (key + STEP - 1 > (a.rule.past ? past : pos)) {
#pragma unroll
			for (int m = 0; m < M<D>; m++) {
				const int own = pos + m * 16 + lane / 4;
				const int both[2] = { (a.rule.past ? past : own) - key,
						      (a.rule.past ? past : own + 8) - key };

				softmax_mask(s[m], both, lane);
			}
		}
		take<D, ROUND>(max, sum, s);
	}
	if (!rows)
		return;
	const size_t at = ((first_split(a, blockIdx.z) + blockIdx.x) * a.b.shape.q_heads +
			   kv_head * group + head) * a.pad + place;

#pragma unroll
	for (int m = 0; m < M<D>; m++)
#pragma unroll
		for (int half = 0; half < 2; half++) {
			const float top = quad_max(max[m][half]);
			const float all = quad_sum(sum[m][half] * ex2(max[m][half] - top));

			if (lane % 4 == 0)
				a.row[at + m * 16 + half * 8 + lane / 4] = make_float2(top, all);
		}
}

/* Grid (query head, request); a thread per place.  The splits of a row are merged in order. */
__global__ void mass_merge(const struct args a)
{
	const struct span span = span_of(a, blockIdx.y);
	const int own = (span.end - span.base + SPLIT - 1) / SPLIT;
	const size_t stride = (size_t)a.b.shape.q_heads * a.pad;

	for (int place = threadIdx.x; place < a.pad; place += blockDim.x) {
		const size_t at = (size_t)blockIdx.x * a.pad + place;
		const float2 *row = a.row + first_split(a, blockIdx.y) * stride + at;
		float max = -FLT_MAX, sum = 0;

		if (place >= a.pad - span.n) {
			for (int i = 0; i < own; i++)
				max = fmaxf(max, row[i * stride].x);
			for (int i = 0; i < own; i++)
				sum += row[i * stride].y * ex2(row[i * stride].x - max);
		}
		a.total[blockIdx.y * stride + at] = place < a.pad - span.n ? INFINITY :
								   max + log2f(sum);
	}
}

/* ---- sums ---- */

/* Load the totals of a step's places. */
__device__ __forceinline__ void load_totals(float (&total)[STEP], const struct args &a, int kv_head,
					    int place)
{
	const int group = a.b.shape.q_heads / a.b.shape.kv_heads, at = place + threadIdx.x;

	if (threadIdx.x < STEP)
		total[threadIdx.x] = at < group * a.pad ?
			a.total[((size_t)blockIdx.z * a.b.shape.q_heads + kv_head * group) * a.pad +
				at] : INFINITY;
}

/* Hide the scores of rows that do not see the warp's keys, which begin at `key`.  pos: of the row
 * in the first of UNIT places, in column tile `tile`; step: of the next row, from it. */
template <int D>
__device__ __forceinline__ void hide(float (&s)[M<D>][TILES][4], int tile, int key, int pos,
				     int step)
{
	const int lane = threadIdx.x % 32;

#pragma unroll
	for (int m = 0; m < M<D>; m++)
#pragma unroll
		for (int n = 0; n < UNIT / 8; n++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				if (key + m * 16 + e / 2 * 8 + lane / 4 >
				    pos + step * (n * 8 + lane % 4 * 2 + e % 2))
					s[m][tile + n][e] = -INFINITY;
}

/* Store the mass of a key under query head `head` of a KV head. */
__device__ __forceinline__ void put_key(const struct args &a, int kv_head, int head, int key,
					float mass)
{
	const int group = a.b.shape.q_heads / a.b.shape.kv_heads;

	if (head < group && key < a.b.keys.len[blockIdx.z] - a.rule.skip)
		a.part[(size_t)(kv_head * group + head) * a.room +
		       mass_first(&a.rule, &a.b, blockIdx.z) + key] = mass;
}

/* Grid (OWN keys, KV head, request). */
template <int D, bool ROUND>
__global__ void __launch_bounds__(THREADS, D == 256 ? 1 : 2)
mass_add(const __grid_constant__ struct args a)
{
	extern __shared__ __align__(128) char dynamic[];
	struct smem<D> &sm = *(struct smem<D> *)dynamic;
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, kv_head = blockIdx.y;
	const int places = a.b.shape.q_heads / a.b.shape.kv_heads * a.pad;
	const struct span span = span_of(a, blockIdx.z);
	const int first = span.base + blockIdx.x * OWN<D>, key = first + warp * 16 * M<D>;
	const uint32_t lane_at = swizzle<D>(lane % 16, lane / 16);
	float p[M<D>][2] = {}, sum[M<D>][2] = {};	// of a head, of all heads

	if (first >= span.end || !span.n)
		return;
	copy_keys<D>(sm.own, a, span, kv_head, first, OWN<D>);
	copy_rows<D>(sm.step[0], a, span, kv_head, 0, STEP);
	cp_async_commit();
	load_totals(sm.total[0], a, kv_head, 0);
	for (int place = 0, stage = 0; place < places; place += STEP, stage ^= 1) {
		float s[M<D>][TILES][4];

		cp_async_wait<0>();
		__syncthreads();
		if (place + STEP < places) {
			copy_rows<D>(sm.step[stage ^ 1], a, span, kv_head, place + STEP, STEP);
			load_totals(sm.total[stage ^ 1], a, kv_head, place + STEP);
		}
		cp_async_commit();
		multiply_qk<D, M<D>, TILES>(s, smem_addr(sm.own + warp * 16 * M<D> * D) + lane_at,
					    smem_addr(sm.step[stage]) + lane_at);
#pragma unroll
		for (int tile = 0; tile < TILES; tile += UNIT / 8) {
			const int at = (place + tile * 8) % a.pad;

			if (first + OWN<D> - 1 > span.end - span.n)
				hide<D>(s, tile, key, a.rule.past ? span.end - span.n - 1 :
					span.end - a.pad + at, !a.rule.past);
#pragma unroll
			for (int n = tile; n < tile + UNIT / 8; n++) {
				const float2 total = *(const float2 *)
					&sm.total[stage][n * 8 + lane % 4 * 2];

#pragma unroll
				for (int m = 0; m < M<D>; m++)
#pragma unroll
					for (int half = 0; half < 2; half++) {
						const float2 x = scaled<D, ROUND>(
							s[m][n][2 * half],
							s[m][n][2 * half + 1]);

						p[m][half] += ex2(x.x - total.x) +
							      ex2(x.y - total.y);
					}
			}
			if (at + UNIT < a.pad)
				continue;
			// the head's last rows
#pragma unroll
			for (int m = 0; m < M<D>; m++)
#pragma unroll
				for (int half = 0; half < 2; half++) {
					const float w = quad_sum(p[m][half]);

					sum[m][half] += ROUND ? __uint_as_float(
						pack_bf16(w, 0) << 16) : w;
					p[m][half] = 0;
					if (a.rule.heads && lane % 4 == 0)
						put_key(a, kv_head, (place + tile * 8) / a.pad,
							key + m * 16 + half * 8 + lane / 4, w);
				}
		}
	}
#pragma unroll
	for (int m = 0; m < M<D>; m++)
#pragma unroll
		for (int half = 0; half < 2; half++)
			if (lane % 4 == 0)
				sm.key[warp * 16 * M<D> + m * 16 + half * 8 + lane / 4] =
					sum[m][half];
	if (a.rule.heads)
		return;
	__syncthreads();
	const int block = a.rule.block, at = blockIdx.x * (OWN<D> / block) + threadIdx.x;

	if (threadIdx.x < OWN<D> / block && at < mass_blocks(&a.rule, &a.b, blockIdx.z)) {
		float mass = 0;

		for (int i = 0; i < block; i++)
			mass += sm.key[threadIdx.x * block + i];
		a.part[kv_head * a.room + mass_first(&a.rule, &a.b, blockIdx.z) + at] = mass;
	}
}

/* ---- launch ---- */

template <int D, bool ROUND>
enum ar_status launch(const struct args &a, cudaStream_t stream, struct ar_err *err)
{
	const struct attn_shape *s = &a.b.shape;
	const int keys = a.b.keys.max_kv_blk * s->page_tok, bytes = (int)sizeof(struct smem<D>);
	const int places = s->q_heads / s->kv_heads * a.pad, n_req = a.b.rows.n_req;
	const int n_split = (keys + SPLIT - 1) / SPLIT;
	const dim3 grid(n_split, s->kv_heads * ((places + OWN<D> - 1) / OWN<D>), n_req);
	enum ar_status st = AR_OK;

	CU(cudaFuncSetAttribute(mass_scan<D, ROUND>, cudaFuncAttributeMaxDynamicSharedMemorySize,
				bytes));
	CU(cudaFuncSetAttribute(mass_add<D, ROUND>, cudaFuncAttributeMaxDynamicSharedMemorySize,
				bytes));
	mass_scan<D, ROUND><<<grid, THREADS, bytes, stream>>>(a);
	CU_LAUNCHED();
	mass_merge<<<dim3(s->q_heads, n_req), 128, 0, stream>>>(a);
	CU_LAUNCHED();
	mass_add<D, ROUND><<<dim3((keys + OWN<D> - 1) / OWN<D>, s->kv_heads, n_req), THREADS,
			      bytes, stream>>>(a);
	CU_LAUNCHED();
out:
	return st;
}

template <int D>
enum ar_status launch_rounded(const struct args &a, cudaStream_t stream, struct ar_err *err)
{
	return a.rule.round ? launch<D, true>(a, stream, err) : launch<D, false>(a, stream, err);
}

/* Place the arrays. */
struct args args_at(const struct mass_rule *m, const struct attn_shape *s, int64_t n_page,
		    int n_req, struct workspace *w)
{
	const int pad = (m->n + UNIT - 1) / UNIT * UNIT;
	const size_t rows = (size_t)s->q_heads * pad;
	const size_t n_split = n_page * s->page_tok / SPLIT + n_req;
	struct args a = { .rule = *m, .room = mass_room(m, s, n_page, n_req), .pad = pad };

	a.part = (float *)workspace_take(w, (size_t)a.room * (m->heads ? s->q_heads : s->kv_heads),
					 sizeof *a.part);
	a.total = (float *)workspace_take(w, rows * n_req, sizeof *a.total);
	a.row = (float2 *)workspace_take(w, rows * n_split, sizeof *a.row);
	return a;
}

}

size_t mass_work_bytes(const struct mass_rule *m, const struct attn_shape *s,
		       const struct attn_limits *l)
{
	struct workspace w = workspace_at(NULL);

	args_at(m, s, l->max_page, l->max_req, &w);
	return w.used;
}

enum ar_status mass_enqueue(const struct mass_rule *m, const struct attn_batch *b, const bf16_t *q,
			    const bf16_t *k, float **part, void *work, void *stream,
			    struct ar_err *err)
{
	struct workspace w = workspace_at(work);
	struct args a = args_at(m, &b->shape, b->keys.n_page, b->rows.n_req, &w);

	a.b = *b;
	a.q = q;
	a.k = k;
	*part = a.part;
	switch (b->shape.head_dim) {
	case 64: return launch_rounded<64>(a, (cudaStream_t)stream, err);
	case 128: return launch_rounded<128>(a, (cudaStream_t)stream, err);
	default: return launch_rounded<256>(a, (cudaStream_t)stream, err);
	}
}
