/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ProxyAttn's scores on Hopper; proxyattn.cuh defines them.
 *
 * A thread block keeps 256 rows of a strip in shared memory and walks a segment of keys, 128 a
 * step.  TMA copies these straight from the paged cache.  The last warp issues the copies; four
 * warp groups have 64 rows each.  Per step and group:
 *
 *   S = Q K^T           wgmma m64n128k16, both operands in shared memory
 *   exp2, sum, max      64 values a thread, in registers; a row lies in four lanes
 *   one number a row and block, a quarter of a sector in four
 *
 * Budget of a step at D = 128: 2 * 256 * 128 * 128 multiply-adds, 2048 cycles of the tensor cores;
 * 256 * 128 exponentials, 2048 cycles of the special function units; 2.5 other instructions for
 * each exponential, 640 cycles of issue; 32 KiB of K, 16 bytes a cycle.  Beside busy tensor cores,
 * the special function units and all others give less of their rate, see below.
 *
 * Exponentials are relative to a base of the row.  It has room above the largest logit so far, and
 * moves when a logit exceeds it.  So exponentials need no maximum first.  Distances to the base are
 * not negative, so the least is found among integers, two in a VIMNMX3.
 *
 * A group's products wait for the products of the groups before it, 512 cycles each.  It has one
 * accumulator, so it computes no exponentials meanwhile.  Groups therefore take turns at issuing
 * (named barriers): in step they would all want the same units at the same time.  A warp has four
 * exponentials under way: one after the other, it took 2096 cycles for its 64.
 *
 * The start of a thread block takes as long as three steps, and the last wave of thread blocks may
 * not be full.  Segments are as long as makes least of both: 256 blocks in the example below,
 * where 64 took 2.75 ms instead of 2.69.
 *
 * A thread block has three groups, 192 rows, if strips then leave fewer rows unused than at 256.
 * Example: 4 heads a group and a KV head, blocks of 128 and chunks of 1024 make strips of 384 rows
 * at q-stride=4, 192 at 8.  It also has three at D = 256, where the products take longer than all
 * else.
 *
 *   registers   accumulators 64 of 112: a quarter of the SM has four of the 16 warps that compute,
 *               and one that copies
 *   shared      Q 64 KiB, four stages of K 128 KiB; at D = 256 96 KiB and two stages
 *
 * Measured on an H200, for the example in proxyattn_device.cu on normal values: 2890 cycles of a
 * step.  Products alone take 2080, and as many with ffma and VIMNMX3; with fadd, too, they take
 * 2260.  All of it with an eighth of the products takes 2480.  Power sets the clock.  After a rest
 * products alone run at 1.64 GHz and take 2.0 ms, 810 TFLOP/s.  When the GPU has worked for long,
 * they run at 1.4 GHz and take 2.4 ms, and all of this at 1.53 to 1.6 GHz.
 *
 * What bounds it, in a loop of three other warps beside products that take 64.0 cycles each, cycles
 * of a scheduler for one warp's instruction or key, alone and beside them:
 *
 *   ex2                                                     7.8  10.7
 *   ffma or fadd of two registers                           1.3   1.7, and a product takes 124
 *   ffma, ex2, fadd and half a VIMNMX3                      8.3  11.9
 *   the same, every eighth ex2 a polynomial of degree 5     7.5  14.4
 *   every fourth ex2 a polynomial of degree 3               7.8  13.8, and a product takes 73
 *
 * A scheduler has 256 keys of a step.  It weighs 172 in the 2048 cycles of the products, and the
 * others in 697 more: 2745 cycles.  Each ffma of a polynomial delays the tensor cores by .8 cycles.
 *
 * Tried, cycles of a step:
 *
 *   one exponential after the other, 96 registers                      3190
 *   the same, every descriptor made anew                               3290
 *   112 registers, in the compiler's order                             2910
 *   four exponentials under way, 96 registers                          3000
 *   eight under way                                                    2910
 *   every eighth by a polynomial of degree 3, 4                        2920, 3000
 *   every fourth, of degree 4                                          3130
 *   powers of the logits, their largest, no base                       2850
 *   no turns                                                           2930
 *   the turn given away before the last two products                   2890
 *   copies by a warp that computes, 128 registers                      3250
 *   two groups of 128 rows, two accumulators, 240 registers            3310
 *   the same, every fourth by a polynomial of degree 5                 3660
 *   32 registers for the copying warp instead of 24                    6 % more time
 */
