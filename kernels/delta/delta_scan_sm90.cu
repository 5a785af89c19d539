/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The states along each sequence, and the rows with norm and gate, on Hopper at head size 128.
 *
 * Clusters of four thread blocks share the chunks of the batch; see delta_walk.h.  A cluster has a
 * value head at a time.  Two thread blocks update the state, 64 value channels each; the other two
 * make the output rows of these channels.  delta_device.c explains the symbols; T is array solve,
 * which has beta in it.
 *
 *   states   x = S^T k^T       y = v^T - exp(g) x       u = y T^T
 *            S^T = exp(g_end) S^T + (exp(g_end - g) u) k
 *   v        convolution and SiLU, for `states` of the same thread block
 *   rows     o = exp(g) S^T q^T + u mix^T, with S and u as they lie in the lanes of `states`
 *   norm     norm and gate of the rows; sums of squares over 64 channels go to the other half
 *   copies   k, T, decays, or q, mix, decays by TMA: each half copies one half of the data into
 *            both.  A second warp copies rows of the projection
 *
 * The transposed state, [64][128] in fp32, stays in the accumulators of a warp group for the whole
 * sequence.  Packed to bf16 an accumulator is the A operand of the next product.  So a chunk is one
 * chain in registers.  S and u go to `rows` through the cluster's shared memory.  T is a lower
 * triangle: columns from 32 on are a product [64][32] of their own.
 *
 * Budget of a chunk in cycles: the tensor cores 610 for `states`, 380 for `rows`.  The chain:
 * packing S 60, x 290, y 60, u 120, its scaling 80, S 290; in all 900.  Copies: 25 KiB by TMA,
 * 8 KiB by loads, 24 KiB of S and u.  Instructions of a scheduler: `states` 465, v 574; `rows` 190,
 * norm 658.
 *
 * Measured on an H200, 32 Ki rows, 16 key and 32 value heads, in us.  30 clusters run at once, so
 * each makes 547 chunks:
 *
 *   one cluster for each job, no delta_walk.h   1410   32 clusters of four do not fit
 *   delta_walk.h                                 779
 *   v and norm by two warp groups, not one;
 *     operands of the next chunk loaded while
 *     the product for S runs                     683
 *   rows of v and z copied by a warp for it      590
 *
 * That is 1940 cycles a chunk.  The chain takes all of this time: packing S 150, x 440, y and u
 * 500, its scaling 370, S and the next operands 440.  One warp of a scheduler has the chain, so
 * each latency counts.  Beside it v takes half of the issue slots.
 *
 * The parts put together one by one, in cycles a chunk, and us:
 *
 *   the chain alone: products, packing, decays in registers             1065   331
 *   k, T and decays copied                                              1285   399
 *   v                                                                   1783   555
 *   S and u passed on                                                   1908   597
 *   products of rows; norm                                              1905   595
 *   all but v                                                           1671   526
 *   copies and v without the chain                                      1158   334
 *   the chain alone with two products, as if W = T exp(g) k were free    796   251
 *
 * The kernel before it, keys, takes 300.  So both take 631 with the bare chain, and 551 with two
 * products.  Two multiprocessors of a cluster pass on 21.3 bytes a cycle, by st.async or by TMA: S
 * and u take 1153 cycles of each chunk.
 *
 * Failed experiments:
 *
 *   rows of v and z by cp.async.bulk, 128 bytes each: 1590; a copy takes 75 cycles
 *   the two warp groups of v and norm in turns, a chunk each: 611
 *   S times its decay after the product for x is issued: ptxas waits for the product first
 *   mix with a product [64][32], too: ptxas makes all products wait
 *   all in two thread blocks of 64 channels: 2600 instructions of v and norm for a chunk
 *   clusters of two, states and rows, with both halves of the channels in each, so that two chains
 *     hide each other's latencies: 1070.  All 66 clusters fit, but 32 jobs of one sequence keep 32
 *     of them, and a chunk takes 3760 cycles
 *   u = v T^T + S^T W^T, with W = -T exp(g) k made by the warps of v, so that the chain has two
 *     products and no subtraction: the whole prefill 1130, not 922.  A chunk takes 2600 cycles,
 *     also with four heads; the mean error of `keep` grows by up to 9 %
 *   in it, v T^T before S is packed: ptxas waits for the product first
 *   u as two products of 32 columns: 601, not 592.  S times its decay while the product for x runs,
 *     too: 633
 *   what u adds to S in accumulators of its own, 64 keys each: one half is packed while the product
 *     of the other runs, and x of the next chunk begins in this one: 650, not 595; alone 1087
 *     cycles.  v only while the chain waits for S: 670; without the other change 623
 *   S and u passed on by TMA, from own shared memory: 691
 */
#include "config.h"
#include "kernels/delta/delta_rows.cuh"
#include "kernels/delta/delta_walk.h"

