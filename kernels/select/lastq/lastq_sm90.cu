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
 * A thread block takes a unit, up to 4096 keys of one KV head, and 256 queries: the rows of four
 * query heads of 64 places or of two of 128.  Units are shorter if there would be fewer units than
 * multiprocessors.  A head's rows stand at the end of its PAD places; places without a row have a
 * total of +inf, hence probability 0.  If only some heads are wanted, thread blocks take the wanted
 * ones in order.  Thread blocks left without a head exit.
 *
 * Warp group 0 is the producer: one thread issues copies.  Each other group has a head.  A step is
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
 * 14 parts of diagonals.  For 128 places: 240, with two of 64, 32 and 30.  Little is left.  If they
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
 * Measured on an H200: sums 0.57 ms for 64 rows, blocks 0.04.  Tried for 64 rows: groups of two
 * heads, 0.65; one accumulator, 0.63; a pair's columns and diagonals in the next pair, 0.65.  For
 * 128 rows the compiler moves 50 of a step's exponentials behind the wait for the next product.
 * Tried there: columns through shared memory, which holds them before it, 1.39 instead of 1.28.
 */
#include "config.h"
#include "kernels/select/lastq/lastq.cuh"

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
constexpr int UNIT = 4096, LEAST_UNIT = 256;
template <int PAD> constexpr int GROUPS = QUERIES / PAD;	/* of warps that compute */
template <int PAD> using registers = group_registers<GROUPS<PAD>>;
template <int PAD> constexpr int THREADS = registers<PAD>::THREADS;

/* A row of diagonals: the last eight keys of the pair before, then the diagonals that ended in a
 * pair of steps.  The skew lets threads that store hit different banks. */
constexpr int PAIR = 2 * RUN, SKEW_ROW = 8 + PAIR;

constexpr int RUN_BLOCKS = 8, BLOCKS_THREADS = 256;

template <int D> constexpr int STAGES = D == 256 ? 2 : 8;

template <int D> struct alignas(1024) smem {
	bf16_t q[D / BOX][QUERIES][BOX];
	bf16_t k[STAGES<D>][D / BOX][KEYS][BOX];
	float skew[GROUPS<64>][STRIPS][8][SKEW_ROW];
	uint64_t q_full;
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
	int unit;		/* keys */
};

/* The work of a thread block. */
template <int PAD> struct unit {
	int r, at;		/* request, and the unit's number in it */
	int end, n;		/* the end of the keys, rows that take part */
	int len;		/* keys of a strip */
	int kv_head;
	int head[GROUPS<PAD>];	/* whose rows are a group's queries; q_heads: none */
};

__device__ __forceinline__ int units_of(const struct args &a, int end)
{
	return (end + a.unit - 1) / a.unit;
}

template <int PAD>
__device__ __forceinline__ struct unit<PAD> unit_of(const struct args &a)
{
	const int r = blockIdx.z, rows = a.b.rows.row0[r + 1] - a.b.rows.row0[r];
	const int end = lastq_end(a.parts, a.b, r);
	const int slabs = gridDim.y / a.b.shape.kv_heads, share = max(units_of(a, end), 1) * STRIPS;

	return { r, (int)blockIdx.x, end, min(a.n, rows),
		 ((end + share - 1) / share + PAIR - 1) / PAIR * PAIR,
		 (int)blockIdx.y / slabs, {} };
}

/* Find the wanted query head with this number in a KV head; q_heads: there is none.  By whole
 * warps. */
__device__ __forceinline__ int nth_head(const struct args &a, int r, int kv_head, int number)
{
	const int heads = a.b.shape.q_heads, group = heads / a.b.shape.kv_heads;
	const int lane = threadIdx.x % 32, first = kv_head * group;

	for (int i = 0; i < group; i += 32) {
		uint32_t bits = __ballot_sync(~0u, i + lane < group &&
					      (!a.want || a.want[r * heads + first + i + lane]));

		for (; bits && number; number--)
			bits &= bits - 1;
		if (bits)
			return first + i + __ffs(bits) - 1;
	}
	return heads;
}