#include "config.h"

#include <climits>
#include <cmath>

#include "kernels/prim/cuda.h"
#include "kernels/prim/group_registers.cuh"
#include "kernels/prim/ring.cuh"
#include "kernels/prim/softmax.cuh"
#include "kernels/prim/tensor_map.h"
#include "kernels/select/proxyattn/proxyattn.cuh"

/* In code for other architectures the kernel is a trap, and its parts are unused. */
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#pragma nv_diag_suppress 177
#endif

namespace {

constexpr int KEYS = 128;		// of a step
constexpr int COLS = 64;		// of a swizzled slab: 128 bytes
constexpr int WAVES = 4;		// of thread blocks, where there is enough to do
constexpr int LEAST = 64;		// blocks of a segment, where waves allow as many
constexpr int START = 3;		// blocks that take as long as the start of a thread block
constexpr float ROOM = 16;		// of a base above the logits that it is made of
constexpr int UNDER_WAY = 4;		// exponentials of a thread

// GROUPS, of the templates below: warp groups of a thread block, each of 64 rows.
template <int GROUPS> constexpr int ROWS = GROUPS * 64;
template <int GROUPS> using registers = group_registers<GROUPS>;
template <int GROUPS> constexpr int THREADS = registers<GROUPS>::THREADS;
template <int D> constexpr int STAGES = D == 256 ? 2 : 4;

/* A slab is 64 columns of all rows, as TMA swizzles it. */
template <int D, int GROUPS> struct alignas(1024) score_smem {
	bf16_t q[D / COLS][ROWS<GROUPS>][COLS];
	bf16_t k[STAGES<D>][D / COLS][KEYS][COLS];
	uint64_t q_full;
	struct ring<STAGES<D>> ring;
};
template <int D, int GROUPS>
constexpr int SMEM_BYTES = sizeof(struct score_smem<D, GROUPS>) + 1024;
static_assert(SMEM_BYTES<128, 4> <= 227 * 1024 && SMEM_BYTES<256, 3> <= 227 * 1024,
	      "shared memory");

struct maps {
	CUtensorMap row, key, mean;
};

/* Where a thread block works: keys [begin, end), begin a step's first. */
struct spot {
	struct proxy_strip s;
	int first;		// row
	int begin, end;
};

template <int D, int PAGE, int GROUPS>
__device__ __forceinline__ void produce(struct score_smem<D, GROUPS> &sm, const struct proxy_job &j,
					const struct maps &maps, const struct spot &w)
{
	constexpr int BLOCKS = KEYS / PAGE;
	const int kv_heads = j.b.shape.kv_heads, source = blockIdx.z;
	const int page0 = j.b.keys.page0[w.s.req];
	const bool own = source < kv_heads;
	const CUtensorMap *map = own ? &maps.key : &maps.mean;
	int at = 0;

	mbarrier_expect_tx(&sm.q_full, sizeof sm.q);
	for (int c = 0; c < D / COLS; c++)
		tma_load_2d(sm.q[c], &maps.row, &sm.q_full, c * COLS, (int)(w.s.row + w.first));
	for (int key = w.begin; key < w.end; key += KEYS, at++) {
		const int stage = sm.ring.stage(at);
		uint64_t *full;
		int y[BLOCKS];

#pragma unroll
		for (int b = 0; b < BLOCKS; b++) {
			/* past the last block, that block is copied again and masked */
			const int i = page0 + min(key / PAGE + b, (w.end - 1) / PAGE);

			y[b] = (own ? j.b.keys.page[i] * kv_heads + source :
				      (source - kv_heads) * j.b.keys.n_page + i) * PAGE;
		}
		full = sm.ring.producer_acquire(at);
		mbarrier_expect_tx(full, sizeof sm.k[0]);
#pragma unroll
		for (int b = 0; b < BLOCKS; b++)
			for (int c = 0; c < D / COLS; c++)
				tma_load_2d(sm.k[stage][c][b * PAGE], map, full, c * COLS, y[b]);
	}
}

/* Two rows of a thread, the accumulator's rows g and g + 8 of a warp. */
struct rows {
	int pos[2];
	bool probe[2], probes;	// probes: any of the warp's
	float *out;		// of the first one's number for the next block; 8 on, the other's
	float base[2];		// above all logits of the segment so far, in units of log2
	float sum[2];		// of their powers relative to it, a lane's part
};

/* Element 4 i + 2 r + c belongs to row r, key 8 i + 2 (lane % 4) + c. */
template <int N>
__device__ __forceinline__ void mask(float *acc, const struct rows &t, int key)
{
#pragma unroll
	for (int i = 0; i < N / 8; i++)
#pragma unroll
		for (int e = 0; e < 4; e++)
			if (key + 8 * i + (int)(threadIdx.x % 4 * 2) + e % 2 > t.pos[e / 2])
				acc[4 * i + e] = -INFINITY;
}

/* PTX ISA, "fma", "add", "ex2.approx.ftz", not moved past each other. */
__device__ __forceinline__ float ordered_fma(float a, float b, float c)
{
	float r;

	asm volatile("fma.rn.f32 %0, %1, %2, %3;" : "=f"(r) : "f"(a), "f"(b), "f"(c));
	return r;
}

__device__ __forceinline__ void ordered_add(float &to, float x)
{
	asm volatile("add.rn.f32 %0, %0, %1;" : "+f"(to) : "f"(x));
}

__device__ __forceinline__ float ordered_ex2(float x)
{
	float r;

	asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
	return r;
}

/* For each i < N, from 0 on: use(i, 2 to the begin(i)).  UNDER_WAY values are at each of three
 * stages.  Otherwise the compiler ends one value before the next, to save registers.  That takes 33
 * cycles a value, and the special function units take one every 8.  The order of volatile
 * statements keeps it from that. */
template <int N, typename Begin, typename Use>
__device__ __forceinline__ void ex2_in_turn(const Begin &begin, const Use &use)
{
	constexpr int PLACES = 3 * UNDER_WAY;
	float x[PLACES];

#pragma unroll
	for (int i = -UNDER_WAY; i < N + UNDER_WAY; i++) {
		if (i >= 0 && i < N)
			x[i % PLACES] = ordered_ex2(x[i % PLACES]);
		if (i + UNDER_WAY < N)
			x[(i + UNDER_WAY) % PLACES] = begin(i + UNDER_WAY);
		if (i >= UNDER_WAY)
			use(i - UNDER_WAY, x[(i - UNDER_WAY) % PLACES]);
	}
}

/* Weigh N keys of a block, this lane's part.  sum: of their powers.  least: the bits of the least
 * distance to the base, negative if any distance is.  Bits of other distances are ordered like the
 * distances. */
template <int N>
__device__ __forceinline__ void weigh(const float *acc, const struct rows &t, float scale,
				      float (&sum)[2], int (&least)[2])
{
	float even = 0;

#pragma unroll
	for (int r = 0; r < 2; r++) {
		sum[r] = 0;
		least[r] = INT_MAX;
	}
	ex2_in_turn<N / 2>([&](int i) {
		const int r = i / 2 % 2;
		const float x = ordered_fma(acc[i], -scale, t.base[r]);

		if (i % 2)
			least[r] = __vimin3_s32(least[r], __float_as_int(even), __float_as_int(x));
		even = x;
		return -x;
	}, [&](int i, float power) { ordered_add(sum[i / 2 % 2], power); });
}

/* Raise bases until they have room above the N keys. */
template <int N>
__device__ __forceinline__ void rebase(const float *acc, struct rows &t, float scale)
{
#pragma unroll
	for (int r = 0; r < 2; r++) {
		float top = acc[2 * r];

#pragma unroll
		for (int i = 0; i < N / 8; i++)
			top = fmaxf(top, fmaxf(acc[4 * i + 2 * r], acc[4 * i + 2 * r + 1]));
		top = fmaxf(t.base[r], quad_max(top) * scale + ROOM);
		t.sum[r] *= ex2(t.base[r] - top);
		t.base[r] = top;
	}
}

/* Take the N keys of the block that begins at key. */
template <int N>
__device__ __forceinline__ void take(const float *acc, struct rows &t, const struct proxy_job &j,
				     int key, float scale)
{
	float top[2], sum[2];
	int least[2];

	weigh<N>(acc, t, scale, sum, least);
	if (__any_sync(~0u, least[0] < 0 || least[1] < 0)) {
		rebase<N>(acc, t, scale);
		weigh<N>(acc, t, scale, sum, least);
	}
#pragma unroll
	for (int r = 0; r < 2; r++) {
		top[r] = quad_max(t.base[r] - __int_as_float(least[r]));
		t.sum[r] += sum[r];
	}
	if (t.probes) {
#pragma unroll
		for (int r = 0; r < 2; r++) {
			sum[r] = t.base[r] + __log2f(quad_sum(sum[r]));
			top[r] = t.probe[r] ? sum[r] : top[r];
		}
	}
#pragma unroll
	for (int r = 0; r < 2; r++)
		if (threadIdx.x % 4 == 0 && t.pos[r] >= key)
			t.out[8 * r] = top[r];
	t.out += j.n_row;
}

/* All groups take all steps.  Named barrier 1 + g: the turn of group g to issue. */
template <int D, int PAGE, int GROUPS>
__device__ __forceinline__ void consume(struct score_smem<D, GROUPS> &sm, const struct proxy_job &j,
					const struct spot &w)
{
	constexpr float scale = softmax_scale_log2<D>;
	const int group = warp_group(), lane = threadIdx.x % 32;
	const int row = w.first + threadIdx.x / 32 * 16 + lane / 4, ctx = j.b.rows.pos0[w.s.req];
	const uint64_t q = wgmma_desc(sm.q[0][group * 64], 16, 1024);
	float acc[KEYS / 2];
	struct rows t;
	int at = 0;

#pragma unroll
	for (int r = 0; r < 2; r++) {
		t.pos[r] = proxy_pos(j, w.s, row + 8 * r);
		t.probe[r] = row + 8 * r >= w.s.probe;
		t.base[r] = -FLT_MAX;
		t.sum[r] = 0;
	}
	t.probes = __any_sync(~0u, t.probe[1]);
	t.out = j.top + w.begin / PAGE * j.n_row + w.s.row + row;
	if (group == GROUPS - 1)
		bar_arrive(1, 256);
	mbarrier_wait(&sm.q_full, 0);
	for (int key = w.begin; key < w.end; key += KEYS, at++) {
		const uint64_t keys = wgmma_desc(sm.k[sm.ring.stage(at)], 16, 1024);

		sm.ring.consumer_wait(at);
		bar_sync(1 + group, 256);
		wgmma_fence();
#pragma unroll
		for (int k = 0; k < D / 16; k++)	/* 64 columns a slab, 32 bytes of each */
			wgmma_ss<KEYS>(acc, wgmma_at(q, k / 4 * sizeof sm.q[0] + k % 4 * 32),
				       wgmma_at(keys, k / 4 * sizeof sm.k[0][0] + k % 4 * 32),
				       k != 0);
		wgmma_commit();
		bar_arrive(1 + (group + 1) % GROUPS, 256);
		wgmma_wait<0>();
		hold<KEYS / 2>(acc);
		sm.ring.consumer_release(at);
		if (key + KEYS > ctx)	/* may hold keys past a row */
			mask<KEYS>(acc, t, key);
#pragma unroll
		for (int b = 0; b < KEYS / PAGE; b++)
			take<PAGE>(acc + b * PAGE / 2, t, j, key + b * PAGE, scale);
	}
#pragma unroll
	for (int r = 0; r < 2; r++) {
		const float sum = t.base[r] + __log2f(quad_sum(t.sum[r]));

		if (lane % 4 == 0 && t.pos[r] >= w.begin)
			j.sum[blockIdx.y * j.n_row + w.s.row + row + 8 * r] = sum;
	}
}

/* Grid (ROWS rows of a source, segment, source). */
template <int D, int PAGE, int GROUPS>
__global__ void __launch_bounds__(THREADS<GROUPS>, 1)
score_wgmma(const __grid_constant__ struct maps maps, const __grid_constant__ struct proxy_job j)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
	extern __shared__ char raw[];
	struct score_smem<D, GROUPS> &sm =
		*(struct score_smem<D, GROUPS> *)(((uintptr_t)raw + 1023) & ~(uintptr_t)1023);
	const int keys = j.segment * PAGE, rows = ROWS<GROUPS>;
	struct spot w;

