/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vertical-slash attention, over runs and columns of keys, on Hopper.
 *
 * One thread block runs one (query block, head) or a part of one, as in attend_sm90.cu.  It has a
 * producer warp group, and consumers of 64 rows each that take turns at the tensor cores.  A list
 * holds runs first, each a block, then columns, page_tok a block.  Parts are cut and merged in the
 * same way.
 *
 * A run begins anywhere in a page and a column is a single key: TMA has no boxes for them.  The
 * producer's 128 threads copy rows, 16 bytes at a time, and write the 128-byte swizzle themselves.
 * A warp copies a quarter of a step's keys.  One lane looks up each key: the list's entry two steps
 * ahead, the page one step ahead.  These are two dependent loads.  From there on runs and columns
 * are alike.  The last row's key, which is finite, replaces a key past the tile's rows or past the
 * last column.  The replaced key's logits are hidden.
 *
 * Copies signal a stage's barrier themselves (cp.async.mbarrier.arrive), and the producer runs
 * ahead while stages are free.  Only some steps pay for masks: at the diagonal, where the band may
 * hide something, and at the end of the columns.
 *
 * Budget of a step at D = 128, 128 rows and keys: 2048 cycles of the tensor cores and 1024 of the
 * special function units, as in attend_sm90.cu.  K and V are 64 KiB: 4096 copies, 32 for each
 * thread of the producer, at some seven instructions each.  Each scheduler has one producer warp.
 * Shared memory takes 512 cycles for the copies, beside 1280 for the operands of products.  The L2
 * cache must give 32 bytes a cycle; it can give some 39.
 *
 * With 64 rows and keys, two thread blocks share a multiprocessor.  A step is 512 cycles of the
 * tensor cores and 32 KiB, 16 copies a thread.  The L2 cache takes 840 cycles and is the bound.
 *
 * Measured on an H200 at 128K tokens, 8 requests, chunks of 1024 and 16 heads over 4, dense
 * attention 11.3 to 11.7 ms: minference, 5.8 % of the pairs, in blocks of 64, 1.23 ms.
 */
#include "config.h"

#include <limits.h>

#include "kernels/attend/attend_sm90.cuh"
#include "kernels/exec/columns/columns.h"

