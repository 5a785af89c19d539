/*
 * Attention over block lists on Hopper.
 *
 * One thread block runs one tile (struct attn_tile): 128 packed rows, that is n_row query
 * rows times n_head heads of one KV head, so that a K and V block is read once for the whole
 * group.  It walks the tile's block list in ascending order, 128 keys a step, brought by the copy
 * engine (TMA) straight from the paged cache into 128-byte swizzled shared memory.  A block is one
 * page: of 128 keys it is a step; of 64 keys, two that follow each other in the list are.
 *
 * Warp group 0 is the producer: one thread issues copies, two stages of K and of V ahead.
 * Warp groups 1 and 2 are consumers with 64 rows each.  Per step and consumer:
 *
 *   S = Q K^T          wgmma m64n128k16, both operands in shared memory
 *   P = exp2(S - max)  64 values a thread, in registers
 *   O += P V           wgmma m64nDk16, P from registers
 *
 * Budget of a step at D = 128, 128 rows: 2 * 128 * 128 * 128 multiply-adds for each product,
 * 2048 cycles of the tensor cores in all; 128 * 128 exponentials, 1024 cycles of the special
 * function units.  The second must hide behind the first: S of the next step and O of this
 * one are in flight together while the softmax of the next runs, and the two consumers take
 * turns at issuing (named barriers), so that one computes its softmax while the other owns the
 * tensor cores.
 *
 * At D = 256 a step has 64 keys: Q takes 64 KiB, and two stages of K and V of 64 keys
 * 128 KiB more; O takes 128 registers a thread and S 32.
 *
 * Where a list belongs to a query block of 64 rows, a tile has no more rows: one consumer, steps of
 * 64 keys, and (to D = 128) two thread blocks a multiprocessor, each busy while the other is at its
 * softmax.  Such a step needs the tensor cores for 512 cycles, but 32 KiB of K and V, and the L2
 * cache gives a multiprocessor some 39 bytes a cycle: 840 cycles.  Half the rows make half the use
 * of a key, so about 60 % of the tensor cores is the most there.
 *
 * Tiles come sorted, the longest first; the hardware hands them to multiprocessors as those
 * become free.  A tile may be a part of one: it then leaves O in fp32, divided by its sum, and
 * the logarithm of the sum, and a second kernel, attend_join, adds up the parts of a row.
 * Where every query block and head has a list of its own and tiles are few, the longest list bounds
 * the time: at a density of 0.1, 64K keys and 128 tiles, 68 blocks where the mean is 51, and lists
 * of real selections differ more.  There a kernel before this one, attend_cut, cuts long tiles and
 * sorts what results, which then takes about an even share and the cost of a part.
 *
 * One tile fills a multiprocessor, so what comes before its first product is hidden by nothing:
 * a chain of loads (tile, request and list, page, K).  Therefore the end of a list is looked for
 * by 32 lanes at once, and descriptors are fetched and barriers made while the tile is loaded.
 *
 * Tried and left out (H200, D 128, 16 heads over 4, 32K keys, batch 8, chunk 1024; this
 * version 648 TFLOP/s, in the same runs): rescaling O only when a warp's maximum moved, 582;
 * persistent blocks that fetch the next tile's Q during the last products of this one, 559;
 * conditional rescaling and clusters of two tiles that share K and V by multicast, 462.
 */
#include "config.h"

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <limits.h>

#include "kernels/attend.h"
#include "kernels/cuda.h"
#include "kernels/sm90.cuh"

/* In code for other architectures the kernel is a trap, and its parts are unused. */
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#pragma nv_diag_suppress 177
#endif