	if (threadIdx.x == GROUPS * 128) {
		tma_prefetch_map(&maps.row);
		/* ptxas of CUDA 12.4 loses the base of a parameter's address that it selects */
		if (blockIdx.z < j.b.shape.kv_heads)
			tma_prefetch_map(&maps.key);
		else
			tma_prefetch_map(&maps.mean);
	}
	if (!proxy_find(j, rows, blockIdx.z, blockIdx.x, w.s, w.first))
		return;
	w.begin = blockIdx.y * keys;
	w.end = min(w.begin + keys, proxy_last(j, w.s, w.first, w.first + rows) + 1);
	if (w.begin >= w.end)
		return;
	if (threadIdx.x == 0) {
		mbarrier_init(&sm.q_full, 1);
		sm.ring.init(1, GROUPS);
		fence_barrier_init();
	}
	__syncthreads();
	if (threadIdx.x < GROUPS * 128) {
		setmaxnreg_inc<registers<GROUPS>::COMPUTE>();
		consume<D, PAGE, GROUPS>(sm, j, w);
	} else {
		setmaxnreg_dec<registers<GROUPS>::COPY>();
		if (threadIdx.x == GROUPS * 128)
			produce<D, PAGE, GROUPS>(sm, j, maps, w);
	}
#else
	__trap();
#endif
}

