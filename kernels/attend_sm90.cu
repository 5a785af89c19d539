/*
 * Attention over block lists on Hopper.
 *
 * One thread block runs one tile (struct attn_tile): 128 packed rows, that is n_row query
 * rows times n_head heads of one KV head, so that a K and V block is read once for the whole
 * group.  It walks the tile's block list in ascending order; a block is one page, 128 keys,
 * brought by the copy engine (TMA) straight from the paged cache into 128-byte swizzled
 * shared memory.
 *
 * Warp group 0 is the producer: one thread issues copies, two stages of K and of V ahead.
 * Warp groups 1 and 2 are consumers with 64 rows each.  Per block and consumer:
 *
 *   S = Q K^T          wgmma m64n128k16, both operands in shared memory
 *   P = exp2(S - max)  64 values a thread, in registers
 *   O += P V           wgmma m64nDk16, P from registers
 *
 * Budget of a block at D = 128, 128 rows: 2 * 128 * 128 * 128 multiply-adds for each product,
 * 2048 cycles of the tensor cores in all; 128 * 128 exponentials, 1024 cycles of the special
 * function units.  The second must hide behind the first: S of the next block and O of this
 * one are in flight together while the softmax of the next runs, and the two consumers take
 * turns at issuing (named barriers), so that one computes its softmax while the other owns the
 * tensor cores.
 *
 * At D = 256 a step is half a block: Q takes 64 KiB, and two stages of K and V of 64 keys
 * 128 KiB more; O takes 128 registers a thread and S 32.
 *
 * Tiles come sorted, the longest first; the hardware hands them to multiprocessors as those
 * become free.  A tile may be a part of one: it then leaves O in fp32, divided by its sum, and
 * the logarithm of the sum, and a second kernel, attend_join, adds up the parts of a row.
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

#include "kernels/attend.h"
#include "kernels/cuda.h"
#include "kernels/sm90.cuh"

/* In code for other architectures the kernel is a trap, and its parts are unused. */
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#pragma nv_diag_suppress 177
#endif

