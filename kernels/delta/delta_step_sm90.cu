/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decode on Hopper: one row of each sequence, all of the mixer in one kernel, bound by the state's
 * memory.
 *
 * A cluster of thread blocks has a key head of a row.  A thread block takes 32 columns of a value
 * head's state, and keeps them in registers: 16 KiB.  So a multiprocessor has six small blocks,
 * which load, compute and store at different times, and one row fills 128 blocks.
 *
 * Each channel of q and k has one owner, a thread of one thread block, which also moves its tail
 * on.  It sends the channel to all thread blocks of the cluster.  These send each other their
 * columns' sums of squares, for the norm of the output.  Loads arrive in the order of their issue,
 * so a thread block issues small loads first and loads of the state last.
 *
 * With S^T k and S^T q of the old state, a row needs one sum over the state's rows, and no second
 * look at the new state: o = decay S^T q + (k q) u.
 *
 * Measured on an H200, 16 key and 32 value heads of 128, in us, when one barrier counted the
 * squares of all parts.  delta_step_sm80.cu has a thread block of 128 KiB for a key head, which
 * loads, then computes, then stores:
 *
 *   rows                                         1     8    16    64   256
 *   a copy of as many bytes, at 4.2 TB/s       1.0   8.0  16.1  64.4   257
 *   delta_step_sm80.cu                         7.8  13.6  26.2  96.8   378
 *   32 columns, 7 on a multiprocessor, spills  4.4  12.5  22.1  78.1   300
 *   32 columns, 6 on a multiprocessor          4.2  11.8  20.7  72.9   279
 *   32 columns, 5 on a multiprocessor          4.1  12.1  21.0  74.0   285
 *   64 columns, 3 on a multiprocessor          4.3  12.5  21.2  73.0   278
 *
 * Small copies are slower: one of 64 MiB takes 1.19 times what its bytes take at 4.2 TB/s.
 *
 * What bounds few rows, in another run, in us: the same clusters, which only read the states, add
 * them up and write them; the best of eight plain kernels that read and write them.  A kernel of
 * nothing takes 1.2, in clusters 1.3:
 *
 *   rows                                         1     4     8    16    32
 *   a copy of as many bytes, at 4.2 TB/s       1.0   4.0   8.0  16.1  32.2
 *   read and written                           2.6   5.3   9.6  18.0  33.9
 *   read, added up and written, in clusters    2.8   5.8  10.1  18.9  36.1
 *   this kernel                                4.1   7.2  11.7  20.3  37.6
 *
 * With one row 1.3 are left for the exchange of q and k, and that of squares.  So 8 rows, which are
 * 1.3 waves of thread blocks, take 1.46 times a copy, and 1.3 would leave them 0.3.
 *
 * Failed experiment: the state in shared memory by cp.async, so that 8, 9 or 10 thread blocks fit
 * and eight rows are one wave: 11.9, 11.9, 11.9 with 8 rows; 285 with 256, not 277.
 */
#include "config.h"
#include "kernels/delta/delta_work.h"
#include "kernels/state/state_step.cuh"

#include "kernels/prim/cluster.h"
#include "kernels/prim/cuda.h"
#include "kernels/prim/device.cuh"
#include "kernels/prim/sm90.cuh"

/* In code for other architectures the kernel is a trap, and its parts are unused. */
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#pragma nv_diag_suppress 177
#endif