/* Choose blocks of a segment, at most `most`, so that even thread blocks fill their last wave. */
int fill_waves(int64_t tiles, int kv_blk, int64_t most, int n_sm)
{
	int64_t best = most, least = INT64_MAX;

	for (int64_t n = (kv_blk - 1) / most + 1;; n++) {
		const int64_t even = (kv_blk - 1) / n + 1;
		const int64_t len = ((even - 1) / PROXY_SEGMENT + 1) * PROXY_SEGMENT;
		const int64_t blocks = tiles * ((kv_blk - 1) / len + 1);
		const int64_t cost = ((blocks - 1) / n_sm + 1) * (len + START);

		if (len < min(most, (int64_t)LEAST))
			break;
		best = cost < least ? len : best;
		least = min(least, cost);
		if (len == PROXY_SEGMENT)
			break;
	}
	return (int)best;
}

/* Choose the length of segments, and so the grid.  Long segments fill the pipeline less often, but
 * even work needs several waves.  Where waves would make segments short, there is one wave. */
dim3 split(struct proxy_job *j, int rows, int n_sm)
{
	const int64_t strip = (proxy_strip_rows(j) / j->b.rows.n_req + rows - 1) / rows;
	const int64_t tiles = (int64_t)proxy_tiles(j, rows) * j->n_source;
	const int64_t blocks = tiles * j->b.keys.max_kv_blk, step = KEYS / j->b.shape.page_tok;
	const int64_t room = (j->b.keys.max_kv_blk - 1) / PROXY_SHORT + 1;
	const int64_t one = max((blocks - 1) / n_sm + 1, room);
	const int64_t even = blocks / (WAVES * n_sm) / PROXY_SEGMENT * PROXY_SEGMENT;

	if (one < PROXY_SEGMENT)
		j->segment = (int)((one + step - 1) / step * step);
	else
		j->segment = fill_waves(strip * j->b.rows.n_req * j->n_source,
					j->b.keys.max_kv_blk, max(even, (int64_t)PROXY_SEGMENT),
					n_sm);
	return dim3((unsigned)proxy_tiles(j, rows),
		    (unsigned)((j->b.keys.max_kv_blk - 1) / j->segment + 1), (unsigned)j->n_source);
}

