/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vertical-slash sums, by columns and diagonals, of the last queries' attention on devices
 * before Hopper.  Two kernels compute the same products: the sums need every row's maximum and sum
 * first, and there are too many scores to keep.
 *
 *   rows    (max, sum) of every row over a split of SPLIT keys
 *   sums    the probabilities again, from the rows' totals, added up by column and by diagonal
 *
 * grid (split, KV head and slab, request).  The rows of all query heads of a KV head are numbered
 * in one sequence, PAD for each head.  A thread block takes a slab of 256 rows, so that up to four
 * heads share one reading of K.  A warp keeps 32 rows, a band, in registers and walks the keys in
 * steps of 64, halves of 32, products of 16.
 *
 *   columns     within a half: over the lanes that share a column, by seven shuffles
 *   diagonals   a half goes through shared memory, 32 x 32.  63 diagonals cross it.  Lane l adds up
 *               diagonal l, which began in the half before and ends here, and diagonal l + 32,
 *               which goes on in the next half: together, one element of every row.  A band is 32
 *               distances from the next, so that the same diagonal ends in it one half later; a
 *               ring of eight halves holds it until then.
 *
 * A split begins its diagonals PAD keys early, so splits pass nothing to each other.  All sums have
 * a fixed order.  A head's rows stand at the end of its PAD places; places without a row have a
 * total of +inf, hence probability 0.
 *
 * Example: 128K tokens, 8 requests, 16 query heads of 128 channels, 128 rows.  The two kernels have
 * 2 x 550 GFLOP of mma and 4.3e9 exponentials.  They read K (1 GiB) twice or four times.  The
 * products are 12 % of dense attention's for a chunk of 1024; half of it for 64 rows.
 */
#include "config.h"
#include "kernels/select/lastq/lastq.h"

#include <cfloat>
#include <cmath>

#include "kernels/prim/cuda.h"
#include "kernels/prim/device.cuh"
#include "kernels/prim/softmax.cuh"