namespace {

constexpr int STAGES = 2;
constexpr int COLS = 64;		/* columns of a swizzled slab: 128 bytes */
constexpr int WG_ROWS = 64;
constexpr float LN2 = 0.6931471805599453f;

/* Head size, keys of a block, consumers; and what follows from them. */
template <int head_dim, int page, int consumers> struct config {
	static constexpr int D = head_dim, PAGE = page, WGS = consumers;
	static constexpr int M = WGS * WG_ROWS;			/* packed rows of a tile */
	static constexpr int N = D == 256 || WGS == 1 ? 64 : 128;	/* keys of a step */
	static constexpr int STEPS = PAGE > N ? PAGE / N : 1;	/* of a block */
	static constexpr int BLOCKS = N > PAGE ? N / PAGE : 1;	/* of a step */
	static constexpr int RUN = N / BLOCKS;			/* keys of a step that adjoin */
	static constexpr int THREADS = (1 + WGS) * 128;
	static constexpr int PER_SM = 3 - WGS;			/* thread blocks, by registers */
	static constexpr int REGISTERS = WGS == 1 ? 232 : 240;	/* of a consumer's thread */
};

/* A slab is 64 columns of all rows; the copy engine writes it swizzled. */
template <class C> struct alignas(1024) smem {
	__nv_bfloat16 q[C::D / COLS][C::M][COLS];
	__nv_bfloat16 k[STAGES][C::D / COLS][C::N][COLS];
	__nv_bfloat16 v[STAGES][C::D / COLS][C::N][COLS];
	uint64_t q_full, k_full[STAGES], k_empty[STAGES], v_full[STAGES], v_empty[STAGES];
};
template <class C> constexpr int SMEM_BYTES = sizeof(struct smem<C>) + 1024;
static_assert(SMEM_BYTES<config<128, 128, 2>> <= 227 * 1024, "shared memory");
static_assert(SMEM_BYTES<config<256, 128, 2>> <= 227 * 1024, "shared memory");
static_assert(SMEM_BYTES<config<128, 64, 1>> <= 113 * 1024, "shared memory of two");
static_assert(SMEM_BYTES<config<256, 64, 1>> <= 227 * 1024, "shared memory");

/* The blocks of a part as the device cut its tile, and the parts that it made. */
struct alignas(16) piece {
	int tile, first, n, n_part;
};

struct params {
	const attn_tile *tile;
	const struct piece *piece;	/* [n_tile], the longest first; NULL: in the plan's order */
	const int32_t *n_piece;		/* [n_tile] parts that were made; NULL: as planned */
	const int32_t *row0, *ctx, *page0, *page;
	const uint16_t *block;		/* NULL: all blocks */
	const int32_t *n_block;
	int stride;
	int q_heads, group, kv_heads;
	int heads;			/* heads packed in a tile; a tile may use fewer */
	uint32_t q_bytes;		/* what the copy engine brings of Q */
	float scale;			/* log2(e) / sqrt(D) */
	__nv_bfloat16 *out;
	float *lse;
	float *part_o, *part_lse;	/* [n_tile][M][D] and [n_tile][M] of tiles in parts */
};

/* What all threads know of their tile, or part of one. */
struct work {
	int row, n_row, head, n_head, kv_head;	/* row: in q */
	int pos;				/* position of the first row */
	int tile, part, n_part;			/* tile: in the plan */
	int first, n;				/* blocks to visit, of all or of the list */
	const uint16_t *block;			/* NULL: all; else from the first on */
	const int32_t *page;
};

__device__ __forceinline__ int block_at(const struct work *w, int i)
{
	return w->block ? w->block[i] : w->first + i;
}

template <class C> __device__ __forceinline__ int n_steps(const struct work *w)
{
	return (w->n * C::STEPS + C::BLOCKS - 1) / C::BLOCKS;
}

/* The first key of each of a step's blocks; past all rows where the list ends within the step. */
template <class C> struct keys {
	int at[C::BLOCKS];
};

template <class C> __device__ __forceinline__ struct keys<C> keys_of(const struct work *w, int step)
{
	struct keys<C> k;

#pragma unroll
	for (int b = 0; b < C::BLOCKS; b++) {
		const int i = step / C::STEPS * C::BLOCKS + b;

		k.at[b] = b && i >= w->n ? INT_MAX / 2 :
			  block_at(w, i) * C::PAGE + step % C::STEPS * C::N;
	}
	return k;
}

/* The pages of a step's blocks.  Where the list ends within the step its last one comes once more,
 * so that what is multiplied by zeros is finite; the same past the last step. */
template <class C>
__device__ __forceinline__ void pages_of(int *page, const struct work *w, int step)
{
#pragma unroll
	for (int b = 0; b < C::BLOCKS; b++)
		page[b] = w->page[block_at(w, min(step / C::STEPS * C::BLOCKS + b, w->n - 1))];
}

/* How many of n ascending blocks are not past the last one.  The lanes of a warp look at 32 from
 * the end at once. */
__device__ __forceinline__ int trim(const uint16_t *block, int n, int last)
{
	int past;

	do {
		const int i = n - 1 - (int)(threadIdx.x % 32);

		past = __popc(__ballot_sync(0xffffffff, i >= 0 && block[i] > last));
		n -= past;
	} while (past == 32);
	return n;
}

/* Blocks that a tile sees, in parts as planned. */
__device__ __forceinline__ void cut_evenly(struct work *w, const struct params *p,
					   const attn_tile &t, int last)
{
	const int n = w->block ? trim(w->block, p->n_block[t.list], last) : last + 1;

	w->first = n * t.part / t.n_part;
	w->n = n * (t.part + 1) / t.n_part - w->first;
	w->n_part = t.n_part;
}

template <int PAGE>
__device__ __forceinline__ struct work work_of(const struct params *p)
{
	struct piece cut = { (int)blockIdx.x };
	struct work w;
	attn_tile t;

	if (p->piece)
		cut = p->piece[blockIdx.x];
	t = p->tile[cut.tile];
	w.tile = cut.tile;
	w.part = t.part;
	w.row = p->row0[t.req] + t.row;
	w.n_row = t.n_row;
	w.head = t.head;
	w.n_head = t.n_head;
	w.kv_head = t.head / p->group;
	w.pos = p->ctx[t.req] + t.row;
	w.page = p->page + p->page0[t.req];
	w.block = p->block ? p->block + (size_t)t.list * p->stride : NULL;
	if (p->piece) {
		w.first = cut.first;
		w.n = cut.n;
		w.n_part = cut.n_part;
	} else {
		cut_evenly(&w, p, t, (w.pos + t.n_row - 1) / PAGE);
	}
	if (w.block)
		w.block += w.first;
	return w;
}

/* A step's keys or values; y: rows of the cache, as many as it has blocks. */
template <class C>
__device__ __forceinline__ void load_step(__nv_bfloat16 (*to)[C::N][COLS], const CUtensorMap *map,
					  uint64_t *full, const int *y)
{
	mbarrier_expect_tx(full, C::N * C::D * 2);
#pragma unroll
	for (int b = 0; b < C::BLOCKS; b++)
		for (int c = 0; c < C::D / COLS; c++)
			tma_load_2d(to[c][b * C::RUN], map, full, c * COLS, y[b]);
}

template <class C>
__device__ __forceinline__ void produce(struct smem<C> *s, const struct params *p,
					const struct work *w, const CUtensorMap *qmap,
					const CUtensorMap *kmap, const CUtensorMap *vmap)
{
	int next[C::BLOCKS], y[C::BLOCKS];

	pages_of<C>(next, w, 0);
	mbarrier_expect_tx(&s->q_full, p->q_bytes);
	for (int c = 0; c < C::D / COLS; c++)
		tma_load_3d(s->q[c], qmap, &s->q_full, c * COLS, w->head, w->row);
	for (int i = 0; i < n_steps<C>(w); i++) {
		const int st = i % STAGES;
		const uint32_t parity = (i / STAGES & 1) ^ 1;

#pragma unroll
		for (int b = 0; b < C::BLOCKS; b++)
			y[b] = (next[b] * p->kv_heads + w->kv_head) * C::PAGE + i % C::STEPS * C::N;
		pages_of<C>(next, w, i + 1);
		mbarrier_wait(&s->k_empty[st], parity);
		load_step<C>(s->k[st], kmap, &s->k_full[st], y);
		mbarrier_wait(&s->v_empty[st], parity);
		load_step<C>(s->v[st], vmap, &s->v_full[st], y);
	}
}

/* acc = Q K^T of this warp group's rows.  Enqueued, not finished. */
template <class C>
__device__ __forceinline__ void issue_qk(float *acc, struct smem<C> *s, int st, int wg)
{
	wgmma_fence();
#pragma unroll
	for (int k = 0; k < C::D / 16; k++)
		wgmma_ss<C::N>(acc, wgmma_desc(&s->q[k / 4][wg * WG_ROWS][k % 4 * 16], 16, 1024),
			       wgmma_desc(&s->k[st][k / 4][0][k % 4 * 16], 16, 1024), k != 0);
	wgmma_commit();
}

/* o += P V.  V lies as [key][column], so it is the transposed operand: 64-column slabs lead,
 * groups of eight keys stride. */
template <class C>
__device__ __forceinline__ void issue_pv(float *o, const uint32_t *pr, struct smem<C> *s, int st)
{
	constexpr int WIDTH = C::D < 128 ? C::D : 128;	/* columns of a product */

	wgmma_fence();
#pragma unroll
	for (int k = 0; k < C::N / 16; k++)
#pragma unroll
		for (int c = 0; c < C::D; c += WIDTH)
			wgmma_rs<WIDTH>(o + c / 2, pr + 4 * k,
					wgmma_desc(&s->v[st][c / COLS][k * 16][0],
						   C::N * COLS * 2, 1024));
	wgmma_commit();
}

/* Thread state of two rows (the accumulator's rows g and g + 8 of a warp). */
struct rows {
	int pos[2];			/* positions */
	float max[2], sum[2];		/* running maximum (raw logits), sum (this thread's part) */
};

/* Accumulator element 4 i + 2 r + c belongs to row r, key 8 i + 2 (lane % 4) + c of the step. */
template <class C>
__device__ __forceinline__ void mask_step(float *acc, const struct rows *w, const struct keys<C> *k)
{
#pragma unroll
	for (int i = 0; i < C::N / 8; i++)
#pragma unroll
		for (int r = 0; r < 2; r++)
#pragma unroll
			for (int c = 0; c < 2; c++)
				if (k->at[8 * i / C::RUN] + 8 * i % C::RUN +
				    (int)(threadIdx.x % 4 * 2) + c > w->pos[r])
					acc[4 * i + 2 * r + c] = -INFINITY;
}

/* acc becomes exp2 of the scaled logits less the new maximum; alpha rescales what came before. */
template <int N>
__device__ __forceinline__ void softmax_step(float *acc, struct rows *w, float scale, float *alpha)
{
#pragma unroll
	for (int r = 0; r < 2; r++) {
		float m = w->max[r], base, sum = 0;

#pragma unroll
		for (int i = 0; i < N / 8; i++)
			m = fmaxf(m, fmaxf(acc[4 * i + 2 * r], acc[4 * i + 2 * r + 1]));
		m = quad_max(m);
		/* nothing seen yet: any finite base keeps exp2 at 0 */
		base = m == -INFINITY ? 0 : m * scale;
		alpha[r] = ex2(w->max[r] * scale - base);
		w->max[r] = m;
#pragma unroll
		for (int i = 0; i < N / 8; i++)
#pragma unroll
			for (int c = 0; c < 2; c++) {
				float e = ex2(fmaf(acc[4 * i + 2 * r + c], scale, -base));

				acc[4 * i + 2 * r + c] = e;
				sum += e;
			}
		w->sum[r] = w->sum[r] * alpha[r] + sum;
	}
}

template <int N> __device__ __forceinline__ void pack_p(uint32_t *pr, const float *acc)
{
#pragma unroll
	for (int i = 0; i < N / 4; i++)
		pr[i] = pack_bf16(acc[2 * i], acc[2 * i + 1]);
}

template <int D> __device__ __forceinline__ void rescale(float *o, const float *alpha)
{
#pragma unroll
	for (int i = 0; i < D / 2; i++)
		o[i] *= alpha[i / 2 % 2];
}

/* Whether packed row m of the tile exists, and where it goes in q, out and lse. */
__device__ __forceinline__ bool row_exists(const struct params *p, const struct work *t, int m)
{
	return m / p->heads < t->n_row && m % p->heads < t->n_head;
}

__device__ __forceinline__ size_t row_index(const struct params *p, const struct work *t, int m)
{
	return (size_t)(t->row + m / p->heads) * p->q_heads + t->head + m % p->heads;
}

/* Final division, rounding, and coalesced stores by way of this warp group's rows of s->q. */
template <class C>
__device__ __forceinline__ void store_rows(float *o, struct rows *w, struct smem<C> *s,
					   const struct params *p, const struct work *t, int wg)
{
	const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
	const int first = wg * WG_ROWS + warp * 16;
	/* slab-wise rows of 128 bytes; 16-byte units are rotated against bank conflicts */
	uint4 (*stage)[C::M][COLS / 8] = (uint4 (*)[C::M][COLS / 8])s->q;

	bar_sync(3 + wg, 128);	/* the group's last product has read its rows of Q */
#pragma unroll
	for (int r = 0; r < 2; r++) {
		const float sum = quad_sum(w->sum[r]), inv = sum > 0 ? 1 / sum : 0;
		const int m = first + lane / 4 + 8 * r;

		if (p->lse && lane % 4 == 0 && row_exists(p, t, m))
			p->lse[row_index(p, t, m)] =
				sum > 0 ? (w->max[r] * p->scale + log2f(sum)) * LN2 : -INFINITY;
#pragma unroll
		for (int i = 0; i < C::D / 8; i++) {
			uint32_t *unit = (uint32_t *)&stage[i / 8][m][(i + m) % 8];

			unit[lane % 4] = pack_bf16(o[4 * i + 2 * r] * inv, o[4 * i + 2 * r + 1] * inv);
		}
	}
	__syncwarp();
#pragma unroll
	for (int k = lane; k < 16 * C::D / 8; k += 32) {
		const int m = first + k / (C::D / 8), i = k % (C::D / 8);

		if (row_exists(p, t, m))
			*(uint4 *)(p->out + row_index(p, t, m) * C::D + 8 * i) =
				stage[i / 8][m][(i + m) % 8];
	}
}

/* What a part of a tile leaves for attend_join: O, divided, and the sum's logarithm to base 2. */
template <class C>
__device__ __forceinline__ void store_part(const float *o, const struct rows *w,
					   const struct params *p, const struct work *t, int wg)
{
	const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;

#pragma unroll
	for (int r = 0; r < 2; r++) {
		const float sum = quad_sum(w->sum[r]), inv = sum > 0 ? 1 / sum : 0;
		const int m = wg * WG_ROWS + warp * 16 + lane / 4 + 8 * r;
		const size_t at = (size_t)t->tile * C::M + m;

		if (!row_exists(p, t, m))
			continue;
		if (lane % 4 == 0)
			p->part_lse[at] = sum > 0 ? w->max[r] * p->scale + log2f(sum) : -INFINITY;
#pragma unroll
		for (int i = 0; i < C::D / 8; i++)
			*(float2 *)(p->part_o + at * C::D + 8 * i + lane % 4 * 2) =
				make_float2(o[4 * i + 2 * r] * inv, o[4 * i + 2 * r + 1] * inv);
	}
}

/* The logits of the step with these keys are complete in acc: turn them into P, release K. */
template <class C>
__device__ __forceinline__ void finish_scores(float *acc, struct rows *t, struct smem<C> *s, int st,
					      const struct params *p, const struct work *w,
					      const struct keys<C> *k, float *alpha)
{
	hold<C::N / 2>(acc);
	if (threadIdx.x % 128 == 0)
		mbarrier_arrive(&s->k_empty[st]);
	if (k->at[C::BLOCKS - 1] + C::RUN > w->pos)	/* may hold keys past a row */
		mask_step<C>(acc, t, k);
	softmax_step<C::N>(acc, t, p->scale, alpha);
}

/* All blocks of the list.  Named barriers 1 and 2: the turn of consumer 0 and 1 to issue. */
template <class C>
__device__ __forceinline__ void consume_list(float *o, struct rows *t, struct smem<C> *s,
					     const struct params *p, const struct work *w, int wg)
{
	const int n = n_steps<C>(w);
	float acc[C::N / 2], alpha[2];
	uint32_t pr[C::N / 4];
	struct keys<C> k = keys_of<C>(w, 0);
	int last = 0;

	if (C::WGS == 2 && wg == 1)
		bar_arrive(1, 256);
	mbarrier_wait(&s->q_full, 0);
	mbarrier_wait(&s->k_full[0], 0);
	issue_qk<C>(acc, s, 0, wg);
	wgmma_wait<0>();
	finish_scores<C>(acc, t, s, 0, p, w, &k, alpha);
	pack_p<C::N>(pr, acc);
	for (int i = 1; i < n; i++) {
		const int st = i % STAGES;

		k = keys_of<C>(w, i);
		mbarrier_wait(&s->k_full[st], i / STAGES & 1);
		if (C::WGS == 2)
			bar_sync(1 + wg, 256);
		issue_qk<C>(acc, s, st, wg);
		mbarrier_wait(&s->v_full[last], (i - 1) / STAGES & 1);
		issue_pv<C>(o, pr, s, last);
		if (C::WGS == 2)
			bar_arrive(2 - wg, 256);
		wgmma_wait<1>();
		finish_scores<C>(acc, t, s, st, p, w, &k, alpha);
		wgmma_wait<0>();
		hold<C::D / 2>(o);
		if (threadIdx.x % 128 == 0)
			mbarrier_arrive(&s->v_empty[last]);
		rescale<C::D>(o, alpha);
		pack_p<C::N>(pr, acc);
		last = st;
	}
	mbarrier_wait(&s->v_full[last], (n - 1) / STAGES & 1);
	issue_pv<C>(o, pr, s, last);
	wgmma_wait<0>();
	hold<C::D / 2>(o);
}

template <class C>
__device__ __forceinline__ void consume(struct smem<C> *s, const struct params *p,
					const struct work *w, int wg)
{
	const int m = wg * WG_ROWS + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
	float o[C::D / 2];
	struct rows t;

#pragma unroll
	for (int i = 0; i < C::D / 2; i++)
		o[i] = 0;
#pragma unroll
	for (int r = 0; r < 2; r++) {
		t.pos[r] = w->pos + (m + 8 * r) / p->heads;
		t.max[r] = -INFINITY;
		t.sum[r] = 0;
	}
	if (w->n)
		consume_list<C>(o, &t, s, p, w, wg);
	if (w->n_part > 1)
		store_part<C>(o, &t, p, w, wg);
	else
		store_rows<C>(o, &t, s, p, w, wg);
}

template <class C>
__global__ void __launch_bounds__(C::THREADS, C::PER_SM)
attend_sm90(const __grid_constant__ CUtensorMap qmap, const __grid_constant__ CUtensorMap kmap,
	    const __grid_constant__ CUtensorMap vmap, const __grid_constant__ struct params p)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
	extern __shared__ char raw[];
	struct smem<C> *s = (struct smem<C> *)(((uintptr_t)raw + 1023) & ~(uintptr_t)1023);
	struct work w;

