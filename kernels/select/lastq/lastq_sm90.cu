/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vertical-slash sums, by columns and diagonals, of the last queries' attention on Hopper.
 * Four kernels:
 *
 *   rows    (max, sum) of every row over each segment of keys: lastq_rows_sm90.cu
 *   totals  merge each row's segments
 *   blocks  if asked for: the sums by block of keys and of diagonals, from pieces that rows stores
 *   sums    the probabilities again, from the rows' totals, added up by column and by diagonal;
 *           or by column only
 *
 * There are too many scores to keep, and a column's sum needs every row's total first.  So rows and
 * sums compute the same product.  For sums it is K Q^T: keys are the product's rows and queries its
 * columns, so that a column adds up in a thread.
 *
 * A thread block takes units, keys of one KV head with 256 queries: the rows of four query heads of
 * 64 places or of two of 128.  There are as many thread blocks as multiprocessors, and each has the
 * same number of keys, in few units (lastq_units.cuh).  If only some heads are wanted, units take
 * the wanted ones in order.  A head's rows stand at the end of its PAD places; places without a row
 * have a total of +inf, hence probability 0.
 *
 * Warp group 0 is the producer: a warp finds the next unit while the others work, and one thread
 * issues copies.  Each other group has a head.  A step is
 * wgmma m64n64 or m64n128 of 64 keys; the next step's product runs while this one's scores are
 * worked on.  The four warps of a group take 16 keys of a step each, from four adjoining strips of
 * the unit.  So a warp's keys follow each other from step to step.  A thread adds up its part of a
 * diagonal over time:
 *
 *   element     key 16 step + 8 h + g of the strip, query 8 j + 2 t + c; g = lane / 4, t = lane % 4
 *   columns     sums over j and c in the thread, then over t
 *   diagonals   query - key = 8 (j - h - 2 step) + 2 t + c - g: a thread's PAD / 8 elements with
 *               the same c and the same j - h - 2 step are of one diagonal.  Two values of j - h -
 *               2 step end with each step.  Their sums go through shared memory, in a row for each
 *               g that is shifted by g places, and are added over g.
 *
 * Values cross lanes once for a pair of steps, a key for each lane.  A diagonal is written where
 * its last row meets it, at key end - 1 - distance.  A strip begins its diagonals PAD keys early,
 * so strips pass nothing to each other.  All sums have a fixed order.
 *
 * Registers of a consumer's thread for 64 places: 112, with two accumulators of 32, 16 totals and
 * 14 parts of diagonals.  For 128 places: 232, with two of 64, 32 and 30.  Little is left.  If they
 * do not suffice, the compiler makes products wait for each other; -Xptxas=-v tells.
 *
 * Budget of a step of all groups at D = 128, in cycles of a multiprocessor, for heads of 64 and of
 * 128 places:
 *
 *   tensor cores             1024
 *   special function units   1024 for 16384 exponentials; more beside busy tensor cores
 *                            (lastq_rows_sm90.cu)
 *   shared memory            1024 and 768 for operands, 128 for arriving keys, some 170 and 80 for
 *                            values that cross lanes
 *   schedulers               some 900 and 700
 *
 * At 128K tokens, 8 requests, 16 heads over 4 and 64 rows that is 65536 steps, 0.29 ms at least.  K
 * (1 GiB) is read once, 0.25 ms.  128 rows take twice that.  There blocks reads 128 MiB of pieces,
 * 0.03 ms.
 *
 * Measured on an H200 for 128 rows, cycles of a step, the last ones with something left out:
 *
 *   products alone 1030, and with all but the exponentials 1590
 *   all of it                                              1730
 *   columns 1620, diagonals 1670, seven eighths of the products 1240
 *
 * A loop beside busy tensor cores (lastq_rows_sm90.cu) takes 13.1 cycles of a scheduler for ffma,
 * ex2 and two fadd, and 8.4 without them.  By that, 78 of a scheduler's 128 values fit into the
 * 1024 cycles of the products, and the others take 415: 1440 cycles.  The rest is that a scheduler
 * has two warps: while one issues, waits or passes values to other lanes, the other is alone.
 *
 * Units of 4096 keys took 2080 cycles for each step that counts.  Of these 1735 were its own, 215
 * the steps in which diagonals begin early, 60 the last wave of thread blocks, which was not full,
 * and 70 the starts of 16 thread blocks.  Now it is 1810: 20 for diagonals, and 60 because thread
 * blocks do not end together.  For 64 rows both passes take 0.94 ms instead of 1.01.
 *
 * Tried for 64 rows: groups of two heads, 0.65 ms instead of 0.57; one accumulator, 0.63; a pair's
 * columns and diagonals in the next pair, 0.65.  For 128 rows the compiler moves 50 of a step's
 * exponentials behind the wait for the next product.  Tried there: columns through shared memory,
 * which holds them before it, 1.39 ms instead of 1.28; four exponentials under way, in the order of
 * diagonals, 1760 cycles instead of 1705, and six the same.
 */
