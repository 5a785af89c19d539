/* SPDX-License-Identifier: Apache-2.0 */
/* ProxyAttn's scores by mma.sync, on devices before Hopper.  proxyattn.cuh defines them. */
#include "config.h"

#include <cmath>

#include "kernels/prim/cuda.h"
#include "kernels/select/proxyattn/proxyattn.cuh"

namespace {

constexpr int ROWS = 128;		// of a tile
constexpr int KEYS = 64;		// of a step
constexpr int COLS = 32;		// keys scored at once: two thread blocks a SM

/* Largest logit of a row, in units of log2, and the sum of exp2 relative to it. */
struct peak {
	float max, sum;
};

template <int D>
struct score_smem {
	bf16_t key[2][KEYS * D];
};

/* Copy keys [key, key + KEYS) of a source to shared memory. */
template <int D>
__device__ __forceinline__ void load_keys(const struct proxy_job &j, int r, int source, int key,
					  bf16_t *tile)
{
	const int tok = j.b.shape.page_tok, kv_heads = j.b.shape.kv_heads;
	const int at = j.b.keys.page0[r] + key / tok;
	const bf16_t *src = source < kv_heads ?
		j.k + ((size_t)j.b.keys.page[at] * kv_heads + source) * tok * D :
		j.mean + ((size_t)(source - kv_heads) * j.b.keys.n_page + at) * tok * D;

	src += key % tok * D;
#pragma unroll
	for (int i = 0; i < KEYS * D / 8 / (ROWS * 2); i++) {
		const int at = i * ROWS * 2 + threadIdx.x, row = at / (D / 8), c = at % (D / 8);

		cp_async_16(smem_addr(tile) + swizzle<D>(row, c), src + at * 8, 16);
	}
	cp_async_commit();
}

/* Load rows as mma's A operand.  Lane 4g + t has rows g and g + 8 of the warp's 16. */
template <int D>
__device__ __forceinline__ void load_row(uint32_t (&a)[D / 16][4], int half, const bf16_t *row,
					 bool there)
{
	const uint32_t *src = (const uint32_t *)row + threadIdx.x % 4;

#pragma unroll
	for (int k = 0; k < D / 16; k++) {
		a[k][half] = there ? src[k * 8] : 0;
		a[k][half + 2] = there ? src[k * 8 + 4] : 0;
	}
}

/* Take COLS keys into the peaks of the warp's rows.  The keys begin at row `first` of the tile and
 * at position key; pos: positions of the rows. */
template <int D>
__device__ __forceinline__ void take(struct peak (&p)[2], const uint32_t (&a)[D / 16][4],
				     const bf16_t *tile, const int (&pos)[2], int first, int key,
				     float scale)
{
	const int lane = threadIdx.x % 32;
	float x[COLS / 8][4];

#pragma unroll
	for (int n = 0; n < COLS / 8; n++) {
		x[n][0] = x[n][1] = x[n][2] = x[n][3] = 0;
#pragma unroll
		for (int k = 0; k < D / 16; k += 2) {
			uint32_t r[4];

			ldmatrix_x4(r, smem_addr(tile) +
					  swizzle<D>(first + n * 8 + lane % 8, k * 2 + lane / 8));
			mma_m16n8k16(x[n], a[k], r[0], r[1]);
			mma_m16n8k16(x[n], a[k + 1], r[2], r[3]);
		}
	}
#pragma unroll
	for (int i = 0; i < 2; i++) {
		float max = p[i].max, sum = 0;

#pragma unroll
		for (int n = 0; n < COLS / 8; n++)
#pragma unroll
			for (int e = 2 * i; e < 2 * i + 2; e++) {
				const int at = key + n * 8 + lane % 4 * 2 + e % 2;

				x[n][e] = at <= pos[i] ? x[n][e] * scale : -INFINITY;
				max = fmaxf(max, x[n][e]);
			}
		max = quad_max(max);
#pragma unroll
		for (int n = 0; n < COLS / 8; n++)
			sum += ex2(x[n][2 * i] - max) + ex2(x[n][2 * i + 1] - max);
		p[i].sum = p[i].sum * ex2(p[i].max - max) + quad_sum(sum);
		p[i].max = max;
	}
}

__device__ __forceinline__ struct peak merge(const struct peak &a, const struct peak &b)
{
	const float max = fmaxf(a.max, b.max);

	return { max, a.sum * ex2(a.max - max) + b.sum * ex2(b.max - max) };
}

__device__ __forceinline__ float log_sum(const struct peak &p)
{
	return p.max + log2f(fmaxf(p.sum, FLT_MIN));
}

/* Grid (ROWS rows of a source, segment, source). */
template <int D>
__global__ void __launch_bounds__(ROWS * 2, D == 256 ? 1 : 2)
score_mma(const __grid_constant__ struct proxy_job j, float scale)
{
	extern __shared__ __align__(128) char dynamic[];
	struct score_smem<D> &sm = *(struct score_smem<D> *)dynamic;
	const int lane = threadIdx.x % 32, tok = j.b.shape.page_tok;
	struct peak all[2] = { { -FLT_MAX, 0 }, { -FLT_MAX, 0 } };
	uint32_t a[D / 16][4];
	int pos[2], row[2], first;
	struct proxy_strip s;

	if (!proxy_find(j, ROWS, blockIdx.z, blockIdx.x, s, first))
		return;
	const int begin = blockIdx.y * j.segment * tok;
	const int end = min(begin + j.segment * tok, proxy_last(j, s, first, first + ROWS) + 1);

	if (begin >= end)
		return;
#pragma unroll
	for (int i = 0; i < 2; i++) {
		row[i] = first + threadIdx.x / 32 * 16 + lane / 4 + 8 * i;
		pos[i] = proxy_pos(j, s, row[i]);
		load_row<D>(a, i, j.row + (s.row + row[i]) * D, pos[i] >= 0);
	}
	load_keys<D>(j, s.req, blockIdx.z, begin, sm.key[0]);
	for (int key = begin; key < end;) {
		struct peak p[2] = { { -FLT_MAX, 0 }, { -FLT_MAX, 0 } };
		const int blk = key / tok;

		for (; key < end && key / tok == blk; key += KEYS) {
			const int at = key / KEYS % 2;

			if (key + KEYS < end)
				load_keys<D>(j, s.req, blockIdx.z, key + KEYS, sm.key[at ^ 1]);
			else
				cp_async_commit();
			cp_async_wait<1>();
			__syncthreads();
#pragma unroll 1
			for (int i = 0; i < KEYS; i += COLS)
				take<D>(p, a, sm.key[at], pos, i, key + i, scale);
			__syncthreads();
		}
#pragma unroll
		for (int i = 0; i < 2; i++) {
			all[i] = merge(all[i], p[i]);
			if (lane % 4 == 0 && pos[i] >= blk * tok)
				j.top[blk * j.n_row + s.row + row[i]] =
					row[i] < s.probe ? p[i].max : log_sum(p[i]);
		}
	}
#pragma unroll
	for (int i = 0; i < 2; i++)
		if (lane % 4 == 0 && pos[i] >= begin)
			j.sum[blockIdx.y * j.n_row + s.row + row[i]] = log_sum(all[i]);
}

template <int D>
enum ar_status launch(const struct proxy_job *j, cudaStream_t stream, struct ar_err *err)
{
	const float scale = (float)(1.4426950408889634 / sqrt((double)D));
	const int bytes = (int)sizeof(struct score_smem<D>);
	const dim3 grid(proxy_tiles(j, ROWS), (j->b.keys.max_kv_blk + j->segment - 1) / j->segment,
			j->n_source);
	enum ar_status st = AR_OK;

	CU(cudaFuncSetAttribute(score_mma<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
	score_mma<D><<<grid, ROWS * 2, bytes, stream>>>(*j, scale);
	CU_LAUNCHED();
out:
	return st;
}

}

enum ar_status proxy_score_sm80(struct proxy_job *j, cudaStream_t stream, struct ar_err *err)
{
	j->segment = PROXY_SEGMENT;
	switch (j->b.shape.head_dim) {
	case 64:
		return launch<64>(j, stream, err);
	case 128:
		return launch<128>(j, stream, err);
	default:
		return launch<256>(j, stream, err);
	}
}