	if (threadIdx.x == 0) {
		tma_prefetch_map(&qmap);
		tma_prefetch_map(&kmap);
		tma_prefetch_map(&vmap);
		mbarrier_init(&s->q_full, 1);
		for (int i = 0; i < STAGES; i++) {
			mbarrier_init(&s->k_full[i], 1);
			mbarrier_init(&s->v_full[i], 1);
			mbarrier_init(&s->k_empty[i], C::WGS);
			mbarrier_init(&s->v_empty[i], C::WGS);
		}
		fence_barrier_init();
	}
	__syncwarp();
	w = work_of<C::PAGE>(&p);
	if (w.part >= w.n_part)		/* room that was not needed */
		return;
	__syncthreads();
	if (threadIdx.x < 128) {
		setmaxnreg_dec<24>();
		if (threadIdx.x == 0 && w.n)
			produce<C>(s, &p, &w, &qmap, &kmap, &vmap);
	} else {
		setmaxnreg_inc<C::REGISTERS>();
		consume<C>(s, &p, &w, C::WGS == 1 ? 0 : threadIdx.x / 128 - 1);
	}
#else
	__trap();
#endif
}

/* ---- parts ---- */

constexpr int CUT_TILES = 1024;	/* threads: one for each tile, parts counted */
constexpr int CUT_COST = 256;	/* keys, an estimate: half of what a part costs beside its own */