#include "config.h"
#include "kernels/select/lastq/lastq_units.cuh"

#include <cfloat>
#include <cmath>

#include "base/workspace.h"
#include "kernels/prim/cuda.h"
#include "kernels/prim/group_registers.cuh"
#include "kernels/prim/ring.cuh"
#include "kernels/prim/softmax.cuh"
#include "kernels/prim/tensor_map.h"

/* In code for other architectures the kernels are traps, and their parts are unused. */
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#pragma nv_diag_suppress 177
#endif

namespace {

constexpr int BOX = 64;			/* columns of a TMA box */
constexpr int QUERIES = 256;
constexpr int STRIPS = 4;
constexpr int RUN = 16;			/* keys of a strip in a step */
constexpr int KEYS = STRIPS * RUN;
constexpr int LEAST_SHARE = 256;	/* keys */
template <int PAD> constexpr int GROUPS = QUERIES / PAD;	/* of warps that compute */
template <int PAD> using registers = group_registers<GROUPS<PAD>, PAD == 128 ? 40 : 32>;
template <int PAD> constexpr int THREADS = registers<PAD>::THREADS;

/* A row of diagonals: the last eight keys of the pair before, then the diagonals that ended in a
 * pair of steps.  The skew lets threads that store hit different banks. */
constexpr int PAIR = 2 * RUN, SKEW_ROW = 8 + PAIR;

constexpr int RUN_BLOCKS = 8, BLOCKS_THREADS = 256;

template <int D> constexpr int STAGES = D == 256 ? 2 : 8;

/* Keys for a slab of queries. */
struct unit {
	struct lastq_unit of;
	int len;		/* keys of a strip */
	int from, steps;	/* of the ring, before this unit and in it */
};

template <int D> struct alignas(1024) smem {
	bf16_t q[D / BOX][QUERIES][BOX];
	bf16_t k[STAGES<D>][D / BOX][KEYS][BOX];
	float skew[GROUPS<64>][STRIPS][8][SKEW_ROW];
	struct lastq_share share;
	struct unit unit[2];	/* in turn */
	uint64_t q_full, q_empty;
	struct ring<STAGES<D>> ring;
};
template <int D> constexpr int SMEM_BYTES = sizeof(struct smem<D>) + 1024;
static_assert(SMEM_BYTES<128> <= 227 * 1024, "shared memory");
static_assert(SMEM_BYTES<256> <= 227 * 1024, "shared memory");

struct args {
	struct attn_batch b;
	struct lastq out;
	struct lastq_parts parts;
	struct lastq blocks;
	const int *want;	/* [request][query head]; NULL: all */
	float *total;		/* [request][query head][PAD] log2 of the sum of exponentials */
	int n;			/* rows that take part, at most PAD */
};

/* The keys of a warp: it walks from first on, and [own, stop) are its own.  ahead: how far
 * diagonals begin before. */
struct strip {
	int first, own, stop;
};

__device__ __forceinline__ struct strip strip_of(const struct unit &u, int i, int ahead)
{
	const int own = u.of.first + i * u.len;

	return { max(own - ahead, 0), own, min(own + u.len, u.of.stop) };
}

/* ---- producer ---- */

/* By one thread. */
template <int D, int PAD>
__device__ __forceinline__ void copy(struct smem<D> &s, const struct args &a,
				     const struct unit &u, const CUtensorMap *qmap,
				     const CUtensorMap *kmap, int ahead)
{
	const int shift = __ffs(a.b.shape.page_tok) - 1, last = (u.of.end - 1) >> shift;
	const int32_t *page = a.b.keys.page + a.b.keys.page0[u.of.r];
	int first[STRIPS], next[STRIPS];	/* pages of a step, a step ahead */

#pragma unroll
	for (int i = 0; i < STRIPS; i++) {
		first[i] = strip_of(u, i, ahead).first;
		next[i] = page[min(first[i] >> shift, last)];
	}
	mbarrier_expect_tx(&s.q_full, u.of.heads * PAD * D * 2);
#pragma unroll
	for (int i = 0; i < QUERIES / 64; i++)
		for (int c = 0; c < D / BOX && i * 64 < u.of.heads * PAD; c++)
			tma_load_3d(s.q[c][i * 64], qmap, &s.q_full, c * BOX,
				    u.of.head[i * 64 / PAD],
				    a.b.rows.row0[u.of.r + 1] - PAD + i * 64 % PAD);
	for (int step = 0; step < u.steps; step++) {
		const int st = s.ring.stage(u.from + step);
		uint64_t *full;
		int y[STRIPS];		/* rows of the cache; past the end, any row that exists */

#pragma unroll
		for (int i = 0; i < STRIPS; i++) {
			const int key = first[i] + step * RUN;

			y[i] = ((next[i] * a.b.shape.kv_heads + u.of.kv_head) << shift) +
			       (key & ((1 << shift) - 1));
			next[i] = page[min((key + RUN) >> shift, last)];
		}
		full = s.ring.producer_acquire(u.from + step);
		mbarrier_expect_tx(full, KEYS * D * 2);
#pragma unroll
		for (int i = 0; i < STRIPS; i++)
			for (int c = 0; c < D / BOX; c++)
				tma_load_2d(s.k[st][c][i * RUN], kmap, full, c * BOX, y[i]);
	}
}

/* ---- consumers ---- */

/* Enqueue acc = K Q^T of a step for this group's queries. */
template <int D, int PAD>
__device__ __forceinline__ void issue(float (&acc)[PAD / 2], struct smem<D> &s, int step,
				      const uint64_t (&queries)[D / 16])
{
	uint64_t keys = wgmma_desc(s.k[s.ring.stage(step)], 16, 1024);

	asm volatile("" : "+l"(keys));	/* so that the sums below are sums */
	s.ring.consumer_wait(step);
	wgmma_fence();
#pragma unroll
	for (int k = 0; k < D / 16; k++)
		wgmma_ss<PAD>(acc, wgmma_at(keys, k / 4 * sizeof s.k[0][0] + k % 4 * 32),
			      queries[k], k != 0);
	wgmma_commit();
}

/* All products are complete; release the keys of the step. */
template <int D, int N>
__device__ __forceinline__ void finish(float (&acc)[N], struct smem<D> &s, int step)
{
	wgmma_wait<0>();
	hold<N>(acc);
	s.ring.consumer_release(step);
}

/* Take the steps [step, stop) of the ring; both are even.  The queries may go before the last sums
 * are there. */
template <int D, int PAD, typename Use>
__device__ __forceinline__ void walk(struct smem<D> &s, int step, int stop, int group, Use &use)
{
	float even[PAD / 2], odd[PAD / 2];
	uint64_t queries[D / 16];	/* 64 columns a slab, 32 bytes of each */

#pragma unroll
	for (int k = 0; k < D / 16; k++) {
		queries[k] = wgmma_at(wgmma_desc(s.q[0][group * PAD], 16, 1024),
				      k / 4 * sizeof s.q[0] + k % 4 * 32);
		/* hide their origin, or each step makes them anew; at 256 registers are short */
		if (D < 256)
			asm volatile("" : "+l"(queries[k]));
	}
	issue<D, PAD>(even, s, step, queries);
	finish<D>(even, s, step);
	for (; step < stop - 2; step += 2) {
		issue<D, PAD>(odd, s, step + 1, queries);
		use.template take<0>(even, step);
		finish<D>(odd, s, step + 1);
		issue<D, PAD>(even, s, step + 2, queries);
		use.template take<1>(odd, step + 1);
		finish<D>(even, s, step + 2);
	}
	issue<D, PAD>(odd, s, step + 1, queries);
	use.template take<0>(even, step);
	finish<D>(odd, s, step + 1);
	mbarrier_arrive(&s.q_empty);
	use.template take<1>(odd, step + 1);
}

/* Element 4 j + 2 h + c of an accumulator has key 8 h + lane / 4 of the run that begins at key.
 * Its query is 8 j + 2 (lane % 4) + c; pos: position of the head's first place, and of each one if
 * step is 0, not 1. */
template <int N>
__device__ __forceinline__ void hide(float (&acc)[N], int key, int pos, int step)
{
	const int lane = threadIdx.x % 32, ahead = key + lane / 4 - pos - lane % 4 * 2 * step;

	if (key + RUN - 1 <= pos)
		return;
#pragma unroll
	for (int i = 0; i < N; i++)
		if (ahead + i / 2 % 2 * 8 > (i / 4 * 8 + i % 2) * step)
			acc[i] = -INFINITY;
}

/* Merge (max, sum) of two segments. */
__device__ __forceinline__ float2 joined(float2 x, float2 y)
{
	const float top = fmaxf(x.x, y.x);

	return make_float2(top, x.y * ex2(x.x - top) + y.y * ex2(y.x - top));
}

/* ---- totals ---- */

/* grid (query head, request), PAD threads. */
__global__ void lastq_totals(const __grid_constant__ struct args a)
{
	const int r = blockIdx.y, head = blockIdx.x, pad = blockDim.x;
	const int rows = a.b.rows.row0[r + 1] - a.b.rows.row0[r];
	const int end = lastq_end(a.parts, a.b, r);
	const int heads = a.b.shape.q_heads, group = heads / a.b.shape.kv_heads;
	const int kv_head = head / group, before = lastq_pages_before(a.b, r, kv_head);
	const int last = (end - 1) / LASTQ_LEAST * (LASTQ_LEAST / a.b.shape.page_tok);
	const int first = lastq_part(a.parts, a.b, r, kv_head, before, 0);
	const int n = end ? lastq_part(a.parts, a.b, r, kv_head, before, last) - first + 1 : 0;
	const size_t stride = (size_t)group * pad;
	const float2 *part = a.parts.part + first * stride + head % group * pad + threadIdx.x;
	float2 all = make_float2(-FLT_MAX, 0);
	float total = INFINITY;

	if ((int)threadIdx.x >= pad - min(a.n, rows)) {
#pragma unroll 8
		for (int i = 0; i < n; i++)
			all = joined(all, part[i * stride]);
		total = all.x + log2f(all.y);
	}
	a.total[((size_t)r * heads + head) * pad + threadIdx.x] = total;
}

/* ---- blocks ---- */

/* Grid (blocks, query head, request).  A warp sums RUN_BLOCKS blocks, and reads the block before
 * them, whose diagonals go on.  A lane has four rows. */
__global__ void __launch_bounds__(BLOCKS_THREADS, 6)
lastq_blocks(const __grid_constant__ struct args a)
{
	const int r = blockIdx.z, head = blockIdx.y, lane = threadIdx.x % 32;
	const int rows = a.b.rows.row0[r + 1] - a.b.rows.row0[r], end = a.b.rows.pos0[r] + rows;
	const int first = (blockIdx.x * blockDim.x + threadIdx.x) / 32 * RUN_BLOCKS;
	const int last = min(first + RUN_BLOCKS, (end + LASTQ_MAX - 1) / LASTQ_MAX);
	const size_t heads = a.b.shape.q_heads, at = r * heads + head;
	const int group = a.b.shape.q_heads / a.b.shape.kv_heads, kv_head = head / group;
	const int before_r = lastq_pages_before(a.b, r, kv_head);
	const float4 total = ((const float4 *)(a.total + at * LASTQ_MAX))[lane];
	const float2 *const part = a.parts.part + 4 * lane + head % group * LASTQ_MAX;
	const float *const piece = lastq_piece(a.parts, a.b, r, 0, head) + 4 * lane;
	const float share = 1 / (float)min(a.n, rows);
	float before = 0;

	for (int j = max(first - 1, 0); rows && j < last; j++) {
		const size_t at_part = lastq_part(a.parts, a.b, r, kv_head, before_r, j);
		const float4 *x = (const float4 *)(piece + j * heads * LASTQ_PIECES);
		const float4 *top = (const float4 *)(part + at_part * group * LASTQ_MAX);
		const float4 seen = x[0], past = x[LASTQ_MAX / 4], one = top[0], two = top[1];
		const float4 f = { ex2(one.x - total.x), ex2(one.z - total.y),
				   ex2(two.x - total.z), ex2(two.z - total.w) };
		const float in = share * warp_sum((seen.x * f.x + seen.y * f.y) +
						  (seen.z * f.z + seen.w * f.w));
		const float next = share * warp_sum((past.x * f.x + past.y * f.y) +
						    (past.z * f.z + past.w * f.w));

		if (!lane && j >= first) {
			a.blocks.column[at * a.blocks.stride + j] = in + next;
			a.blocks.slash[at * a.blocks.stride + j] = before + in;
		}
		before = next;
	}
}

/* ---- sums ---- */

/* COLUMNS: there are no diagonals. */
template <int D, int PAD, bool COLUMNS> struct sums {
	static constexpr int J = PAD / 8;
	static constexpr int AHEAD = COLUMNS ? 0 : PAD;

	const struct strip strip;
	const int first;		/* where the strip would be at step 0 of the ring */
	float (*const skew)[SKEW_ROW];
	float *const row;		/* of skew, where this thread adds to it */
	float *column, *slash;		/* of the head, where key 0 has its column and diagonal */
	const float share;		/* of a row in the means */
	const int pos, step;		/* of hide() */
	float total[J][2];
	/* open diagonals.  Class v of a step holds elements with j - h = v - 1; it was class v - 2
	 * one step earlier.  Classes 0 and 1 begin */
	float carry[J + 1][2];
	float part[2][2];		/* of columns, this thread's: [step of the pair][h] */

	__device__ __forceinline__ sums(const struct args &a, const struct unit &u,
					struct smem<D> &s, int group, int warp)
		: strip(strip_of(u, warp, AHEAD)), first(strip.first - u.from * RUN),
		  skew(s.skew[group][warp]),
		  row(&skew[threadIdx.x % 32 / 4][6 - threadIdx.x % 4 * 2]),
		  share(1 / (float)min(a.n, a.b.rows.row0[u.of.r + 1] - a.b.rows.row0[u.of.r])),
		  pos(COLUMNS && a.parts.past ? u.of.end - 1 : u.of.end - PAD),
		  step(!COLUMNS || !a.parts.past), carry{}
	{
		const size_t at = (size_t)u.of.r * a.b.shape.q_heads + u.of.head[group];

		column = a.out.column + at * a.out.stride;
		slash = COLUMNS ? NULL : a.out.slash + at * a.out.stride + u.of.end - 1;
#pragma unroll
		for (int j = 0; j < J; j++) {
			const float2 x = ((const float2 *)(a.total + at * PAD))
					 [j * 4 + threadIdx.x % 4];

			total[j][0] = x.x;
			total[j][1] = x.y;
		}
		if (!COLUMNS)
			*(float2 *)row = make_float2(0, 0);
	}

	/* Sum a step's elements by class; ODD: the second step of the pair.  The two classes that
	 * end go to the skewed row, in order of the keys where they end.  Returns the later one. */
	template <int ODD>
	__device__ __forceinline__ float2 add_classes(const float (&p)[PAD / 2])
	{
		float2 end[2];

#pragma unroll
		for (int v = J; v >= 0; v--) {
			float x[2];

#pragma unroll
			for (int c = 0; c < 2; c++) {
				x[c] = v < 2 ? 0 : carry[v][c];
				if (v)
					x[c] += p[4 * (v - 1) + c];
				if (v < J)
					x[c] += p[4 * v + 2 + c];
				if (v < J - 1)
					carry[v + 2][c] = x[c];
			}
			if (v >= J - 1) {
				end[J - v] = make_float2(x[1], x[0]);
				*(float2 *)(row + 8 + ODD * RUN + (J - v) * 8) = end[J - v];
			}
		}
		return end[1];
	}

	/* Sum columns over the step's queries, in this thread. */
	__device__ __forceinline__ void add_columns(float (&to)[2], const float (&p)[PAD / 2])
	{
#pragma unroll
		for (int h = 0; h < 2; h++) {
			float even = 0, odd = 0;

#pragma unroll
			for (int j = 0; j < J; j++) {
				even += p[4 * j + 2 * h];
				odd += p[4 * j + 2 * h + 1];
			}
			to[h] = even + odd;
		}
	}

	/* Sum the diagonal that ends at this lane's key of the pair. */
	__device__ __forceinline__ float add_diagonals(void)
	{
		const int lane = threadIdx.x % 32;
		float sum[4];

#pragma unroll
		for (int g = 0; g < 4; g++)
			sum[g] = skew[2 * g][8 + lane - 2 * g] + skew[2 * g + 1][7 + lane - 2 * g];
		return (sum[0] + sum[1]) + (sum[2] + sum[3]);
	}

	__device__ __forceinline__ void store(float *out, int key, int at, float x)
	{
		if (key >= strip.own && key < strip.stop)
			out[at] = x * share;
	}

	/* Take in a step of the ring, one of a pair; ODD: the second. */
	template <int ODD> __device__ __forceinline__ void take(float (&acc)[PAD / 2], int at)
	{
		const int lane = threadIdx.x % 32, from = first + (at - ODD) * RUN;
		const int key = from + lane % 4 * 8 + lane / 4, ends = from + lane;

		hide(acc, from + ODD * RUN, pos, step);
#pragma unroll
		for (int i = 0; i < PAD / 2; i++)
			acc[i] = ex2(fmaf(acc[i], softmax_scale_log2<D>, -total[i / 4][i % 2]));

		const float2 last = COLUMNS ? make_float2(0, 0) : add_classes<ODD>(acc);

		add_columns(part[ODD], acc);
		if (!ODD)
			return;
		__syncwarp();

		/* columns over the lanes with the same keys: lane 4 g + t gets key 8 t + g */
		const float x = lastq_deal(part), y = COLUMNS ? 0 : add_diagonals();

		store(column, key, key, x);
		if (COLUMNS)
			return;
		__syncwarp();	/* the next pair overwrites the values read */
		*(float2 *)row = last;
		store(slash, ends, -ends, y);
	}
};

/* ---- kernel ---- */

/* By one warp. */
template <int D, int PAD, bool COLUMNS>
__device__ __forceinline__ void produce(struct smem<D> &s, const struct args &a,
					const CUtensorMap *qmap, const CUtensorMap *kmap)
{
	constexpr int AHEAD = sums<D, PAD, COLUMNS>::AHEAD;
	int from = 0, phase = 0;	/* steps so far; of the barriers of q */

	for (;; phase ^= 1) {
		struct unit &u = s.unit[phase];

		lastq_next_unit<GROUPS<PAD>>({ a.b, a.parts, a.want }, s.share, u.of);
		if (!threadIdx.x && u.of.heads) {
			const int keys = u.of.stop - u.of.first;

			u.len = (keys + STRIPS * PAIR - 1) / (STRIPS * PAIR) * PAIR;
			u.from = from;
			u.steps = (u.len + AHEAD) / RUN;
			from += u.steps;
			mbarrier_wait(&s.q_empty, phase ^ 1);
			copy<D, PAD>(s, a, u, qmap, kmap, AHEAD);
		}
		__syncwarp();
		if (!u.of.heads)
			break;
	}
	if (!threadIdx.x) {
		mbarrier_wait(&s.q_empty, phase ^ 1);
		mbarrier_arrive(&s.q_full);
	}
}

template <int D, int PAD, bool COLUMNS>
__device__ __forceinline__ void consume(struct smem<D> &s, const struct args &a)
{
	const int group = warp_group() - 1;
	int phase = 0;

	for (;; phase ^= 1) {
		const struct unit &u = s.unit[phase];

		mbarrier_wait(&s.q_full, phase);
		const int from = u.from, stop = u.from + u.steps;

		if (!u.of.heads)
			break;
		if (group < u.of.heads) {
			sums<D, PAD, COLUMNS> use(a, u, s, group, threadIdx.x / 32 % STRIPS);

			walk<D, PAD>(s, from, stop, group, use);
		} else {
			for (int step = from; step < stop; step++) {
				s.ring.consumer_wait(step);
				s.ring.consumer_release(step);
			}
			mbarrier_arrive(&s.q_empty);
		}
	}
}

template <int D, int PAD, bool COLUMNS>
__global__ void __launch_bounds__(THREADS<PAD>, 1)
lastq_sums(const __grid_constant__ CUtensorMap qmap, const __grid_constant__ CUtensorMap kmap,
	   const __grid_constant__ struct args a)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
	extern __shared__ char raw[];
	/* an offset: a pointer made from an integer would lose its address space and load slower */
	struct smem<D> &s = *(struct smem<D> *)(raw + (-smem_addr(raw) & 1023));

