/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prefill on Hopper for heads of 64 channels with a state of 128: all of the mixer in two kernels.
 *
 * The chunks of the batch, in a row, are cut into segments of equal length.  Clusters of four
 * thread blocks have a segment and eight heads of a group each; a warp group has a head.  Where a
 * sequence goes on in the next segment, the first kernel makes what the segment adds to its state.
 * The second kernel begins with the sum of these parts and makes the rows, chunk after chunk:
 *
 *   1   rows of x, and a share of B and C, through the convolution; the share goes to all thread
 *       blocks of the cluster
 *   2   C B^T, decayed and causal, as an A operand in registers; C h^T from the state in bf16
 *   3   the product with x; the state moves on in the accumulators, [64][128] in fp32
 *   4   gate; sums of squares go to all thread blocks; norm
 *
 * The first kernel has 1 for x and B, and 3 for the state.  Step 2 and 3 are per head, so each of
 * eight makes C B^T again: 0.5 of 1.8 M products.  In exchange it stays in registers.
 *
 * Roofline for 32 Ki rows of Nemotron 3 Nano, 64 heads in 8 groups: the rows need 0.94 GB, and the
 * first kernel reads 7/8 of x and B again, 0.29 GB.  At 4.1 TB/s: 0.23 and 0.07 ms.  Products: 112
 * and 34 GFLOP, with C B^T of each head 151: 0.22 ms at 700 TFLOP/s, on the tensor cores alone.
 * The instructions of a warp for a chunk are about 1400, in four warps of a scheduler 5600 cycles;
 * 64 chunks take 0.2 ms.  So SiLU has one instruction of the special functions, tanh: with ex2 and
 * rcp these alone would take 0.26 ms.  Two thread blocks of a multiprocessor are of other clusters,
 * and one works while the other waits.
 *
 * Measured on an H200, these rows in one sequence, in us; the last column: the first kernel:
 *
 *   64 clusters, of which 62 run at once                          1705   390
 *   as many as run; weights in shared memory, cheap addresses     1229   386
 *   chunks read ahead; the state moves on while rows are made     1191   366
 *
 * That is 5.2 times what the bytes need.  A chunk takes 18900 cycles, with the other thread block
 * beside it: step 1 4700 and the gates of the time steps in one warp 1200, step 2 and 3 5800,
 * step 4 4700, copies 2000.  The instructions of a scheduler's four warps would fit half of them.
 * A warp waits for its own results: 128 registers leave no room for independent work.
 *
 * Failed experiments:
 *
 *   all 64 columns of C B^T, or of the rows, at once: too few registers, and ptxas then makes each
 *     product wait for the one before
 *   barrier.cluster in place of counted barriers: its arrival is a fence of all memory (not
 *     measured)
 *   segments for two or four waves of clusters: as fast; more states to add
 */
#include "config.h"
#include "kernels/ssm/ssm_chunk.cuh"
#include "kernels/state/state_rows.cuh"

#include "base/gpu.h"
#include "kernels/prim/cluster.h"
#include "kernels/prim/cuda.h"
#include "kernels/prim/sm90.cuh"

/* In code for other architectures the kernel is a trap, and its parts are unused.  Not all of these
 * architectures have clusters. */
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#pragma nv_diag_suppress 177
#define CLUSTER_DIMS
#else
#define CLUSTER_DIMS __cluster_dims__(CLUSTER, 1, 1)
#endif

