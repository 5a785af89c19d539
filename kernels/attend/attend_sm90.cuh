/* What kernels of attention on Hopper have in common, whatever is listed: thread blocks of one
 * producer warp group and one or two consumers with 64 rows each, as attend_sm90.cu describes them.
 *
 * A kernel derives its params and its work from those below, and says of what it lists, in a struct
 * K: K::n_steps(work); K(work, step), the keys of one; and its hide(), which makes -inf of the
 * logits of keys that rows do not see. */
#ifndef AR_ATTEND_SM90_CUH
#define AR_ATTEND_SM90_CUH

#include <cfloat>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/attend/attend_cut.h"
#include "kernels/attend/attend_part.cuh"
#include "kernels/prim/cuda.h"
#include "kernels/prim/sm90.cuh"
#include "kernels/prim/tensor_map.h"

/* In code for other architectures the kernels are traps, and their parts are unused. */
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#pragma nv_diag_suppress 177
#endif

namespace {

constexpr int COLS = 64;		/* columns of a swizzled slab: 128 bytes */
constexpr int WG_ROWS = 64;
constexpr float LN2 = 0.6931471805599453f;
constexpr float LIMIT = 0x1p60f;	/* of a row's sum before its base moves */

/* Head size, keys of a block, consumers, whether all threads of the producer copy rows or one asks
 * the copy engine; and what follows from them. */
template <int head_dim, int page, int consumers, bool by_hand = false> struct config {
	static constexpr int D = head_dim, PAGE = page, WGS = consumers;
	static constexpr bool BY_HAND = by_hand;
	static constexpr int M = WGS * WG_ROWS;			/* packed rows of a tile */
	/* of K and of V; a third where it fits and was seen to help */
	static constexpr int STAGES = D == 128 && PAGE == 128 && WGS == 2 && !BY_HAND ? 3 : 2;
	static constexpr int N = D == 256 || WGS == 1 ? 64 : 128;	/* keys of a step */
	static constexpr int STEPS = PAGE > N ? PAGE / N : 1;	/* of a block */
	static constexpr int BLOCKS = N > PAGE ? N / PAGE : 1;	/* of a step */
	static constexpr int RUN = N / BLOCKS;			/* keys of a step that adjoin */
	static constexpr int THREADS = (1 + WGS) * 128;
	static constexpr int PER_SM = D == 256 ? 1 : 3 - WGS;	/* thread blocks */
	static constexpr int COPIERS = BY_HAND ? 128 : 1;	/* threads that fill a stage */
	/* registers of a thread: the producer's, a consumer's */
	static constexpr int FEW = BY_HAND ? 40 : 24;
	static constexpr int ROOM = (512 / PER_SM - FEW) / WGS / 8 * 8;
	static constexpr int MANY = ROOM < 248 ? ROOM : 248;
};

/* Of a launch. */
struct tile_params {
	attn_tile *tile;		/* for its counters, too */
	const struct attend_piece *piece;	/* as attend_cut made them; NULL: as planned */
	const int32_t *page;
	int q_heads, group, kv_heads;
	int heads;			/* heads packed in a tile; a tile may use fewer */
	uint32_t q_bytes;		/* what the copy engine brings of Q */
	float scale;			/* log2(e) / sqrt(D) */
	__nv_bfloat16 *out;
	float *lse;
	void *part;			/* [n_tile] struct part, by places */
};

/* What all threads know of their tile, or part of one. */
struct tile_work {
	int row, n_row, head, n_head, kv_head;	/* row: in q */
	int pos;				/* position of the first row */
	int place, part, n_part;
	int first, n;				/* blocks to visit, of all or of the list */
	const int32_t *page;
};

/* A slab is 64 columns of all rows, swizzled by 128 bytes as the copy engine does it. */
template <class C> struct alignas(1024) smem {
	__nv_bfloat16 q[C::D / COLS][C::M][COLS];
	__nv_bfloat16 k[C::STAGES][C::D / COLS][C::N][COLS];
	__nv_bfloat16 v[C::STAGES][C::D / COLS][C::N][COLS];
	uint64_t q_full, k_full[C::STAGES], k_empty[C::STAGES];
	uint64_t v_full[C::STAGES], v_empty[C::STAGES];
	struct tile_work work;		/* for the end: what comes before leaves it no registers */
	int joins;
};
template <class C> constexpr int SMEM_BYTES = sizeof(struct smem<C>) + 1024;
/* ---- the beginning ---- */

/* By one thread. */
template <class C> __device__ __forceinline__ void make_barriers(struct smem<C> *s)
{
	mbarrier_init(&s->q_full, 1);
	for (int i = 0; i < C::STAGES; i++) {
		mbarrier_init(&s->k_full[i], C::COPIERS);
		mbarrier_init(&s->v_full[i], C::COPIERS);
		mbarrier_init(&s->k_empty[i], C::WGS);
		mbarrier_init(&s->v_empty[i], C::WGS);
	}
	fence_barrier_init();
}

/* This thread block's tile, and what attend_cut has to say of it. */
__device__ __forceinline__ attn_tile tile_of(const struct tile_params *p, struct tile_work *w)
{
	struct attend_piece cut = { (int)blockIdx.x };
	attn_tile t;

	if (p->piece) {
		grid_wait();
		cut = p->piece[blockIdx.x];
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
	w->page = p->page + t.page0;
	if (p->piece) {
		w->first = cut.first;
		w->n = cut.n;
		w->n_part = cut.n_part;
	}
	return t;
}

/* A tile of n blocks, in parts as planned. */
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

/* By one thread; a tile uses the first heads * (M / heads) packed rows. */
template <class C>
__device__ __forceinline__ void load_q(struct smem<C> *s, const struct tile_params *p,
				       const struct tile_work *w, const CUtensorMap *qmap)
{
	mbarrier_expect_tx(&s->q_full, p->q_bytes);
	for (int c = 0; c < C::D / COLS; c++)
		tma_load_3d(s->q[c], qmap, &s->q_full, c * COLS, w->head, w->row);
}

/* ---- consumers ---- */

/* acc = Q K^T of this warp group's rows.  Enqueued, not finished. */
template <class C>
__device__ __forceinline__ void issue_qk(float *acc, struct smem<C> *s, int st, int wg)
{
	const uint64_t rows = wgmma_desc(s->q[0][wg * WG_ROWS], 16, 1024);
	const uint64_t keys = wgmma_desc(s->k[st], 16, 1024);

	wgmma_fence();
#pragma unroll
	for (int k = 0; k < C::D / 16; k++)
		wgmma_ss<C::N>(acc, wgmma_at(rows, k / 4 * sizeof s->q[0] + k % 4 * 32),
			       wgmma_at(keys, k / 4 * sizeof s->k[0][0] + k % 4 * 32), k != 0);
	wgmma_commit();
}

/* o += P V.  V lies as [key][column], so it is the transposed operand: 64-column slabs lead,
 * groups of eight keys stride. */
template <class C>
__device__ __forceinline__ void issue_pv(float *o, const uint32_t *pr, struct smem<C> *s, int st)
{
	constexpr int WIDTH = C::D < 128 ? C::D : 128;	/* columns of a product */
	const uint64_t values = wgmma_desc(s->v[st], C::N * COLS * 2, 1024);

	wgmma_fence();
#pragma unroll
	for (int k = 0; k < C::N / 16; k++)
#pragma unroll
		for (int c = 0; c < C::D; c += WIDTH)
			wgmma_rs<WIDTH>(o + c / 2, pr + 4 * k,
					wgmma_at(values, c / COLS * sizeof s->v[0][0] +
						 k * 16 * sizeof s->v[0][0][0]));
	wgmma_commit();
}

/* Thread state of two rows (the accumulator's rows g and g + 8 of a warp). */
struct rows {
	int pos[2];			/* positions */
	float base[2];			/* exponentials are of scaled logits less this */
	float sum[2];			/* of this thread's exponentials, at most LIMIT */
};

/* P of a step's logits, and the sums with it. */
template <int N>
__device__ __forceinline__ void exponentials(uint32_t *pr, float *sum, const float *acc,
					      const struct rows *t, float scale)
{
	float odd[2] = { 0, 0 };

	sum[0] = t->sum[0];
	sum[1] = t->sum[1];
#pragma unroll
	for (int i = 0; i < N / 4; i++) {
		const int r = i % 2;
		const float x = ex2(fmaf(acc[2 * i], scale, -t->base[r]));
		const float y = ex2(fmaf(acc[2 * i + 1], scale, -t->base[r]));

		sum[r] += x;
		odd[r] += y;
		pr[i] = pack_bf16(x, y);
	}
	sum[0] += odd[0];
	sum[1] += odd[1];
}

/* Move the bases of rows whose sum with the step is past LIMIT up to the step's logits; alpha: what
 * comes from before is multiplied by.  Other rows of the warp, some of which are nothing, change no
 * bit of a row. */
template <int N>
__device__ __forceinline__ void rebase(struct rows *t, float *alpha, const float *acc,
				       const float *sum, float scale)
{
#pragma unroll
	for (int r = 0; r < 2; r++) {
		const float old = t->base[r];
		float top = -INFINITY;

#pragma unroll
		for (int i = r; i < N / 4; i += 2)
			top = fmaxf(top, fmaxf(acc[2 * i], acc[2 * i + 1]));
		/* rounded up: no logit is above it */
		top = fmaxf(old, __fmul_ru(quad_max(top), scale));
		t->base[r] = quad_max(sum[r]) > LIMIT ? top : old;
		alpha[r] = ex2(old - t->base[r]);
		t->sum[r] *= alpha[r];
	}
}

template <int D> __device__ __forceinline__ void rescale(float *o, const float *alpha)
{
#pragma unroll
	for (int i = 0; i < D / 2; i++)
		o[i] *= alpha[i / 2 % 2];
}

/* Whether packed row m of the tile exists, and where it goes in q, out and lse. */
__device__ __forceinline__ bool row_exists(const struct tile_params *p, const struct tile_work *t,
					   int m)
{
	return m / p->heads < t->n_row && m % p->heads < t->n_head;
}

__device__ __forceinline__ size_t row_index(const struct tile_params *p, const struct tile_work *t,
					    int m)
{
	return (size_t)(t->row + m / p->heads) * p->q_heads + t->head + m % p->heads;
}

/* O becomes attention over the keys seen; lse: the logarithms to base 2 of the rows' sums. */
template <int D>
__device__ __forceinline__ void divide(float *o, const struct rows *w, float *lse)
{
	float inv[2];

#pragma unroll
	for (int r = 0; r < 2; r++) {
		const float sum = quad_sum(w->sum[r]);

		inv[r] = sum > 0 ? 1 / sum : 0;
		lse[r] = sum > 0 ? w->base[r] + log2f(sum) : -INFINITY;
	}
	rescale<D>(o, inv);
}

/* Rounding, and coalesced stores by way of this warp group's rows of s->q. */
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
				     const struct tile_params *p, const struct tile_work *t,
				     bool used)
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

/* The logits of the step with these keys are complete in acc: release K, turn them into P.  True
 * where bases moved, always at the first step, and O is to be multiplied by alpha. */
template <class C, class K, class W>
__device__ __forceinline__ bool finish_scores(uint32_t *pr, float *acc, struct rows *t,
					      struct smem<C> *s, int st,
					      const struct tile_params *p, const W *w, const K &k,
					      float *alpha, bool first)
{
	float sum[2] = { INFINITY, INFINITY };
	bool moves;

	hold<C::N / 2>(acc);
	if (threadIdx.x % 128 == 0)
		mbarrier_arrive(&s->k_empty[st]);
	k.hide(acc, t, w);
	if (!first)
		exponentials<C::N>(pr, sum, acc, t, p->scale);
	moves = __any_sync(~0u, fmaxf(sum[0], sum[1]) > LIMIT);
	if (moves) {
		rebase<C::N>(t, alpha, acc, sum, p->scale);
		exponentials<C::N>(pr, sum, acc, t, p->scale);
	}
	t->sum[0] = sum[0];
	t->sum[1] = sum[1];
	return moves;
}

/* While the last product runs, the first consumer looks whether the part to join with is ready. */
template <class C>
__device__ __forceinline__ void look_ahead(struct smem<C> *s, const struct tile_params *p)
{
	const struct tile_work *w = &s->work;
	const int later = w->part | 1;

	if (threadIdx.x == 128 && later < w->n_part)
		s->joins = load_acquire(&p->tile[w->place + later].joined);
}

/* P that was made while a product ran: ptxas lets products run beside each other only where what
 * they read in registers is set when none does, and this counts as setting it. */
template <int n> __device__ __forceinline__ void hold_p(uint32_t *pr)
{
#pragma unroll
	for (int i = 0; i < n; i++)
		asm volatile("mov.b32 %0, %0;" : "+r"(pr[i]));
}

/* Step i's logits, and its P in next, while O takes in the P of the step before.  Named barriers 1
 * and 2: the turn of consumer 0 and 1 to issue.  What threads have copied the tensor cores read by
 * another proxy, after a fence. */
template <class C, class K, class W>
__device__ __forceinline__ void advance(float *o, uint32_t *next, const uint32_t *pr,
					struct rows *t, struct smem<C> *s,
					const struct tile_params *p, const W *w, int wg, int i)
{
	const int st = i % C::STAGES, last = (i - 1) % C::STAGES;
	float acc[C::N / 2], alpha[2];
	K k(w, C::BY_HAND ? i - 1 : i);
	bool moved;

	mbarrier_wait(&s->k_full[st], i / C::STAGES & 1);
	if (C::BY_HAND) {
		mbarrier_wait(&s->v_full[last], (i - 1) / C::STAGES & 1);
		fence_proxy_async();
		k = K(w, i);	/* the fence would wait for it */
	}
	if (C::WGS == 2)
		bar_sync(1 + wg, 256);
	issue_qk<C>(acc, s, st, wg);
	if (!C::BY_HAND)
		mbarrier_wait(&s->v_full[last], (i - 1) / C::STAGES & 1);
	issue_pv<C>(o, pr, s, last);
	if (C::WGS == 2)
		bar_arrive(2 - wg, 256);
	wgmma_wait<1>();
	moved = finish_scores<C>(next, acc, t, s, st, p, w, k, alpha, false);
	wgmma_wait<0>();
	hold<C::D / 2>(o);
	if (threadIdx.x % 128 == 0)
		mbarrier_arrive(&s->v_empty[last]);
	if (moved)
		rescale<C::D>(o, alpha);
	hold_p<C::N / 4>(next);
}

/* All steps of the list. */
template <class C, class K, class W>
__device__ __forceinline__ void consume_list(float *o, struct rows *t, struct smem<C> *s,
					     const struct tile_params *p, const W *w, int wg)
{
	const int n = K::n_steps(w);
	float acc[C::N / 2], alpha[2];
	uint32_t even[C::N / 4], odd[C::N / 4];
	int i = 1;

	if (C::WGS == 2 && wg == 1)
		bar_arrive(1, 256);
	mbarrier_wait(&s->q_full, 0);
	mbarrier_wait(&s->k_full[0], 0);
	if (C::BY_HAND)
		fence_proxy_async();
	issue_qk<C>(acc, s, 0, wg);
	wgmma_wait<0>();
	finish_scores<C>(even, acc, t, s, 0, p, w, K(w, 0), alpha, true);
	/* by twos, where there are registers for it: P is not moved then */
	for (; C::D < 256 && i < n - 1; i += 2) {
		advance<C, K>(o, odd, even, t, s, p, w, wg, i);
		advance<C, K>(o, even, odd, t, s, p, w, wg, i + 1);
	}
	for (; i < n; i++) {
		advance<C, K>(o, odd, even, t, s, p, w, wg, i);
#pragma unroll
		for (int j = 0; j < C::N / 4; j++)
			even[j] = odd[j];
	}
	mbarrier_wait(&s->v_full[(n - 1) % C::STAGES], (n - 1) / C::STAGES & 1);
	if (C::BY_HAND)
		fence_proxy_async();
	issue_pv<C>(o, even, s, (n - 1) % C::STAGES);
	look_ahead<C>(s, p);
	wgmma_wait<0>();
	hold<C::D / 2>(o);
}

template <class C, class K, class W>
__device__ __forceinline__ void consume(struct smem<C> *s, const struct tile_params *p, const W *w,
					int wg)
{
	const int m = wg * WG_ROWS + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
	const struct tile_work *last = &s->work;
	float o[C::D / 2], lse[2];
	struct rows t;

#pragma unroll
	for (int i = 0; i < C::D / 2; i++)
		o[i] = 0;
#pragma unroll
	for (int r = 0; r < 2; r++) {
		t.pos[r] = w->pos + (m + 8 * r) / p->heads;
		t.base[r] = -FLT_MAX;
		t.sum[r] = 0;
	}
	if (w->n)
		consume_list<C, K>(o, &t, s, p, w, wg);
	divide<C::D>(o, &t, lse);
	if (last->n_part > 1) {
		bool used = row_exists(p, last, m) || row_exists(p, last, m + 8);

		if (!join<C>(o, lse, s, p, last, __any_sync(0xffffffff, used)))
			return;
	}
	store_rows<C>(o, lse, s, p, last, wg);
}

/* ---- launch ---- */

/* heads: packed in a tile.  piece: whether attend_cut makes pieces, at the start of work. */
struct tile_params tile_params_of(const struct attn_call *call, int heads, bool piece)
{
	const struct attn_batch *b = call->b;
	const struct attn_shape *s = &b->shape;
	struct tile_params p = {};