	struct lastq_share share;

	if (threadIdx.x < 32)
		share = lastq_share_of<GROUPS<PAD>>({ a.b, a.parts, a.want },
						    LEAST_SHARE / a.b.shape.page_tok);
	if (threadIdx.x == 0) {
		s.share = share;
		tma_prefetch_map(&qmap);
		tma_prefetch_map(&kmap);
		mbarrier_init(&s.q_full, 1);
		mbarrier_init(&s.q_empty, GROUPS<PAD> * 128);
		s.ring.init(1, GROUPS<PAD>);
		fence_barrier_init();
	}
	__syncthreads();
	if (threadIdx.x < 128) {
		setmaxnreg_dec<registers<PAD>::COPY>();
		if (threadIdx.x < 32)
			produce<D, PAD, COLUMNS>(s, a, &qmap, &kmap);
	} else {
		setmaxnreg_inc<registers<PAD>::COMPUTE>();
		consume<D, PAD, COLUMNS>(s, a);
	}
#else
	__trap();
#endif
}

/* ---- launch ---- */

enum ar_status query_map(CUtensorMap *map, const struct attn_batch *b, const bf16_t *q,
			 struct ar_err *err)
{
	const struct attn_shape *s = &b->shape;
	const uint64_t dim[3] = { (uint64_t)s->head_dim, (uint64_t)s->q_heads,
				  (uint64_t)b->rows.n_row };
	const uint32_t box[3] = { BOX, 1, 64 };