/* Blocks of a list up to last. */
__device__ __forceinline__ int length(const struct params *p, const attn_tile &t, int last)
{
	const uint16_t *block = p->block + (size_t)t.list * p->stride;
	int n = p->n_block[t.list];

	while (n && block[n - 1] > last)
		n--;
	return n;
}

/* count[i] becomes the sum of those before it; one per thread. */
__device__ __forceinline__ void sum_before(int *count, int *warps)
{
	const int i = threadIdx.x, lane = i % 32, own = count[i];
	int sum = own;

	for (int d = 1; d < 32; d *= 2) {
		const int x = __shfl_up_sync(0xffffffff, sum, d);

		sum += lane < d ? 0 : x;
	}
	if (lane == 31)
		warps[i / 32] = sum;
	__syncthreads();
	for (int w = 0; w < i / 32; w++)
		sum += warps[w];
	count[i] = sum - own;
	__syncthreads();
}

/*
 * Cut tiles by the lengths of their lists, which only the device knows, and sort the parts.
 *
 * As long as tiles fit the multiprocessors in `waves` rounds, an even share of all blocks is the
 * least time; tiles that are longer lose their ends, which go where tiles are shorter.  Longest
 * first, they pack well.  A part is a little longer than the share, since fewer of them cost less.
 */