namespace {

constexpr int CLUSTER = 4;		/* thread blocks */
constexpr int GROUPS = SSM_OCTET / CLUSTER;	/* warp groups, each with a head */
constexpr int THREADS = GROUPS * 128;
constexpr int PER_SM = 2;
constexpr int P = SSM_SLAB, N = 128;	/* channels of a head, of its state */
constexpr int TAPS = STATE_CONV - 1 + C;	/* rows that a chunk's convolution reads */
constexpr int STATE = P * N, OWN = STATE / 128;	/* elements of a state, of a thread */

/* What the kernel makes. */
enum making { STATES, ROWS, GATED_ROWS };

/* Rows before the convolution.  The share of B and C is padded against bank conflicts. */
struct raw_rows {
	bf16_t x[TAPS][P], bc[TAPS][40];
};

/* A chunk and its sequence. */
struct chunk_of {
	int first, left;	/* its first row in the sequence; rows from there to the end */
	state_seq seq;
};

/* A warp group's place.  In shared memory: registers are scarce. */
struct place {
	int head, segment;
	int from, n;			/* chunks of the segment */
	int rank, group;		/* of the thread block; of the warp group in it */
	int bc;				/* first channel of its share, of all channels */
};

/* Weights of a warp group's channels; without biases zeros.  Of the convolution they are halves:
 * SiLU begins with half of its argument. */
struct head_weights {
	bf16_t x[P][STATE_CONV], bc[40][STATE_CONV];
	bf16_t x_bias[P], bc_bias[40], norm[P];
	ssm_head head;
};

/* Of a warp group. */
struct alignas(1024) head_smem {
	union {
		bf16_t h[N / SSM_SLAB][P][SSM_SLAB];	/* the state where the chunk begins */
		raw_rows raw;				/* of this chunk before, the next after */
	};
	bf16_t x[C][P];
	bf16_t z[C][P];			/* then the rows */
	ssm_gates gates;
	uint32_t dt[C];			/* projections of both heads of the thread block */
	float decay;			/* sum of the log decays of all chunks */
	place w;
	chunk_of chunk[4];		/* of a segment: see read_chunk() */
	alignas(16) head_weights weights;
};

/* Each phase of a barrier counts the bytes that all thread blocks of the cluster store here.  Who
 * stores sums of a chunk has read B and C; who stores B and C has read the sums before. */
struct alignas(1024) rows_smem {
	bf16_t bc[2][N / SSM_SLAB][C][SSM_SLAB];	/* B; C, or B of every other chunk */
	head_smem head[GROUPS];
	float sums[SSM_OCTET][C];	/* of squares, by all heads of the cluster */
	uint64_t full[2], sums_full;
};
constexpr int SMEM_BYTES = sizeof(rows_smem) + 1024;
static_assert(PER_SM * (SMEM_BYTES + 1024) <= 228 * 1024, "shared memory of a multiprocessor");

/* Of this thread's warp group; anew, as afresh(). */
__device__ __forceinline__ head_smem &own_head(rows_smem &sm)
{
	return sm.head[afresh((int)threadIdx.x / 128)];
}

/* All threads of the warp group. */
__device__ __forceinline__ void group_sync(const place &w)
{
	bar_sync(1 + w.group, 128);
}

/* Channels of a share: of B and C, or of B. */
template <making M> constexpr int share = (M == STATES ? 1 : 2) * N / SSM_OCTET;

/* Address of 4 channels, the first of which is a multiple of 4, in a slab. */
__device__ __forceinline__ uint32_t quad_at(int row, int channel)
{
	return swizzle<SSM_SLAB>(row, channel / 8) + channel % 8 * 2;
}

/* Bytes of a chunk's rows, B and C before slabs. */
constexpr uint32_t SLAB_BYTES = C * SSM_SLAB * sizeof(bf16_t);
constexpr uint32_t HALF_BYTES = SLAB_BYTES / 2;	/* 32 rows of it */

template <making M>
__device__ __forceinline__ place place_of(const ssm_args &a)
{
	const int octets = a.c.spec.heads / SSM_OCTET, cluster = blockIdx.x / CLUSTER;
	const int first = cluster % octets * SSM_OCTET;
	place w;

	w.rank = (int)cluster_rank();
	w.group = threadIdx.x / 128;
	w.head = first + w.rank * GROUPS + w.group;
	w.segment = cluster / octets;
	w.from = w.segment * a.len;
	w.n = min(a.len, a.b.n_chunk - w.from);
	const int own = (w.rank * GROUPS + w.group) * share<M>;	/* B, then C */
	const int part = own / N * a.c.spec.groups + first / a.group;

	w.bc = a.inner + part * N + own % N;
	return w;
}

/* ---- copies ---- */

/* Read which chunk the segment's `turn` is, by one thread: two chunks before it is copied, so that
 * nobody waits for the two loads. */
__device__ __forceinline__ void read_chunk(head_smem &own, const ssm_args &a, int i, int turn)
{
	if (i < a.b.n_chunk) {
		const state_chunk chunk = a.b.chunk[i];
		const state_seq seq = a.b.seq[chunk.seq];

		own.chunk[turn & 3] = { chunk.first, seq.n_row - chunk.first, seq };
	}
}

/* Copy 16 bytes of row t of the sequence, of channels from `channel` on. */
__device__ __forceinline__ void copy_piece(uint32_t to, const state_conv &c, const state_seq &seq,
					   int t, int channel)
{
	const bool there = t < seq.n_row && (t >= 0 || !seq.fresh);
	const int64_t old = ((int64_t)seq.slot * (STATE_CONV - 1) + STATE_CONV - 1 + t) *
			    c.channels;
	const bf16_t *from = t < 0 ? c.tail + old : c.rows + (int64_t)(seq.row + t) * c.stride;

	cp_async_16(to, there ? from + channel : c.rows, there ? 16 : 0);
}

/* Copy TAPS rows of 8 PIECES channels, from row `before` of the sequence on, to row_bytes each. */
template <int PIECES>
__device__ __forceinline__ void copy_rows(bf16_t *to, int row_bytes, const state_conv &c,
					  const state_seq &seq, int before, int channel)
{
	constexpr int STEP = 128 / PIECES;
	const int row = own_thread() / PIECES, piece = own_thread() % PIECES;
	const bf16_t *from = c.rows + (int64_t)(seq.row + before + row) * c.stride + channel +
			     piece * 8;
	const uint32_t at = smem_addr(to) + row * row_bytes + piece * 16;

	if (before >= 0 && before + TAPS <= seq.n_row) {
#pragma unroll
		for (int r = 0; r < C; r += STEP, from += STEP * c.stride)
			cp_async_16(at + r * row_bytes, from, 16);
		if (row < TAPS - C)
			cp_async_16(at + C * row_bytes, from, 16);
		return;
	}
#pragma unroll 1
	for (int r = 0; r + row < TAPS; r += STEP)
		copy_piece(at + r * row_bytes, c, seq, before + r + row, channel + piece * 8);
}

/* Start the copies for chunk i of the batch up to the convolution. */
template <making M>
__device__ __forceinline__ void copy_raw(head_smem &sm, const ssm_args &a, int turn)
{
	const chunk_of &chunk = sm.chunk[turn & 3];
	const state_seq seq = chunk.seq;
	const state_conv conv = ssm_conv_of(&a.c);
	const place &w = sm.w;
	const int before = chunk.first - (STATE_CONV - 1), tid = own_thread();

	copy_rows<P / 8>(sm.raw.x[0], sizeof sm.raw.x[0], conv, seq, before, w.head * P);
	copy_rows<share<M> / 8>(sm.raw.bc[0], sizeof sm.raw.bc[0], conv, seq, before, w.bc);
	if (tid < C) {
		const bool there = tid < chunk.left;

		cp_async_4(smem_addr(&sm.dt[tid]),
			   a.c.in + (there ? (int64_t)(seq.row + chunk.first + tid) *
						     a.c.in_stride + a.inner +
				     a.channels + (w.head - w.group) : 0),
			   there ? 4 : 0);
	}
}

/* Of z; a thread later reads the rows in the same places. */
__device__ __forceinline__ void copy_z(head_smem &sm, const ssm_args &a, int turn)
{
	constexpr int STEP = 128 / (P / 8);
	const chunk_of &chunk = sm.chunk[turn & 3];
	const int row = own_thread() / (P / 8), piece = own_thread() % (P / 8);
	const int left = chunk.left - row;	/* rows from this thread's first on */
	const bf16_t *from = a.c.in + (int64_t)(chunk.seq.row + chunk.first + row) *
				      a.c.in_stride + sm.w.head * P + piece * 8;
	const uint32_t to = smem_addr(sm.z) + swizzle<P>(row, piece);

#pragma unroll
	for (int r = 0; r < C; r += STEP, from += STEP * a.c.in_stride)
		cp_async_16(to + r * P * 2, r < left ? from : a.c.in, r < left ? 16 : 0);
}

/* ---- convolution ---- */

__device__ __forceinline__ float half_silu(float half)
{
	return fmaf(half, tanh_approx(half), half);
}

/* 4 channels of row r through the convolution and SiLU. */
template <int R>
__device__ __forceinline__ uint2 convolved(const taps<4, R> &t, const pack<4 * STATE_CONV> &w,
					   const pack<4> &bias, int r)
{
	float y[4];

#pragma unroll
	for (int e = 0; e < 4; e++)
		y[e] = half_silu(add_taps(element(bias, e), t, w, r, e));
	return make_uint2(pack_bf16(y[0], y[1]), pack_bf16(y[2], y[3]));
}

/* Convolve 4 channels of the thread: n rows from smem, [TAPS][stride], R at a time. */
template <int R, class F>
__device__ __forceinline__ void convolve_rows(const bf16_t *raw, int stride, int n,
					      const bf16_t *weights, const bf16_t *biases,
					      F store)
{
	const pack<4 * STATE_CONV> w = load<4 * STATE_CONV>(weights);
	const pack<4> bias = load<4>(biases);

#pragma unroll 1
	for (int first = 0; first < n; first += R) {
		taps<4, R> t;

#pragma unroll
		for (int r = 0; r < STATE_CONV - 1 + R; r++)
			t.x[r] = load<4>(raw + (first + r) * stride);
#pragma unroll
		for (int r = 0; r < R; r++)
			store(first + r, convolved(t, w, bias, r));
	}
}

/* Convolve the share of B and C of a chunk and put it into all thread blocks.  buffer: of B. */
template <making M>
__device__ __forceinline__ void put_share(rows_smem &sm, head_smem &own, const place &w,
					  int buffer)
{
	constexpr int QUADS = share<M> / 4, R = C * QUADS / 128;
	const int quad = own_thread() % QUADS * 4, row = own_thread() / QUADS * R;
	const int at = (w.rank * GROUPS + w.group) * share<M> + quad, channel = at % N;
	const uint32_t slab = smem_addr(sm.bc[buffer + at / N][channel / SSM_SLAB]);
	const uint32_t bar = smem_addr(&sm.full[buffer]) - slab;
	uint32_t to[CLUSTER];

#pragma unroll
	for (int i = 0; i < CLUSTER; i++)
		to[i] = cluster_addr(slab, i);
	convolve_rows<R>(&own.raw.bc[row][quad], 40, R, own.weights.bc[quad],
			 &own.weights.bc_bias[quad],
			 [&](int r, uint2 y) {
				 const uint32_t place = quad_at(row + r, channel % SSM_SLAB);

#pragma unroll
				 for (int i = 0; i < CLUSTER; i++)
					 cluster_store(to[i] + place, y, to[i] + bar);
			 });
}

/* Convolve x of a chunk. */
__device__ __forceinline__ void make_x(head_smem &own)
{
	constexpr int QUADS = P / 4, R = C * QUADS / 128;
	const int quad = own_thread() % QUADS * 4, row = own_thread() / QUADS * R;

	convolve_rows<4>(&own.raw.x[row][quad], P, R, own.weights.x[quad],
			 &own.weights.x_bias[quad],
			 [&](int r, uint2 y) {
				 *reinterpret_cast<uint2 *>((char *)own.x +
							    quad_at(row + r, quad)) = y;
			 });
}

/* By the first warp of the group. */
__device__ __forceinline__ void read_gates(head_smem &own, const ssm_args &a, int group, int n)
{
	const uint2 raw = *reinterpret_cast<const uint2 *>(&own.dt[own_thread() * 2]);
	const float dt[2] = { __uint_as_float(group ? raw.x & 0xffff0000u : raw.x << 16),
			      __uint_as_float(group ? raw.y & 0xffff0000u : raw.y << 16) };

	make_gates(own.gates, a, own.weights.head, dt, n);
}

/* ---- states ---- */

/* A thread's part of a state, in the order of its accumulators.  array: begin or part. */
__device__ __forceinline__ float4 *stored(float *array, const ssm_args &a, const place &w,
					  int segment)
{
	return reinterpret_cast<float4 *>(array + ((int64_t)segment * a.c.spec.heads + w.head) *
						  STATE) + own_thread();
}

__device__ __forceinline__ void store_part(float *array, const float *h, const ssm_args &a,
					   const place &w)
{
	float4 *to = stored(array, a, w, w.segment);

#pragma unroll
	for (int j = 0; j < OWN / 4; j++)
		to[j * 128] = make_float4(h[4 * j], h[4 * j + 1], h[4 * j + 2], h[4 * j + 3]);
}

/* h += factor * part. */
__device__ __forceinline__ void add_part(float *h, float *array, float factor, const ssm_args &a,
					 const place &w, int segment)
{
	const float4 *from = stored(array, a, w, segment);

#pragma unroll
	for (int j = 0; j < OWN / 4; j++) {
		const float4 x = from[j * 128];

		if (j % 4 == 3)
			__syncwarp(); /* keeps ptxas from loading all first */

		h[4 * j] += factor * x.x;
		h[4 * j + 1] += factor * x.y;
		h[4 * j + 2] += factor * x.z;
		h[4 * j + 3] += factor * x.w;
	}
}

__device__ __forceinline__ float *slot_of(const ssm_args &a, const place &w, const state_seq &seq)
{
	return a.c.state.h + ((int64_t)seq.slot * a.c.spec.heads + w.head) * STATE;
}

__device__ __forceinline__ void load_slot(float *h, const ssm_args &a, const place &w,
					  const state_seq &seq)
{
	float *slot = slot_of(a, w, seq);

#pragma unroll
	for (int j = 0; j < OWN; j += 2) {
		const float2 x = *reinterpret_cast<const float2 *>(
			state_at(slot, N, 0, j / 4, j % 4));

		if (j % 16 == 14)
			__syncwarp();
		h[j] = x.x;
		h[j + 1] = x.y;
	}
}

__device__ __forceinline__ void store_slot(const float *h, const ssm_args &a, const place &w,
					   const state_seq &seq)
{
	float *slot = slot_of(a, w, seq);

#pragma unroll
	for (int j = 0; j < OWN; j += 2)
		*reinterpret_cast<float2 *>(state_at(slot, N, 0, j / 4, j % 4)) =
			make_float2(h[j], h[j + 1]);
}

/* The state where the sequence of chunk i, the first of a segment or of its sequence, goes on. */
__device__ __forceinline__ void load_state(float *h, const ssm_args &a, const place &w,
					   const state_seq &seq, int i)
{
	const int end = seq.chunk0 + (seq.n_row + C - 1) / C;
	float decay = 0;

#pragma unroll
	for (int j = 0; j < OWN; j++)
		h[j] = 0;
	if (seq.chunk0 < i) {
#pragma unroll 1
		for (int s = w.segment - 1;; s--) {
			add_part(h, a.w.part, ex2(decay), a, w, s);
			if (seq.chunk0 >= s * a.len)
				break;
			decay += a.w.decay[s * a.c.spec.heads + w.head];
		}
	} else if (seq.fresh) {
		return;
	} else if (end > (w.segment + 1) * a.len) {
		add_part(h, a.w.begin, 1, a, w, w.segment);	/* another writes the slot */
	} else {
		load_slot(h, a, w, seq);
	}
}

/* ---- products ---- */

/* Columns from 16 k on of slabs, whose rows are the outer dimension. */
__device__ __forceinline__ uint64_t slab_at(uint64_t slabs, int k)
{
	return wgmma_at(slabs, k / 4 * SLAB_BYTES + k % 4 * 32);
}

/* Rows from 16 k on, which are the inner dimension. */
__device__ __forceinline__ uint64_t rows_at(uint64_t slabs, int k)
{
	return wgmma_at(slabs, k * 16 * SSM_SLAB * (uint32_t)sizeof(bf16_t));
}

/* Write the state in bf16 as the B operand of the product with C. */
__device__ __forceinline__ void round_state(head_smem &own, const float *h)
{
	const int lane = own_lane(), row = own_warp() * 16 + lane % 16;

#pragma unroll
	for (int n = 0; n < N / 8; n += 2) {
		const float *x = h + 4 * n;
		const uint32_t r[4] = { pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3]),
					pack_bf16(x[4], x[5]), pack_bf16(x[6], x[7]) };