	return tensor_map(map, q, 3, dim, box, err);
}

template <int D, int PAD, bool COLUMNS>
enum ar_status launch(const struct args &a, const bf16_t *q, const bf16_t *k, cudaStream_t stream,
		      struct ar_err *err)
{
	/* the size of the cache is unknown here; page numbers bound the accesses */
	const uint64_t dim[2] = { D, INT32_MAX };
	const uint32_t box[2] = { BOX, RUN };
	CUtensorMap qmap, kmap;
	enum ar_status st = query_map(&qmap, &a.b, q, err);

	if (!st)
		st = tensor_map(&kmap, k, 2, dim, box, err);
	if (st)
		return st;
	CU(cudaFuncSetAttribute(lastq_sums<D, PAD, COLUMNS>,
				cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM_BYTES<D>));
	lastq_sums<D, PAD, COLUMNS>
		<<<a.b.n_sm ? a.b.n_sm : LASTQ_SHARES, THREADS<PAD>, SMEM_BYTES<D>, stream>>>
		(qmap, kmap, a);
	CU_LAUNCHED();
out:
	return st;
}

template <int D>
enum ar_status launch_pad(const struct args &a, const bf16_t *q, const bf16_t *k,
			  cudaStream_t stream, struct ar_err *err)
{
	if (a.out.slash)
		return a.n > 64 ? launch<D, 128, false>(a, q, k, stream, err) :
				  launch<D, 64, false>(a, q, k, stream, err);
	return a.n > 64 ? launch<D, 128, true>(a, q, k, stream, err) :
			  launch<D, 64, true>(a, q, k, stream, err);
}