template <int PAGE>
__global__ void __launch_bounds__(CUT_TILES)
attend_cut(const __grid_constant__ struct params p, int n_tile, int n_slot, struct piece *piece,
	   int32_t *n_piece)
{
	constexpr int LEAST = ATTEND_PART_KEYS / PAGE;
	__shared__ int count[CUT_TILES], warps[CUT_TILES / 32], all;
	const int i = threadIdx.x;
	attn_tile t = {};
	int n = 0, n_whole, waves, len, first, own, bin, place;

	count[i] = 0;
	if (i == 0)
		all = 0;
	__syncthreads();
	if (i < n_tile) {
		t = p.tile[i];
		n = length(&p, t, (p.ctx[t.req] + t.row + t.n_row - 1) / PAGE);
		if (!t.part)
			atomicAdd(&all, n);
	}
	n_whole = __syncthreads_count(i < n_tile && !t.part);
	if (i < n_tile) {
		waves = (n_whole - 1) / n_slot + 1;
		len = max(all / (waves * n_slot) + CUT_COST / PAGE, LEAST);
		len = max(len, (n - 1) / t.n_part + 1);
		n_piece[i] = max((n - 1) / len + 1, 1);
		first = min(t.part * len, n);
		own = min(len, n - first);
		bin = CUT_TILES - 1 - min(own, CUT_TILES - 1);
		place = atomicAdd(&count[bin], 1);
	}
	__syncthreads();
	sum_before(count, warps);
	if (i < n_tile)
		piece[count[bin] + place] = { i, first, own, n_piece[i] };
}