		stmatrix_x4(smem_addr(own.h[n / 8]) + swizzle<SSM_SLAB>(row, n % 8 + lane / 16), r);
	}
}

/* y = a b^T over the channels of the state, for 32 rows of b. */
__device__ __forceinline__ void multiply_state(float *y, uint64_t a, uint64_t b)
{
	wgmma_fence();
#pragma unroll
	for (int k = 0; k < N / 16; k++)
		wgmma_m64n32k16_ss(y, slab_at(a, k), slab_at(b, k), k != 0);
	wgmma_commit();
	wgmma_wait<0>();
	hold<C / 4>(y);
}

/* The rows of the chunk before their gate, in bf16: y[n][h] for column tile n and row half h.  Half
 * of the channels at a time: with all of them there are too few registers. */
__device__ __forceinline__ void make_rows(uint32_t (&y)[P / 8][2], rows_smem &sm)
{
	head_smem &own = own_head(sm);
	const uint64_t b = afresh(wgmma_desc(sm.bc[0], 16, 1024));
	const uint64_t c = wgmma_at(b, sizeof sm.bc[0]);
	const uint64_t h = afresh(wgmma_desc(own.h, 16, 1024)), x = wgmma_at(h, sizeof own.h);
	uint32_t m[C / 16][4];

#pragma unroll
	for (int half = 0; half < 2; half++) {
		float cb[C / 4];

		multiply_state(cb, c, wgmma_at(b, half * HALF_BYTES));
		mask(&m[half * (C / 32)], cb, own.gates, own.weights.head.d, half);
	}
#pragma unroll
	for (int half = 0; half < 2; half++) {
		constexpr int COLS = P / 2;
		float o[COLS / 2];

		multiply_state(o, c, wgmma_at(h, half * HALF_BYTES));
		const float2 from = from_start(own.gates);

#pragma unroll
		for (int j = 0; j < COLS / 2; j++)
			o[j] *= j % 4 < 2 ? from.x : from.y;
		wgmma_fence();
#pragma unroll
		for (int k = 0; k < C / 16; k++)
			wgmma_m64n32k16_rs(o, m[k], wgmma_at(rows_at(x, k), half * COLS * 2));
		wgmma_commit();
		wgmma_wait<0>();
		hold<COLS / 2>(o);
#pragma unroll
		for (int n = 0; n < COLS / 8; n++)
#pragma unroll
			for (int r = 0; r < 2; r++)
				y[half * (COLS / 8) + n][r] =
					pack_bf16(o[4 * n + 2 * r], o[4 * n + 2 * r + 1]);
	}
}

