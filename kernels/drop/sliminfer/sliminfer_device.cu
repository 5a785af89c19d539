/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SlimInfer on the device; the rule is in sliminfer.c.
 *
 *   sliminfer_query   grid (query head, request): the mean of the last queries
 *   sliminfer_score   grid (block, KV head, request): each unit's mean key, its products with the
 *                     KV head's mean queries, and the sum over them of the largest
 *   sliminfer_pick    a thread block per request: the blocks that stay, and their rows
 */
#include "config.h"
#include "kernels/drop/sliminfer/sliminfer.h"

#include "base/workspace.h"
#include "kernels/drop/drop.cuh"
#include "kernels/prim/cuda.h"

namespace {

struct room {
	float *qbar;		/* [request][query head][head_dim] */
	struct score_parts part;	/* [KV head or rank][blocks] */
	float *own;		/* [KV head][blocks] */
	void *sum;		/* sum_ranks_bytes() */
	float *score;		/* [blocks] */
	uint8_t *kept;		/* [blocks] */
	int64_t blocks;		/* of all requests */
};

struct job {
	struct attn_batch b;
	struct sliminfer p;
	struct room w;
	const bf16_t *q, *k;
	const int32_t *chunk;
	double value;
};

struct room room_at(const struct sliminfer *p, const struct attn_shape *s, int64_t n_page,
		    int n_req, int ranks, struct workspace *w)
{
	struct room r;

	r.blocks = sliminfer_room(p, s, n_page, n_req);
	r.qbar = (float *)workspace_take(w, (size_t)n_req * s->q_heads * s->head_dim,
					 sizeof *r.qbar);
	r.own = (float *)workspace_take(w, (size_t)r.blocks * s->kv_heads, sizeof *r.own);
	r.sum = workspace_take(w, sum_ranks_bytes(ranks, r.blocks), 1);
	r.part = { r.own, s->kv_heads, r.blocks };
	r.score = (float *)workspace_take(w, (size_t)r.blocks, sizeof *r.score);
	r.kept = (uint8_t *)workspace_take(w, (size_t)r.blocks, sizeof *r.kept);
	return r;
}

__device__ int rows_of(const struct job &j, int r)
{
	return j.b.rows.row0[r + 1] - j.b.rows.row0[r];
}

/* Where the blocks of a request begin. */
__device__ int64_t first_of(const struct job &j, int r)
{
	return (int64_t)j.b.keys.page0[r] * j.b.shape.page_tok / j.p.block + r;
}

__device__ __forceinline__ float widen(bf16_t x)
{
	return __uint_as_float((uint32_t)x << 16);
}

/* A thread per channel. */
__global__ void sliminfer_query(const struct job j)
{
	const struct attn_shape &s = j.b.shape;
	const int r = blockIdx.y, h = blockIdx.x, rows = rows_of(j, r);
	const int n = min((int)j.p.window, rows);
	const bf16_t *q = j.q + ((size_t)(j.b.rows.row0[r + 1] - n) * s.q_heads + h) * s.head_dim;
	float sum = 0;

	if (sliminfer_short(&j.p, rows))
		return;
	for (int i = 0; i < n; i++)
		sum += widen(q[(size_t)i * s.q_heads * s.head_dim + threadIdx.x]);
	j.w.qbar[((size_t)r * s.q_heads + h) * s.head_dim + threadIdx.x] = sum / n;
}

/* A thread per channel of a unit's mean, then a warp per query head in turn. */
__global__ void sliminfer_score(const struct job j)
{
	extern __shared__ float dynamic[];
	const struct attn_shape &s = j.b.shape;
	const int D = s.head_dim, group = s.q_heads / s.kv_heads, tok = s.page_tok;
	const int blk = blockIdx.x, kv_head = blockIdx.y, r = blockIdx.z, rows = rows_of(j, r);
	const int lane = threadIdx.x % 32, first = blk * (int)j.p.block;
	const int end = min(first + (int)j.p.block, rows), pos0 = j.b.rows.pos0[r];
	const int32_t *page = j.b.keys.page + j.b.keys.page0[r];
	const float *qbar = j.w.qbar + ((size_t)r * s.q_heads + kv_head * group) * D;
	float *rep = dynamic, *best = dynamic + D;	/* [D], [group] */
	float sum = 0;

	if (first >= rows || sliminfer_short(&j.p, rows))
		return;
	for (int u = first; u < end; u += j.p.unit) {
		const int stop = min(u + (int)j.p.unit, end);
		float mean = 0;

		for (int t = pos0 + u; t < pos0 + stop; t++)
			mean += widen(j.k[(((size_t)page[t / tok] * s.kv_heads + kv_head) * tok +
					   t % tok) * D + threadIdx.x]);
		__syncthreads();	// the last use of rep is over
		rep[threadIdx.x] = mean / (stop - u);
		__syncthreads();
		for (int h = threadIdx.x / 32; h < group; h += D / 32) {
			float dot = 0;

			for (int d = lane; d < D; d += 32)
				dot += qbar[h * D + d] * rep[d];
			dot = warp_sum(dot);
			if (lane == 0)
				best[h] = u == first ? dot : fmaxf(best[h], dot);
		}
	}
	__syncthreads();
	if (threadIdx.x)
		return;
	for (int h = 0; h < group; h++)
		sum += best[h] / sqrtf((float)D) / s.q_heads;
	j.w.own[kv_head * j.w.blocks + first_of(j, r) + blk] = sum;
}

__global__ void __launch_bounds__(TOP_THREADS)
sliminfer_pick(const struct job j, uint8_t *keep)
{
	__shared__ struct top_smem sm;
	const int r = blockIdx.x, rows = rows_of(j, r), pos0 = j.b.rows.pos0[r];
	const int block = (int)j.p.block, n = (rows + block - 1) / block;
	const int64_t first = first_of(j, r);
	float *score = j.w.score + first;
	uint8_t *kept = j.w.kept + first;

	keep += j.b.rows.row0[r];
	if (sliminfer_short(&j.p, rows)) {
		for (int i = threadIdx.x; i < rows; i += TOP_THREADS)
			keep[i] = 1;
		return;
	}
	for (int i = threadIdx.x; i < n; i += TOP_THREADS)
		score[i] = drop_score(j.w.part, first + i);
	__syncthreads();
	// blocks that stay in any case have the key 0, below that of any score
	const auto key = [&](int i) {
		return sliminfer_stays(&j.p, pos0, rows, i) ? 0u : top_key(score[i]);
	};
	const auto one = [](uint32_t) { return 1u; };
	const uint64_t others = top_sum(key, n, 1, one, sm);
	const int budget = sliminfer_budget(&j.p, j.value, j.chunk[r]);
	struct top top = top_none();

	if (budget > 0 && others)
		top = top_find(key, n, min((uint64_t)budget, others), one, sm);
	drop_tops(key, n, top, [](int i) { return i; },
		  [&](int i, bool among) {
			  kept[i] = among || sliminfer_stays(&j.p, pos0, rows, i);
		  }, sm);
	__syncthreads();
	for (int i = threadIdx.x; i < rows; i += TOP_THREADS)
		keep[i] = kept[i / block];
}

}

