/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts that the attention kernels on Hopper share.  A thread block has one producer warp group and
 * one or two consumers of 64 rows each; attend_sm90.cu describes them.
 *
 * A kernel derives its params and its work from the structs of attend_tile.cuh.  A struct K
 * describes the entries of a list.  K::n_steps(work) counts steps, and K(work, step) finds the keys
 * of one.  hide() sets the logits of keys that a row must not see to -inf.
 *
 * A kernel whose rows have first keys or sinks is an instance of its own, with C::BOUNDED: others
 * pay nothing.  Its work says where they are.  A sink is a row's first base, and 1 in its sum from
 * the start.
 *
 * So is one that skips: C::SKIPS rows of a warp group vote on each step (struct attn_skip).  A
 * step that they skip costs Q K^T and its largest logits, but no exponentials and no product with
 * V, which has been loaded.  Its tiles have one head and no parts.
 */
#ifndef AR_ATTEND_SM90_CUH
#define AR_ATTEND_SM90_CUH

#include <cfloat>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/attend/attend_tile.cuh"
#include "kernels/prim/cuda.h"
#include "kernels/prim/tensor_map.h"

namespace {

constexpr float LIMIT = 0x1p60f;	/* of a row's sum before its base moves */

/* ---- consumers ---- */

/* acc = Q K^T of this warp group's rows.  Enqueued, not finished. */
template <class C>
__device__ __forceinline__ void issue_qk(float *acc, struct smem<C> *s, int step, int wg)
{
	const uint64_t rows = wgmma_desc(s->q[0][wg * WG_ROWS], 16, 1024);
	const uint64_t keys = wgmma_desc(s->k[s->k_ring.stage(step)], 16, 1024);

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
__device__ __forceinline__ void issue_pv(float *o, const uint32_t *pr, struct smem<C> *s,
					 int step)
{
	constexpr int WIDTH = C::D < 128 ? C::D : 128;	/* columns of a product */
	const uint64_t values = wgmma_desc(s->v[s->v_ring.stage(step)], C::N * COLS * 2, 1024);

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
	int first[2];			/* bounded: the first keys that they see */
	float base[2];			/* exponentials are of scaled logits less this */
	float sum[2];			/* of this thread's exponentials, at most LIMIT */
	/* of kernels that skip */
	float top[2];			/* the largest logits seen */
	float below;			/* logits this far below them are small */
	int last;			/* position of the last row that votes here; -1: none */
	int n_step, n_skip;		/* steps that they voted on and skipped */
	bool skipped;			/* the warp group skipped the last step */
};

/* o += P V, unless the step was skipped. */
template <class C>
__device__ __forceinline__ void add_values(float *o, const uint32_t *pr, const struct rows *t,
					   struct smem<C> *s, int step)
{
	if (C::SKIPS && t->skipped)
		wgmma_commit();
	else
		issue_pv<C>(o, pr, s, step);
}

/* P of a step's logits, and the row sums that include it. */
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

/* Move bases up to the step's logits, in rows whose sum with the step exceeds LIMIT.  alpha: factor
 * for the sums before.  Other rows of the warp keep every bit. */
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

/* Divide O by the row sums.  lse: log2 of the sum of exponentials of each row. */
template <int D>
__device__ __forceinline__ void divide(float *o, const struct rows *w, float *lse)
{
	float inv[2];

#pragma unroll
	for (int r = 0; r < 2; r++) {
		const float sum = quad_sum(w->sum[r]);

		inv[r] = sum == 0 ? 0 : 1 / sum;	/* NaN stays */
		lse[r] = sum == 0 ? -INFINITY : w->base[r] + log2f(sum);
	}
	rescale<D>(o, inv);
}

/* ---- skipping ---- */

/* Prepare rows m and m + 8 of the tile to vote.  Padding sees the keys of the last row, and finds
 * all logits small. */
template <class W>
__device__ __forceinline__ void init_votes(struct rows *t, const struct tile_params *p, const W *w,
					   int m)
{
	const int last = w->n_row - 1, group = m / p->skip.rows * p->skip.rows;

#pragma unroll
	for (int r = 0; r < 2; r++) {
		t->pos[r] = w->pos + min(m + 8 * r, last);
		t->top[r] = m + 8 * r > last ? INFINITY : -INFINITY;
	}
	t->below = attn_skip_below(&p->skip, w->len) * (LOG2E / p->scale);
	t->last = group > last ? -1 : w->pos + min(group + p->skip.rows - 1, last);
	t->n_step = t->n_skip = 0;
}

/* The largest logit of each row among those of this thread. */
template <int N> __device__ __forceinline__ void find_tops(float *top, const float *acc)
{
#pragma unroll
	for (int r = 0; r < 2; r++) {
		top[r] = fmaxf(acc[2 * r], acc[2 * r + 1]);
#pragma unroll
		for (int i = r + 2; i < N / 4; i += 2)
			top[r] = fmaxf(top[r], fmaxf(acc[2 * i], acc[2 * i + 1]));
	}
}

/* Raise what a warp's rows have seen to the largest logits of a step. */
__device__ __forceinline__ void raise_tops(struct rows *t, const float *top)
{
	if (!__any_sync(0xffffffff, top[0] > t->top[0] || top[1] > t->top[1]))
		return;
	t->top[0] = fmaxf(t->top[0], quad_max(top[0]));
	t->top[1] = fmaxf(t->top[1], quad_max(top[1]));
}

/* Vote on a step whose logits are in acc; at: its first key.  Rows that skip it alone hide its
 * logits.  Returns whether the warp group skips it.  Named barriers 3 and 4 of the consumers, 6 to
 * 9 of their halves. */
template <class C>
__device__ __forceinline__ bool vote(struct rows *t, float *acc, int at, bool first)
{
	bool own, all;
	float top[2];

	find_tops<C::N>(top, acc);
	own = !first && top[0] < t->top[0] + t->below && top[1] < t->top[1] + t->below;
	if (C::SKIPS < WG_ROWS)
		own = bar_and(4 + threadIdx.x / 64, 64, own);
	/* the compiler must see that steps stay the same in all lanes */
	all = __all_sync(0xffffffff, bar_and(2 + threadIdx.x / 128, 128, own));
	own = C::SKIPS < WG_ROWS ? __all_sync(0xffffffff, own) : all;
	if (at <= t->last) {
		t->n_step++;
		t->n_skip += own;
	}
	if (!own) {
		raise_tops(t, top);
	} else if (C::SKIPS < WG_ROWS && !all) {
#pragma unroll
		for (int i = 0; i < C::N / 2; i++)
			acc[i] = -INFINITY;
	}
	return all;
}

/* Add the steps that the tile t walked and skipped to the counts of its KV head. */
__device__ __forceinline__ void count_votes(const struct rows *t, const struct tile_params *p,
					    int kv_head)
{
	unsigned long long *count = (unsigned long long *)p->skip.count + 2 * kv_head;

	if (!p->skip.count || threadIdx.x % (2 * p->skip.rows))
		return;
	atomicAdd(&count[0], t->n_step);
	atomicAdd(&count[1], t->n_skip);
}

/* Wait until no product reads P, and keep the compiler from writing P before.  It takes the
 * registers as free once the product is enqueued. */
template <int N> __device__ __forceinline__ void finish_product(const uint32_t *pr, float *acc)
{
	wgmma_wait<0>();
#pragma unroll
	for (int i = 0; i < N / 4; i++)
		asm volatile("" :: "r"(pr[i]));
	hold<N / 2>(acc);
}

/* Turn the complete logits of step i, in acc, into P, and release K.  k: the step's keys.  True:
 * bases moved, and O must be multiplied by alpha.  The first step always moves them.  A step that
 * the warp group skips has no P.  Kernels that skip write P over that of the step before. */
template <class C, class K, class W>
__device__ __forceinline__ bool finish_scores(uint32_t *pr, float *acc, struct rows *t,
					      struct smem<C> *s, int i,
					      const struct tile_params *p, const W *w, const K &k,
					      float *alpha, bool first)
{
	float sum[2] = { INFINITY, INFINITY };
	bool moves;

	hold<C::N / 2>(acc);
	s->k_ring.consumer_release(i);
	k.hide(acc, t, w);
	if constexpr (C::SKIPS > 0) {
		t->skipped = vote<C>(t, acc, k.at[0], first);
		if (!first)
			finish_product<C::N>(pr, acc);
		if (t->skipped)
			return false;
	}
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

/* Look ahead whether the parts to merge with are ready, while the last product runs.  By the first
 * consumer. */
template <class C>
__device__ __forceinline__ void look_ahead(struct smem<C> *s, const struct tile_params *p,
					   const struct tile_work *w)
{
	const struct group g = group_of<C>(p, w, 1);

	if (threadIdx.x == 128 && g.n > 1)
		s->joins = load_acquire(g.left) == g.n - 1;
}

/* Let the next product start while this one runs.  ptxas overlaps products only if no product runs
 * while their register operands are set.  These moves count as setting them. */
template <int n> __device__ __forceinline__ void hold_p(uint32_t *pr)
{
#pragma unroll
	for (int i = 0; i < n; i++)
		asm volatile("mov.b32 %0, %0;" : "+r"(pr[i]));
}

/*
 * Compute the logits and P of step i while O takes in the P of the step before.  pr: that P; next:
 * the new one.
 *
 * Named barriers 1 and 2 say whose turn it is to issue: consumer 0 or 1.  Rows that threads copied
 * need a fence before the tensor cores read them through another proxy.
 */
template <class C, class K, class W>
__device__ __forceinline__ void advance(float *o, uint32_t *next, const uint32_t *pr,
					struct rows *t, struct smem<C> *s,
					const struct tile_params *p, const W *w, int wg, int i,
					int step)
{
	const int at = step + i;
	float acc[C::N / 2], alpha[2];
	K k(w, C::BY_HAND ? i - 1 : i);
	bool moved;

	s->k_ring.consumer_wait(at);
	if (C::BY_HAND) {
		s->v_ring.consumer_wait(at - 1);
		fence_proxy_async();
		k = K(w, i);	/* loaded after the fence, which would wait for it */
	}
	if (C::WGS == 2)
		bar_sync(1 + wg, 256);
	issue_qk<C>(acc, s, at, wg);
	if (!C::BY_HAND)
		s->v_ring.consumer_wait(at - 1);
	add_values<C>(o, pr, t, s, at - 1);
	if (C::WGS == 2)
		bar_arrive(2 - wg, 256);
	wgmma_wait<1>();
	moved = finish_scores<C>(next, acc, t, s, at, p, w, k, alpha, false);
	wgmma_wait<0>();
	hold<C::D / 2>(o);
	s->v_ring.consumer_release(at - 1);
	if (moved)
		rescale<C::D>(o, alpha);
	if (!C::SKIPS)
		hold_p<C::N / 4>(next);
}

/* Run all steps of the list.  step: in the rings, the first of this tile; round: tiles before that
 * had keys; last: the work, in shared memory. */
template <class C, class K, class W>
__device__ __forceinline__ void consume_list(float *o, struct rows *t, struct smem<C> *s,
					     const struct tile_params *p, const W *w, int wg,
					     int step, int round, const struct tile_work *last)
{
	const int n = K::n_steps(w);
	float acc[C::N / 2], alpha[2];
	uint32_t even[C::N / 4], odd[C::N / 4];
	int i = 1;

	if (C::WGS == 2 && wg == 1 && !C::STREAMS)
		bar_arrive(1, 256);
	mbarrier_wait(&s->q_full, round & 1);
	s->k_ring.consumer_wait(step);
	if (C::BY_HAND)
		fence_proxy_async();
	issue_qk<C>(acc, s, step, wg);
	wgmma_wait<0>();
	finish_scores<C>(even, acc, t, s, step, p, w, K(w, 0), alpha, true);
	/* two steps a round, if registers allow: P need not be moved */
	for (; C::D < 256 && !C::SKIPS && i < n - 1; i += 2) {
		advance<C, K>(o, odd, even, t, s, p, w, wg, i, step);
		advance<C, K>(o, even, odd, t, s, p, w, wg, i + 1, step);
	}
	for (; i < n; i++) {
		advance<C, K>(o, C::SKIPS ? even : odd, even, t, s, p, w, wg, i, step);
#pragma unroll
		for (int j = 0; !C::SKIPS && j < C::N / 4; j++)
			even[j] = odd[j];
	}
	if (C::STREAMS && threadIdx.x % 128 == 0)
		mbarrier_arrive(&s->q_empty);
	s->v_ring.consumer_wait(step + n - 1);
	if (C::BY_HAND)
		fence_proxy_async();
	add_values<C>(o, even, t, s, step + n - 1);
	look_ahead<C>(s, p, last);
	wgmma_wait<0>();
	hold<C::D / 2>(o);
	if (C::STREAMS)
		s->v_ring.consumer_release(step + n - 1);
}

/* Load the bounds of rows m and m + 8 of the tile; padding is bounded as the last row and head. */
template <class W>
__device__ __forceinline__ void bound_rows(struct rows *t, const struct tile_params *p, const W *w,
					   int m)
{
#pragma unroll
	for (int r = 0; r < 2; r++) {
		const int row = min((m + 8 * r) / p->heads, w->n_row - 1);
		const int head = min((m + 8 * r) % p->heads, w->n_head - 1);

		t->first[r] = w->first_key ? w->first_key[w->row + row] : 0;
		if (w->sink && w->part == 0) {
			t->base[r] = w->sink[w->head + head] * LOG2E;
			t->sum[r] = threadIdx.x % 4 == 0;
		}
	}
}

template <class C, class K, class W>
__device__ __forceinline__ void consume(struct smem<C> *s, const struct tile_params *p, const W *w,
					int wg, int step, int round,
					const struct tile_work *last)
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
		t.base[r] = -FLT_MAX;
		t.sum[r] = 0;
	}
	if constexpr (C::BOUNDED)
		bound_rows(&t, p, w, m);
	if constexpr (C::SKIPS > 0)
		init_votes(&t, p, w, m);
	if (w->n)
		consume_list<C, K>(o, &t, s, p, w, wg, step, round, last);
	if constexpr (C::SKIPS > 0)
		count_votes(&t, p, w->kv_head);
	if constexpr (C::SHARES)
		if (shares_rows<C>(p, last)) {
			share_tile<C>(o, t.base, t.sum, p, last);
			return;
		}
	divide<C::D>(o, &t, lse);
	if (last->n_part > 1) {
		bool used = row_exists(p, last, m) || row_exists(p, last, m + 8);

		if (!join<C>(o, lse, s, p, last, __any_sync(0xffffffff, used)))
			return;
	}
	if (C::STREAMS)
		store_quads<C>(o, lse, p, last, wg);
	else
		store_rows<C>(o, lse, s, p, last, wg);
}

/* ---- the kernel ---- */

/* The body of a kernel, by all threads.  prefetch(), by one thread, asks for tensor maps while the
 * tile is loaded; find() returns the work; produce(s, w), by the producer's threads, fills the
 * rings. */
template <class C, class K, class Prefetch, class Find, class Produce>
__device__ __forceinline__ void run_tile(const struct tile_params *p, Prefetch prefetch, Find find,
					 Produce produce)
{
	extern __shared__ char raw[];
	struct smem<C> *s = (struct smem<C> *)(((uintptr_t)raw + 1023) & ~(uintptr_t)1023);

	if (threadIdx.x == 0) {
		prefetch();
		make_barriers(s);
	}
	__syncwarp();
	const auto w = find();

	if (w.part >= w.n_part)		/* the tile needed fewer parts than planned */
		return;
	if (threadIdx.x == 0) {
		s->work = w;
		s->joins = 0;
	}
	__syncthreads();
	if (threadIdx.x < 128) {
		setmaxnreg_dec<C::FEW>();
		if (w.n)
			produce(s, &w);
	} else {
		setmaxnreg_inc<C::MANY>();
		consume<C, K>(s, p, &w, C::WGS == 1 ? 0 : warp_group() - 1, 0, 0, &s->work);
	}
}

/* ---- launch ---- */

/* heads: packed in a tile.  n_cut: of how many tiles attend_cut makes pieces, at the start of
 * work. */
struct tile_params tile_params_of(const struct attn_call *call, int heads, int n_cut)
{
	const struct attn_batch *b = call->b;
	const struct attn_shape *s = &b->shape;
	struct tile_params p = {};