/* Start moving the state on by the chunk.  w: stays as it is until it has. */
__device__ __forceinline__ void move_state(float *h, uint32_t (&w)[C / 16][4],
					   const head_smem &own, const bf16_t *b)
{
	const uint64_t inner = afresh(wgmma_desc(b, SLAB_BYTES, 1024));
	const float end = ex2(own.gates.sum[C - 1]);

#pragma unroll
	for (int j = 0; j < OWN; j++)
		h[j] *= end;
#pragma unroll
	for (int k = 0; k < C / 16; k++)
		weigh_x(w[k], x_place(own.x[0]), own.gates, k);
	wgmma_fence();
#pragma unroll
	for (int k = 0; k < C / 16; k++)
		wgmma_m64n128k16_rs(h, w[k], rows_at(inner, k));
	wgmma_commit();
}

/* ---- gate, norm and output ---- */

/* Address of this thread's elements of column tile n in z, of row half h. */
__device__ __forceinline__ uint32_t *z_at(head_smem &own, int h, int n)
{
	const int lane = own_lane(), row = own_warp() * 16 + h * 8 + lane / 4;

	return reinterpret_cast<uint32_t *>((char *)own.z + swizzle<P>(row, n) + lane % 4 * 4);
}

__device__ __forceinline__ float low(uint32_t x)
{
	return __uint_as_float(x << 16);
}

