/*
 * Columns and diagonals of the last queries' attention on Hopper.  Four kernels:
 *
 *   rows    (max, sum) of every row over each segment of keys: lastq_rows_sm90.cu
 *   totals  a row's segments put together
 *   blocks  the sums by block of keys and of diagonals, from pieces that rows has left: where asked
 *           for
 *   sums    the probabilities again, from the rows' totals, added up by column and by diagonal
 *
 * The scores themselves are too many to keep, and a column's sum needs every row's total before it,
 * so the first and the last have the same product.  For sums it is K Q^T: keys are the product's
 * rows, queries its columns, so that a column adds up in a thread.  A thread block takes a unit, up
 * to 4096 keys of one KV head, and 256 queries: the rows of all query heads of the KV head, PAD for
 * each.  Units are shorter where there would be fewer than multiprocessors.  The rows stand at the
 * end of their PAD places; places without a row have a total of +inf, hence probability 0.  Where
 * only some heads are wanted, thread blocks take those one after another, and the last ones none.
 *
 * Warp group 0 is the producer, one thread that issues copies.  Warp groups 1 and 2 have 128
 * queries each, two heads of 64 or one of 128.  A step is wgmma m64n128 of 64 keys; that of the
 * next step runs while this one's scores are worked on.  The four warps of a group, 16 keys of a
 * step each, walk four adjoining strips of the unit, so that a warp's keys follow each other from
 * step to step and a thread adds up its part of a diagonal over time:
 *
 *   element     key 16 step + 8 h + g of the strip, query 8 j + 2 t + c; g = lane / 4, t = lane % 4
 *   columns     sums over j and c in the thread, then over t
 *   diagonals   query - key = 8 (j - h - 2 step) + 2 t + c - g: a thread's elements with the
 *               same j - h - 2 step are of one diagonal, PAD / 8 of them.  Two such classes
 *               end with each step.  They go through shared memory, a row for each g in
 *               which a diagonal stands g places further, and are added over g.
 *
 * A diagonal is written where its last row meets it, at key end - 1 - distance.  A strip begins its
 * diagonals PAD keys early instead of handing them on.  All sums have a fixed order.
 *
 * Registers of a consumer's thread, 240: two accumulators of 64, 32 totals, 28 or 30 parts of
 * diagonals.  Little is left; where they do not suffice the compiler makes products wait for each
 * other, and says so with -Xptxas=-v.
 *
 * Budget of a step of both groups at D = 128, in cycles of a multiprocessor: 1024 of the tensor
 * cores, 1024 of the special function units (16384 exponentials), 768 of 1024 that shared memory
 * has for operands, some 700 of the schedulers.  At 128K tokens, 8 requests, 16 heads over 4 and 64
 * rows that is 65536 steps, 0.29 ms at the least, and K (1 GiB) comes once, 0.25 ms; 128 rows take
 * twice that.  Measured on an H200: 0.60 ms for 64 rows.  blocks reads pieces of 128 MiB there, for
 * 128 rows, 0.03 ms.
 */
#include "config.h"
#include "kernels/selectors/lastq.cuh"

#include <cfloat>
#include <cmath>

#include "kernels/cuda.h"
#include "kernels/sm90.cuh"
#include "kernels/softmax.cuh"
#include "kernels/tensor_map.h"

/* In code for other architectures the kernels are traps, and their parts are unused. */
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#pragma nv_diag_suppress 177
#endif