namespace {

template <int D, int PAGE, bool SINKS = false>
using by_hand = config<D, PAGE, PAGE / WG_ROWS, true, SINKS>;

static_assert(SMEM_BYTES<by_hand<128, 128>> <= 227 * 1024, "shared memory");
static_assert(SMEM_BYTES<by_hand<256, 128>> <= 227 * 1024, "shared memory");
static_assert(SMEM_BYTES<by_hand<128, 64>> <= 113 * 1024, "shared memory of two");
static_assert(SMEM_BYTES<by_hand<256, 64>> <= 227 * 1024, "shared memory");

struct params : tile_params {
	struct column_lists lists;
	const int32_t *row0, *left;
	const __nv_bfloat16 *k, *v;
	const float *sink;		/* of each query head; NULL: none */
};

struct work : tile_work {
	static constexpr const int32_t *first_key = nullptr;	/* no windows */
	const float *sink;
	const int32_t *run, *col;
	int n_run, n_col;
	int last_pos;			/* of its rows */
	/* The band hides keys of runs at least `far` behind a row, except keys before position
	 * init.  Rows from position `tail` on see all. */
	int far, init, tail;
};

template <int PAGE> __device__ __forceinline__ struct work work_of(const struct params *p)
{
	struct work w;
	const attn_tile t = tile_of(p, &w, blockIdx.x);
	const struct attn_band band = p->lists.band[t.list];

	w.run = p->lists.run + (size_t)t.list * p->lists.max_run;
	w.col = p->lists.col + (size_t)t.list * p->lists.max_col;
	w.n_run = p->lists.n_run[t.list];
	w.n_col = p->lists.n_col[t.list];
	w.last_pos = w.pos + w.n_row - 1;
	w.far = band.local ? band.local : INT_MAX;
	w.init = band.init;
	w.sink = p->sink;
	w.tail = w.pos + p->row0[t.req + 1] + p->left[t.req] - t.row - band.last;
	if (!w.n_part)
		cut_as_planned(&w, t, w.n_run + (w.n_col + PAGE - 1) / PAGE);
	return w;
}

/* The keys of a step. */
template <class C> struct keys {
	int run;	/* the first, in a run */
	int col;	/* the number of the first column; negative in a run */

	static __device__ __forceinline__ int n_steps(const struct work *w)
	{
		const int all = w->n_run * C::STEPS + (w->n_col + C::N - 1) / C::N;

		return min(w->n * C::STEPS, all - w->first * C::STEPS);
	}

	__device__ __forceinline__ keys(const struct work *w, int step)
	{
		const int at = w->first * C::STEPS + step;

		col = (at - w->n_run * C::STEPS) * C::N;
		run = col < 0 ? w->run[at / C::STEPS] + at % C::STEPS * C::N : 0;
	}

	/* The position of key k; past all rows where there is none. */
	__device__ __forceinline__ int pos(const struct work *w, int k) const
	{
		if (col < 0)
			return run + k;
		return col + k < w->n_col ? w->col[col + k] : INT_MAX;
	}

	/* Accumulator element 4 i + 2 r + c belongs to row r, key 8 i + 2 (lane % 4) + c. */
	__device__ __forceinline__ void hide(float *acc, const struct rows *t,
					     const struct work *w) const
	{
		const bool in_run = col < 0;
		const int first = in_run ? run : col, last = first + C::N - 1;
		int seen[2], behind[2];	/* hidden: keys past seen, and keys from init to behind */

		if (in_run ? last <= w->pos && w->last_pos - first < w->far : last < w->n_col)
			return;
#pragma unroll
		for (int r = 0; r < 2; r++) {
			seen[r] = in_run ? t->pos[r] : w->n_col - 1;
			behind[r] = in_run && t->pos[r] < w->tail ? t->pos[r] - w->far : -1;
		}
#pragma unroll
		for (int i = 0; i < C::N / 8; i++)
#pragma unroll
			for (int r = 0; r < 2; r++)
#pragma unroll
				for (int c = 0; c < 2; c++) {
					const int key = first + 8 * i +
							(int)(threadIdx.x % 4 * 2) + c;

					if (key > seen[r] || (key >= w->init && key <= behind[r]))
						acc[4 * i + 2 * r + c] = -INFINITY;
				}
	}
};

/* ---- producer ---- */

/* Where a position's key lies, in rows of the cache. */
template <int PAGE>
__device__ __forceinline__ int row_of(const struct params *p, const struct work *w, int pos)
{
	pos = min(pos, w->last_pos);
	return (w->page[pos / PAGE] * p->kv_heads + w->kv_head) * PAGE + pos % PAGE;
}

/* This warp's quarter of a step; lane i has the row of its key i. */
template <class C>
__device__ __forceinline__ void copy_rows(__nv_bfloat16 (*to)[C::N][COLS],
					  const __nv_bfloat16 *from, int row)
{
	constexpr int PIECES = C::D / 8, AT_ONCE = 32 / PIECES, ROWS = C::N / 4;
	const int piece = threadIdx.x % PIECES, first = threadIdx.x % 32 / PIECES;
	/* the swizzle takes the row's number modulo 8: here `first`, for ROWS is a multiple of
	 * eight, and i in the loop */
	const uint32_t place = smem_addr(&to[piece / 8][threadIdx.x / 32 * ROWS + first]) +
			       ((piece % 8 ^ first) << 4);

	from += piece * 8;
#pragma unroll 4
	for (int i = 0; i < ROWS; i += AT_ONCE) {
		const int key = __shfl_sync(0xffffffff, row, i + first);

		cp_async_16((place ^ (i % 8 << 4)) + i * COLS * 2, from + (size_t)key * C::D, 16);
	}
}

template <class C>
__device__ __forceinline__ void produce(struct smem<C> *s, const struct params *p,
					const struct work *w, const CUtensorMap *qmap)
{
	constexpr int ROWS = C::N / 4;
	const int k = threadIdx.x / 32 * ROWS + threadIdx.x % ROWS;
	const int n = keys<C>::n_steps(w);
	int next = row_of<C::PAGE>(p, w, keys<C>(w, 0).pos(w, k));
	int pos = keys<C>(w, min(1, n - 1)).pos(w, k);

	if (threadIdx.x == 0)
		load_q<C>(s, p, w, qmap);
	for (int i = 0; i < n; i++) {
		const int st = s->k_ring.stage(i), row = next;
		uint64_t *full;

		next = row_of<C::PAGE>(p, w, pos);
		pos = keys<C>(w, min(i + 2, n - 1)).pos(w, k);
		full = s->k_ring.producer_acquire(i);
		copy_rows<C>(s->k[st], p->k, row);
		cp_async_mbarrier_arrive(full);
		full = s->v_ring.producer_acquire(i);
		copy_rows<C>(s->v[st], p->v, row);
		cp_async_mbarrier_arrive(full);
	}
	cp_async_commit();
	cp_async_wait<0>();	/* no thread exits before its copies arrive */
}

/* ---- the kernel ---- */

template <class C>
__global__ void __launch_bounds__(C::THREADS, C::PER_SM)
columns_sm90(const __grid_constant__ CUtensorMap qmap, const __grid_constant__ struct params p)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
	run_tile<C, keys<C>>(&p, [&] { tma_prefetch_map(&qmap); },
			     [&] { return work_of<C::PAGE>(&p); },
			     [&](struct smem<C> *s, const struct work *w) {
		produce<C>(s, &p, w, &qmap);
	});
#else
	__trap();
#endif
}