__device__ __forceinline__ float high(uint32_t x)
{
	return __uint_as_float(x & 0xffff0000u);
}

/* Multiply by the gate; g: the result.  sum: of squares. */
__device__ __forceinline__ void gate_rows(float (&g)[P / 2], const uint32_t (&y)[P / 8][2],
					  float (&sum)[2], head_smem &own)
{
#pragma unroll
	for (int n = 0; n < P / 8; n++)
#pragma unroll
		for (int h = 0; h < 2; h++) {
			const uint32_t z = *z_at(own, h, n);
			float *to = g + 4 * n + 2 * h;

			to[0] = low(y[n][h]) * half_silu(0.5f * low(z));
			to[1] = high(y[n][h]) * half_silu(0.5f * high(z));
			sum[h] += to[0] * to[0] + to[1] * to[1];
		}
}

/* Send this thread's sums of two rows to all thread blocks. */
__device__ __forceinline__ void send_sums(const float (&sum)[2], rows_smem &sm, const place &w)
{
	const int lane = own_lane(), row = own_warp() * 16 + lane / 4;
	const uint32_t to = cluster_addr(
		smem_addr(&sm.sums[w.rank * GROUPS + w.group][row]), lane % 4);
	const uint32_t bar = cluster_addr(smem_addr(&sm.sums_full), lane % 4);

#pragma unroll
	for (int h = 0; h < 2; h++)
		cluster_store(to + h * 8 * (uint32_t)sizeof(float), quad_sum(sum[h]), bar);
}
static_assert(CLUSTER == 4, "each lane of a row's four sends to one thread block");