namespace {

constexpr int M = 128;			/* packed rows of a tile */
constexpr int PAGE = 128;		/* keys of a block */
template <int D> constexpr int N = D == 256 ? 64 : 128;	/* keys of a step */
template <int D> constexpr int STEPS = PAGE / N<D>;	/* of a block */
constexpr int STAGES = 2;
constexpr int COLS = 64;		/* columns of a swizzled slab: 128 bytes */
constexpr int THREADS = 3 * 128;	/* producer, two consumers */
constexpr int WG_ROWS = 64;
constexpr float LN2 = 0.6931471805599453f;

/* A slab is 64 columns of all rows; the copy engine writes it swizzled. */
template <int D> struct alignas(1024) smem {
	__nv_bfloat16 q[D / COLS][M][COLS];
	__nv_bfloat16 k[STAGES][D / COLS][N<D>][COLS];
	__nv_bfloat16 v[STAGES][D / COLS][N<D>][COLS];
	uint64_t q_full, k_full[STAGES], k_empty[STAGES], v_full[STAGES], v_empty[STAGES];
};
static_assert(sizeof(struct smem<128>) + 1024 <= 227 * 1024, "shared memory");
static_assert(sizeof(struct smem<256>) + 1024 <= 227 * 1024, "shared memory");

struct params {
	const attn_tile *tile;
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

/* What all threads know of their tile. */
struct work {
	int row, n_row, head, n_head, kv_head;	/* row: in q */
	int pos;				/* position of the first row */
	int first, n;				/* blocks to visit, of all or of the list */
	const uint16_t *block;			/* NULL: all; else from the first on */
	const int32_t *page;
};

__device__ __forceinline__ int block_at(const struct work *w, int i)
{
	return w->block ? w->block[i] : w->first + i;
}

template <int D> __device__ __forceinline__ int first_key(const struct work *w, int step)
{
	return block_at(w, step / STEPS<D>) * PAGE + step % STEPS<D> * N<D>;
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

__device__ __forceinline__ struct work work_of(const struct params *p, const attn_tile &t)
{
	struct work w;
	int last, end;

	w.row = p->row0[t.req] + t.row;
	w.n_row = t.n_row;
	w.head = t.head;
	w.n_head = t.n_head;
	w.kv_head = t.head / p->group;
	w.pos = p->ctx[t.req] + t.row;
	w.page = p->page + p->page0[t.req];
	last = (w.pos + t.n_row - 1) / PAGE;
	if (!p->block) {
		w.block = NULL;
		end = last + 1;
	} else {
		w.block = p->block + (size_t)t.list * p->stride;
		end = trim(w.block, p->n_block[t.list], last);
	}
	w.first = end * t.part / t.n_part;
	w.n = end * (t.part + 1) / t.n_part - w.first;
	if (w.block)
		w.block += w.first;
	return w;
}

template <int D>
__device__ __forceinline__ void produce(struct smem<D> *s, const struct params *p, const struct work *w,
					const CUtensorMap *qmap, const CUtensorMap *kmap,
					const CUtensorMap *vmap)
{
	constexpr uint32_t KV_BYTES = N<D> * D * 2;
	int page, next = w->page[block_at(w, 0)];

	mbarrier_expect_tx(&s->q_full, p->q_bytes);
	for (int c = 0; c < D / COLS; c++)
		tma_load_3d(s->q[c], qmap, &s->q_full, c * COLS, w->head, w->row);
	for (int i = 0; i < w->n * STEPS<D>; i++) {
		const int st = i % STAGES, blk = i / STEPS<D>;
		const uint32_t parity = (i / STAGES & 1) ^ 1;
		int y;

		if (i % STEPS<D> == 0) {
			page = next;
			if (blk + 1 < w->n)
				next = w->page[block_at(w, blk + 1)];
		}
		y = (page * p->kv_heads + w->kv_head) * PAGE + i % STEPS<D> * N<D>;
		mbarrier_wait(&s->k_empty[st], parity);
		mbarrier_expect_tx(&s->k_full[st], KV_BYTES);
		for (int c = 0; c < D / COLS; c++)
			tma_load_2d(s->k[st][c], kmap, &s->k_full[st], c * COLS, y);
		mbarrier_wait(&s->v_empty[st], parity);
		mbarrier_expect_tx(&s->v_full[st], KV_BYTES);
		for (int c = 0; c < D / COLS; c++)
			tma_load_2d(s->v[st][c], vmap, &s->v_full[st], c * COLS, y);
	}
}

/* acc = Q K^T of this warp group's rows.  Enqueued, not finished. */
template <int D>
__device__ __forceinline__ void issue_qk(float *acc, struct smem<D> *s, int st, int wg)
{
	wgmma_fence();
#pragma unroll
	for (int k = 0; k < D / 16; k++)
		wgmma_ss<N<D>>(acc, wgmma_desc(&s->q[k / 4][wg * WG_ROWS][k % 4 * 16], 16, 1024),
			       wgmma_desc(&s->k[st][k / 4][0][k % 4 * 16], 16, 1024), k != 0);
	wgmma_commit();
}

/* o += P V.  V lies as [key][column], so it is the transposed operand: 64-column slabs lead,
 * groups of eight keys stride. */
template <int D>
__device__ __forceinline__ void issue_pv(float *o, const uint32_t *pr, struct smem<D> *s, int st)
{
	constexpr int WIDTH = D < 128 ? D : 128;	/* columns of a product */

	wgmma_fence();
#pragma unroll
	for (int k = 0; k < N<D> / 16; k++)
#pragma unroll
		for (int c = 0; c < D; c += WIDTH)
			wgmma_rs<WIDTH>(o + c / 2, pr + 4 * k,
					wgmma_desc(&s->v[st][c / COLS][k * 16][0],
						   N<D> * COLS * 2, 1024));
	wgmma_commit();
}

/* Thread state of two rows (the accumulator's rows g and g + 8 of a warp). */
struct rows {
	int pos[2];			/* positions */
	float max[2], sum[2];		/* running maximum (raw logits), sum (this thread's part) */
};

/* Accumulator element 4 i + 2 r + c belongs to row r, key 8 i + 2 (lane % 4) + c. */
template <int N>
__device__ __forceinline__ void mask_step(float *acc, const struct rows *w, int key)
{
#pragma unroll
	for (int i = 0; i < N / 8; i++)
#pragma unroll
		for (int r = 0; r < 2; r++)
#pragma unroll
			for (int c = 0; c < 2; c++)
				if (key + 8 * i + c > w->pos[r])
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
template <int D>
__device__ __forceinline__ void store_rows(float *o, struct rows *w, struct smem<D> *s,
					   const struct params *p, const struct work *t, int wg)
{
	const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
	const int first = wg * WG_ROWS + warp * 16;
	/* slab-wise rows of 128 bytes; 16-byte units are rotated against bank conflicts */
	uint4 (*stage)[M][COLS / 8] = (uint4 (*)[M][COLS / 8])s->q;

	bar_sync(3 + wg, 128);	/* the group's last product has read its rows of Q */
#pragma unroll
	for (int r = 0; r < 2; r++) {
		const float sum = quad_sum(w->sum[r]), inv = sum > 0 ? 1 / sum : 0;
		const int m = first + lane / 4 + 8 * r;

		if (p->lse && lane % 4 == 0 && row_exists(p, t, m))
			p->lse[row_index(p, t, m)] =
				sum > 0 ? (w->max[r] * p->scale + log2f(sum)) * LN2 : -INFINITY;
#pragma unroll
		for (int i = 0; i < D / 8; i++) {
			uint32_t *unit = (uint32_t *)&stage[i / 8][m][(i + m) % 8];

			unit[lane % 4] = pack_bf16(o[4 * i + 2 * r] * inv, o[4 * i + 2 * r + 1] * inv);
		}
	}
	__syncwarp();
#pragma unroll
	for (int k = lane; k < 16 * D / 8; k += 32) {
		const int m = first + k / (D / 8), i = k % (D / 8);

		if (row_exists(p, t, m))
			*(uint4 *)(p->out + row_index(p, t, m) * D + 8 * i) = stage[i / 8][m][(i + m) % 8];
	}
}

/* What a part of a tile leaves for attend_join: O, divided, and the sum's logarithm to base 2. */
template <int D>
__device__ __forceinline__ void store_part(const float *o, const struct rows *w,
					   const struct params *p, const struct work *t, int wg)
{
	const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;

#pragma unroll
	for (int r = 0; r < 2; r++) {
		const float sum = quad_sum(w->sum[r]), inv = sum > 0 ? 1 / sum : 0;
		const int m = wg * WG_ROWS + warp * 16 + lane / 4 + 8 * r;
		const size_t at = (size_t)blockIdx.x * M + m;

		if (!row_exists(p, t, m))
			continue;
		if (lane % 4 == 0)
			p->part_lse[at] = sum > 0 ? w->max[r] * p->scale + log2f(sum) : -INFINITY;
#pragma unroll
		for (int i = 0; i < D / 8; i++)
			*(float2 *)(p->part_o + at * D + 8 * i + lane % 4 * 2) =
				make_float2(o[4 * i + 2 * r] * inv, o[4 * i + 2 * r + 1] * inv);
	}
}

/* The logits of the step that begins with key are complete in acc: turn them into P, release K. */
template <int D>
__device__ __forceinline__ void finish_scores(float *acc, struct rows *t, struct smem<D> *s, int st,
					      const struct params *p, const struct work *w, int key,
					      float *alpha)
{
	hold<N<D> / 2>(acc);
	if (threadIdx.x % 128 == 0)
		mbarrier_arrive(&s->k_empty[st]);
	if (key + N<D> > w->pos)	/* may hold keys past a row */
		mask_step<N<D>>(acc, t, key + threadIdx.x % 4 * 2);
	softmax_step<N<D>>(acc, t, p->scale, alpha);
}

/* All blocks of the list.  Named barriers 1 and 2: the turn of consumer 0 and 1 to issue. */
template <int D>
__device__ __forceinline__ void consume_list(float *o, struct rows *t, struct smem<D> *s,
					     const struct params *p, const struct work *w, int wg)
{
	const int n = w->n * STEPS<D>;
	float acc[N<D> / 2], alpha[2];
	uint32_t pr[N<D> / 4];
	int last = 0;

	if (wg == 1)
		bar_arrive(1, 256);
	mbarrier_wait(&s->q_full, 0);
	mbarrier_wait(&s->k_full[0], 0);
	issue_qk<D>(acc, s, 0, wg);
	wgmma_wait<0>();
	finish_scores<D>(acc, t, s, 0, p, w, first_key<D>(w, 0), alpha);
	pack_p<N<D>>(pr, acc);
	for (int i = 1; i < n; i++) {
		const int st = i % STAGES, key = first_key<D>(w, i);

		mbarrier_wait(&s->k_full[st], i / STAGES & 1);
		bar_sync(1 + wg, 256);
		issue_qk<D>(acc, s, st, wg);
		mbarrier_wait(&s->v_full[last], (i - 1) / STAGES & 1);
		issue_pv<D>(o, pr, s, last);
		bar_arrive(2 - wg, 256);
		wgmma_wait<1>();
		finish_scores<D>(acc, t, s, st, p, w, key, alpha);
		wgmma_wait<0>();
		hold<D / 2>(o);
		if (threadIdx.x % 128 == 0)
			mbarrier_arrive(&s->v_empty[last]);
		rescale<D>(o, alpha);
		pack_p<N<D>>(pr, acc);
		last = st;
	}
	mbarrier_wait(&s->v_full[last], (n - 1) / STAGES & 1);
	issue_pv<D>(o, pr, s, last);
	wgmma_wait<0>();
	hold<D / 2>(o);
}

template <int D>
__device__ __forceinline__ void consume(struct smem<D> *s, const struct params *p, const struct work *w,
					int wg)
{
	const int m = wg * WG_ROWS + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
	float o[D / 2];
	struct rows t;

#pragma unroll
	for (int i = 0; i < D / 2; i++)
		o[i] = 0;
#pragma unroll
	for (int r = 0; r < 2; r++) {
		t.pos[r] = w->pos + (m + 8 * r) / p->heads;
		t.max[r] = -INFINITY;
		t.sum[r] = 0;
	}
	if (w->n)
		consume_list<D>(o, &t, s, p, w, wg);
	if (p->tile[blockIdx.x].n_part > 1)
		store_part<D>(o, &t, p, w, wg);
	else
		store_rows<D>(o, &t, s, p, w, wg);
}

template <int D>
__global__ void __launch_bounds__(THREADS, 1)
attend_sm90(const __grid_constant__ CUtensorMap qmap, const __grid_constant__ CUtensorMap kmap,
	    const __grid_constant__ CUtensorMap vmap, const __grid_constant__ struct params p)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
	extern __shared__ char raw[];
	struct smem<D> *s = (struct smem<D> *)(((uintptr_t)raw + 1023) & ~(uintptr_t)1023);
	const attn_tile t = p.tile[blockIdx.x];
	struct work w;

	if (threadIdx.x == 0) {
		tma_prefetch_map(&qmap);
		tma_prefetch_map(&kmap);
		tma_prefetch_map(&vmap);
		mbarrier_init(&s->q_full, 1);
		for (int i = 0; i < STAGES; i++) {
			mbarrier_init(&s->k_full[i], 1);
			mbarrier_init(&s->v_full[i], 1);
			mbarrier_init(&s->k_empty[i], 2);
			mbarrier_init(&s->v_empty[i], 2);
		}
		fence_barrier_init();
	}
	__syncwarp();
	w = work_of(&p, t);
	__syncthreads();
	if (threadIdx.x < 128) {
		setmaxnreg_dec<24>();
		if (threadIdx.x == 0 && w.n)
			produce<D>(s, &p, &w, &qmap, &kmap, &vmap);
	} else {
		setmaxnreg_inc<240>();
		consume<D>(s, &p, &w, threadIdx.x / 128 - 1);
	}
#else
	__trap();
#endif
}

/* ---- parts ---- */

constexpr int JOIN_ROWS = 8;	/* packed rows of a thread block, a warp each */

/* The sum of a row's parts, weighted by their sums.  Thread blocks at tiles that are whole or not
 * the first part have nothing to do. */
template <int D>
__global__ void __launch_bounds__(JOIN_ROWS * 32)
attend_join(const __grid_constant__ struct params p)
{
	const attn_tile t = p.tile[blockIdx.x];
	const int lane = threadIdx.x % 32, m = blockIdx.y * JOIN_ROWS + threadIdx.x / 32;
	const int row = m / p.heads, head = m % p.heads;
	const size_t at = (size_t)blockIdx.x * M + m;
	const float *o = p.part_o + at * D + 2 * lane, *lse = p.part_lse + at;
	float acc[D / 32] = {}, max = -INFINITY, sum = 0, inv;
	size_t to;

	if (t.part || t.n_part == 1 || row >= t.n_row || head >= t.n_head)
		return;
	for (int i = lane; i < t.n_part; i += 32)
		max = fmaxf(max, lse[i * M]);
	max = warp_max(max);
	if (max == -INFINITY)	/* any finite base keeps exp2 at 0 */
		max = 0;
	for (int first = 0; first < t.n_part; first += 32) {
		const int n = min(t.n_part - first, 32);
		const float own = lane < n ? ex2(lse[(first + lane) * M] - max) : 0;

		sum += own;
#pragma unroll 8
		for (int i = 0; i < n; i++) {
			const float weight = __shfl_sync(0xffffffff, own, i);
#pragma unroll
			for (int c = 0; c < D / 64; c++) {
				const float *from = o + (first + i) * M * D + 64 * c;
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
	for (int c = 0; c < D / 64; c++)
		*(uint32_t *)(p.out + to * D + 2 * lane + 64 * c) =
			pack_bf16(acc[2 * c] * inv, acc[2 * c + 1] * inv);
	if (p.lse && lane == 0)
		p.lse[to] = sum > 0 ? (max + log2f(sum)) * LN2 : -INFINITY;
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

template <int D>
enum ar_status launch(const struct attn_batch *b, const struct params *p, const bf16_t *q,
		      const struct kv_cache *kv, cudaStream_t stream, struct ar_err *err)
{
	const uint64_t qdim[3] = { D, (uint64_t)b->shape.q_heads, (uint64_t)b->n_row };
	const uint32_t qbox[3] = { COLS, (uint32_t)p->heads, (uint32_t)(M / p->heads) };
	/* the cache's end is not known here and not needed: pages bound the accesses */
	const uint64_t kvdim[2] = { D, INT32_MAX };
	const uint32_t kvbox[2] = { COLS, N<D> };
	const int bytes = sizeof(struct smem<D>) + 1024;
	CUtensorMap qmap, kmap, vmap;
	enum ar_status st;
	encode_fn fn;

	st = find_encoder(&fn, err);
	if (!st)
		st = encode(&qmap, fn, q, 3, qdim, qbox, err);
	if (!st)
		st = encode(&kmap, fn, kv->k, 2, kvdim, kvbox, err);
	if (!st)
		st = encode(&vmap, fn, kv->v, 2, kvdim, kvbox, err);
	if (st)
		return st;
	CU(cudaFuncSetAttribute(attend_sm90<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
	attend_sm90<D><<<b->n_tile, THREADS, bytes, stream>>>(qmap, kmap, vmap, *p);
	CU_LAUNCHED();
	if (b->n_part) {
		attend_join<D><<<dim3(b->n_tile, M / JOIN_ROWS), JOIN_ROWS * 32, 0, stream>>>(*p);
		CU_LAUNCHED();
	}
out:
	return st;
}

} /* namespace */

size_t attend_work_bytes(const struct attn_shape *s, const struct attn_limits *l)
{
	return (size_t)(EXECUTOR_WAVES * l->n_sm) * M * (size_t)(s->head_dim + 1) * sizeof(float);
}

enum ar_status attend_sm90_enqueue(const struct attn_batch *b, int heads,
				   const struct block_lists *lists, const bf16_t *q,
				   const struct kv_cache *kv, bf16_t *out, float *lse,
				   void *work, void *stream, struct ar_err *err)
{
	const struct attn_shape *s = &b->shape;
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
	p.q_bytes = (uint32_t)(M / heads * heads * s->head_dim * 2);
	p.scale = 1.4426950408889634f / sqrtf((float)s->head_dim);
	p.out = (__nv_bfloat16 *)out;
	p.lse = lse;
	p.part_o = (float *)work;
	p.part_lse = p.part_o + (size_t)b->n_tile * M * s->head_dim;
	switch (s->head_dim) {
	case 64:
		return launch<64>(b, &p, q, kv, (cudaStream_t)stream, err);
	case 128:
		return launch<128>(b, &p, q, kv, (cudaStream_t)stream, err);
	default:
		return launch<256>(b, &p, q, kv, (cudaStream_t)stream, err);
	}
}