constexpr int JOIN_WARPS = 8;
constexpr int JOIN_ROWS = 32;	/* packed rows of a thread block, one a warp at a time */

/* The sum of a row's parts, weighted by their sums. */
template <class C>
__device__ __forceinline__ void join_row(const struct params &p, const attn_tile &t, int n_part, int m)
{
	const int lane = threadIdx.x % 32, row = m / p.heads, head = m % p.heads;
	const size_t at = (size_t)blockIdx.x * C::M + m;
	const float *o = p.part_o + at * C::D + 2 * lane, *lse = p.part_lse + at;
	float acc[C::D / 32] = {}, max = -INFINITY, sum = 0, inv;
	size_t to;

	if (row >= t.n_row || head >= t.n_head)
		return;
	for (int i = lane; i < n_part; i += 32)
		max = fmaxf(max, lse[i * C::M]);
	max = warp_max(max);
	if (max == -INFINITY)	/* any finite base keeps exp2 at 0 */
		max = 0;
	for (int first = 0; first < n_part; first += 32) {
		const int n = min(n_part - first, 32);
		const float own = lane < n ? ex2(lse[(first + lane) * C::M] - max) : 0;

		sum += own;
#pragma unroll 8
		for (int i = 0; i < n; i++) {
			const float weight = __shfl_sync(0xffffffff, own, i);
#pragma unroll
			for (int c = 0; c < C::D / 64; c++) {
				const float *from = o + (first + i) * C::M * C::D + 64 * c;
				const float2 x = *(const float2 *)from;

				acc[2 * c] += weight * x.x;
				acc[2 * c + 1] += weight * x.y;
			}
		}
	}
	sum = warp_sum(sum);
	inv = sum > 0 ? 1 / sum : 0;
	to = (size_t)(p.row0[t.req] + t.row + row) * p.q_heads + t.head + head;
#pragma unroll
	for (int c = 0; c < C::D / 64; c++)
		*(uint32_t *)(p.out + to * C::D + 2 * lane + 64 * c) =
			pack_bf16(acc[2 * c] * inv, acc[2 * c + 1] * inv);
	if (p.lse && lane == 0)
		p.lse[to] = sum > 0 ? (max + log2f(sum)) * LN2 : -INFINITY;
}