/* Divide by the norm, which all have sent. */
__device__ __forceinline__ void norm_rows(float (&g)[P / 2], const rows_smem &sm,
					  const head_smem &own, float eps)
{
	const int lane = own_lane(), row = own_warp() * 16 + lane / 4;
	const bf16_t *norm = own.weights.norm + lane % 4 * 2;
	float scale[2];

#pragma unroll
	for (int h = 0; h < 2; h++) {
		float sum = 0;

#pragma unroll
		for (int i = 0; i < SSM_OCTET; i++)
			sum += sm.sums[i][row + h * 8];
		scale[h] = rsqrtf(sum * (1.0f / (SSM_OCTET * P)) + eps);
	}
#pragma unroll
	for (int n = 0; n < P / 8; n++) {
		const pack<2> weight = load<2>(norm + n * 8);

#pragma unroll
		for (int e = 0; e < 4; e++)
			g[4 * n + e] *= scale[e / 2] * element(weight, e % 2);
	}
}

/* Write the rows of a chunk, by way of z. */
__device__ __forceinline__ void store_rows(const uint32_t (&y)[P / 8][2], head_smem &own,
					   const ssm_args &a, int turn)
{
	const chunk_of &chunk = own.chunk[turn & 3];

#pragma unroll
	for (int n = 0; n < P / 8; n++)
#pragma unroll
		for (int h = 0; h < 2; h++)
			*z_at(own, h, n) = y[n][h];
	group_sync(own.w);
	constexpr int STEP = 128 / (P / 8);
	const int row = own_thread() / (P / 8), piece = own_thread() % (P / 8);
	const int left = chunk.left - row;
	const char *from = (const char *)own.z + swizzle<P>(row, piece);
	bf16_t *to = a.c.out + (int64_t)(chunk.seq.row + chunk.first + row) * a.inner +
		     own.w.head * P + piece * 8;

#pragma unroll
	for (int r = 0; r < C; r += STEP, to += STEP * a.inner)
		if (r < left)
			store_words(to, reinterpret_cast<const pack<8> *>(from + r * P * 2)->w);
}

/* ---- the kernel ---- */

/* Half of 4 weights, exactly. */
__device__ __forceinline__ void store_half(bf16_t *to, const pack<4> &w)
{
	float x[4];

#pragma unroll
	for (int e = 0; e < 4; e++)
		x[e] = 0.5f * element(w, e);
	*reinterpret_cast<uint2 *>(to) = make_uint2(pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3]));
}

