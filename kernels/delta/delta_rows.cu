/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of prefill that work row by row.  They are bound by memory.
 *
 *   conv   grid (head of q, k and v; chunk).  A warp has 8 rows of a head, and a lane 4 channels
 *          of 128, so that the norm of a row is a sum over the warp.  The 3 rows before the 8 come
 *          from caches.  All loads of a warp are under way at once: 11 x 256 bytes.
 *          With SiLU under a condition, and with stores that became one for each word, 32 Ki rows
 *          of 64 heads took 0.45 ms longer on an H200.
 *   norm   grid (chunk, v_heads).  16 lanes have a row of a head of 128, 16 bytes each.
 */
#include "config.h"
#include "kernels/delta/delta_rows.cuh"

#include "kernels/prim/cuda.h"

namespace {

constexpr int THREADS = 256;
constexpr int ROWS = 8;			/* of a warp in conv */
static_assert(THREADS / 32 * ROWS == STATE_CHUNK, "a thread block takes a chunk");

/* Write 8 rows of v as words of two rows. */
template <int N>
__device__ __forceinline__ void store_v(uint32_t *to, const float (&y)[ROWS][N], int warp, int lane)
{
#pragma unroll
	for (int e = 0; e < N; e++) {
		const int v = lane * N + e, square = (v / 16 * 8 + warp) * 2 + v % 16 / 8;
		const uint32_t w[4] = { pack_bf16(y[0][e], y[1][e]), pack_bf16(y[2][e], y[3][e]),
					pack_bf16(y[4][e], y[5][e]), pack_bf16(y[6][e], y[7][e]) };

		store_words(to + square * 32 + v % 8 * 4, w);
	}
}

/* Write 8 rows of q or k, normalised. */
template <int D, int N>
__device__ __forceinline__ void store_unit(bf16_t *tile, const float (&y)[ROWS][N], float factor,
					   int warp, int lane)
{
	float scale[ROWS];

	norms(scale, y, factor);
#pragma unroll
	for (int i = 0; i < ROWS; i++) {
		float x[N];
		const uint32_t at = swizzle<D>(warp * ROWS + i, lane * N / 8);

#pragma unroll
		for (int e = 0; e < N; e++)
			x[e] = y[i][e] * scale[i];
		store<N>(tile + at / 2 + lane * N % 8, x);
	}
}

template <int D> __global__ void __launch_bounds__(THREADS) delta_conv(const delta_args a)
{
	constexpr int N = D / 32;	/* channels of a lane */
	const int head = blockIdx.x, keys = a.c.spec.k_heads, warp = threadIdx.x / 32;
	const int lane = threadIdx.x % 32, channel = head * D + lane * N;
	const state_chunk chunk = a.b.chunk[blockIdx.y];
	const state_seq seq = a.b.seq[chunk.seq];
	const int first = chunk.first + warp * ROWS;
	taps<N, ROWS> x;
	float y[ROWS][N];

	load_taps(x, delta_conv_of(&a.c), seq, first, channel);
	convolve(y, x, load<N * STATE_CONV>(a.c.w.conv + channel * STATE_CONV), pack<N>{},
		 seq.n_row - first);
	if (head >= 2 * keys)
		store_v<N>(a.w.v + ((int64_t)blockIdx.y * a.c.spec.v_heads + head - 2 * keys) *
			   (STATE_CHUNK * D / 2), y, warp, lane);
	else if (head >= keys)
		store_unit<D, N>(a.w.k + ((int64_t)blockIdx.y * keys + head - keys) *
				 (STATE_CHUNK * D), y, 1, warp, lane);
	else
		store_unit<D, N>(a.w.q + ((int64_t)blockIdx.y * keys + head) * (STATE_CHUNK * D),
				 y, rsqrtf((float)D), warp, lane);
}

template <int D> __global__ void __launch_bounds__(THREADS) delta_norm(const delta_args a)
{
	constexpr int LANES = D / 8;			/* of a row of a head */
	constexpr int STEP = THREADS / LANES;
	constexpr int N = STATE_CHUNK / STEP;		/* rows of heads of a thread */
	const int heads = a.c.spec.v_heads, at = threadIdx.x % LANES * 8;
	const state_chunk chunk = a.b.chunk[blockIdx.x];
	const state_seq seq = a.b.seq[chunk.seq];
	const pack<8> weight = load<8>(a.c.w.norm + at);
	bf16_t *out[N];
	pack<8> o[N], z[N];
	bool own[N];

#pragma unroll
	for (int i = 0; i < N; i++) {
		const int item = blockIdx.y * STATE_CHUNK + i * STEP + threadIdx.x / LANES;
		const int row = chunk.first + item / heads, head = item % heads;

		own[i] = row < seq.n_row;
		out[i] = a.c.out + ((int64_t)(seq.row + row) * heads + head) * D + at;
		o[i] = own[i] ? load<8>(out[i]) : pack<8>{};
		z[i] = own[i] ? load<8>(a.c.qkvz + (int64_t)(seq.row + row) * a.c.qkvz_stride +
					a.channels + head * D + at) : pack<8>{};
	}
#pragma unroll
	for (int i = 0; i < N; i++) {
		float sum = 0, y[8];

#pragma unroll
		for (int e = 0; e < 8; e++)
			sum += element(o[i], e) * element(o[i], e);
#pragma unroll
		for (int d = LANES / 2; d; d /= 2)
			sum += __shfl_xor_sync(0xffffffff, sum, d);
		const float scale = rsqrtf(sum / D + a.c.w.eps);
#pragma unroll
		for (int e = 0; e < 8; e++)
			y[e] = element(o[i], e) * scale * element(weight, e) *
			       silu(element(z[i], e));
		if (own[i])
			store<8>(out[i], y);
	}
}

} /* namespace */

/* ---- launch ---- */

enum ar_status delta_conv_enqueue(const struct delta_args *a, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	const dim3 grid(2 * a->c.spec.k_heads + a->c.spec.v_heads, a->b.n_chunk);

	(a->c.spec.k_dim == 64 ? delta_conv<64> : delta_conv<128>)
		<<<grid, THREADS, 0, (cudaStream_t)a->c.stream>>>(*a);
	CU_LAUNCHED();
out:
	return st;
}

enum ar_status delta_norm_enqueue(const struct delta_args *a, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	const dim3 grid(a->b.n_chunk, a->c.spec.v_heads);
	const struct state_conv conv = delta_conv_of(&a->c);

	(a->c.spec.k_dim == 64 ? delta_norm<64> : delta_norm<128>)
		<<<grid, THREADS, 0, (cudaStream_t)a->c.stream>>>(*a);
	CU_LAUNCHED();
	st = state_keep_tails(&conv, &a->b, a->c.stream, err); /* conv reads the old ones */
out:
	return st;
}