/* The arrays in work. */
struct room {
	float *total, *piece;
	float2 *part;			/* lastq_rows_work_bytes() */
};

/* blocks: the pieces have room, too. */
struct room room_at(const struct attn_shape *s, int n_req, int64_t n_page, bool blocks,
		    struct workspace *w)
{
	const size_t pieces = blocks ? (size_t)n_page * s->q_heads * LASTQ_PIECES : 0;
	struct room r;

	r.total = (float *)workspace_take(w, (size_t)n_req * s->q_heads * LASTQ_MAX,
					  sizeof *r.total);
	r.piece = (float *)workspace_take(w, pieces, sizeof *r.piece);
	r.part = (float2 *)workspace_take(w, 0, 0);
	return r;
}

enum ar_status enqueue_rows(const struct attn_batch *b, int n, bool past, const bf16_t *q,
			    const bf16_t *k, const struct lastq *blocks, void *work, void *stream,
			    struct ar_err *err)
{
	const cudaStream_t on = (cudaStream_t)stream;
	const int heads = b->shape.q_heads, run = BLOCKS_THREADS / 32 * RUN_BLOCKS;
	struct workspace w = workspace_at(work);
	const struct room r = room_at(&b->shape, b->rows.n_req, b->keys.n_page, blocks, &w);
	struct args a = { .b = *b, .parts = { .part = r.part, .pad = n > 64 ? 128 : 64,
					      .piece = blocks ? r.piece : NULL,
					      .past = past },
			  .total = r.total, .n = n };
	CUtensorMap qmap;
	enum ar_status st = query_map(&qmap, b, q, err);