__device__ __forceinline__ bf16_t half_of(const bf16_t *x, int i)
{
	return x ? (bf16_t)pack_bf16(0.5f * __uint_as_float((uint32_t)x[i] << 16), 0) : 0;
}

/* Channels of a warp group, by its threads. */
__device__ __forceinline__ void load_weights(head_smem &own, const ssm_args &a, int n_bc)
{
	const int tid = own_thread(), x = own.w.head * P, bc = own.w.bc;
	const bf16_t *bias = a.c.w.conv_bias;
	head_weights &to = own.weights;

	if (tid < P) {
		store_half(to.x[tid], load<4>(a.c.w.conv + (x + tid) * 4));
		to.x_bias[tid] = half_of(bias, x + tid);
		to.norm[tid] = a.c.w.norm ? a.c.w.norm[x + tid] : 0;
	} else if (tid - P < n_bc) {
		const int i = tid - P;

		store_half(to.bc[i], load<4>(a.c.w.conv + (bc + i) * 4));
		to.bc_bias[i] = half_of(bias, bc + i);
	}
	if (tid == 0)
		to.head = head_of(a, own.w.head);
}
static_assert(STATE_CONV == 4, "weights of a channel are loaded at once");

/* Steps 1 to 3 of chunk i, and the copies for the next one, if there is one.  turn: of chunks. */
template <making M>
__device__ __forceinline__ void step(float *h, uint32_t (&y)[P / 8][2], rows_smem &sm,
				     const ssm_args &a, int i, int turn, bool more)
{
	head_smem &own = own_head(sm);
	uint32_t weighed[C / 16][4];
	const place &w = own.w;
	const int buffer = M == STATES ? turn & 1 : 0;
	uint64_t *full = &sm.full[buffer];

	if (M == STATES)
		cp_async_wait<0>();
	else
		cp_async_wait<1>();	/* of z */
	group_sync(w);
	if (threadIdx.x == 0) {
		mbarrier_expect_tx(full, SSM_OCTET * C * share<M> * (uint32_t)sizeof(bf16_t));
		if (M != STATES)
			mbarrier_expect_tx(&sm.sums_full, sizeof sm.sums);
	}
	put_share<M>(sm, own, w, buffer);
	if (own_thread() < 32)
		read_gates(own, a, w.group, own.chunk[turn & 3].left);
	if (own_thread() == 32)
		read_chunk(own, a, i + 2, turn + 2);
	make_x(own);
	if (M != STATES) {
		group_sync(w);		/* raw becomes the state */
		round_state(own, h);
	}
	fence_proxy_async();
	group_sync(w);
	mbarrier_wait(full, (M == STATES ? turn / 2 : turn) & 1);
	fence_proxy_async();
	move_state(h, weighed, own, sm.bc[buffer][0][0]);
	if (M != STATES)
		make_rows(y, sm);
	wgmma_wait<0>();
	hold<OWN>(h);
	group_sync(w);			/* the state becomes raw */
	if (more)
		copy_raw<M>(own, a, turn + 1);
	cp_async_commit();
}

/* Step 4, in place. */
template <making M>
__device__ __forceinline__ void finish_rows(uint32_t (&y)[P / 8][2], rows_smem &sm,
					    const ssm_args &a, int turn)
{
	head_smem &own = own_head(sm);
	float g[P / 2], sum[2] = { 0, 0 };

	if (M == GATED_ROWS) {
		cp_async_wait<1>();	/* of the next raw */
		group_sync(own.w);
		gate_rows(g, y, sum, own);
	}
	send_sums(sum, sm, own.w);
	mbarrier_wait(&sm.sums_full, turn & 1);
	if (M == GATED_ROWS) {
		if (a.c.w.norm)
			norm_rows(g, sm, own, a.c.w.eps);
#pragma unroll
		for (int n = 0; n < P / 8; n++)
#pragma unroll
			for (int h = 0; h < 2; h++)
				y[n][h] = pack_bf16(g[4 * n + 2 * h], g[4 * n + 2 * h + 1]);
	}
}

/* Read the first two chunks. */
__device__ __forceinline__ void begin_chunks(head_smem &own, const ssm_args &a, int from)
{
	if (own_thread() < 2)
		read_chunk(own, a, from + own_thread(), own_thread());
	group_sync(own.w);
}