size_t sliminfer_work_bytes(const void *self, int ranks, const struct attn_shape *s,
			    const struct attn_limits *l)
{
	const struct sliminfer *p = &((const struct sliminfer_self *)self)->rule;
	struct workspace w = workspace_at(NULL);

	room_at(p, s, l->max_page, l->max_req, ranks, &w);
	return w.used;
}

enum ar_status sliminfer_enqueue(const struct drop_call *call, const void *self, uint8_t *keep,
				 struct ar_err *err)
{
	const struct sliminfer_self *x = (const struct sliminfer_self *)self;
	const struct attn_call *at = call->at;
	const struct attn_shape *s = &at->b->shape;
	const int n_req = at->b->rows.n_req, block = (int)x->rule.block;
	const int blocks = (at->b->keys.max_kv_blk * s->page_tok + block - 1) / block;
	const size_t bytes = (size_t)(s->head_dim + s->q_heads / s->kv_heads) * sizeof(float);
	const cudaStream_t stream = (cudaStream_t)at->stream;
	struct workspace w = workspace_at(at->work);
	struct job j = { .b = *at->b, .p = x->rule, .q = at->q, .k = at->kv.k,
			 .chunk = call->chunk,
			 .value = x->layers.value[layer_list_find(&x->layers, at->layer)] };
	enum ar_status st = AR_OK;

	if (!at->b->rows.n_row)
		return AR_OK;
	j.w = room_at(&x->rule, s, at->b->keys.n_page, n_req, call->ranks.n, &w);
	sliminfer_query<<<dim3(s->q_heads, n_req), s->head_dim, 0, stream>>>(j);
	CU_LAUNCHED();
	sliminfer_score<<<dim3(blocks, s->kv_heads, n_req), s->head_dim, bytes, stream>>>(j);
	CU_LAUNCHED();
	st = sum_ranks_enqueue(&call->ranks, &j.w.part, false, j.w.sum, stream, err);
	if (st)
		return st;
	sliminfer_pick<<<n_req, TOP_THREADS, 0, stream>>>(j, keep);
	CU_LAUNCHED();
out:
	return st;
}