	if (!st)
		st = lastq_rows_enqueue(b, qmap, k, &a.parts, on, err);
	if (st)
		return st;
	lastq_totals<<<dim3(heads, b->rows.n_req), a.parts.pad, 0, on>>>(a);
	CU_LAUNCHED();
	if (blocks) {
		a.blocks = *blocks;
		lastq_blocks<<<dim3((b->keys.max_kv_blk + run - 1) / run, heads, b->rows.n_req),
			       BLOCKS_THREADS, 0, on>>>(a);
		CU_LAUNCHED();
	}
out:
	return st;
}

/* After enqueue_rows(), in the same work. */
enum ar_status enqueue_sums(const struct attn_batch *b, int n, bool past, const bf16_t *q,
			    const bf16_t *k, const int *want, const struct lastq *out, void *work,
			    void *stream, struct ar_err *err)
{
	const struct args a = { .b = *b, .out = *out, .parts = { .past = past }, .want = want,
				.total = (float *)work, .n = n };

	switch (b->shape.head_dim) {
	case 64: return launch_pad<64>(a, q, k, (cudaStream_t)stream, err);
	case 128: return launch_pad<128>(a, q, k, (cudaStream_t)stream, err);
	default: return launch_pad<256>(a, q, k, (cudaStream_t)stream, err);
	}
}

}