namespace {

constexpr int BOX = 64;			/* columns of what the copy engine brings */
constexpr int GROUPS = 2;		/* of warps that compute */
constexpr int COLS = 128;		/* queries of a group */
constexpr int STRIPS = 4;
constexpr int RUN = 16;			/* keys of a strip in a step */
constexpr int KEYS = STRIPS * RUN;
constexpr int UNIT = 4096, LEAST_UNIT = 256;
constexpr int THREADS = (1 + GROUPS) * 128;
constexpr int TILES = COLS / 8;		/* of eight queries */

/* A row of what ended in the last two steps, and eight of them: threads that store hit different
 * banks, and so do those that read both heads. */
constexpr int SKEW_ROW = 2 * RUN + 8, SKEW = 8 * SKEW_ROW + 16;

constexpr int RUN_BLOCKS = 8, BLOCKS_THREADS = 256;

template <int D> constexpr int STAGES = D == 256 ? 2 : 8;

template <int D> struct alignas(1024) smem {
	bf16_t q[D / BOX][GROUPS * COLS][BOX];
	bf16_t k[STAGES<D>][D / BOX][KEYS][BOX];
	float skew[GROUPS][STRIPS][2][SKEW];
	uint64_t q_full, full[STAGES<D>], empty[STAGES<D>];
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

/* What a thread block works on. */
template <int PAD> struct unit {
	int r, at;		/* request, and the unit's number in it */
	int end, n;		/* of the chunk: its end, rows that take part */
	int len;		/* keys of a strip */
	int kv_head;
	int head[GROUPS * COLS / PAD];	/* whose rows are its queries; q_heads: none */
};

__device__ __forceinline__ int units_of(const struct args &a, int end)
{
	return (end + a.unit - 1) / a.unit;
}

template <int PAD>
__device__ __forceinline__ struct unit<PAD> unit_of(const struct args &a)
{
	const int r = blockIdx.z, rows = a.b.row0[r + 1] - a.b.row0[r], end = a.b.ctx[r] + rows;
	const int slabs = gridDim.y / a.b.shape.kv_heads, share = max(units_of(a, end), 1) * STRIPS;

	/* an even number of steps */
	return { r, (int)blockIdx.x, end, min(a.n, rows),
		 ((end + share - 1) / share + 2 * RUN - 1) / (2 * RUN) * (2 * RUN),
		 (int)blockIdx.y / slabs, {} };
}

/* The wanted query head of that number of a KV head, or q_heads.  By whole warps. */
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

/* Returns how many warp groups have any. */
template <int PAD>
__device__ __forceinline__ int take_heads(const struct args &a, struct unit<PAD> &u)
{
	constexpr int SLOTS = GROUPS * COLS / PAD;
	const int slab = (int)blockIdx.y % (gridDim.y / a.b.shape.kv_heads);
	int n = 0;

#pragma unroll
	for (int i = 0; i < SLOTS; i++) {
		u.head[i] = nth_head(a, u.r, u.kv_head, slab * SLOTS + i);
		n += u.head[i] < a.b.shape.q_heads;
	}
	return (n * PAD + COLS - 1) / COLS;
}

/* The keys of a warp: it walks from first on, and [own, stop) are its own. */
struct strip {
	int first, own, stop;
};

template <int PAD>
__device__ __forceinline__ struct strip strip_of(const struct unit<PAD> &u, int i)
{
	const int own = (u.at * STRIPS + i) * u.len;

	return { max(own - PAD, 0), own, min(own + u.len, u.end) };
}

/* ---- producer ---- */

template <int D, int PAD>
__device__ __forceinline__ void produce(struct smem<D> &s, const struct args &a,
					const struct unit<PAD> &u, const CUtensorMap *qmap,
					const CUtensorMap *kmap, int groups, int steps)
{
	const int shift = __ffs(a.b.shape.page_tok) - 1, last = (u.end - 1) >> shift;
	const int32_t *page = a.b.page + a.b.page0[u.r];
	int first[STRIPS], next[STRIPS];	/* pages of a step, a step ahead */

#pragma unroll
	for (int i = 0; i < STRIPS; i++) {
		first[i] = strip_of<PAD>(u, i).first;
		next[i] = page[min(first[i] >> shift, last)];
	}
	mbarrier_expect_tx(&s.q_full, groups * COLS * D * 2);
#pragma unroll
	for (int i = 0; i < GROUPS * COLS / 64; i++)
		for (int c = 0; c < D / BOX && i * 64 < groups * COLS; c++)
			tma_load_3d(s.q[c][i * 64], qmap, &s.q_full, c * BOX, u.head[i * 64 / PAD],
				    a.b.row0[u.r + 1] - PAD + i * 64 % PAD);
	for (int step = 0; step < steps; step++) {
		const int st = step % STAGES<D>;
		int y[STRIPS];		/* rows of the cache; past the end any that exist */

#pragma unroll
		for (int i = 0; i < STRIPS; i++) {
			const int key = first[i] + step * RUN;

			y[i] = ((next[i] * a.b.shape.kv_heads + u.kv_head) << shift) +
			       (key & ((1 << shift) - 1));
			next[i] = page[min((key + RUN) >> shift, last)];
		}
		mbarrier_wait(&s.empty[st], (step / STAGES<D> & 1) ^ 1);
		mbarrier_expect_tx(&s.full[st], KEYS * D * 2);
#pragma unroll
		for (int i = 0; i < STRIPS; i++)
			for (int c = 0; c < D / BOX; c++)
				tma_load_2d(s.k[st][c][i * RUN], kmap, &s.full[st], c * BOX, y[i]);
	}
}

/* ---- consumers ---- */

/* acc = K Q^T of a step and this group's queries.  Enqueued, not finished. */
template <int D>
__device__ __forceinline__ void issue(float (&acc)[COLS / 2], struct smem<D> &s, int step,
				      int group)
{
	const int st = step % STAGES<D>;
	uint64_t keys = wgmma_desc(s.k[st], 16, 1024);
	uint64_t queries = wgmma_desc(s.q[0][group * COLS], 16, 1024);

	/* so that the sums below are not kept in registers from step to step */
	asm volatile("" : "+l"(keys), "+l"(queries));
	mbarrier_wait(&s.full[st], step / STAGES<D> & 1);
	wgmma_fence();
#pragma unroll
	for (int k = 0; k < D / 16; k++) {	/* addresses in units of 16 bytes */
		const int slab = k / 4, piece = k % 4 * 2;

		wgmma_ss<COLS>(acc, keys + slab * (sizeof s.k[0][0] / 16) + piece,
			       queries + slab * (sizeof s.q[0] / 16) + piece, k != 0);
	}
	wgmma_commit();
}

/* All products are complete; release the keys of the step. */
template <int D>
__device__ __forceinline__ void finish(float (&acc)[COLS / 2], struct smem<D> &s, int step)
{
	wgmma_wait<0>();
	hold<COLS / 2>(acc);
	if (threadIdx.x % 128 == 0)
		mbarrier_arrive(&s.empty[step % STAGES<D>]);
}

/* steps is even. */
template <int D, typename Use>
__device__ __forceinline__ void walk(struct smem<D> &s, int steps, int group, Use &use)
{
	float even[COLS / 2], odd[COLS / 2];
	int step = 0;

	mbarrier_wait(&s.q_full, 0);
	issue<D>(even, s, 0, group);
	finish<D>(even, s, 0);
	for (; step < steps - 2; step += 2) {
		issue<D>(odd, s, step + 1, group);
		use.step(even, step);
		finish<D>(odd, s, step + 1);
		issue<D>(even, s, step + 2, group);
		use.step(odd, step + 1);
		finish<D>(even, s, step + 2);
	}
	issue<D>(odd, s, step + 1, group);
	use.step(even, step);
	finish<D>(odd, s, step + 1);
	use.step(odd, step + 1);
}

/* Element 4 j + 2 h + c of an accumulator is key 8 h + lane / 4 of the run that begins at key, and
 * query 8 j + 2 (lane % 4) + c; pos: position of a head's first place. */
template <int PAD>
__device__ __forceinline__ void hide(float (&acc)[COLS / 2], int key, int pos)
{
	const int lane = threadIdx.x % 32, ahead = key + lane / 4 - pos - lane % 4 * 2;

	if (key + RUN - 1 <= pos)
		return;
#pragma unroll
	for (int i = 0; i < COLS / 2; i++)
		if (ahead + i / 2 % 2 * 8 > i / 4 % (PAD / 8) * 8 + i % 2)
			acc[i] = -INFINITY;
}

/* (max, sum) of both. */
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
	const int rows = a.b.row0[r + 1] - a.b.row0[r];
	const size_t heads = a.b.shape.q_heads, stride = heads * pad;
	const float2 *part = a.parts.part + lastq_first_part(a.parts, a.b, r) * stride +
			     (size_t)head * pad + threadIdx.x;
	const int n = lastq_segments(a.parts, a.b.ctx[r] + rows);
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

/* grid (blocks, query head, request): a warp has RUN_BLOCKS, and sees the one before, whose
 * diagonals go on.  Lanes have four rows each. */
__global__ void __launch_bounds__(BLOCKS_THREADS, 6)
lastq_blocks(const __grid_constant__ struct args a)
{
	const int r = blockIdx.z, head = blockIdx.y, lane = threadIdx.x % 32;
	const int rows = a.b.row0[r + 1] - a.b.row0[r], end = a.b.ctx[r] + rows;
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

template <int D, int PAD> struct sums {
	static constexpr int HEADS = COLS / PAD, J = PAD / 8;

	const struct args &a;
	const struct unit<PAD> &u;
	const struct strip strip;
	float (*const skew)[SKEW];	/* of each head */
	int head[HEADS];
	const float share;		/* of a row in the means */
	float total[TILES][2];
	/* diagonals that go on: class v of a step holds elements with j - h = v - 1, and was class
	 * v - 2 of the step before; 0 and 1 begin */
	float carry[HEADS][J + 1][2];

	__device__ __forceinline__ sums(const struct args &a, const struct unit<PAD> &u,
					struct smem<D> &s, int group, int warp)
		: a(a), u(u), strip(strip_of<PAD>(u, warp)), skew(s.skew[group][warp]),
		  share(1 / (float)u.n)
	{
		const int lane = threadIdx.x % 32, heads = a.b.shape.q_heads;

#pragma unroll
		for (int n = 0; n < HEADS; n++)
			head[n] = group ? u.head[HEADS + n] : u.head[n];
#pragma unroll
		for (int j = 0; j < TILES; j++) {
			const int place = j * 8 + lane % 4 * 2, at = head[j * 8 / PAD];
			float2 x = make_float2(INFINITY, INFINITY);

			if (at < heads)
				x = *(const float2 *)(a.total + ((size_t)u.r * heads + at) * PAD +
						      place % PAD);
			total[j][0] = x.x;
			total[j][1] = x.y;
		}
#pragma unroll
		for (int i = 0; i < HEADS * (J + 1) * 2; i++)
			carry[i / 2 / (J + 1)][i / 2 % (J + 1)][i % 2] = 0;
		for (int i = lane; i < 2 * SKEW; i += 32)
			skew[0][i] = 0;
		__syncwarp();
	}

	/* Over the step's queries.  Lane 4 g + t gets key 8 (t / 2) + g, of head t % 2 if there
	 * are two. */
	__device__ __forceinline__ float add_columns(const float (&p)[COLS / 2])
	{
		const int lane = threadIdx.x % 32;
		float v[2][HEADS];

#pragma unroll
		for (int h = 0; h < 2; h++)
#pragma unroll
			for (int n = 0; n < HEADS; n++) {
				float even = 0, odd = 0;

#pragma unroll
				for (int j = n * J; j < n * J + J; j++) {
					even += p[4 * j + 2 * h];
					odd += p[4 * j + 2 * h + 1];
				}
				v[h][n] = even + odd;
			}
#pragma unroll
		for (int n = 0; n < HEADS; n++) {
			const float other = __shfl_xor_sync(~0u, lane & 2 ? v[0][n] : v[1][n], 2);

			v[0][n] = (lane & 2 ? v[1][n] : v[0][n]) + other;
		}
		const float other = __shfl_xor_sync(~0u, lane & 1 ? v[0][0] : v[0][HEADS - 1], 1);

		return (lane & 1 ? v[0][HEADS - 1] : v[0][0]) + other;
	}

	/* The step's elements by class; the two classes that end go to the skewed rows, ascending
	 * by the keys where they end. */
	__device__ __forceinline__ void add_classes(const float (&p)[COLS / 2], int step)
	{
		const int lane = threadIdx.x % 32;

#pragma unroll
		for (int n = 0; n < HEADS; n++) {
			float *const row = skew[n] + lane / 4 * SKEW_ROW + step % 2 * RUN + 6 -
					   lane % 4 * 2;

#pragma unroll
			for (int v = J; v >= 0; v--) {
				float x[2];

#pragma unroll
				for (int c = 0; c < 2; c++) {
					x[c] = v < 2 ? 0 : carry[n][v][c];
					if (v)
						x[c] += p[4 * (n * J + v - 1) + c];
					if (v < J)
						x[c] += p[4 * (n * J + v) + 2 + c];
					if (v < J - 1)
						carry[n][v + 2][c] = x[c];
				}
				if (v >= J - 1)
					*(float2 *)(row + (J - v) * 8) = make_float2(x[1], x[0]);
			}
		}
	}

	/* The diagonal that ends at key lane % 16 of the step; of head lane / 16 if there are
	 * two. */
	__device__ __forceinline__ float add_diagonals(int step)
	{
		const int lane = threadIdx.x % 32, upper = lane / 16;
		const int at = step % 2 * RUN + lane % 16;
		const float *const row = skew[HEADS == 2 ? upper : 0];
		float sum = 0;

#pragma unroll
		for (int i = 0; i < 4 * HEADS; i++) {
			const int g = HEADS == 2 ? i : upper * 4 + i;

			sum += row[g * SKEW_ROW + ((at - g) & (2 * RUN - 1))];
		}
		return HEADS == 2 ? sum : sum + __shfl_xor_sync(~0u, sum, 16);
	}

	/* x: of head n of the group, at key or its diagonal. */
	__device__ __forceinline__ void store(float *out, int n, int key, int at, float x)
	{
		const int to = n ? head[HEADS - 1] : head[0];

		if (n < HEADS && to < a.b.shape.q_heads && key >= strip.own && key < strip.stop)
			out[((size_t)u.r * a.b.shape.q_heads + to) * a.out.stride + at] = x * share;
	}

	__device__ __forceinline__ void step(float (&acc)[COLS / 2], int step)
	{
		const int lane = threadIdx.x % 32, first = strip.first + step * RUN;
		const int key = first + lane % 4 / 2 * 8 + lane / 4, ends = first + lane % 16;

		hide<PAD>(acc, first, u.end - PAD);
#pragma unroll
		for (int i = 0; i < COLS / 2; i++)
			acc[i] = ex2(fmaf(acc[i], softmax_scale_log2<D>, -total[i / 4][i % 2]));
		add_classes(acc, step);
		__syncwarp();
		store(a.out.column, lane % 2, key, key, add_columns(acc));
		store(a.out.slash, lane / 16, ends, u.end - 1 - ends, add_diagonals(step));
		__syncwarp();	/* the next step writes over what was read */
	}
};

/* ---- kernel ---- */

/* grid (unit, KV head and slab, request) */
template <int D, int PAD>
__global__ void __launch_bounds__(THREADS, 1)
lastq_sums(const __grid_constant__ CUtensorMap qmap, const __grid_constant__ CUtensorMap kmap,
	   const __grid_constant__ struct args a)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
	extern __shared__ char raw[];
	/* an offset, for a pointer from a number is to no known memory, with slower loads */
	struct smem<D> &s = *(struct smem<D> *)(raw + (-smem_addr(raw) & 1023));
	struct unit<PAD> u = unit_of<PAD>(a);
	const int steps = (u.len + PAD) / RUN;

	if (u.at >= units_of(a, u.end) || !u.n)
		return;
	const int groups = take_heads<PAD>(a, u);

	if (!groups)
		return;
	if (threadIdx.x == 0) {
		tma_prefetch_map(&qmap);
		tma_prefetch_map(&kmap);
		mbarrier_init(&s.q_full, 1);
		for (int i = 0; i < STAGES<D>; i++) {
			mbarrier_init(&s.full[i], 1);
			mbarrier_init(&s.empty[i], groups);
		}
		fence_barrier_init();
	}
	__syncthreads();
	if (threadIdx.x < 128) {
		setmaxnreg_dec<24>();
		if (threadIdx.x == 0)
			produce<D, PAD>(s, a, u, &qmap, &kmap, groups, steps);
	} else if (warp_group() <= groups) {
		setmaxnreg_inc<240>();
		const int group = warp_group() - 1;
		sums<D, PAD> use(a, u, s, group, threadIdx.x / 32 % STRIPS);

		walk<D>(s, steps, group, use);
	}
#else
	__trap();
#endif
}

/* ---- launch ---- */

/* Keys of units, so that n thread blocks for each fill the multiprocessors once: whole steps. */
int unit_keys(const struct attn_batch *b, int n)
{
	const int room = b->n_sm / n - b->n_req;	/* a unit of each request may be short */
	const int64_t keys = (int64_t)b->n_page * b->shape.page_tok;
	const int64_t least = room > 0 ? (keys + room - 1) / room : UNIT;
	const int step = STRIPS * 2 * RUN;

	if (least >= UNIT)
		return UNIT;
	return least < LEAST_UNIT ? LEAST_UNIT : (int)((least + step - 1) / step * step);
}

enum ar_status query_map(CUtensorMap *map, const struct attn_batch *b, const bf16_t *q,
			 struct ar_err *err)
{
	const struct attn_shape *s = &b->shape;
	const uint64_t dim[3] = { (uint64_t)s->head_dim, (uint64_t)s->q_heads, (uint64_t)b->n_row };
	const uint32_t box[3] = { BOX, 1, 64 };

	return tensor_map(map, q, 3, dim, box, err);
}

template <int D, int PAD>
enum ar_status launch(struct args a, const bf16_t *q, const bf16_t *k, cudaStream_t stream,
		      struct ar_err *err)
{
	const struct attn_shape *s = &a.b.shape;
	const int group = s->q_heads / s->kv_heads, slots = GROUPS * COLS / PAD;
	const int per_unit = s->kv_heads * ((group + slots - 1) / slots);
	const int keys = a.b.max_kv_blk * s->page_tok;
	/* the cache's end is not known here and not needed: pages bound the accesses */
	const uint64_t dim[2] = { D, INT32_MAX };
	const uint32_t box[2] = { BOX, RUN };
	CUtensorMap qmap, kmap;
	enum ar_status st = query_map(&qmap, &a.b, q, err);

	if (!st)
		st = tensor_map(&kmap, k, 2, dim, box, err);
	if (st)
		return st;
	a.unit = unit_keys(&a.b, per_unit);
	CU(cudaFuncSetAttribute(lastq_sums<D, PAD>, cudaFuncAttributeMaxDynamicSharedMemorySize,
				SMEM_BYTES<D>));
	lastq_sums<D, PAD><<<dim3((keys + a.unit - 1) / a.unit, per_unit, a.b.n_req), THREADS,
			     SMEM_BYTES<D>, stream>>>(qmap, kmap, a);
	CU_LAUNCHED();
out:
	return st;
}

template <int D>
enum ar_status launch_pad(const struct args &a, const bf16_t *q, const bf16_t *k,
			  cudaStream_t stream, struct ar_err *err)
{
	return a.n > 64 ? launch<D, 128>(a, q, k, stream, err) :
			  launch<D, 64>(a, q, k, stream, err);
}

size_t total_floats(const struct attn_shape *s, int n_req)
{
	return (size_t)n_req * s->q_heads * LASTQ_MAX;
}

size_t piece_floats(const struct attn_shape *s, int64_t n_page)
{
	return (size_t)n_page * s->q_heads * LASTQ_PIECES;
}

}

size_t lastq_sm90_work_bytes(const struct attn_shape *s, const struct attn_limits *l, bool blocks)
{
	return (total_floats(s, l->max_req) + (blocks ? piece_floats(s, l->max_page) : 0)) *
	       sizeof(float) + lastq_rows_work_bytes(s, l);
}

enum ar_status lastq_sm90_rows_enqueue(const struct attn_batch *b, int n, const bf16_t *q,
				       const bf16_t *k, const struct lastq *blocks, void *work,
				       void *stream, struct ar_err *err)
{
	const cudaStream_t on = (cudaStream_t)stream;
	const int heads = b->shape.q_heads, run = BLOCKS_THREADS / 32 * RUN_BLOCKS;
	float *total = (float *)work, *piece = total + total_floats(&b->shape, b->n_req);
	float *part = piece + (blocks ? piece_floats(&b->shape, b->n_page) : 0);
	struct args a = { .b = *b, .parts = { .part = (float2 *)part, .pad = n > 64 ? 128 : 64,
					      .piece = blocks ? piece : NULL },
			  .total = total, .n = n };
	CUtensorMap qmap;
	enum ar_status st = query_map(&qmap, b, q, err);

	if (!st)
		st = lastq_rows_enqueue(b, n, qmap, k, &a.parts, on, err);
	if (st)
		return st;
	lastq_totals<<<dim3(heads, b->n_req), a.parts.pad, 0, on>>>(a);
	CU_LAUNCHED();
	if (blocks) {
		a.blocks = *blocks;
		lastq_blocks<<<dim3((b->max_kv_blk + run - 1) / run, heads, b->n_req),
			       BLOCKS_THREADS, 0, on>>>(a);
		CU_LAUNCHED();
	}
out:
	return st;
}

enum ar_status lastq_sm90_sums_enqueue(const struct attn_batch *b, int n, const bf16_t *q,
				       const bf16_t *k, const int *want, const struct lastq *out,
				       void *work, void *stream, struct ar_err *err)
{
	const struct args a = { .b = *b, .out = *out, .want = want, .total = (float *)work,
				.n = n };

	switch (b->shape.head_dim) {
	case 64: return launch_pad<64>(a, q, k, (cudaStream_t)stream, err);
	case 128: return launch_pad<128>(a, q, k, (cudaStream_t)stream, err);
	default: return launch_pad<256>(a, q, k, (cudaStream_t)stream, err);
	}
}