	p.tile = (attn_tile *)b->tile;
	p.piece = n_cut ? (struct attend_piece *)call->work : NULL;
	p.n_plain = b->n_tile - n_cut;
	p.page = b->keys.page;
	p.q_heads = s->q_heads;
	p.group = s->q_heads / s->kv_heads;
	p.kv_heads = s->kv_heads;
	p.heads = heads;
	p.scale = LOG2E / sqrtf((float)s->head_dim);
	p.out = (__nv_bfloat16 *)call->out;
	p.lse = call->lse;
	p.part = (char *)call->work + attend_piece_bytes(n_cut);
	p.skip = b->skip;
	return p;
}

/* Describe Q to TMA, in boxes of a tile. */
template <class C>
enum ar_status map_q(CUtensorMap *map, struct tile_params *p, const struct attn_batch *b,
		     const bf16_t *q, struct ar_err *err)
{
	const uint64_t dim[3] = { C::D, (uint64_t)b->shape.q_heads, (uint64_t)b->rows.n_row };
	const uint32_t box[3] = { COLS, (uint32_t)p->heads, (uint32_t)(C::M / p->heads) };

	p->q_bytes = (uint32_t)(C::M / p->heads * p->heads * C::D * 2);
	return tensor_map(map, q, 3, dim, box, err);
}

/* How thread blocks start: as others do; while the kernel before, attend_cut, ends; or only all
 * together, which those that wait for each other need. */
enum start { ALONE, OVERLAPPING, TOGETHER };

/* Launch one thread block per tile. */
template <class C, class... Args>
cudaError_t launch_tiles(void (*kernel)(Args...), int n, int bytes, enum start start, void *stream,
			 const Args &...args)
{
	cudaLaunchAttribute attribute = {};
	cudaLaunchConfig_t config = {};
	cudaError_t e;

	if (start == OVERLAPPING) {
		attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
		attribute.val.programmaticStreamSerializationAllowed = 1;
	} else {
		attribute.id = cudaLaunchAttributeCooperative;
		attribute.val.cooperative = 1;
	}
	config.gridDim = n;
	config.blockDim = C::THREADS;
	config.dynamicSmemBytes = bytes;
	config.stream = (cudaStream_t)stream;
	config.attrs = &attribute;
	config.numAttrs = start != ALONE;
	e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
	return e ? e : cudaLaunchKernelEx(&config, kernel, args...);
}

} /* namespace */

#endif