/* Thread blocks at tiles that are whole or not the first part have nothing to do; they are many, so
 * the others take several rows a warp. */
template <class C>
__global__ void __launch_bounds__(JOIN_WARPS * 32, 4)
attend_join(const __grid_constant__ struct params p)
{
	const attn_tile t = p.tile[blockIdx.x];
	const int n_part = p.n_piece ? p.n_piece[blockIdx.x] : t.n_part;
	const int first = blockIdx.y * JOIN_ROWS;

	if (t.part || n_part == 1)
		return;
#pragma unroll 1
	for (int m = first + threadIdx.x / 32; m < first + JOIN_ROWS; m += JOIN_WARPS)
		join_row<C>(p, t, n_part, m);
}

/* ---- launch ---- */

using encode_fn = decltype(&cuTensorMapEncodeTiled);

/* The driver's encoder, without linking the driver library. */
enum ar_status find_encoder(encode_fn *out, struct ar_err *err)
{
	static encode_fn found;
	cudaDriverEntryPointQueryResult how;
	enum ar_status st = AR_OK;

	if (!found)
		CU(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&found, 12000,
						    cudaEnableDefault, &how));
	*out = found;
	if (!found)
		st = ar_fail(err, AR_CUDA, "the driver lacks cuTensorMapEncodeTiled");
out:
	return st;
}

/* A bf16 tensor seen through boxes of 64 columns, swizzled by 128 bytes. */
enum ar_status encode(CUtensorMap *map, encode_fn fn, const void *base, int rank, const uint64_t *dim,
		      const uint32_t *box, struct ar_err *err)
{
	const uint32_t step[3] = { 1, 1, 1 };
	uint64_t stride[2];

	stride[0] = dim[0] * 2;
	stride[1] = stride[0] * dim[1];
	if (fn(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, (uint32_t)rank, (void *)base, dim, stride, box, step,
	       CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
	       CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE))
		return ar_fail(err, AR_CUDA, "cannot describe a tensor at %p to the copy engine", base);
	return AR_OK;
}

