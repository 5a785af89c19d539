/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of prefill that work row by row, bound by memory.
 *
 *   conv   grid (slab of x, B and C; chunk).  A warp has 8 rows of a slab, and a lane 2 channels.
 *   norm   grid (row, group).  A thread has 8 channels of the heads of a group at a time.  In
 *          decode it also moves the tails on, which ssm_step.cu reads.
 */
#include "config.h"
#include "kernels/ssm/ssm_work.h"
#include "kernels/state/state_rows.cuh"

#include "kernels/prim/cuda.h"

namespace {

constexpr int THREADS = 256;
constexpr int ROWS = 8;			/* of a warp in conv */
static_assert(THREADS / 32 * ROWS == STATE_CHUNK, "a thread block takes a chunk");
constexpr int NORM_THREADS = 128;

__global__ void __launch_bounds__(THREADS) ssm_conv(const ssm_args a)
{
	constexpr int N = SSM_SLAB / 32;
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const int channel = blockIdx.x * SSM_SLAB + lane * N;
	const state_conv conv = ssm_conv_of(&a.c);
	const state_chunk chunk = a.b.chunk[blockIdx.y];
	const state_seq seq = a.b.seq[chunk.seq];
	const int first = chunk.first + warp * ROWS;
	bf16_t *slab = a.w.slab + ((int64_t)blockIdx.y * gridDim.x + blockIdx.x) *
				  (STATE_CHUNK * SSM_SLAB);
	taps<N, ROWS> x;
	float y[ROWS][N];

	load_taps(x, conv, seq, first, channel);
	convolve(y, x, load<N * STATE_CONV>(conv.w + channel * STATE_CONV),
		 conv.bias ? load<N>(conv.bias + channel) : pack<N>{}, seq.n_row - first);
#pragma unroll
	for (int i = 0; i < ROWS; i++)
		store<N>(slab + swizzle<SSM_SLAB>(warp * ROWS + i, lane * N / 8) / 2 + lane * N % 8,
			 y[i]);
}

/* The sum of x over the thread block. */
__device__ __forceinline__ float block_sum(float x)
{
	__shared__ float part[NORM_THREADS / 32];
	float sum = 0;

	x = warp_sum(x);
	if (threadIdx.x % 32 == 0)
		part[threadIdx.x / 32] = x;
	__syncthreads();
#pragma unroll
	for (int i = 0; i < NORM_THREADS / 32; i++)
		sum += part[i];
	return sum;
}

/* Move the tails of n channels on by this row. */
__device__ __forceinline__ void move_tail(const state_conv &c, int row, int slot, int channel,
					  int n)
{
	for (int i = channel + threadIdx.x; i < channel + n; i += NORM_THREADS) {
		bf16_t *tail = c.tail + (int64_t)slot * (STATE_CONV - 1) * c.channels + i;

#pragma unroll
		for (int j = 0; j < STATE_CONV - 2; j++)
			tail[j * c.channels] = tail[(j + 1) * c.channels];
		tail[(STATE_CONV - 2) * c.channels] = c.rows[(int64_t)row * c.stride + i];
	}
}

/* The row of a thread block: of chunks, or for slot of a decode.  -1: there is none. */
__device__ __forceinline__ int own_row(const ssm_args &a, const int32_t *slot)
{
	if (slot)
		return blockIdx.x;
	const state_chunk chunk = a.b.chunk[blockIdx.x / STATE_CHUNK];
	const state_seq seq = a.b.seq[chunk.seq];
	const int t = chunk.first + blockIdx.x % STATE_CHUNK;

	return t < seq.n_row ? seq.row + t : -1;
}

__global__ void __launch_bounds__(NORM_THREADS) ssm_norm(const ssm_args a, const int32_t *slot)
{
	const int n = a.group * a.c.spec.head_dim, first = blockIdx.y * n, row = own_row(a, slot);
	const bf16_t *z = a.c.in + (int64_t)row * a.c.in_stride + first;
	bf16_t *out = a.c.out + (int64_t)row * a.inner + first;
	float sum = 0, scale = 1;

	if (row < 0)
		return;
	for (int i = threadIdx.x * 8; i < n && a.c.w.norm; i += NORM_THREADS * 8) {
		const pack<8> o = load<8>(out + i), gate = load<8>(z + i);

#pragma unroll
		for (int e = 0; e < 8; e++) {
			const float y = element(o, e) * silu(element(gate, e));

			sum += y * y;
		}
	}
	if (a.c.w.norm)
		scale = rsqrtf(block_sum(sum) / n + a.c.w.eps);
	for (int i = threadIdx.x * 8; i < n; i += NORM_THREADS * 8) {
		const pack<8> o = load<8>(out + i), gate = load<8>(z + i);
		pack<8> weight = {};
		float y[8];

		if (a.c.w.norm)
			weight = load<8>(a.c.w.norm + first + i);
#pragma unroll
		for (int e = 0; e < 8; e++)
			y[e] = element(o, e) * silu(element(gate, e)) * scale *
			       (a.c.w.norm ? element(weight, e) : 1);
		store<8>(out + i, y);
	}
	if (slot) {
		const state_conv conv = ssm_conv_of(&a.c);
		const int state = a.c.spec.state, b = a.inner + blockIdx.y * state;

		move_tail(conv, row, slot[row], first, n);
		move_tail(conv, row, slot[row], b, state);
		move_tail(conv, row, slot[row], b + a.c.spec.groups * state, state);
	}
}

} /* namespace */

/* ---- launch ---- */

enum ar_status ssm_conv_enqueue(const struct ssm_args *a, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	const dim3 grid(a->channels / SSM_SLAB, a->b.n_chunk);

	ssm_conv<<<grid, THREADS, 0, (cudaStream_t)a->c.stream>>>(*a);
	CU_LAUNCHED();
out:
	return st;
}

static enum ar_status gate_rows(const struct ssm_args *a, int n_row, const int32_t *slot,
				struct ar_err *err)
{
	enum ar_status st = AR_OK;
	const dim3 grid(n_row, a->c.spec.groups);

	ssm_norm<<<grid, NORM_THREADS, 0, (cudaStream_t)a->c.stream>>>(*a, slot);
	CU_LAUNCHED();
out:
	return st;
}

enum ar_status ssm_norm_enqueue(const struct ssm_args *a, struct ar_err *err)
{
	return gate_rows(a, a->b.n_chunk * STATE_CHUNK, NULL, err);
}

enum ar_status ssm_norm_step(const struct ssm_args *a, int n_row, const int32_t *slot,
			     struct ar_err *err)
{
	return gate_rows(a, n_row, slot, err);
}