namespace {

constexpr int W = 32;		/* columns of a thread block */
constexpr int LANES = W / 4;	/* of a row: 16 bytes each */
constexpr int GROUPS = 16;	/* rows at a time */
constexpr int THREADS = GROUPS * LANES;
constexpr int WARPS = THREADS / 32;
constexpr int PER_SM = 6;	/* thread blocks */
constexpr int CLUSTER = 8;	/* thread blocks, at most */

template <int D> struct step_smem {
	float qk[2][D];			/* of the row, before their norms */
	float v[W], gate[W];
	float4 sums[2][WARPS][LANES];	/* S^T k, S^T q: shares of the warps */
	float keys[WARPS][3];		/* sums of k k, q q, k q */
	float squares[2][D / W];	/* of o, by the thread blocks of the head */
	float decay, beta;
	/* By turns: the next squares of another thread block may come before the last of these. */
	uint64_t qk_full, squares_full[2];
};

/* A channel of a row before its convolution. */
struct channel_in {
	bf16_t x[STATE_CONV];
	uint2 w;
};

__device__ __forceinline__ void load_channel(channel_in &in, const state_conv &c, int row, int slot,
					     int channel)
{
	const bf16_t *tail = c.tail + (int64_t)slot * (STATE_CONV - 1) * c.channels + channel;

#pragma unroll
	for (int i = 0; i < STATE_CONV - 1; i++)
		in.x[i] = tail[i * c.channels];
	in.x[STATE_CONV - 1] = c.rows[(int64_t)row * c.stride + channel];
	in.w = *reinterpret_cast<const uint2 *>(c.w + channel * STATE_CONV);
}

/* Its value; its tail moves on. */
__device__ __forceinline__ float finish_channel(const channel_in &in, const state_conv &c, int slot,
						int channel)
{
	bf16_t *tail = c.tail + (int64_t)slot * (STATE_CONV - 1) * c.channels + channel;

#pragma unroll
	for (int i = 0; i < STATE_CONV - 1; i++)
		tail[i * c.channels] = in.x[i + 1];
	return silu(__uint_as_float(in.w.x << 16) * bf16(in.x[0]) +
		    __uint_as_float(in.w.x & 0xffff0000u) * bf16(in.x[1]) +
		    __uint_as_float(in.w.y << 16) * bf16(in.x[2]) +
		    __uint_as_float(in.w.y & 0xffff0000u) * bf16(in.x[3]));
}

/* Sum of x over the groups of rows in a warp. */
__device__ __forceinline__ float group_sum(float x)
{
#pragma unroll
	for (int d = LANES; d < 32; d *= 2)
		x += __shfl_xor_sync(0xffffffff, x, d);
	return x;
}

__device__ __forceinline__ float4 group_sum(const float4 &x)
{
	return make_float4(group_sum(x.x), group_sum(x.y), group_sum(x.z), group_sum(x.w));
}

/* k x + y, with one rounding. */
__device__ __forceinline__ float4 add_scaled(const float4 &y, const float4 &x, float k)
{
	return make_float4(fmaf(x.x, k, y.x), fmaf(x.y, k, y.y), fmaf(x.z, k, y.z),
			   fmaf(x.w, k, y.w));
}

__device__ __forceinline__ float4 scale(const float4 &x, float k)
{
	return make_float4(x.x * k, x.y * k, x.z * k, x.w * k);
}

__device__ __forceinline__ float4 add(const float4 &x, const float4 &y)
{
	return make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
}

/* Send to the same place in the thread block of that rank. */
__device__ __forceinline__ void send(float &to, float x, uint64_t *bar, uint32_t rank)
{
	cluster_store(cluster_addr(smem_addr(&to), rank), x, cluster_addr(smem_addr(bar), rank));
}

/* cluster_sync() in two halves.  They order no accesses but those to new barriers, after
 * fence_barrier_init(). */
__device__ __forceinline__ void cluster_enter()
{
	asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

__device__ __forceinline__ void cluster_entered()
{
	asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* Sums over all rows of the state, of which each thread has a share. */
struct row_sums {
	float4 known, seen;	/* S^T k, S^T q, of the lane's columns */
	float kk, qq, kq;	/* k k, q q, k q */
};

/* By all threads. */
template <int D> __device__ __forceinline__ void sum_up(row_sums &x, step_smem<D> &sm)
{
	const int lane = threadIdx.x % LANES, warp = threadIdx.x / 32;

	x = { group_sum(x.known), group_sum(x.seen), group_sum(x.kk), group_sum(x.qq),
	      group_sum(x.kq) };
	if (threadIdx.x % 32 < LANES) {
		sm.sums[0][warp][lane] = x.known;
		sm.sums[1][warp][lane] = x.seen;
	}
	if (threadIdx.x % 32 == 0) {
		sm.keys[warp][0] = x.kk;
		sm.keys[warp][1] = x.qq;
		sm.keys[warp][2] = x.kq;
	}
	__syncthreads();
	x = {};
#pragma unroll
	for (int w = 0; w < WARPS; w++) {
		x.known = add(x.known, sm.sums[0][w][lane]);
		x.seen = add(x.seen, sm.sums[1][w][lane]);
		x.kk += sm.keys[w][0];
		x.qq += sm.keys[w][1];
		x.kq += sm.keys[w][2];
	}
}

/* Decay and beta of a value head, from b, a, its bias and the logarithm of its rate. */
__device__ __forceinline__ void set_gates(float &decay, float &beta, const float (&in)[4])
{
	const float x = in[1] + in[2];

	decay = expf(-expf(in[3]) * (fmaxf(x, 0) + log1pf(expf(-fabsf(x)))));
	beta = 1 / (1 + expf(-in[0]));
}

template <int D>
__global__ void __launch_bounds__(THREADS, PER_SM)
	delta_step_sm90(const delta_args a, const int32_t *slots, int blocks)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
	constexpr int R = D / GROUPS;		/* rows of a thread */
	constexpr int SLICES = D / W;		/* thread blocks of a head */
	__shared__ __align__(16) step_smem<D> sm;
	const int tid = threadIdx.x, lane = tid % LANES, group = tid / LANES;
	const int rank = blockIdx.x % blocks, key = blockIdx.x / blocks, row = blockIdx.y;
	const int heads = a.c.spec.v_heads, keys = a.c.spec.k_heads * D;
	const int per = (2 * D + blocks - 1) / blocks;	/* channels of q and k */
	const state_conv conv = delta_conv_of(&a.c);

	if (tid == 0) {
		mbarrier_init(&sm.qk_full, 1);
		mbarrier_init(&sm.squares_full[0], 1);
		mbarrier_init(&sm.squares_full[1], 1);
		fence_barrier_init();
		mbarrier_expect_tx(&sm.qk_full, sizeof sm.qk);
	}
	cluster_enter();

	const int slot = slots[row];

	for (int i = 0, part = rank; i * blocks < a.group * SLICES; i++, part += blocks) {
		const bool own = part < a.group * SLICES;
		const int head = key * a.group + (own ? part / SLICES : 0);
		const int column = part % SLICES * W;
		const bf16_t *ba = a.c.ba + (int64_t)row * a.c.ba_stride + head;
		float *state = a.c.state.s +
			       (((int64_t)slot * heads + head) * D + group) * D + column + lane * 4;
		/* A thread has a channel of q or k, of v, or of z. */
		const int qk = rank * per + tid, v = tid - per, z = v - W;
		const bool own_qk = i == 0 && tid < per && qk < 2 * D;
		const bool own_v = own && v >= 0 && v < W;
		const bool own_z = own && z >= 0 && z < W;
		const int channel = v < 0 ? (qk < D ? 0 : keys) + key * D + qk % D :
					    2 * keys + head * D + column + v;
		channel_in in;
		float gates[4];
		bf16_t zs[2];
		float4 s[R];
		row_sums x = {};

		if (own_qk || own_v)
			load_channel(in, conv, row, slot, channel);
		if (own_z) {
			zs[0] = a.c.qkvz[(int64_t)row * a.c.qkvz_stride + a.channels + head * D +
					 column + z];
			zs[1] = a.c.w.norm[column + z];
		}
		if (tid == THREADS - 1) {
			gates[0] = bf16(ba[0]);
			gates[1] = bf16(ba[heads]);
			gates[2] = a.c.w.dt_bias[head];
			gates[3] = a.c.w.a_log[head];
		}
		if (own)
#pragma unroll
			for (int j = 0; j < R; j++)
				s[j] = *reinterpret_cast<const float4 *>(state + j * GROUPS * D);
		if (i == 0)
			cluster_entered();
		if (own_qk || own_v) {
			const float y = finish_channel(in, conv, slot, channel);

			if (own_v)
				sm.v[v] = y;
			else
#pragma unroll 1
				for (int b = 0; b < blocks; b++)
					send(sm.qk[0][qk], y, &sm.qk_full, b);
		}
		if (own_z)
			sm.gate[z] = bf16(zs[1]) * silu(bf16(zs[0]));
		if (tid == THREADS - 1) {
			set_gates(sm.decay, sm.beta, gates);
			mbarrier_expect_tx(&sm.squares_full[i % 2], sizeof sm.squares[0]);
		}
		mbarrier_wait(&sm.qk_full, 0);
#pragma unroll
		for (int j = 0; j < R; j++) {
			const float q = sm.qk[0][j * GROUPS + group];
			const float k = sm.qk[1][j * GROUPS + group];

			x.known = add_scaled(x.known, s[j], k);
			x.seen = add_scaled(x.seen, s[j], q);
			x.kk += k * k;
			x.qq += q * q;
			x.kq += k * q;
		}
		sum_up(x, sm);

		const float decay = sm.decay, unit = rsqrtf(x.kk + (float)DELTA_L2_EPS);
		const float q_unit = rsqrtf(x.qq + (float)DELTA_L2_EPS) * rsqrtf((float)D);
		const float4 vs = *reinterpret_cast<const float4 *>(&sm.v[lane * 4]);
		const float4 gate = *reinterpret_cast<const float4 *>(&sm.gate[lane * 4]);
		const float4 u = scale(add_scaled(vs, x.known, -decay * unit), sm.beta * unit);
		const float4 o = scale(add_scaled(scale(x.seen, decay), u, x.kq), q_unit);

		if (tid < 32) {
			float sum = o.x * o.x + o.y * o.y + o.z * o.z + o.w * o.w;

#pragma unroll
			for (int d = LANES / 2; d; d /= 2)
				sum += __shfl_xor_sync(0xffffffff, sum, d);
			if (own && tid < SLICES)
				send(sm.squares[i % 2][rank % SLICES], sum,
				     &sm.squares_full[i % 2], rank / SLICES * SLICES + tid);
		}
		if (own)
#pragma unroll
			for (int j = 0; j < R; j++) {
				const float k = sm.qk[1][j * GROUPS + group];

				s[j] = add_scaled(scale(u, k), s[j], decay);
				*reinterpret_cast<float4 *>(state + j * GROUPS * D) = s[j];
			}
		if (own && tid < LANES) {
			float sum = 0;

			mbarrier_wait(&sm.squares_full[i % 2], i / 2 & 1);
#pragma unroll
			for (int b = 0; b < SLICES; b++)
				sum += sm.squares[i % 2][b];
			sum = rsqrtf(sum / D + a.c.w.eps);
			*reinterpret_cast<uint2 *>(
				a.c.out + ((int64_t)row * heads + head) * D + column + lane * 4) =
				make_uint2(pack_bf16(o.x * sum * gate.x, o.y * sum * gate.y),
					   pack_bf16(o.z * sum * gate.z, o.w * sum * gate.w));
		}
		__syncthreads();
	}
#else
	__trap();
#endif
}

} /* namespace */

enum ar_status delta_decode_sm90(const struct delta_call *c, int n_row, const int32_t *slot,
				 struct ar_err *err)
{
	const struct delta_args a = { *c, {}, {}, delta_channels(&c->spec),
				      c->spec.v_heads / c->spec.k_heads };
	const int parts = a.group * (c->spec.k_dim / W);
	const int blocks = parts < CLUSTER ? parts : CLUSTER;
	cudaLaunchAttribute attribute;
	cudaLaunchConfig_t config = cluster_launch(&attribute, blocks);
	enum ar_status st = AR_OK;

	config.gridDim = dim3(blocks * c->spec.k_heads, n_row);
	config.blockDim = dim3(THREADS);
	config.stream = (cudaStream_t)c->stream;
	CU(cudaLaunchKernelEx(&config,
			      c->spec.k_dim == 64 ? delta_step_sm90<64> : delta_step_sm90<128>, a,
			      slot, blocks));
out:
	return st;
}