/* The rows of a segment. */
template <making M>
__device__ __forceinline__ void run_rows(rows_smem &sm, head_smem &own, const ssm_args &a)
{
	const place &w = own.w;
	uint32_t y[P / 8][2];
	float h[OWN];

	begin_chunks(own, a, w.from);
	copy_raw<M>(own, a, 0);
	cp_async_commit();
	if (M == GATED_ROWS)
		copy_z(own, a, 0);
	cp_async_commit();
#pragma unroll 1
	for (int turn = 0; turn < w.n; turn++) {
		const int i = w.from + turn;

		if (turn == 0 || own.chunk[turn & 3].first == 0)
			load_state(h, a, w, own.chunk[turn & 3].seq, i);
		step<M>(h, y, sm, a, i, turn, turn + 1 < w.n);
		finish_rows<M>(y, sm, a, turn);
		store_rows(y, own, a, turn);
		if (M == GATED_ROWS && turn + 1 < w.n)
			copy_z(own, a, turn + 1);
		cp_async_commit();
		if (own.chunk[turn & 3].left <= C)
			store_slot(h, a, w, own.chunk[turn & 3].seq);
		if (M == ROWS)
			group_sync(w);	/* nobody reads z any more */
	}
}

/* What a segment adds to the state of its last sequence, if that goes on. */
__device__ __forceinline__ void run_states(rows_smem &sm, head_smem &own, const ssm_args &a)
{
	const place &w = own.w;
	const int end = (w.segment + 1) * a.len;
	uint32_t y[P / 8][2];
	float h[OWN];

	if (end >= a.b.n_chunk || a.b.chunk[end].first == 0)
		return;
	const state_seq seq = a.b.seq[a.b.chunk[end].seq];
	const int from = max(seq.chunk0, w.segment * a.len);

	begin_chunks(own, a, from);
	copy_raw<STATES>(own, a, 0);
	cp_async_commit();
	own.decay = 0;
#pragma unroll
	for (int j = 0; j < OWN; j++)
		h[j] = 0;
	if (from == seq.chunk0 && !seq.fresh) {
		load_slot(h, a, w, seq);
		store_part(a.w.begin, h, a, w);
	}
#pragma unroll 1
	for (int i = from; i < end; i++) {
		step<STATES>(h, y, sm, a, i, i - from, i + 1 < end);
		if (own_thread() == 0)
			own.decay += own.gates.sum[C - 1];
		group_sync(w);		/* nobody reads gates and x any more */
	}
	store_part(a.w.part, h, a, w);
	if (own_thread() == 0)
		a.w.decay[w.segment * a.c.spec.heads + w.head] = own.decay;
}

template <making M>
__global__ void CLUSTER_DIMS __launch_bounds__(THREADS, PER_SM) ssm_rows_sm90(const ssm_args a)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
	extern __shared__ __align__(1024) char smem[];
	rows_smem &sm = *reinterpret_cast<rows_smem *>(
		smem + (1024 - (smem_addr(smem) & 1023)) % 1024);
	head_smem &own = sm.head[warp_group()];

	if (own_thread() == 0)
		own.w = place_of<M>(a);
	if (threadIdx.x == 0) {
		for (int i = 0; i < 2; i++)
			mbarrier_init(&sm.full[i], 1);
		mbarrier_init(&sm.sums_full, 1);
		fence_barrier_init();
	}
	__syncthreads();
	load_weights(own, a, share<M>);
	__syncthreads();
	cluster_sync();			/* all are there to get shares */
	if constexpr (M == STATES)
		run_states(sm, own, a);
	else
		run_rows<M>(sm, own, a);
#else
	__trap();
#endif
}

template <making M>
enum ar_status launch(const ssm_args &a, int n_segment, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	const int grid = n_segment * (a.c.spec.heads / SSM_OCTET) * CLUSTER;

	CU(cudaFuncSetAttribute(ssm_rows_sm90<M>, cudaFuncAttributeMaxDynamicSharedMemorySize,
				SMEM_BYTES));
	ssm_rows_sm90<M><<<grid, THREADS, SMEM_BYTES, (cudaStream_t)a.c.stream>>>(a);
	CU_LAUNCHED();
out:
	return st;
}

} /* namespace */

enum ar_status ssm_sm90_enqueue(const struct ssm_args *a, struct ar_err *err)
{
	const int octets = a->c.spec.heads / SSM_OCTET;
	struct ssm_args own = *a;
	int clusters = 0, most, n;
	enum ar_status st = cluster_count(&clusters, (const void *)ssm_rows_sm90<GATED_ROWS>,
					  CLUSTER, THREADS, SMEM_BYTES, err);

	if (st)
		return st;
	most = min(ssm_max_segment(&a->c.spec), max(clusters / octets, 1));
	own.len = (a->b.n_chunk - 1) / most + 1;
	n = (a->b.n_chunk - 1) / own.len + 1;
	if (n > 1)
		st = launch<STATES>(own, n, err);
	if (st)
		return st;
	return ssm_sm90_fused(a) ? launch<GATED_ROWS>(own, n, err) : launch<ROWS>(own, n, err);
}