namespace {

constexpr int WARPS = 8;
constexpr int BAND = 32;		/* rows of a warp */
constexpr int SLAB = WARPS * BAND;
constexpr int KEYS = 64;		/* of a step */
constexpr int HALF = 32;
constexpr int WIDTH = 16;
constexpr int SPLIT = 2048;
constexpr int RING = 8;

struct args {
	struct attn_batch b;
	const bf16_t *q, *k;
	struct lastq out;
	float2 *part;		/* [request][split][query head][PAD] */
	int n;			/* rows that take part, at most PAD */
};

/* The rows of a warp. */
struct band {
	int head;		/* q_heads and more: none */
	int first;		/* the first row's place among its head's PAD */
	int pos;		/* and position; may lie before the chunk */
	int none;		/* places [0, none) of the PAD have no row */
};

struct span {			/* of a request */
	int end, n;
};

__device__ struct span span_of(const struct args &a, int r)
{
	const int rows = a.b.rows.row0[r + 1] - a.b.rows.row0[r];

	return { a.b.rows.pos0[r] + rows, min(a.n, rows) };
}

template <int PAD>
__device__ struct band band_of(const struct args &a, const struct span &s, int place)
{
	const int group = a.b.shape.q_heads / a.b.shape.kv_heads;
	const int slabs = gridDim.y / a.b.shape.kv_heads;
	const int kv_head = blockIdx.y / slabs, at = blockIdx.y % slabs * SLAB + place;

	return { at / PAD < group ? kv_head * group + at / PAD : a.b.shape.q_heads, at % PAD,
		 s.end - PAD + at % PAD, PAD - s.n };
}

/* Load rows of the band as mma's A operand; missing rows become zeros. */
template <int D>
__device__ __forceinline__ void load_rows(uint32_t (&x)[2][D / 16][4], const struct args &a,
					  const struct band &band)
{
	const int lane = threadIdx.x % 32, r = blockIdx.z;

#pragma unroll
	for (int i = 0; i < 4; i++) {
		const int row = i * 8 + lane / 4;
		const bool own = band.head < a.b.shape.q_heads && band.first + row >= band.none;
		const size_t at = own ? (size_t)(a.b.rows.row0[r] + band.pos + row -
						 a.b.rows.pos0[r]) *
					a.b.shape.q_heads + band.head : 0;
		const uint32_t *src = (const uint32_t *)(a.q + at * D) + lane % 4;

#pragma unroll
		for (int k = 0; k < D / 16; k++) {
			x[i / 2][k][i % 2] = own ? src[k * 8] : 0;
			x[i / 2][k][i % 2 + 2] = own ? src[k * 8 + 4] : 0;
		}
	}
}

/* Start the copy of keys [key, key + KEYS); they lie in one page. */
template <int D>
__device__ __forceinline__ void copy_keys(bf16_t *tile, const struct args &a, int key)
{
	const int tok = a.b.shape.page_tok, slabs = gridDim.y / a.b.shape.kv_heads;
	const size_t page = a.b.keys.page[a.b.keys.page0[blockIdx.z] + key / tok];
	const bf16_t *src = a.k + ((page * a.b.shape.kv_heads + blockIdx.y / slabs) * tok +
				   key % tok) * D;

#pragma unroll
	for (int i = threadIdx.x; i < KEYS * D / 8; i += WARPS * 32) {
		const int row = i / (D / 8), c = i % (D / 8);

		cp_async_16(smem_addr(tile) + swizzle<D>(row, c), src + row * D + c * 8, 16);
	}
}

/* Compute s[m][n]: rows 16 m .. + 15 of the band against keys 8 n .. + 7, in units of log2.  The
 * WIDTH keys begin at row `at` of the tile and at position key.  A key that a row does not see gets
 * -inf. */
template <int D>
__device__ __forceinline__ void scores(float (&s)[2][2][4], const uint32_t (&x)[2][D / 16][4],
				       const bf16_t *tile, int at, int key, int pos)
{
	const int lane = threadIdx.x % 32;

#pragma unroll
	for (int n = 0; n < 2; n++) {
#pragma unroll
		for (int i = 0; i < 4; i++)
			s[0][n][i] = s[1][n][i] = 0;
#pragma unroll
		for (int k = 0; k < D / 16; k += 2) {
			uint32_t r[4];

			ldmatrix_x4(r, smem_addr(tile) +
				    swizzle<D>(at + n * 8 + lane % 8, k * 2 + lane / 8));
#pragma unroll
			for (int m = 0; m < 2; m++) {
				mma_m16n8k16(s[m][n], x[m][k], r[0], r[1]);
				mma_m16n8k16(s[m][n], x[m][k + 1], r[2], r[3]);
			}
		}
	}
#pragma unroll
	for (int m = 0; m < 2; m++)
#pragma unroll
		for (int n = 0; n < 2; n++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				s[m][n][i] *= softmax_scale_log2<D>;
	if (key + WIDTH - 1 <= pos)
		return;
#pragma unroll
	for (int m = 0; m < 2; m++)
#pragma unroll
		for (int n = 0; n < 2; n++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				if (key + n * 8 + lane % 4 * 2 + i % 2 >
				    pos + m * 16 + i / 2 * 8 + lane / 4)
					s[m][n][i] = -INFINITY;
}

/* ---- rows ---- */

template <int D> struct rows_smem {
	bf16_t k[2][KEYS * D];
};

template <int D, int PAD>
__global__ void __launch_bounds__(WARPS * 32, D == 256 ? 1 : 2)
lastq_rows(const struct args a)
{
	extern __shared__ __align__(128) char smem[];
	struct rows_smem<D> &sm = *(struct rows_smem<D> *)smem;
	const struct span span = span_of(a, blockIdx.z);
	const int first = blockIdx.x * SPLIT, end = min(first + SPLIT, span.end);
	const int lane = threadIdx.x % 32;
	const struct band band = band_of<PAD>(a, span, threadIdx.x / 32 * BAND);
	uint32_t x[2][D / 16][4];
	float max[4], sum[4] = { 0, 0, 0, 0 };

	if (first >= end || !span.n)
		return;
	copy_keys<D>(sm.k[0], a, first);
	cp_async_commit();
	load_rows<D>(x, a, band);
#pragma unroll
	for (int i = 0; i < 4; i++)
		max[i] = -FLT_MAX;	/* not -inf: differences are never inf - inf */
	for (int key = first, stage = 0; key < end; key += KEYS, stage ^= 1) {
		cp_async_wait<0>();
		__syncthreads();
		if (key + KEYS < end)
			copy_keys<D>(sm.k[stage ^ 1], a, key + KEYS);
		cp_async_commit();
#pragma unroll 1
		for (int at = 0; at < KEYS; at += WIDTH) {
			float s[2][2][4];

			scores<D>(s, x, sm.k[stage], at, key + at, band.pos);
#pragma unroll
			for (int i = 0; i < 4; i++) {
				float top = max[i], add = 0;

#pragma unroll
				for (int n = 0; n < 2; n++)
					top = fmaxf(top, fmaxf(s[i / 2][n][i % 2 * 2],
							       s[i / 2][n][i % 2 * 2 + 1]));
#pragma unroll
				for (int n = 0; n < 2; n++)
					add += ex2(s[i / 2][n][i % 2 * 2] - top) +
					       ex2(s[i / 2][n][i % 2 * 2 + 1] - top);
				sum[i] = sum[i] * ex2(max[i] - top) + add;
				max[i] = top;
			}
		}
	}
	if (band.head >= a.b.shape.q_heads)
		return;
	const size_t at = (((size_t)blockIdx.z * gridDim.x + blockIdx.x) * a.b.shape.q_heads +
			   band.head) * PAD + band.first;
#pragma unroll
	for (int i = 0; i < 4; i++) {
		const float top = quad_max(max[i]), all = quad_sum(sum[i] * ex2(max[i] - top));

		if (lane % 4 == 0)
			a.part[at + i * 8 + lane / 4] = make_float2(top, all);
	}
}

/* ---- sums ---- */

template <int D> struct sums_smem {
	bf16_t k[2][KEYS * D];
	float tile[WARPS][BAND][HALF + 8];	/* 8: the rows of a store hit different banks */
	float ring[RING][WARPS][HALF];		/* diagonals that a band has finished */
	float column[2][WARPS][KEYS];
	float total[SLAB];			/* log2 of a row's sum of exponentials */
};
static_assert(2 * sizeof(struct sums_smem<128>) <= 225 * 1024, "two thread blocks fit");
static_assert(sizeof(struct sums_smem<256>) <= 227 * 1024, "shared memory");

/* Merge a row's parts in the order of splits. */
template <int PAD>
__device__ float total_of(const struct args &a, const struct band &band, int n_split)
{
	const size_t stride = (size_t)a.b.shape.q_heads * PAD;
	const float2 *part = a.part + (size_t)blockIdx.z * gridDim.x * stride +
			     (size_t)band.head * PAD + band.first;
	float max = -FLT_MAX, sum = 0;

	if (band.head >= a.b.shape.q_heads || band.first < band.none)
		return INFINITY;
	for (int i = 0; i < n_split; i++)
		max = fmaxf(max, part[i * stride].x);
	for (int i = 0; i < n_split; i++)
		sum += part[i * stride].y * ex2(part[i * stride].x - max);
	return max + log2f(sum);
}

/* Keep a band's probabilities p of WIDTH keys: in the tile, from column `at` on, and in v, summed
 * over this lane's rows. */
__device__ __forceinline__ void keep(float (&tile)[BAND][HALF + 8], float *v,
				     const float (&p)[2][2][4], int at)
{
	const int lane = threadIdx.x % 32;

#pragma unroll
	for (int n = 0; n < 2; n++) {
#pragma unroll
		for (int i = 0; i < 4; i++)
			*(float2 *)&tile[i * 8 + lane / 4][at + n * 8 + lane % 4 * 2] =
				make_float2(p[i / 2][n][i % 2 * 2], p[i / 2][n][i % 2 * 2 + 1]);
#pragma unroll
		for (int i = 0; i < 2; i++)
			v[n * 2 + i] = (p[0][n][i] + p[0][n][i + 2]) +
				       (p[1][n][i] + p[1][n][i + 2]);
	}
}

/* Sum the half's columns.  Lane 4 g + t gets column 8 (g / 2) + 2 t + g % 2. */
__device__ __forceinline__ float add_columns(float (&v)[8])
{
	const int lane = threadIdx.x % 32;

#pragma unroll
	for (int w = 4; w; w /= 2) {
		const bool up = lane & w * 4;

#pragma unroll
		for (int i = 0; i < w; i++) {
			const float other = __shfl_xor_sync(~0u, up ? v[i] : v[i + w], w * 4);

			v[i] = (up ? v[i + w] : v[i]) + other;
		}
	}
	return v[0];
}

/* Sum the diagonals that end in the half, one a lane.  carry: their parts from the half before;
 * afterwards, the parts of diagonals that go on. */
__device__ __forceinline__ float add_diagonals(const float (&tile)[BAND][HALF + 8], float &carry)
{
	const int lane = threadIdx.x % 32;
	float sum = 0, before = carry;

#pragma unroll
	for (int i = 0; i < BAND; i++) {
		if (i == 31 - lane) {
			carry = sum;
			sum = before;
		}
		sum += tile[i][(lane + 1 + i) % HALF];
	}
	return sum;
}

/* Write the columns of a finished step, keys [key, key + KEYS).  Also write the diagonals that
 * ended in the last bands. */
template <int D, int PAD>
__device__ __forceinline__ void store(const struct sums_smem<D> &sm, const struct args &a,
				      const struct span &span, int key, int step)
{
	constexpr int BANDS = PAD / BAND;
	const float n = (float)span.n;

	for (int i = threadIdx.x; i < SLAB / PAD * KEYS; i += WARPS * 32) {
		const struct band band = band_of<PAD>(a, span, i / KEYS * PAD);
		const int w = i / KEYS * BANDS, c = i % KEYS, half = step * 2 + c / HALF;
		const size_t at = ((size_t)blockIdx.z * a.b.shape.q_heads + band.head) *
				  a.out.stride;
		float column = 0, slash = 0;

		if (band.head >= a.b.shape.q_heads || key + c >= span.end)
			continue;
#pragma unroll
		for (int j = 0; j < BANDS; j++) {
			column += sm.column[step & 1][w + j][c];
			slash += sm.ring[(half - (BANDS - 1 - j)) & (RING - 1)][w + j][c % HALF];
		}
		a.out.column[at + key + c] = column / n;
		a.out.slash[at + span.end - 1 - (key + c)] = slash / n;
	}
}

template <int D, int PAD>
__global__ void __launch_bounds__(WARPS * 32, D == 256 ? 1 : 2)
lastq_sums(const struct args a)
{
	extern __shared__ __align__(128) char smem[];
	struct sums_smem<D> &sm = *(struct sums_smem<D> *)smem;
	const struct span span = span_of(a, blockIdx.z);
	const int own = blockIdx.x * SPLIT, end = min(own + SPLIT, span.end);
	const int first = max(own - PAD, 0), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const int column = lane / 8 * 8 + lane % 4 * 2 + lane / 4 % 2;
	const struct band band = band_of<PAD>(a, span, warp * BAND);
	uint32_t x[2][D / 16][4];
	float total[4], carry = 0;

	if (own >= end || !span.n)
		return;
	copy_keys<D>(sm.k[0], a, first);
	cp_async_commit();
	load_rows<D>(x, a, band);
	sm.total[threadIdx.x] = total_of<PAD>(a, band_of<PAD>(a, span, threadIdx.x),
					      (span.end + SPLIT - 1) / SPLIT);
	for (int i = 0; i < RING; i++)
		sm.ring[i][warp][lane] = 0;
	__syncwarp();		/* a warp reads the totals of its own rows only */
#pragma unroll
	for (int i = 0; i < 4; i++)
		total[i] = sm.total[warp * BAND + i * 8 + lane / 4];
	for (int step = 0, key = first; key < end; step++, key += KEYS) {
		cp_async_wait<0>();
		__syncthreads();
		if (key + KEYS < end)
			copy_keys<D>(sm.k[~step & 1], a, key + KEYS);
		cp_async_commit();
		if (key > own)
			store<D, PAD>(sm, a, span, key - KEYS, step - 1);
#pragma unroll 1
		for (int half = 0; half < KEYS; half += HALF) {
			float v[8];

			__syncwarp();	/* all lanes have read the tile of the half before */
#pragma unroll
			for (int at = 0; at < HALF; at += WIDTH) {
				float s[2][2][4];

				scores<D>(s, x, sm.k[step & 1], half + at, key + half + at,
					  band.pos);
#pragma unroll
				for (int i = 0; i < 16; i++)
					s[i / 8][i / 4 % 2][i % 4] =
						ex2(s[i / 8][i / 4 % 2][i % 4] -
						    total[i / 8 * 2 + i % 4 / 2]);
				keep(sm.tile[warp], v + at / 4, s, at);
			}
			sm.column[step & 1][warp][half + column] = add_columns(v);
			__syncwarp();
			sm.ring[(step * 2 + half / HALF) & (RING - 1)][warp][lane] =
				add_diagonals(sm.tile[warp], carry);
		}
	}
	__syncthreads();
	const int steps = (end - first + KEYS - 1) / KEYS;

	store<D, PAD>(sm, a, span, first + (steps - 1) * KEYS, steps - 1);
}

/* ---- launch ---- */

template <int D, int PAD>
enum ar_status launch(const struct args &a, int max_split, cudaStream_t stream, struct ar_err *err)
{
	const struct attn_shape *s = &a.b.shape;
	const int group = s->q_heads / s->kv_heads;
	const dim3 grid(max_split, s->kv_heads * ((group * PAD + SLAB - 1) / SLAB), a.b.rows.n_req);
	const int bytes = (int)sizeof(struct rows_smem<D>), more = (int)sizeof(struct sums_smem<D>);
	enum ar_status st = AR_OK;

	CU(cudaFuncSetAttribute(lastq_rows<D, PAD>, cudaFuncAttributeMaxDynamicSharedMemorySize,
				bytes));
	CU(cudaFuncSetAttribute(lastq_sums<D, PAD>, cudaFuncAttributeMaxDynamicSharedMemorySize,
				more));
	lastq_rows<D, PAD><<<grid, WARPS * 32, bytes, stream>>>(a);
	CU_LAUNCHED();
	lastq_sums<D, PAD><<<grid, WARPS * 32, more, stream>>>(a);
	CU_LAUNCHED();
out:
	return st;
}

template <int D>
enum ar_status launch_pad(const struct args &a, int max_split, cudaStream_t stream,
			  struct ar_err *err)
{
	return a.n > 64 ? launch<D, 128>(a, max_split, stream, err) :
			  launch<D, 64>(a, max_split, stream, err);
}

int count_splits(int max_kv_blk, int page_tok)
{
	return (max_kv_blk * page_tok + SPLIT - 1) / SPLIT;
}

}

size_t lastq_sm80_work_bytes(const struct attn_shape *s, const struct attn_limits *l)
{
	return (size_t)l->max_req * s->q_heads * count_splits(l->max_kv_blk, s->page_tok) *
	       LASTQ_MAX * sizeof(float2);
}

enum ar_status lastq_sm80_enqueue(const struct attn_batch *b, int n, const bf16_t *q,
				  const bf16_t *k, const struct lastq *out, void *work,
				  void *stream, struct ar_err *err)
{
	const int max_split = count_splits(b->keys.max_kv_blk, b->shape.page_tok);
	const struct args a = { *b, q, k, *out, (float2 *)work, n };

	switch (b->shape.head_dim) {
	case 64: return launch_pad<64>(a, max_split, (cudaStream_t)stream, err);
	case 128: return launch_pad<128>(a, max_split, (cudaStream_t)stream, err);
	default: return launch_pad<256>(a, max_split, (cudaStream_t)stream, err);
	}
}
