/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles of the attention kernels on Hopper: their parameters and work, their room in shared memory,
 * where their rows lie, and how O is stored and parts are merged. */
#ifndef AR_ATTEND_TILE_CUH
#define AR_ATTEND_TILE_CUH

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/attend/attend_cut.h"
#include "kernels/attend/attend_part.cuh"
#include "kernels/prim/ring.cuh"

/* In code for other architectures the kernels are traps, and their parts are unused. */
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#pragma nv_diag_suppress 177
#endif

namespace {

constexpr int COLS = 64;		/* columns of a swizzled slab: 128 bytes */
constexpr int WG_ROWS = 64;
constexpr float LN2 = 0.6931471805599453f, LOG2E = 1.4426950408889634f;

/* Constants of a kernel.  page: keys of a block.  by_hand: all threads of the producer copy rows;
 * otherwise one thread issues TMA copies.  bounded: first keys or sinks.  skips: rows that vote
 * together, 64 or 32; 0: none do. */
template <int head_dim, int page, int consumers, bool by_hand = false, bool bounded = false,
	  int skips = 0>
struct config {
	static constexpr int D = head_dim, PAGE = page, WGS = consumers;
	static constexpr bool BY_HAND = by_hand, BOUNDED = bounded;
	static constexpr int SKIPS = skips;
	/* Thread blocks run tile after tile.  Not at D = 256: consumers need the registers that the
	 * producer would take. */
	static constexpr bool STREAMS = D < 256 && !BY_HAND;
	static constexpr int M = WGS * WG_ROWS;			/* packed rows of a tile */
	/* Parts of a tile may share its rows. */
	static constexpr bool SHARES = STREAMS && WGS == 2 && !SKIPS;
	/* of K and of V; three where they fit and are faster */
	static constexpr int STAGES = D == 128 && PAGE == 128 && WGS == 2 && !BY_HAND ? 3 : 2;
	static constexpr int N = D == 256 || WGS == 1 ? 64 : 128;	/* keys of a step */
	static constexpr int STEPS = PAGE > N ? PAGE / N : 1;	/* of a block */
	static constexpr int BLOCKS = N > PAGE ? N / PAGE : 1;	/* of a step */
	static constexpr int RUN = N / BLOCKS;			/* neighbouring keys of a step */
	static constexpr int THREADS = (1 + WGS) * 128;
	static constexpr int PER_SM = D == 256 ? 1 : 3 - WGS;	/* thread blocks */
	static constexpr int COPIERS = BY_HAND ? 128 : 1;	/* threads that fill a stage */
	/* registers of a thread: the producer's, a consumer's */
	static constexpr int FEW = STREAMS || BY_HAND ? 40 : 24;
	static constexpr int ROOM = (512 / PER_SM - FEW) / WGS / 8 * 8;
	static constexpr int MANY = ROOM < 248 ? ROOM : 248;
	/* Registers of a thread at launch.  If all threads together ask for more, setmaxnreg waits
	 * for ever. */
	static constexpr int GIVEN = 65536 / (PER_SM * THREADS) / 8 * 8;
	static_assert(FEW + WGS * MANY <= (1 + WGS) * GIVEN, "registers");
};

/* Parameters of a launch. */
struct tile_params {
	attn_tile *tile;		/* for its counters, too */
	const struct attend_piece *piece;	/* made by attend_cut; NULL: tiles as planned */
	int n_plain;			/* tiles before the ones of the pieces */
	const int32_t *page;
	int q_heads, group, kv_heads;
	int heads;			/* heads packed in a tile; a tile may use fewer */
	uint32_t q_bytes;		/* bytes of Q that TMA copies */
	float scale;			/* log2(e) / sqrt(D) */
	__nv_bfloat16 *out;
	float *lse;
	void *part;			/* [n_tile] struct part, by places */
	struct attn_skip skip;
	bool at_once;			/* all tiles run at once, each in a thread block */
};

/* The tile of a thread block, or its part of one; every thread has a copy. */
struct tile_work {
	int row, n_row, head, n_head, kv_head;	/* row: in q */
	int pos;				/* position of the first row */
	int place, part, n_part;
	int first, n;				/* blocks to visit, of all or of the list */
	int page0;
	const int32_t *page;			/* from page0 on */
};

/* A slab is 64 columns of all rows, in the 128-byte swizzle of TMA. */
template <class C> struct alignas(1024) smem {
	__nv_bfloat16 q[C::D / COLS][C::M][COLS];
	__nv_bfloat16 k[C::STAGES][C::D / COLS][C::N][COLS];
	__nv_bfloat16 v[C::STAGES][C::D / COLS][C::N][COLS];
	uint64_t q_full, q_empty;	/* q_empty: of kernels that stream tiles */
	struct ring<C::STAGES> k_ring, v_ring;
	struct tile_work work;		/* for the end: until then registers are scarce */
	int joins;
};
template <class C> constexpr int SMEM_BYTES = sizeof(struct smem<C>) + 1024;

/* ---- the beginning ---- */

/* By one thread. */
template <class C> __device__ __forceinline__ void make_barriers(struct smem<C> *s)
{
	mbarrier_init(&s->q_full, 1);
	if (C::STREAMS)
		mbarrier_init(&s->q_empty, C::WGS);
	s->k_ring.init(C::COPIERS, C::WGS);
	s->v_ring.init(C::COPIERS, C::WGS);
	fence_barrier_init();
}

/* Find the tile of number `at`.  If attend_cut made a piece for it, that says which part of which
 * tile; else n_part is 0. */
__device__ __forceinline__ attn_tile tile_of(const struct tile_params *p, struct tile_work *w,
					     int at)
{
	struct attend_piece cut = { at };
	attn_tile t;

	if (p->piece && at >= p->n_plain) {
		grid_wait();
		cut = p->piece[at - p->n_plain];
	}
	t = p->tile[cut.tile];
	w->place = t.place;
	w->part = t.part;
	w->row = t.row;
	w->n_row = t.n_row;
	w->head = t.head;
	w->n_head = t.n_head;
	w->kv_head = t.head / p->group;
	w->pos = t.pos;
	w->page0 = t.page0;
	w->page = p->page + t.page0;
	w->first = cut.first;
	w->n = cut.n;
	w->n_part = cut.n_part;
	return t;
}

/* Choose the blocks of this part of a tile of n blocks, as the plan cut it. */
__device__ __forceinline__ void cut_as_planned(struct tile_work *w, const attn_tile &t, int n)
{
	if (t.len) {
		w->first = min(t.part * t.len, n);
		w->n = min(t.len, n - w->first);
	} else {
		w->first = n * t.part / t.n_part;
		w->n = n * (t.part + 1) / t.n_part - w->first;
	}
	w->n_part = t.n_part;
}

/* Copy Q, by one thread.  A tile uses the first heads * (M / heads) packed rows. */
template <class C>
__device__ __forceinline__ void load_q(struct smem<C> *s, const struct tile_params *p,
				       const struct tile_work *w, const CUtensorMap *qmap)
{
	mbarrier_expect_tx(&s->q_full, p->q_bytes);
	for (int c = 0; c < C::D / COLS; c++)
		tma_load_3d(s->q[c], qmap, &s->q_full, c * COLS, w->head, w->row);
}

/* ---- rows ---- */

/* Whether packed row m of the tile exists. */
__device__ __forceinline__ bool row_exists(const struct tile_params *p, const struct tile_work *t,
					   int m)
{
	return m / p->heads < t->n_row && m % p->heads < t->n_head;
}

/* Where packed row m of the tile lies in q, out and lse, in rows of a head. */
__device__ __forceinline__ size_t row_index(const struct tile_params *p, const struct tile_work *t,
					    int m)
{
	return (size_t)(t->row + m / p->heads) * p->q_heads + t->head + m % p->heads;
}

/* Round O and store it.  The warp group's rows of s->q serve as a buffer, so that stores
 * coalesce. */
template <class C>
__device__ __forceinline__ void store_rows(const float *o, const float *lse, struct smem<C> *s,
					   const struct tile_params *p, const struct tile_work *t,
					   int wg)
{
	const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
	const int first = wg * WG_ROWS + warp * 16;
	/* slab-wise rows of 128 bytes; 16-byte units are rotated against bank conflicts */
	uint4 (*stage)[C::M][COLS / 8] = (uint4 (*)[C::M][COLS / 8])s->q;

	bar_sync(3 + wg, 128);	/* the group's last product has read its rows of Q */
#pragma unroll
	for (int r = 0; r < 2; r++) {
		const int m = first + lane / 4 + 8 * r;

		if (p->lse && lane % 4 == 0 && row_exists(p, t, m))
			p->lse[row_index(p, t, m)] = lse[r] * LN2;
#pragma unroll
		for (int i = 0; i < C::D / 8; i++) {
			uint32_t *unit = (uint32_t *)&stage[i / 8][m][(i + m) % 8];

			unit[lane % 4] = pack_bf16(o[4 * i + 2 * r], o[4 * i + 2 * r + 1]);
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

/* Transpose the 4 x 4 words of the four lanes of a quad. */
__device__ __forceinline__ void transpose(uint32_t *a)
{
#pragma unroll
	for (int d = 1; d <= 2; d *= 2) {
		const bool up = threadIdx.x & d;

#pragma unroll
		for (int k = 0; k < 2; k++) {
			const int i = d == 1 ? 2 * k : k, j = i + d;
			const uint32_t x = __shfl_xor_sync(0xffffffff, up ? a[i] : a[j], d);

			if (up)
				a[i] = x;
			else
				a[j] = x;
		}
	}
}

/* Round O and store it.  The lanes of a quad have two columns of each eight; they exchange them, so
 * that each stores 16 bytes. */
template <class C>
__device__ __forceinline__ void store_quads(const float *o, const float *lse,
					    const struct tile_params *p, const struct tile_work *t,
					    int wg)
{
	const int lane = threadIdx.x % 32, first = wg * WG_ROWS + threadIdx.x / 32 % 4 * 16;

#pragma unroll
	for (int r = 0; r < 2; r++) {
		const int m = first + lane / 4 + 8 * r;
		const bool exists = row_exists(p, t, m);
		const size_t row = row_index(p, t, m);
		__nv_bfloat16 *to = p->out + row * C::D + 8 * (lane % 4);

		if (p->lse && lane % 4 == 0 && exists)
			p->lse[row] = lse[r] * LN2;
#pragma unroll
		for (int i = 0; i < C::D / 8; i += 4) {
			uint32_t a[4];

#pragma unroll
			for (int k = 0; k < 4; k++)
				a[k] = pack_bf16(o[4 * (i + k) + 2 * r],
						 o[4 * (i + k) + 2 * r + 1]);
			transpose(a);
			if (exists)
				*(uint4 *)(to + 8 * i) = make_uint4(a[0], a[1], a[2], a[3]);
		}
	}
}

/* ---- parts ---- */

/* Whether the tile's parts share its rows; otherwise they merge. */
template <class C>
__device__ __forceinline__ bool shares_rows(const struct tile_params *p, const struct tile_work *t)
{
	return C::SHARES && p->at_once && t->n_part > 1 && t->n_part <= ATTEND_SHARES;
}

/* Round a share and store it.  Where a thread has four units, lanes of a quad exchange columns, as
 * in store_quads(). */
template <class C, int T>
__device__ __forceinline__ void store_share(const struct share<C, T> &x,
					    const struct tile_params *p,
					    const struct tile_work *t)
{
	constexpr int AT_ONCE = x.UNITS < 4 ? x.UNITS : 4;
	const int lane = threadIdx.x % 32;

#pragma unroll
	for (int r = 0; r < 2; r++) {
		const int m = x.warp * 16 + lane / 4 + 8 * r;
		const size_t row = row_index(p, t, m);
		const bool exists = row_exists(p, t, m);
		__nv_bfloat16 *to = p->out + row * C::D + 8 * x.k;

		if (p->lse && lane % 4 == 0 && exists && x.k == 0)
			p->lse[row] = x.lse[r] * LN2;
#pragma unroll
		for (int u = 0; u < x.UNITS; u += AT_ONCE) {
			uint32_t a[AT_ONCE];

#pragma unroll
			for (int i = 0; i < AT_ONCE; i++)
				a[i] = r ? pack_bf16(x.o[u + i].z, x.o[u + i].w) :
					   pack_bf16(x.o[u + i].x, x.o[u + i].y);
			if constexpr (AT_ONCE == 4) {
				transpose(a);
				if (exists)
					*(uint4 *)(to + 8 * (u + lane % 4)) =
						make_uint4(a[0], a[1], a[2], a[3]);
			} else if (exists) {
#pragma unroll
				for (int i = 0; i < AT_ONCE; i++)
					*(uint32_t *)(to + 8 * (u + i) + 2 * (lane % 4)) = a[i];
			}
		}
	}
}

/* Leave this part.  When all parts are there, add up and store this one's share of the rows.  T: a
 * power of two, at least n_part.  The thread blocks of all parts must run at once.  By all
 * consumers; named barrier 5.
 *
 * The rows of 8 / T warps are a chunk; part r has the chunks c with c * n_part / T == r.  A warp
 * that has left its rows counts in the tile of the part that has their chunk. */
template <class C, int T>
__device__ __forceinline__ void share_rows(const float *o, const float *base, const float *sum,
					   const struct tile_params *p, const struct tile_work *t)
{
	struct part<C> *place = (struct part<C> *)p->part + t->place;
	const int n = t->n_part, i = threadIdx.x - 128;
	const int first = (t->part * T + n - 1) / n, end = (t->part * T + T + n - 1) / n;
	int32_t *left = &p->tile[t->place + t->part].joined;

	/* warps without rows count, too */
	if (__any_sync(0xffffffff, row_exists(p, t, i / 32 * 16 + i % 16)))
		leave_raw<C>(&place[t->part], o, base, sum, i);
	__syncwarp();
	if (i % 32 == 0)
		add_release(&p->tile[t->place + i / 32 / (8 / T) * n / T].joined, 1);
	if (i == 0) {
		while (load_acquire(left) != (end - first) * (8 / T) * n)
			;
		*left = 0;
	}
	bar_sync(5, C::WGS * 128);
#pragma unroll 1
	for (int chunk = first; chunk < end; chunk++)
		store_share(share<C, T>(place, n, chunk), p, t);
}

/* The same for any number of parts up to ATTEND_SHARES. */
template <class C>
__device__ __forceinline__ void share_tile(const float *o, const float *base, float *sum,
					   const struct tile_params *p, const struct tile_work *t)
{
	sum[0] = quad_sum(sum[0]);
	sum[1] = quad_sum(sum[1]);
	if (t->n_part > 4)
		share_rows<C, 8>(o, base, sum, p, t);
	else if (t->n_part > 2)
		share_rows<C, 4>(o, base, sum, p, t);
	else
		share_rows<C, 2>(o, base, sum, p, t);
}

template <class C>
__device__ __forceinline__ struct group group_of(const struct tile_params *p,
						 const struct tile_work *t, int step)
{
	const int first = t->part & -(JOIN<C> * step);

	return { first, min((t->n_part - first + step - 1) / step, JOIN<C>), step,
		 &p->tile[t->place + min(first + step, t->n_part - 1)].joined };
}

/* Merge with the other parts of the group.  True: they are ready, and this thread block keeps the
 * result.  False: this thread block left its part in `own` and must exit.  By all consumers; named
 * barrier 5. */
template <class C>
__device__ __forceinline__ bool stays(const struct group &g, struct part<C> *own, const float *o,
				      const float *lse, struct smem<C> *s, bool used)
{
	const int i = threadIdx.x - 128, n = C::WGS * 128;

	if (i == 0 && !s->joins)
		s->joins = load_acquire(g.left) == g.n - 1;
	bar_sync(5, n);
	if (!s->joins) {
		if (used)
			leave<C>(own, o, lse, i);
		bar_sync(5, n);
		if (i == 0)
			s->joins = add_acq_rel(g.left, 1) == g.n - 1;
		bar_sync(5, n);
	}
	return s->joins;
}

/*
 * Merge the parts of a tile in groups of up to JOIN, then groups of groups, and so on.  A group is
 * added up as a tree of pairs, so the result has the same bits whichever part is last.
 *
 * A counter says how many of a group are ready; it lies in a tile of the group.  False: another
 * thread block continues.
 */
template <class C>
__device__ __forceinline__ bool join(float *o, float *lse, struct smem<C> *s,
				     const struct tile_params *p, const struct tile_work *t,
				     bool used)
{
	struct part<C> *place = (struct part<C> *)p->part + t->place;
	const int i = threadIdx.x - 128;

#pragma unroll 1
	for (int step = 1; step < t->n_part; step *= JOIN<C>) {
		const struct group g = group_of<C>(p, t, step);

		if (g.n == 1)
			continue;
		if (!stays<C>(g, &place[t->part & -step], o, lse, s, used)) {
			if (C::STREAMS)	/* all know that it does not */
				bar_sync(5, C::WGS * 128);
			return false;
		}
		if (used)
			add_others<C>(o, lse, place, g, (t->part - g.first) / step, i);
		bar_sync(5, C::WGS * 128);	/* all know that it stays */
		if (i == 0)
			*g.left = s->joins = 0;
	}
	return true;
}

} /* namespace */

#endif