template <int D, int PAGE, int GROUPS>
enum ar_status launch(struct proxy_job *job, int n_sm, cudaStream_t stream, struct ar_err *err)
{
	constexpr int BYTES = SMEM_BYTES<D, GROUPS>;
	const struct proxy_job &j = *job;
	const dim3 grid = split(job, ROWS<GROUPS>, n_sm);
	const uint64_t rows[2] = { D, (uint64_t)j.n_row };
	/* the sizes of the cache and the means are unknown here; page numbers bound the accesses */
	const uint64_t keys[2] = { D, INT32_MAX };
	const uint32_t row_box[2] = { COLS, ROWS<GROUPS> }, key_box[2] = { COLS, PAGE };
	struct maps maps;
	enum ar_status st = tensor_map(&maps.row, j.row, 2, rows, row_box, err);

	if (!st)
		st = tensor_map(&maps.key, j.k, 2, keys, key_box, err);
	if (!st)
		st = tensor_map(&maps.mean, j.mean, 2, keys, key_box, err);
	if (st)
		return st;
	CU(cudaFuncSetAttribute(score_wgmma<D, PAGE, GROUPS>,
				cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
	score_wgmma<D, PAGE, GROUPS><<<grid, THREADS<GROUPS>, BYTES, stream>>>(maps, j);
	CU_LAUNCHED();
out:
	return st;
}

template <int D, int GROUPS>
enum ar_status launch_page(struct proxy_job *j, int n_sm, cudaStream_t stream, struct ar_err *err)
{
	if (j->b.shape.page_tok == 128)
		return launch<D, 128, GROUPS>(j, n_sm, stream, err);
	return launch<D, 64, GROUPS>(j, n_sm, stream, err);
}

template <int D>
enum ar_status launch_size(struct proxy_job *j, int n_sm, cudaStream_t stream, struct ar_err *err)
{
	const int64_t strip = proxy_strip_rows(j) / j->b.rows.n_req;

	if constexpr (D < 256)
		if ((strip + 255) / 256 * 256 <= (strip + 191) / 192 * 192)
			return launch_page<D, 4>(j, n_sm, stream, err);
	return launch_page<D, 3>(j, n_sm, stream, err);
}

} /* namespace */

enum ar_status proxy_score_sm90(struct proxy_job *j, int n_sm, cudaStream_t stream,
				struct ar_err *err)
{
	switch (j->b.shape.head_dim) {
	case 64:
		return launch_size<64>(j, n_sm, stream, err);
	case 128:
		return launch_size<128>(j, n_sm, stream, err);
	default:
		return launch_size<256>(j, n_sm, stream, err);
	}
}