#include "kernels/prim/cluster.h"
#include "kernels/prim/cuda.h"
#include "kernels/prim/ring.cuh"

/* In code for other architectures the kernel is a trap, and its parts are unused.  Not all of these
 * architectures have clusters. */
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#pragma nv_diag_suppress 177
#define CLUSTER_DIMS
#else
#define CLUSTER_DIMS __cluster_dims__(CLUSTER, 1, 1)
#endif

namespace {

constexpr int THREADS = 512;
constexpr int C = STATE_CHUNK, D = 128;
constexpr int COLS = 64;		/* value channels of a thread block; columns of a slab */
constexpr int HALF = C / 2;
constexpr int STAGES = 4;
constexpr int RAWS = 4;			/* chunks of v or z under way */
constexpr int PASSES = 2;		/* chunks that a warp group may be ahead of the next */
constexpr int CLUSTER = 4;		/* thread blocks */
constexpr int WARPS = 4;		/* of a warp group: each arrives at a barrier */
constexpr int END_WARPS = 2 * WARPS;	/* warps that make v, or finish rows */
constexpr int ROWS = C / END_WARPS;	/* of a warp in the convolution */
constexpr int FEW = 48, CHAIN = 208, ENDS = 128;	/* registers of a thread */
static_assert(FEW + CHAIN + 2 * ENDS <= 512, "four warp groups share 64 Ki registers");

/* S and u of a chunk, as A operands in the lanes of a warp group. */
struct passed {
	uint32_t s[D / 16][128][4], u[C / 16][128][4];
};

/* The place of a chunk's rows. */
struct chunk_rows {
	int row, n;			/* its first row in the batch; rows from there to the end of
					 * the sequence */
	int head;
};

/* A slab is 64 columns of all rows, in the 128-byte swizzle. */
struct alignas(1024) scan_smem {
	bf16_t wide[STAGES][D / COLS][C][COLS];	/* k; in a rows block q */
	bf16_t square[STAGES][C][C];		/* solve; mix */
	bf16_t raw[RAWS][STATE_CONV - 1 + C][COLS];	/* v before the convolution; z */
	passed pass[PASSES];			/* in a rows block */
	uint32_t v[PASSES][COLS / 16][C / 8][2][32];	/* as in delta_work.h, by v_place() */
	bf16_t o[PASSES][C][COLS];
	delta_gates gates[STAGES];
	float sums[PASSES][C];			/* of squares, by the other half */
	chunk_rows rows[RAWS];			/* of raw */
	ring<STAGES> copies;			/* filled and emptied by both halves */
	ring<RAWS> raw_ring;
	ring<PASSES> v_ring, o_ring;
	uint64_t s_full[PASSES], u_full[PASSES];	/* in a rows block */
	uint64_t pass_empty[PASSES];		/* in a states block */
	uint64_t sums_full[PASSES];
};
constexpr int SMEM_BYTES = sizeof(scan_smem) + 1024;
static_assert(SMEM_BYTES <= 227 * 1024, "shared memory of a thread block");

/* A thread block's place in its cluster. */
struct place {
	int half;
	bool rows;			/* else states */
	uint32_t peer;			/* rank of the other half */
	uint32_t partner;		/* of the same half: states for rows and rows for states */
};

/* The chunks of this thread block's cluster, by all threads of a warp. */
__device__ __forceinline__ delta_walk walk_of(const delta_args &a)
{
	int longest = 0;

	for (int i = threadIdx.x % 32; i < a.b.n_seq; i += 32)
		longest = max(longest, a.b.seq[i].n_row);
	longest = __reduce_max_sync(0xffffffff, longest);
	return delta_walk_of(&a.b, a.c.spec.v_heads, longest, blockIdx.x / CLUSTER,
			     gridDim.x / CLUSTER);
}

/* Arrive on a barrier, by all threads of a warp. */
__device__ __forceinline__ void warp_arrive(uint64_t *bar)
{
	__syncwarp();
	if (threadIdx.x % 32 == 0)
		mbarrier_arrive(bar);
}

/* On that of another thread block. */
__device__ __forceinline__ void warp_arrive_at(uint64_t *bar, uint32_t rank)
{
	__syncwarp();
	if (threadIdx.x % 32 == 0)
		cluster_arrive(cluster_addr(smem_addr(bar), rank));
}

/* The stage of step i is free, in both halves. */
__device__ __forceinline__ void release(scan_smem &sm, const place &w, int i)
{
	warp_arrive(&sm.copies.empty[i % STAGES]);
	warp_arrive_at(&sm.copies.empty[i % STAGES], w.peer);
}

/* ---- copies ---- */

/* Copy this half of an array to both halves. */
template <class T>
__device__ __forceinline__ void copy_half(T &to, const void *from, uint64_t *bar,
					  const place &w)
{
	constexpr int BYTES = sizeof(T) / 2;

	bulk_load_cluster((char *)&to + w.half * BYTES, (const char *)from + w.half * BYTES, BYTES,
			  bar, w.rows ? 0xc : 3);
}

/* By one thread. */
__device__ __forceinline__ void run_copies(scan_smem &sm, const delta_args &a, const place &w,
					   delta_walk k)
{
	const bf16_t *wide = w.rows ? a.w.q : a.w.k, *square = w.rows ? a.w.mix : a.w.solve;

	grid_wait();		/* for the end of keys */
	for (int i = 0; delta_next_chunk(&k, &a.b); i++) {
		const int64_t chunk = k.p.seq.chunk0 + k.p.first + k.i;
		const int64_t at = chunk * a.c.spec.v_heads + k.p.head;
		const int stage = i % STAGES;
		uint64_t *bar = sm.copies.producer_acquire(i);

		mbarrier_expect_tx(bar, sizeof sm.wide[0] + sizeof sm.square[0] +
					sizeof sm.gates[0]);
		copy_half(sm.wide[stage],
			  wide + (chunk * a.c.spec.k_heads + k.p.head / a.group) * (C * D), bar, w);
		copy_half(sm.square[stage], square + at * (C * C), bar, w);
		copy_half(sm.gates[stage], a.w.gates + at, bar, w);
	}
}

/* First of the half's channels of v, of z. */
__device__ __forceinline__ int v_channel(const delta_args &a, const place &w, const delta_piece &p)
{
	return 2 * a.c.spec.k_heads * D + p.head * D + w.half * COLS;
}

__device__ __forceinline__ int z_channel(const delta_args &a, const place &w, const delta_piece &p)
{
	return a.channels + p.head * D + w.half * COLS;
}

/* Copy rows [from, from + n) of a sequence, 8 channels a lane, by one warp.  Rows that are not
 * there become zeros. */
__device__ __forceinline__ void copy_rows(bf16_t (*raw)[COLS], const delta_args &a,
					  const state_seq &seq, int from, int n, int channel)
{
	constexpr int STEP = 32 / (COLS / 8);
	const int row = threadIdx.x % 32 / (COLS / 8), at = threadIdx.x % (COLS / 8) * 8;
	const bf16_t *own = a.c.qkvz + (int64_t)(seq.row + from + row) * a.c.qkvz_stride + channel +
			    at;
	const uint32_t to = smem_addr(&raw[row][at]);

	if (from >= 0 && from + n <= seq.n_row) {
#pragma unroll
		for (int r = 0; r < C; r += STEP, own += STEP * a.c.qkvz_stride)
			cp_async_16(to + r * (uint32_t)sizeof *raw, own, 16);
		if (C + row < n)
			cp_async_16(to + C * (uint32_t)sizeof *raw, own, 16);
		return;
	}
#pragma unroll 1
	for (int r = 0; r + row < n; r += STEP, own += STEP * a.c.qkvz_stride) {
		const int t = from + r + row;
		const bf16_t *src = own;

		if (t < 0)
			src = a.c.state.tail + channel + at +
			      ((int64_t)seq.slot * (STATE_CONV - 1) + STATE_CONV - 1 + t) *
				      a.channels;
		if (t >= seq.n_row || (t < 0 && seq.fresh))
			cp_async_16(to + r * (uint32_t)sizeof *raw, a.c.qkvz, 0);
		else
			cp_async_16(to + r * (uint32_t)sizeof *raw, src, 16);
	}
}

/* Copy the rows of each chunk, by one warp: of z in a rows block; of v in a states block, with the
 * rows before the chunk that the convolution reads. */
__device__ __forceinline__ void run_raws(scan_smem &sm, const delta_args &a, const place &w,
					 delta_walk k)
{
	for (int i = 0; delta_next_chunk(&k, &a.b); i++) {
		const state_seq &seq = k.p.seq;
		const int stage = i % RAWS, first = (k.p.first + k.i) * C;
		uint64_t *bar = sm.raw_ring.producer_acquire(i);

		if (w.rows)
			copy_rows(sm.raw[stage], a, seq, first, C, z_channel(a, w, k.p));
		else
			copy_rows(sm.raw[stage], a, seq, first - (STATE_CONV - 1),
				  C + STATE_CONV - 1, v_channel(a, w, k.p));
		cp_async_mbarrier_arrive(bar);
		if (threadIdx.x % 32 == 0) {
			sm.rows[stage] = { seq.row + first, seq.n_row - first, k.p.head };
			mbarrier_arrive(bar);
		}
	}
}

/* ---- states ---- */

/* Column tiles 2 i and 2 i + 1 of an accumulator as an A operand. */
__device__ __forceinline__ void operand(uint32_t (&a)[4], const float *x, int i)
{
#pragma unroll
	for (int e = 0; e < 4; e++)
		a[e] = pack_bf16(x[8 * i + 2 * e], x[8 * i + 2 * e + 1]);
}

/* The product of an A operand with rows of a tile, whose columns from 16 k on are the inner
 * dimension. */
__device__ __forceinline__ uint64_t tile_at(uint64_t tile, int row, int k)
{
	return wgmma_at(tile, row * COLS * 2 + k * 32);
}

/* The same in slabs of 64 columns. */
__device__ __forceinline__ uint64_t slab_at(uint64_t slabs, int k)
{
	return wgmma_at(slabs, k / 4 * (C * COLS * 2) + k % 4 * 32);
}

/* Where word i of 8 channels of v lies; half: which 8 of 16.  Lanes that store 16 bytes of both
 * halves use all banks. */
__device__ __forceinline__ int v_place(int i, int half)
{
	return i ^ half * 4;
}

/* The inputs of `states` for a chunk, in its lanes. */
struct chunk_in {
	uint32_t v[C / 8][2];		/* two rows each */
	float2 from_start[C / 8], to_end[C / 8];
	float end;			/* decay of the whole chunk */
};

/* Of step i; wait for it. */
__device__ __forceinline__ void load_chunk(chunk_in &in, scan_smem &sm, int i)
{
	const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, b = i % PASSES;
	const delta_gates &gates = sm.gates[i % STAGES];

	sm.copies.consumer_wait(i);
	in.end = gates.from_start[C - 1];
#pragma unroll
	for (int n = 0; n < C / 8; n++) {
		const int at = n * 8 + lane % 4 * 2;

		in.from_start[n] = *reinterpret_cast<const float2 *>(&gates.from_start[at]);
		in.to_end[n] = *reinterpret_cast<const float2 *>(&gates.to_end[at]);
	}
	sm.v_ring.consumer_wait(i);
#pragma unroll
	for (int n = 0; n < C / 8; n++)
#pragma unroll
		for (int h = 0; h < 2; h++)
			in.v[n][h] = sm.v[b][warp][n][h][v_place(lane, h)];
	mbarrier_arrive(&sm.v_ring.empty[b]);
}

/* x = v - exp(g) x for column tiles [first, first + 4). */
__device__ __forceinline__ void subtract(float *x, const chunk_in &in, int first)
{
#pragma unroll
	for (int n = first; n < first + 4; n++)
#pragma unroll
		for (int h = 0; h < 2; h++) {
			float *y = x + 4 * n + 2 * h;
			const uint32_t v = in.v[n][h];

			y[0] = __uint_as_float(v << 16) - in.from_start[n].x * y[0];
			y[1] = __uint_as_float(v & 0xffff0000u) - in.from_start[n].y * y[1];
		}
}

/* Send an A operand to the same lane of `rows`.  to: element 0 of a thread's array there. */
__device__ __forceinline__ void send(const uint32_t (&a)[4], uint32_t to, int i, uint32_t bar)
{
	cluster_store(to + i * (uint32_t)sizeof(uint32_t[128][4]), a, bar);
}

/* Add to the state the share of u of rows [32 part, + 32).  u: its column tiles.  b: u as A
 * operands. */
__device__ __forceinline__ void add_rows(float *s, float *u, uint32_t (&b)[2][4], uint64_t k,
					 const float2 *to_end, int part)
{
	uint32_t a[2][4];

#pragma unroll
	for (int j = 0; j < 2; j++)
		operand(b[j], u, j);
#pragma unroll
	for (int n = 0; n < 4; n++)
#pragma unroll
		for (int e = 0; e < 4; e++)
			u[4 * n + e] *= e % 2 ? to_end[part * 4 + n].y : to_end[part * 4 + n].x;
#pragma unroll
	for (int j = 0; j < 2; j++)
		operand(a[j], u, j);
	wgmma_fence();
#pragma unroll
	for (int j = 0; j < 2; j++)
		wgmma_m64n128k16_rs(s, a[j], wgmma_at(k, (part * 2 + j) * 16 * COLS * 2));
	wgmma_commit();
}

/* Move the state on by a chunk, the thread block's step i.  in: of this step; on return of the
 * next, if there is one. */
__device__ __forceinline__ void step_state(float *s, chunk_in &in, scan_smem &sm, const place &w,
					   int i, bool more)
{
	const int stage = i % STAGES, pass = i % PASSES, tid = threadIdx.x % 128;
	const uint64_t k = wgmma_desc(sm.wide[stage], 16, 1024);
	const uint64_t inner = wgmma_desc(sm.wide[stage], sizeof sm.wide[0][0], 1024);
	const uint64_t solve = wgmma_desc(sm.square[stage], 16, 1024);
	const uint32_t to = cluster_addr(smem_addr(sm.pass[pass].s[0][tid]), w.partner);
	const uint32_t s_full = cluster_addr(smem_addr(&sm.s_full[pass]), w.partner);
	const uint32_t u_full = cluster_addr(smem_addr(&sm.u_full[pass]), w.partner);
	constexpr int U = D / 16;	/* where u begins in `passed` */
	uint32_t a[D / 16][4], b[2][2][4];
	float x[C / 2], u[C / 2], low[C / 4];

#pragma unroll
	for (int d = 0; d < D / 16; d++)
		operand(a[d], s, d);
#pragma unroll
	for (int j = 0; j < D / 2; j++)
		s[j] *= in.end;
	wgmma_fence();
#pragma unroll
	for (int d = 0; d < D / 16; d++)
		wgmma_m64n64k16_rs_rows(x, a[d], slab_at(k, d), d != 0);
	wgmma_commit();
	mbarrier_wait(&sm.pass_empty[pass], (i / PASSES & 1) ^ 1);
#pragma unroll
	for (int d = 0; d < D / 16; d++)
		send(a[d], to, d, s_full);
	wgmma_wait<0>();
	hold<C / 2>(x);
#pragma unroll
	for (int part = 0; part < 2; part++) {
		subtract(x, in, part * 4);
#pragma unroll
		for (int j = 2 * part; j < 2 * part + 2; j++)
			operand(a[j], x, j);
		wgmma_fence();
		if (part == 0) {
			wgmma_m64n64k16_rs_rows(u, a[0], tile_at(solve, 0, 0), 0);
			wgmma_m64n64k16_rs_rows(u, a[1], tile_at(solve, 0, 1), 1);
		} else {
			wgmma_m64n32k16_rs_rows(low, a[2], tile_at(solve, HALF, 2), 0);
			wgmma_m64n32k16_rs_rows(low, a[3], tile_at(solve, HALF, 3), 1);
		}
		wgmma_commit();
	}
	wgmma_wait<1>();
	hold<C / 2>(u);
	add_rows(s, u, b[0], inner, in.to_end, 0);
	wgmma_wait<1>();
	hold<C / 4>(low);
#pragma unroll
	for (int j = 0; j < C / 4; j++)
		u[C / 4 + j] += low[j];
	add_rows(s, u + C / 4, b[1], inner, in.to_end, 1);
	if (more)
		load_chunk(in, sm, i + 1);
#pragma unroll
	for (int j = 0; j < C / 16; j++)
		send(b[j / 2][j % 2], to, U + j, u_full);
	wgmma_wait<0>();
	hold<D / 2>(s);
	release(sm, w, i);
}

/* Where element j of this thread's part of the state lies. */
__device__ __forceinline__ float *state_at(const delta_args &a, const place &w,
					   const delta_piece &p, int j)
{
	const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
	const int key = j / 4 * 8 + lane % 4 * 2 + j % 2;
	const int value = w.half * COLS + warp * 16 + j % 4 / 2 * 8 + lane / 4;

	return a.c.state.s + (((int64_t)p.seq.slot * a.c.spec.v_heads + p.head) * D + key) * D +
	       value;
}

/* The flag by which a cluster tells the one before that it has stored its first piece's state. */
__device__ __forceinline__ int32_t *flag_at(const delta_args &a, const place &w, int cluster)
{
	return a.w.stored + cluster * 2 + w.half;
}

__device__ __forceinline__ void load_state(float *s, const delta_args &a, const place &w,
					   const delta_piece &p)
{
	if (p.waits) {
		if (threadIdx.x % 128 == 0)
			while (!load_acquire(flag_at(a, w, blockIdx.x / CLUSTER + 1)))
				;
		bar_sync(1, 128);
	}
	if (p.seq.fresh && !p.waits)
#pragma unroll
		for (int j = 0; j < D / 2; j++)
			s[j] = 0;
	else
#pragma unroll
		for (int j = 0; j < D / 2; j++)
			s[j] = *state_at(a, w, p, j);
}

/* Keep the last rows of n channels of the projection. */
__device__ __forceinline__ void keep_tail(const delta_args &a, const delta_piece &p, int channel,
					  int n)
{
	const int tid = threadIdx.x % 128;
	pack<8> x[STATE_CONV - 1];

	if (tid >= n / 8)
		return;
#pragma unroll
	for (int r = 0; r < STATE_CONV - 1; r++)
		x[r] = input<8>(delta_conv_of(&a.c), p.seq, p.seq.n_row - (STATE_CONV - 1) + r,
				channel + tid * 8);
#pragma unroll
	for (int r = 0; r < STATE_CONV - 1; r++)
		*reinterpret_cast<pack<8> *>(
			a.c.state.tail +
			((int64_t)p.seq.slot * (STATE_CONV - 1) + r) * a.channels + channel +
			tid * 8) = x[r];
}

/* Store the state for the next piece or the next call; at the end of a sequence its tails, too. */
__device__ __forceinline__ void store_state(const float *s, const delta_args &a, const place &w,
					    const delta_piece &p)
{
#pragma unroll
	for (int j = 0; j < D / 2; j++)
		*state_at(a, w, p, j) = s[j];
	if (p.signals) {
		bar_sync(1, 128);
		if (threadIdx.x % 128 == 0)
			add_acq_rel(flag_at(a, w, blockIdx.x / CLUSTER), 1);
	}
	if (p.signals)
		return;
	/* Nobody reads the old rows of these channels any more. */
	keep_tail(a, p, v_channel(a, w, p), COLS);
	if (p.head % a.group == 0)
		keep_tail(a, p, (w.half * a.c.spec.k_heads + p.head / a.group) * D, D);
}

__device__ __forceinline__ void run_states(scan_smem &sm, const delta_args &a, const place &w,
					   delta_walk k)
{
	const int n = k.end - k.at;
	float s[D / 2];
	chunk_in in;

	grid_wait();		/* for flags that are 0 */
	if (n)
		load_chunk(in, sm, 0);
#pragma unroll 1
	for (int i = 0; delta_next_piece(&k, &a.b);) {
		load_state(s, a, w, k.p);
#pragma unroll 1
		for (int end = i + k.p.n; i < end; i++)
			step_state(s, in, sm, w, i, i + 1 < n);
		store_state(s, a, w, k.p);
	}
}

/* ---- rows ---- */

/* o of chunk i, as rows in shared memory. */
__device__ __forceinline__ void step_rows(scan_smem &sm, const place &w, int i)
{
	const int stage = i % STAGES, b = i % PASSES, parity = i / PASSES & 1;
	const int tid = threadIdx.x % 128, warp = tid / 32, lane = tid % 32;
	const uint64_t q = wgmma_desc(sm.wide[stage], 16, 1024);
	const uint64_t mix = wgmma_desc(sm.square[stage], 16, 1024);
	const passed &pass = sm.pass[b];
	uint32_t s[D / 16][4], u[C / 16][4];
	float o[C / 2];

	if (tid == 0) {
		mbarrier_expect_tx(&sm.s_full[b], sizeof pass.s);
		mbarrier_expect_tx(&sm.u_full[b], sizeof pass.u);
	}
	sm.copies.consumer_wait(i);
	mbarrier_wait(&sm.s_full[b], parity);
#pragma unroll
	for (int d = 0; d < D / 16; d++)
		*reinterpret_cast<uint4 *>(s[d]) =
			*reinterpret_cast<const uint4 *>(pass.s[d][tid]);
	wgmma_fence();
#pragma unroll
	for (int d = 0; d < D / 16; d++)
		wgmma_m64n64k16_rs_rows(o, s[d], slab_at(q, d), d != 0);
	wgmma_commit();
	mbarrier_wait(&sm.u_full[b], parity);
#pragma unroll
	for (int j = 0; j < C / 16; j++)
		*reinterpret_cast<uint4 *>(u[j]) =
			*reinterpret_cast<const uint4 *>(pass.u[j][tid]);
	warp_arrive_at(&sm.pass_empty[b], w.partner);
	wgmma_wait<0>();
	hold<C / 2>(o);
#pragma unroll
	for (int n = 0; n < C / 8; n++) {
		const float2 f = *reinterpret_cast<const float2 *>(
			&sm.gates[stage].from_start[n * 8 + lane % 4 * 2]);

#pragma unroll
		for (int e = 0; e < 4; e++)
			o[4 * n + e] *= e % 2 ? f.y : f.x;
	}
	wgmma_fence();
#pragma unroll
	for (int j = 0; j < C / 16; j++)
		wgmma_m64n64k16_rs_rows(o, u[j], tile_at(mix, 0, j), 1);
	wgmma_commit();
	wgmma_wait<0>();
	hold<C / 2>(o);
	release(sm, w, i);

	uint64_t *full = sm.o_ring.producer_acquire(i);
#pragma unroll
	for (int n = 0; n < C / 8; n += 2) {
		const int row = (n + lane / 16) * 8 + lane % 8, piece = warp * 2 + lane / 8 % 2;
		const uint32_t x[4] = { pack_bf16(o[4 * n], o[4 * n + 1]),
					pack_bf16(o[4 * n + 2], o[4 * n + 3]),
					pack_bf16(o[4 * n + 4], o[4 * n + 5]),
					pack_bf16(o[4 * n + 6], o[4 * n + 7]) };

		stmatrix_x4_trans(smem_addr(sm.o[b]) + swizzle<COLS>(row, piece), x);
	}
	warp_arrive(full);
}

__device__ __forceinline__ void run_rows(scan_smem &sm, const place &w, int n)
{
#pragma unroll 1
	for (int i = 0; i < n; i++)
		step_rows(sm, w, i);
}

/* ---- v, and the norm ---- */

/* Eight channels of rows: a thread's part of o and z. */
constexpr int LANES = COLS / 8, STEP = END_WARPS * 32 / LANES, PIECES = C / STEP;

/* A thread's place among the threads that make v, or finish rows. */
__device__ __forceinline__ int end_thread(void)
{
	return threadIdx.x % (END_WARPS * 32);
}

/* v of step i, from its rows. */
__device__ __forceinline__ void store_v(scan_smem &sm, const pack<2 * STATE_CONV> &weight, int i)
{
	const int warp = end_thread() / 32, lane = threadIdx.x % 32, stage = i % RAWS;
	const int n = sm.rows[stage].n - warp * ROWS;
	taps<2, ROWS> t;
	float y[ROWS][2];

#pragma unroll
	for (int r = 0; r < STATE_CONV - 1 + ROWS; r++)
		t.x[r] = *reinterpret_cast<const pack<2> *>(
			&sm.raw[stage][warp * ROWS + r][lane * 2]);
	warp_arrive(&sm.raw_ring.empty[stage]);
	convolve(y, t, weight, pack<2>{}, n);

	uint64_t *full = sm.v_ring.producer_acquire(i);
#pragma unroll
	for (int e = 0; e < 2; e++)
#pragma unroll
		for (int n = 0; n < ROWS; n += 8) {
			const int c = lane * 2 + e, half = c / 8 % 2;

			*reinterpret_cast<uint4 *>(
				&sm.v[i % PASSES][c / 16][(warp * ROWS + n) / 8][half]
				     [v_place(c % 8 * 4, half)]) =
				make_uint4(pack_bf16(y[n][e], y[n + 1][e]),
					   pack_bf16(y[n + 2][e], y[n + 3][e]),
					   pack_bf16(y[n + 4][e], y[n + 5][e]),
					   pack_bf16(y[n + 6][e], y[n + 7][e]));
		}
	mbarrier_arrive(full);
}

/* Make v of n chunks. */
__device__ __forceinline__ void run_v(scan_smem &sm, const delta_args &a, const place &w, int n)
{
	const bf16_t *conv = a.c.w.conv + (2 * a.c.spec.k_heads * D + w.half * COLS +
					   threadIdx.x % 32 * 2) * STATE_CONV;
	pack<2 * STATE_CONV> weight;
	int head = -1;

#pragma unroll 1
	for (int i = 0; i < n; i++) {
		sm.raw_ring.consumer_wait(i);
		if (head != sm.rows[i % RAWS].head) {
			head = sm.rows[i % RAWS].head;
			weight = load<2 * STATE_CONV>(conv + head * (D * STATE_CONV));
		}
		store_v(sm, weight, i);
	}
}

/* Norm and gate of step i. */
__device__ __forceinline__ void finish_rows(scan_smem &sm, const delta_args &a, const place &w,
					    const float (&weight)[8], int i)
{
	const int row = end_thread() / LANES, piece = end_thread() % LANES, b = i % PASSES;
	const int64_t stride = (int64_t)a.c.spec.v_heads * D;
	float gate[PIECES][8], sum[PIECES];
	pack<8> o[PIECES];

	if (end_thread() == 0)
		mbarrier_expect_tx(&sm.sums_full[b], sizeof sm.sums[0]);
	sm.raw_ring.consumer_wait(i);

	const chunk_rows rows = sm.rows[i % RAWS];
#pragma unroll
	for (int j = 0; j < PIECES; j++) {
		const pack<8> z = *reinterpret_cast<const pack<8> *>(
			&sm.raw[i % RAWS][j * STEP + row][piece * 8]);

#pragma unroll
		for (int e = 0; e < 8; e++)
			gate[j][e] = weight[e] * silu(element(z, e));
		hold<8>(gate[j]);	/* while o is not there */
	}
	warp_arrive(&sm.raw_ring.empty[i % RAWS]);
	sm.o_ring.consumer_wait(i);
#pragma unroll
	for (int j = 0; j < PIECES; j++)
		o[j] = *reinterpret_cast<const pack<8> *>(
			(const char *)sm.o[b] + swizzle<COLS>(j * STEP + row, piece));
	warp_arrive(&sm.o_ring.empty[b]);
#pragma unroll
	for (int j = 0; j < PIECES; j++) {
		sum[j] = 0;
#pragma unroll
		for (int e = 0; e < 8; e++)
			sum[j] += element(o[j], e) * element(o[j], e);
	}
#pragma unroll
	for (int d = LANES / 2; d; d /= 2)
#pragma unroll
		for (int j = 0; j < PIECES; j++)
			sum[j] += __shfl_xor_sync(0xffffffff, sum[j], d);
	static_assert(PIECES == 2, "lanes 0 and 1 of a row send a sum each");
	if (piece < PIECES)
		cluster_store(cluster_addr(smem_addr(&sm.sums[b][piece * STEP + row]), w.peer),
			      piece ? sum[1] : sum[0],
			      cluster_addr(smem_addr(&sm.sums_full[b]), w.peer));

	bf16_t *out = a.c.out + (rows.row + row) * stride + rows.head * D + w.half * COLS +
		      piece * 8;

	mbarrier_wait(&sm.sums_full[b], i / PASSES & 1);
#pragma unroll
	for (int j = 0; j < PIECES; j++) {
		const float scale = rsqrtf((sum[j] + sm.sums[b][j * STEP + row]) / D + a.c.w.eps);
		float y[8];

#pragma unroll
		for (int e = 0; e < 8; e++)
			y[e] = element(o[j], e) * scale * gate[j][e];
		if (row + j * STEP < rows.n)
			store<8>(out + j * STEP * stride, y);
	}
}

/* Finish the rows of n chunks. */
__device__ __forceinline__ void run_norm(scan_smem &sm, const delta_args &a, const place &w, int n)
{
	const pack<8> norm = load<8>(a.c.w.norm + w.half * COLS + end_thread() % LANES * 8);
	float weight[8];

#pragma unroll
	for (int e = 0; e < 8; e++)
		weight[e] = element(norm, e);
#pragma unroll 1
	for (int i = 0; i < n; i++)
		finish_rows(sm, a, w, weight, i);
}

__global__ void CLUSTER_DIMS __launch_bounds__(THREADS, 1)
	delta_scan_sm90(const delta_args a)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
	extern __shared__ char smem[];
	scan_smem &sm = *reinterpret_cast<scan_smem *>(
		smem + (1024 - (smem_addr(smem) & 1023)) % 1024);
	const uint32_t rank = cluster_rank();
	const place w = { (int)rank % 2, rank / 2 == 1, rank ^ 1, rank ^ 2 };
	const int wg = warp_group();

