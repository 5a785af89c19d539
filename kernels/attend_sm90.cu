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
 * become free.  A tile may be a part of one.  Parts then join by twos: of two that join the first
 * to be ready leaves O in fp32, divided by its sum, and the logarithm of the sum; the other adds it
 * to its own and goes on to the next two.  Which of them stays does not change a bit of the sum.
 * Where every query block and head has a list of its own and tiles are few, the longest list bounds
 * the time: at a density of 0.1, 64K keys and 128 tiles, 68 blocks where the mean is 51, and lists
 * of real selections differ more.  There attend_cut, before this kernel, cuts long tiles and
 * sorts what results.
 *
 * One tile fills a multiprocessor, so what comes before its first product is hidden by nothing:
 * a chain of loads (tile, request and list, page, K).  Therefore the end of a list is looked for
 * by 32 lanes at once, and descriptors are fetched and barriers made while the tile is loaded.
 *
 * Tried and left out (H200, D 128, 16 heads over 4, 32K keys, batch 8, chunk 1024; this
 * version 648 TFLOP/s, in the same runs): rescaling O only when a warp's maximum moved, 582;
 * persistent blocks that fetch the next tile's Q during the last products of this one, 559;
 * conditional rescaling and clusters of two tiles that share K and V by multicast, 462.  Asking for
 * Q before the end of the list and the first page are known: at batch 1 and 64K keys 765 us became
 * 787.
 */
#include "config.h"

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <limits.h>

#include "kernels/attend_cut.h"
#include "kernels/attend_part.cuh"
#include "kernels/cuda.h"
#include "kernels/sm90.cuh"
#include "kernels/tensor_map.h"

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
	static constexpr int PER_SM = D == 256 ? 1 : 3 - WGS;	/* thread blocks */
	static constexpr int REGISTERS = PER_SM == 2 ? 232 : 240;	/* of a consumer's thread */
};

struct params {
	attn_tile *tile;
	const struct attend_piece *piece;	/* as attend_cut made them; NULL: as planned */
	const int32_t *kept, *page;
	const uint16_t *block;		/* NULL: all blocks */
	const int32_t *n_block;
	int stride;
	int q_heads, group, kv_heads;
	int heads;			/* heads packed in a tile; a tile may use fewer */
	uint32_t q_bytes;		/* what the copy engine brings of Q */
	float scale;			/* log2(e) / sqrt(D) */
	__nv_bfloat16 *out;
	float *lse;
	void *part;			/* [n_tile] struct part, by places */
};

/* What all threads know of their tile, or part of one. */
struct work {
	int row, n_row, head, n_head, kv_head;	/* row: in q */
	int pos;				/* position of the first row */
	int place, part, n_part;
	int first, n;				/* blocks to visit, of all or of the list */
	const uint16_t *block;			/* NULL: all; else from the first on */
	const int32_t *page;
};

/* A slab is 64 columns of all rows; the copy engine writes it swizzled. */
template <class C> struct alignas(1024) smem {
	__nv_bfloat16 q[C::D / COLS][C::M][COLS];
	__nv_bfloat16 k[STAGES][C::D / COLS][C::N][COLS];
	__nv_bfloat16 v[STAGES][C::D / COLS][C::N][COLS];
	uint64_t q_full, k_full[STAGES], k_empty[STAGES], v_full[STAGES], v_empty[STAGES];
	struct work work;		/* for the end: what comes before leaves it no registers */
	int joins;
};
template <class C> constexpr int SMEM_BYTES = sizeof(struct smem<C>) + 1024;
static_assert(SMEM_BYTES<config<128, 128, 2>> <= 227 * 1024, "shared memory");
static_assert(SMEM_BYTES<config<256, 128, 2>> <= 227 * 1024, "shared memory");
static_assert(SMEM_BYTES<config<128, 64, 1>> <= 113 * 1024, "shared memory of two");
static_assert(SMEM_BYTES<config<256, 64, 1>> <= 227 * 1024, "shared memory");

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
__device__ __forceinline__ void cut_as_planned(struct work *w, const struct params *p,
					       const attn_tile &t, int last)
{
	const int n = w->block ? trim(w->block, p->n_block[t.list], last) : last + 1;

	if (t.len) {
		w->first = min(t.part * t.len, n);
		w->n = min(t.len, n - w->first);
	} else {
		w->first = n * t.part / t.n_part;
		w->n = n * (t.part + 1) / t.n_part - w->first;
	}
	w->n_part = t.n_part;
}