size_t lastq_sm90_work_bytes(const struct attn_shape *s, const struct attn_limits *l, bool blocks)
{
	struct workspace w = workspace_at(NULL);

	room_at(s, l->max_req, l->max_page, blocks, &w);
	return w.used + lastq_rows_work_bytes(s, l);
}

enum ar_status lastq_sm90_rows_enqueue(const struct attn_batch *b, int n, const bf16_t *q,
				       const bf16_t *k, const struct lastq *blocks, void *work,
				       void *stream, struct ar_err *err)
{
	return enqueue_rows(b, n, false, q, k, blocks, work, stream, err);
}

enum ar_status lastq_sm90_sums_enqueue(const struct attn_batch *b, int n, const bf16_t *q,
				       const bf16_t *k, const int *want, const struct lastq *out,
				       void *work, void *stream, struct ar_err *err)
{
	return enqueue_sums(b, n, false, q, k, want, out, work, stream, err);
}

enum ar_status lastq_sm90_columns_enqueue(const struct attn_batch *b, int n, bool past,
					  const bf16_t *q, const bf16_t *k,
					  const struct lastq *out, void *work, void *stream,
					  struct ar_err *err)
{
	enum ar_status st = enqueue_rows(b, n, past, q, k, NULL, work, stream, err);

	return st ? st : enqueue_sums(b, n, past, q, k, NULL, out, work, stream, err);
}

enum ar_status lastq_sm90_enqueue(const struct attn_batch *b, int n, const bf16_t *q,
				  const bf16_t *k, const struct lastq *out, void *work,
				  void *stream, struct ar_err *err)
{
	enum ar_status st = lastq_sm90_rows_enqueue(b, n, q, k, NULL, work, stream, err);

	return st ? st : lastq_sm90_sums_enqueue(b, n, q, k, NULL, out, work, stream, err);
}