/* ---- launch ---- */

template <class C>
enum ar_status launch(const struct attn_call *call, struct params p, struct ar_err *err)
{
	CUtensorMap qmap;
	enum ar_status st = map_q<C>(&qmap, &p, call->b, call->q, err);

	if (st)
		return st;
	CU(launch_tiles<C>(columns_sm90<C>, call->b->n_tile, SMEM_BYTES<C>,
			   p.piece ? OVERLAPPING : ALONE, call->stream, qmap, p));
out:
	return st;
}

template <int D, bool SINKS>
enum ar_status launch_page(const struct attn_call *call, const struct params &p,
			   struct ar_err *err)
{
	return call->b->shape.page_tok == 64 ? launch<by_hand<D, 64, SINKS>>(call, p, err) :
					       launch<by_hand<D, 128, SINKS>>(call, p, err);
}

template <int D>
enum ar_status launch_size(const struct attn_call *call, const struct params &p,
			   struct ar_err *err)
{
	return p.sink ? launch_page<D, true>(call, p, err) : launch_page<D, false>(call, p, err);
}

} /* namespace */

enum ar_status columns_sm90_enqueue(const struct attn_call *call,
				    const struct executor_lists *lists, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const struct column_lists *l = &lists->columns;
	const int n_cut = b->n_part && b->n_tile <= ATTEND_CUT_TILES ? b->n_tile : 0;
	const struct params p = { tile_params_of(call, 1, n_cut), *l, b->rows.row0, b->rows.left,
				  (const __nv_bfloat16 *)call->kv.k,
				  (const __nv_bfloat16 *)call->kv.v, call->sink };
	enum ar_status st = AR_OK;

	if (n_cut)
		st = attend_cut_columns_enqueue(b, n_cut, l, (struct attend_piece *)call->work,
						call->stream, err);
	if (st)
		return st;
	switch (b->shape.head_dim) {
	case 64: return launch_size<64>(call, p, err);
	case 128: return launch_size<128>(call, p, err);
	default: return launch_size<256>(call, p, err);
	}
}