template <int PAGE>
__device__ __forceinline__ struct work work_of(const struct params *p)
{
	struct attend_piece cut = { (int)blockIdx.x };
	struct work w;
	attn_tile t;

	if (p->piece) {
		grid_wait();
		cut = p->piece[blockIdx.x];
	}
	t = p->tile[cut.tile];
	w.place = t.place;
	w.part = t.part;
	w.row = t.row;
	w.n_row = t.n_row;
	w.head = t.head;
	w.n_head = t.n_head;
	w.kv_head = t.head / p->group;
	w.pos = t.pos + (p->kept ? p->kept[t.list] : 0);
	w.page = p->page + t.page0;
	w.block = p->block ? p->block + (size_t)t.list * p->stride : NULL;
	if (p->piece) {
		w.first = cut.first;
		w.n = cut.n;
		w.n_part = cut.n_part;
	} else {
		cut_as_planned(&w, p, t, (w.pos + t.n_row - 1) / PAGE);
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

/* O becomes attention over the keys seen; lse: the logarithms to base 2 of the rows' sums. */
template <int D>
__device__ __forceinline__ void divide(float *o, const struct rows *w, float scale, float *lse)
{
	float inv[2];

#pragma unroll
	for (int r = 0; r < 2; r++) {
		const float sum = quad_sum(w->sum[r]);

		inv[r] = sum > 0 ? 1 / sum : 0;
		lse[r] = sum > 0 ? w->max[r] * scale + log2f(sum) : -INFINITY;
	}
	rescale<D>(o, inv);
}

/* Rounding, and coalesced stores by way of this warp group's rows of s->q. */
template <class C>
__device__ __forceinline__ void store_rows(const float *o, const float *lse, struct smem<C> *s,
					   const struct params *p, const struct work *t, int wg)
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

/* ---- parts ---- */

/* Whether what two parts join to is this thread block's to go on with: it is if the other one is
 * ready.  If not, what this one has is left in `own` for the other.  All consumers, barrier 5. */
template <class C>
__device__ __forceinline__ bool stays(int32_t *joined, struct part<C> *own, const float *o,
				      const float *lse, struct smem<C> *s, bool used)
{
	const int i = threadIdx.x - 128, n = C::WGS * 128;

	if (i == 0 && !s->joins)
		s->joins = load_acquire(joined);
	bar_sync(5, n);
	if (!s->joins) {
		if (used)
			leave<C>(own, o, lse, i);
		bar_sync(5, n);
		if (i == 0)
			s->joins = add_acq_rel(joined, 1);
		bar_sync(5, n);
	}
	return s->joins;
}

/*
 * The parts of a tile join by twos, those twos by twos, and so on: parts [a, a + step) and
 * [a + step, a + 2 step) in places a and a + step.  Which of the two are ready is counted in the
 * tile that stands at the latter in the plan.  False: another thread block goes on from here.
 */
template <class C>
__device__ __forceinline__ bool join(float *o, float *lse, struct smem<C> *s,
				     const struct params *p, const struct work *t, bool used)
{
	struct part<C> *place = (struct part<C> *)p->part + t->place;
	const int i = threadIdx.x - 128;

#pragma unroll 1
	for (int step = 1; step < t->n_part; step *= 2) {
		const int own = t->part & -step, other = own ^ step, later = own | step;
		int32_t *joined = &p->tile[t->place + later].joined;

		if (later >= t->n_part)
			continue;
		if (!stays<C>(joined, &place[own], o, lse, s, used))
			return false;
		if (used)
			add_part<C>(o, lse, &place[other], i);
		bar_sync(5, C::WGS * 128);	/* all know that it stays */
		if (i == 0)
			*joined = s->joins = 0;
	}
	return true;
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

/* While the last product runs, the first consumer looks whether the part to join with is ready. */
template <class C>
__device__ __forceinline__ void look_ahead(struct smem<C> *s, const struct params *p)
{
	const struct work *w = &s->work;
	const int later = w->part | 1;

	if (threadIdx.x == 128 && later < w->n_part)
		s->joins = load_acquire(&p->tile[w->place + later].joined);
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
	look_ahead<C>(s, p);
	wgmma_wait<0>();
	hold<C::D / 2>(o);
}

template <class C>
__device__ __forceinline__ void consume(struct smem<C> *s, const struct params *p,
					const struct work *w, int wg)
{
	const int m = wg * WG_ROWS + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
	float o[C::D / 2], lse[2];
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
	divide<C::D>(o, &t, p->scale, lse);
	w = &s->work;
	if (w->n_part > 1) {
		bool used = row_exists(p, w, m) || row_exists(p, w, m + 8);

		if (!join<C>(o, lse, s, p, w, __any_sync(0xffffffff, used)))
			return;
	}
	store_rows<C>(o, lse, s, p, w, wg);
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
	if (threadIdx.x == 0) {
		s->work = w;
		s->joins = 0;
	}
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

/* ---- launch ---- */

/* After attend_cut it starts while that ends. */
template <class C>
enum ar_status launch(const struct attn_batch *b, struct params p, const bf16_t *q,
		      const struct kv_cache *kv, cudaStream_t stream, struct ar_err *err)
{
	const uint64_t qdim[3] = { C::D, (uint64_t)b->shape.q_heads, (uint64_t)b->n_row };
	const uint32_t qbox[3] = { COLS, (uint32_t)p.heads, (uint32_t)(C::M / p.heads) };
	/* the cache's end is not known here and not needed: pages bound the accesses */
	const uint64_t kvdim[2] = { C::D, INT32_MAX };
	const uint32_t kvbox[2] = { COLS, C::RUN };
	cudaLaunchAttribute overlap = {};
	cudaLaunchConfig_t config = {};
	CUtensorMap qmap, kmap, vmap;
	enum ar_status st;

	p.q_bytes = (uint32_t)(C::M / p.heads * p.heads * C::D * 2);
	overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
	overlap.val.programmaticStreamSerializationAllowed = 1;
	config.gridDim = b->n_tile;
	config.blockDim = C::THREADS;
	config.dynamicSmemBytes = SMEM_BYTES<C>;
	config.stream = stream;
	config.attrs = &overlap;
	config.numAttrs = p.piece != NULL;
	st = tensor_map(&qmap, q, 3, qdim, qbox, err);
	if (!st)
		st = tensor_map(&kmap, kv->k, 2, kvdim, kvbox, err);
	if (!st)
		st = tensor_map(&vmap, kv->v, 2, kvdim, kvbox, err);
	if (st)
		return st;
	CU(cudaFuncSetAttribute(attend_sm90<C>, cudaFuncAttributeMaxDynamicSharedMemorySize,
				SMEM_BYTES<C>));
	CU(cudaLaunchKernelEx(&config, attend_sm90<C>, qmap, kmap, vmap, p));
out:
	return st;
}

template <int D>
enum ar_status launch_size(const struct attn_batch *b, bool per_block, const struct params &p,
			   const bf16_t *q, const struct kv_cache *kv, cudaStream_t stream,
			   struct ar_err *err)
{
	if (b->shape.page_tok == 128)
		return launch<config<D, 128, 2>>(b, p, q, kv, stream, err);
	if (per_block)
		return launch<config<D, 64, 1>>(b, p, q, kv, stream, err);
	return launch<config<D, 64, 2>>(b, p, q, kv, stream, err);
}

constexpr size_t part_bytes(int dim)
{
	return ATTEND_ROWS * (dim + 4) * sizeof(float);
}
static_assert(sizeof(struct part<config<128, 128, 2>>) == part_bytes(128), "room");
static_assert(sizeof(struct part<config<256, 64, 1>>) <= part_bytes(256), "room");

size_t piece_bytes(int n)
{
	return (n * sizeof(struct attend_piece) + 255) / 256 * 256;
}

} /* namespace */

size_t attend_work_bytes(const struct attn_shape *s, const struct attn_limits *l, int heads)
{
	const int n = EXECUTOR_WAVES * l->n_sm;

	(void)heads;
	return piece_bytes(n) + n * part_bytes(s->head_dim);
}

enum ar_status attend_sm90_enqueue(const struct attn_batch *b, attend_plan_fn *plan, int heads,
				   const struct block_lists *lists, const bf16_t *q,
				   const struct kv_cache *kv, bf16_t *out, float *lse,
				   void *work, void *stream, struct ar_err *err)
{
	const struct attn_shape *s = &b->shape;
	const bool per_block = plan == attend_plan_blocks;
	struct attend_piece *piece = (struct attend_piece *)work;
	struct params p = {};

	if (per_block && lists->block && b->n_part && b->n_tile <= ATTEND_CUT_TILES) {
		const int per_sm = s->page_tok == 64 && s->head_dim < 256 ? 2 : 1;
		enum ar_status st = attend_cut_enqueue(b, lists, b->n_sm * per_sm, piece, stream,
						       err);

		if (st)
			return st;
		p.piece = piece;
	}
	p.tile = (attn_tile *)b->tile;	/* for its counters */
	p.kept = b->kept;
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
	p.part = (char *)work + piece_bytes(b->n_tile);
	switch (s->head_dim) {
	case 64:
		return launch_size<64>(b, per_block, p, q, kv, (cudaStream_t)stream, err);
	case 128:
		return launch_size<128>(b, per_block, p, q, kv, (cudaStream_t)stream, err);
	default:
		return launch_size<256>(b, per_block, p, q, kv, (cudaStream_t)stream, err);
	}
}