/* Choose the heads of the warp groups.  Returns how many groups have one. */
template <int PAD>
__device__ __forceinline__ int take_heads(const struct args &a, struct unit<PAD> &u)
{
	const int slab = (int)blockIdx.y % (gridDim.y / a.b.shape.kv_heads);
	int n = 0;

#pragma unroll
	for (int i = 0; i < GROUPS<PAD>; i++) {
		u.head[i] = nth_head(a, u.r, u.kv_head, slab * GROUPS<PAD> + i);
		n += u.head[i] < a.b.shape.q_heads;
	}
	return n;
}

/* The keys of a warp: it walks from first on, and [own, stop) are its own.  ahead: how far
 * diagonals begin before. */
struct strip {
	int first, own, stop;
};

template <int PAD>
__device__ __forceinline__ struct strip strip_of(const struct unit<PAD> &u, int i, int ahead)
{
	const int own = (u.at * STRIPS + i) * u.len;

	return { max(own - ahead, 0), own, min(own + u.len, u.end) };
}

/* ---- producer ---- */

template <int D, int PAD>
__device__ __forceinline__ void produce(struct smem<D> &s, const struct args &a,
					const struct unit<PAD> &u, const CUtensorMap *qmap,
					const CUtensorMap *kmap, int groups, int ahead, int steps)
{
	const int shift = __ffs(a.b.shape.page_tok) - 1, last = (u.end - 1) >> shift;
	const int32_t *page = a.b.keys.page + a.b.keys.page0[u.r];
	int first[STRIPS], next[STRIPS];	/* pages of a step, a step ahead */

#pragma unroll
	for (int i = 0; i < STRIPS; i++) {
		first[i] = strip_of<PAD>(u, i, ahead).first;
		next[i] = page[min(first[i] >> shift, last)];
	}
	mbarrier_expect_tx(&s.q_full, groups * PAD * D * 2);
#pragma unroll
	for (int i = 0; i < QUERIES / 64; i++)
		for (int c = 0; c < D / BOX && i * 64 < groups * PAD; c++)
			tma_load_3d(s.q[c][i * 64], qmap, &s.q_full, c * BOX, u.head[i * 64 / PAD],
				    a.b.rows.row0[u.r + 1] - PAD + i * 64 % PAD);
	for (int step = 0; step < steps; step++) {
		const int st = s.ring.stage(step);
		uint64_t *full;
		int y[STRIPS];		/* rows of the cache; past the end, any row that exists */

#pragma unroll
		for (int i = 0; i < STRIPS; i++) {
			const int key = first[i] + step * RUN;

			y[i] = ((next[i] * a.b.shape.kv_heads + u.kv_head) << shift) +
			       (key & ((1 << shift) - 1));
			next[i] = page[min((key + RUN) >> shift, last)];
		}
		full = s.ring.producer_acquire(step);
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
				      int group)
{
	uint64_t keys = wgmma_desc(s.k[s.ring.stage(step)], 16, 1024);
	uint64_t queries = wgmma_desc(s.q[0][group * PAD], 16, 1024);

	/* hide the descriptors' origin; otherwise the sums below stay in registers from step to
	 * step */
	asm volatile("" : "+l"(keys), "+l"(queries));
	s.ring.consumer_wait(step);
	wgmma_fence();
#pragma unroll
	for (int k = 0; k < D / 16; k++) {	/* addresses in units of 16 bytes */
		const int slab = k / 4, piece = k % 4 * 2;

		wgmma_ss<PAD>(acc, keys + slab * (sizeof s.k[0][0] / 16) + piece,
			      queries + slab * (sizeof s.q[0] / 16) + piece, k != 0);
	}
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

/* steps is even. */
template <int D, int PAD, typename Use>
__device__ __forceinline__ void walk(struct smem<D> &s, int steps, int group, Use &use)
{
	float even[PAD / 2], odd[PAD / 2];
	int step = 0;

	mbarrier_wait(&s.q_full, 0);
	issue<D, PAD>(even, s, 0, group);
	finish<D>(even, s, 0);
	for (; step < steps - 2; step += 2) {
		issue<D, PAD>(odd, s, step + 1, group);
		use.template take<0>(even, step);
		finish<D>(odd, s, step + 1);
		issue<D, PAD>(even, s, step + 2, group);
		use.template take<1>(odd, step + 1);
		finish<D>(even, s, step + 2);
	}
	issue<D, PAD>(odd, s, step + 1, group);
	use.template take<0>(even, step);
	finish<D>(odd, s, step + 1);
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
	const size_t heads = a.b.shape.q_heads, stride = heads * pad;
	const float2 *part = a.parts.part + lastq_first_part(a.parts, a.b, r) * stride +
			     (size_t)head * pad + threadIdx.x;
	const int n = lastq_segments(a.parts, end);
	float2 all = make_float2(-FLT_MAX, 0);
	float total = INFINITY;

	if ((int)threadIdx.x >= pad - min(a.n, rows)) {
#pragma unroll 8
		for (int i = 0; i < n; i++)
			all = joined(all, part[i * stride]);
		total = all.x + log2f(all.y);
	}
	a.total[(r * heads + head) * pad + threadIdx.x] = total;
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
	const int len = lastq_segment_keys(a.parts, end);
	const size_t heads = a.b.shape.q_heads, at = r * heads + head;
	const float4 total = ((const float4 *)(a.total + at * LASTQ_MAX))[lane];
	const float2 *const part = a.parts.part + 4 * lane +
		(lastq_first_part(a.parts, a.b, r) * heads + head) * LASTQ_MAX;
	const float *const piece = lastq_piece(a.parts, a.b, r, 0, head) + 4 * lane;
	const float share = 1 / (float)min(a.n, rows);
	float before = 0;

	for (int j = max(first - 1, 0); rows && j < last; j++) {
		const int segment = j * LASTQ_MAX / len;
		const float4 *x = (const float4 *)(piece + j * heads * LASTQ_PIECES);
		const float4 *top = (const float4 *)(part + segment * heads * LASTQ_MAX);
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

	const struct unit<PAD> &u;
	const struct strip strip;
	float (*const skew)[SKEW_ROW];
	float *const row;		/* of skew, where this thread adds to it */
	float *column, *slash;		/* of the head */
	const float share;		/* of a row in the means */
	const int pos, step;		/* of hide() */
	float total[J][2];
	/* open diagonals.  Class v of a step holds elements with j - h = v - 1; it was class v - 2
	 * one step earlier.  Classes 0 and 1 begin */
	float carry[J + 1][2];
	float part[2][2];		/* of columns, this thread's: [step of the pair][h] */

	__device__ __forceinline__ sums(const struct args &a, const struct unit<PAD> &u,
					struct smem<D> &s, int group, int warp)
		: u(u), strip(strip_of<PAD>(u, warp, AHEAD)), skew(s.skew[group][warp]),
		  row(&skew[threadIdx.x % 32 / 4][6 - threadIdx.x % 4 * 2]),
		  share(1 / (float)u.n),
		  pos(COLUMNS && a.parts.past ? u.end - 1 : u.end - PAD),
		  step(!COLUMNS || !a.parts.past), carry{}
	{
		int head = u.head[0];

#pragma unroll
		for (int i = 1; i < GROUPS<PAD>; i++)
			head = group == i ? u.head[i] : head;

		const size_t at = (size_t)u.r * a.b.shape.q_heads + head;

		column = a.out.column + at * a.out.stride;
		slash = COLUMNS ? NULL : a.out.slash + at * a.out.stride;
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
		float sum = 0;

#pragma unroll
		for (int g = 0; g < 8; g++)
			sum += skew[g][8 + lane - g];
		return sum;
	}

	__device__ __forceinline__ void store(float *out, int key, int at, float x)
	{
		if (key >= strip.own && key < strip.stop)
			out[at] = x * share;
	}

	/* Take in one step of a pair; ODD: the second. */
	template <int ODD> __device__ __forceinline__ void take(float (&acc)[PAD / 2], int at)
	{
		const int lane = threadIdx.x % 32, first = strip.first + (at - ODD) * RUN;
		const int key = first + lane % 4 * 8 + lane / 4, ends = first + lane;

		hide(acc, first + ODD * RUN, pos, step);
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
		store(slash, ends, u.end - 1 - ends, y);
	}
};

/* ---- kernel ---- */

/* grid (unit, KV head and slab, request) */
template <int D, int PAD, bool COLUMNS>
__global__ void __launch_bounds__(THREADS<PAD>, 1)
lastq_sums(const __grid_constant__ CUtensorMap qmap, const __grid_constant__ CUtensorMap kmap,
	   const __grid_constant__ struct args a)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
	extern __shared__ char raw[];
	/* an offset: a pointer made from an integer would lose its address space and load slower */
	struct smem<D> &s = *(struct smem<D> *)(raw + (-smem_addr(raw) & 1023));
	struct unit<PAD> u = unit_of<PAD>(a);
	constexpr int AHEAD = sums<D, PAD, COLUMNS>::AHEAD;
	const int steps = (u.len + AHEAD) / RUN;

	if (u.at >= units_of(a, u.end) || !u.n)
		return;
	const int groups = take_heads<PAD>(a, u);

	if (!groups)
		return;
	if (threadIdx.x == 0) {
		tma_prefetch_map(&qmap);
		tma_prefetch_map(&kmap);
		mbarrier_init(&s.q_full, 1);
		s.ring.init(1, groups);
		fence_barrier_init();
	}
	__syncthreads();
	if (threadIdx.x < 128) {
		setmaxnreg_dec<registers<PAD>::COPY>();
		if (threadIdx.x == 0)
			produce<D, PAD>(s, a, u, &qmap, &kmap, groups, AHEAD, steps);
	} else if (warp_group() <= groups) {
		setmaxnreg_inc<registers<PAD>::COMPUTE>();
		const int group = warp_group() - 1;
		sums<D, PAD, COLUMNS> use(a, u, s, group, threadIdx.x / 32 % STRIPS);

		walk<D, PAD>(s, steps, group, use);
	}
#else
	__trap();
#endif
}

/* ---- launch ---- */

/* Choose the keys of a unit: whole steps, so that n thread blocks a unit fill the multiprocessors
 * once. */
int unit_keys(const struct attn_batch *b, int n)
{
	const int room = b->n_sm / n - b->rows.n_req;	/* a unit of each request may be short */
	const int64_t keys = (int64_t)b->keys.n_page * b->shape.page_tok;
	const int64_t least = room > 0 ? (keys + room - 1) / room : UNIT;
	const int step = STRIPS * PAIR;

	if (least >= UNIT)
		return UNIT;
	return least < LEAST_UNIT ? LEAST_UNIT : (int)((least + step - 1) / step * step);
}

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
enum ar_status launch(struct args a, const bf16_t *q, const bf16_t *k, cudaStream_t stream,
		      struct ar_err *err)
{
	const struct attn_shape *s = &a.b.shape;
	const int group = s->q_heads / s->kv_heads, slots = GROUPS<PAD>;
	const int per_unit = s->kv_heads * ((group + slots - 1) / slots);
	const int keys = a.b.keys.max_kv_blk * s->page_tok;
	/* the size of the cache is unknown here; page numbers bound the accesses */
	const uint64_t dim[2] = { D, INT32_MAX };
	const uint32_t box[2] = { BOX, RUN };
	CUtensorMap qmap, kmap;
	enum ar_status st = query_map(&qmap, &a.b, q, err);

	if (!st)
		st = tensor_map(&kmap, k, 2, dim, box, err);
	if (st)
		return st;
	a.unit = unit_keys(&a.b, per_unit);
	CU(cudaFuncSetAttribute(lastq_sums<D, PAD, COLUMNS>,
				cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM_BYTES<D>));
	lastq_sums<D, PAD, COLUMNS>
		<<<dim3((keys + a.unit - 1) / a.unit, per_unit, a.b.rows.n_req), THREADS<PAD>,
		   SMEM_BYTES<D>, stream>>>(qmap, kmap, a);
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
		st = lastq_rows_enqueue(b, n, qmap, k, &a.parts, on, err);
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