	if (threadIdx.x == 0) {
		sm.copies.init(1, 2 * WARPS);
		sm.raw_ring.init(32 + 1, END_WARPS);
		/* Of all threads: racecheck does not see a __syncwarp() before an arrival. */
		sm.v_ring.init(END_WARPS * 32, WARPS * 32);
		sm.o_ring.init(WARPS, END_WARPS);
		for (int i = 0; i < PASSES; i++) {
			mbarrier_init(&sm.s_full[i], 1);
			mbarrier_init(&sm.u_full[i], 1);
			mbarrier_init(&sm.pass_empty[i], WARPS);
			mbarrier_init(&sm.sums_full[i], 1);
		}
		fence_barrier_init();
	}
	cluster_sync();
	if (wg == 0) {
		setmaxnreg_dec<FEW>();
		const delta_walk k = walk_of(a);

		if (threadIdx.x == 0)
			run_copies(sm, a, w, k);
		if (threadIdx.x / 32 == 1)
			run_raws(sm, a, w, k);
		__syncwarp();
	} else if (wg == 1) {
		setmaxnreg_inc<CHAIN>();
		const delta_walk k = walk_of(a);

		if (w.rows)
			run_rows(sm, w, k.end - k.at);
		else
			run_states(sm, a, w, k);
	} else {
		setmaxnreg_inc<ENDS>();
		const delta_walk k = walk_of(a);

		if (w.rows)
			run_norm(sm, a, w, k.end - k.at);
		else
			run_v(sm, a, w, k.end - k.at);
	}
	cluster_sync();		/* others may still arrive or store here */
#else
	__trap();
#endif
}

} /* namespace */

enum ar_status delta_scan_sm90_enqueue(const struct delta_args *a, struct ar_err *err)
{
	const int64_t chunks = (int64_t)a->b.n_chunk * a->c.spec.v_heads;
	cudaLaunchAttribute attribute = {};
	cudaLaunchConfig_t config = {};
	int n = 0;
	enum ar_status st = cluster_count(&n, (const void *)delta_scan_sm90, CLUSTER, THREADS,
					  SMEM_BYTES, err);

	if (st)
		return st;
	n = (int)(chunks < n ? chunks : n < DELTA_CLUSTERS ? n : DELTA_CLUSTERS);
	attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
	attribute.val.programmaticStreamSerializationAllowed = 1;
	config.gridDim = dim3(n * CLUSTER);
	config.blockDim = dim3(THREADS);
	config.dynamicSmemBytes = SMEM_BYTES;
	config.stream = (cudaStream_t)a->c.stream;
	config.attrs = &attribute;
	config.numAttrs = 1;
	CU(cudaLaunchKernelEx(&config, delta_scan_sm90, *a));
out:
	return st;
}