/* uneven: lists differ in length, so that parts are cut on the device. */
template <class C>
enum ar_status launch(const struct attn_batch *b, struct params p, bool uneven, const bf16_t *q,
		      const struct kv_cache *kv, cudaStream_t stream, struct ar_err *err)
{
	const uint64_t qdim[3] = { C::D, (uint64_t)b->shape.q_heads, (uint64_t)b->n_row };
	const uint32_t qbox[3] = { COLS, (uint32_t)p.heads, (uint32_t)(C::M / p.heads) };
	/* the cache's end is not known here and not needed: pages bound the accesses */
	const uint64_t kvdim[2] = { C::D, INT32_MAX };
	const uint32_t kvbox[2] = { COLS, C::RUN };
	CUtensorMap qmap, kmap, vmap;
	struct piece *piece;
	int32_t *n_piece;
	enum ar_status st;
	encode_fn fn;

	p.q_bytes = (uint32_t)(C::M / p.heads * p.heads * C::D * 2);
	p.part_lse = p.part_o + (size_t)b->n_tile * C::M * C::D;
	st = find_encoder(&fn, err);
	if (!st)
		st = encode(&qmap, fn, q, 3, qdim, qbox, err);
	if (!st)
		st = encode(&kmap, fn, kv->k, 2, kvdim, kvbox, err);
	if (!st)
		st = encode(&vmap, fn, kv->v, 2, kvdim, kvbox, err);
	if (st)
		return st;
	if (uneven) {
		piece = (struct piece *)(p.part_lse + (size_t)b->n_tile * C::M);
		n_piece = (int32_t *)(piece + b->n_tile);
		attend_cut<C::PAGE><<<1, CUT_TILES, 0, stream>>>(p, b->n_tile, b->n_sm * C::PER_SM,
								 piece, n_piece);
		CU_LAUNCHED();
		p.piece = piece;
		p.n_piece = n_piece;
	}
	CU(cudaFuncSetAttribute(attend_sm90<C>, cudaFuncAttributeMaxDynamicSharedMemorySize,
				SMEM_BYTES<C>));
	attend_sm90<C><<<b->n_tile, C::THREADS, SMEM_BYTES<C>, stream>>>(qmap, kmap, vmap, p);
	CU_LAUNCHED();
	if (b->n_part) {
		attend_join<C><<<dim3(b->n_tile, C::M / JOIN_ROWS), JOIN_WARPS * 32, 0, stream>>>(p);
		CU_LAUNCHED();
	}
out:
	return st;
}

template <int D>
enum ar_status launch_size(const struct attn_batch *b, bool per_block, const struct params &p,
			   const bf16_t *q, const struct kv_cache *kv, cudaStream_t stream,
			   struct ar_err *err)
{
	const bool uneven = per_block && p.block && b->n_part && b->n_tile <= CUT_TILES;

	if (b->shape.page_tok == 128)
		return launch<config<D, 128, 2>>(b, p, uneven, q, kv, stream, err);
	if (per_block)
		return launch<config<D, 64, 1>>(b, p, uneven, q, kv, stream, err);
	return launch<config<D, 64, 2>>(b, p, uneven, q, kv, stream, err);
}

} /* namespace */

size_t attend_work_bytes(const struct attn_shape *s, const struct attn_limits *l, int heads)
{
	const size_t row = (size_t)(s->head_dim + 1) * sizeof(float);

	(void)heads;
	return (size_t)(EXECUTOR_WAVES * l->n_sm) *
	       (ATTEND_ROWS * row + sizeof(struct piece) + sizeof(int32_t));
}

enum ar_status attend_sm90_enqueue(const struct attn_batch *b, attend_plan_fn *plan, int heads,
				   const struct block_lists *lists, const bf16_t *q,
				   const struct kv_cache *kv, bf16_t *out, float *lse,
				   void *work, void *stream, struct ar_err *err)
{
	const struct attn_shape *s = &b->shape;
	const bool per_block = plan == attend_plan_blocks;
	struct params p = {};

	p.tile = b->tile;
	p.row0 = b->row0;
	p.ctx = b->ctx;
	p.page0 = b->page0;
	p.page = b->page;
	p.block = lists->block;
	p.n_block = lists->n;
	p.stride = lists->stride;
	p.q_heads = s->q_heads;
	p.group = s->q_heads / s->kv_heads;
	p.kv_heads = s->kv_heads;
	p.heads = heads;
	p.scale = 1.4426950408889634f / sqrtf((float)s->head_dim);
	p.out = (__nv_bfloat16 *)out;
	p.lse = lse;
	p.part_o = (float *)work;
	switch (s->head_dim) {
	case 64:
		return launch_size<64>(b, per_block, p, q, kv, (cudaStream_t)stream, err);
	case 128:
		return launch_size<128>(b, per_block, p, q, kv, (cudaStream_t)stream, err);
	default:
		return launch_size<256>(b, per_block, p, q, kv, (cudaStream_t)stream, err);
	}
}