	p.tile = (attn_tile *)b->tile;
	p.piece = piece ? (struct attend_piece *)call->work : NULL;
	p.page = b->keys.page;
	p.q_heads = s->q_heads;
	p.group = s->q_heads / s->kv_heads;
	p.kv_heads = s->kv_heads;
	p.heads = heads;
	p.scale = 1.4426950408889634f / sqrtf((float)s->head_dim);
	p.out = (__nv_bfloat16 *)call->out;
	p.lse = call->lse;
	p.part = (char *)call->work + attend_piece_bytes(b->n_tile);
	return p;
}

/* The copy engine's view of Q. */
template <class C>
enum ar_status map_q(CUtensorMap *map, struct tile_params *p, const struct attn_batch *b,
		     const bf16_t *q, struct ar_err *err)
{
	const uint64_t dim[3] = { C::D, (uint64_t)b->shape.q_heads, (uint64_t)b->rows.n_row };
	const uint32_t box[3] = { COLS, (uint32_t)p->heads, (uint32_t)(C::M / p->heads) };

	p->q_bytes = (uint32_t)(C::M / p->heads * p->heads * C::D * 2);
	return tensor_map(map, q, 3, dim, box, err);
}

/* overlap: start while the kernel before, attend_cut, ends. */
template <class C, class... Args>
enum ar_status launch_tiles(void (*kernel)(Args...), int n_tile, bool overlap, cudaStream_t stream,
			    struct ar_err *err, const Args &...args)
{
	cudaLaunchAttribute attribute = {};
	cudaLaunchConfig_t config = {};
	enum ar_status st = AR_OK;

	attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
	attribute.val.programmaticStreamSerializationAllowed = 1;
	config.gridDim = n_tile;
	config.blockDim = C::THREADS;
	config.dynamicSmemBytes = SMEM_BYTES<C>;
	config.stream = stream;
	config.attrs = &attribute;
	config.numAttrs = overlap;
	CU(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
				SMEM_BYTES<C>));
	CU(cudaLaunchKernelEx(&config, kernel, args...));
out:
	return st;
}

} /* namespace */

#endif
