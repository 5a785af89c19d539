/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MInference's selection on the device; the rule is in minference.c.  After the sums of lastq.h,
 * and the means of keys where a head has the pattern block_sparse, come
 *
 *   pick     (head of a request, direction): the columns or distances that are taken
 *   rows     (query block, head): merge them into a vertical-slash list; or an A-shape
 *   means    (query block, head): the blocks of block_sparse heads
 *
 * Budget at 128K tokens, 8 requests, 16 heads and 64 rows:
 *
 *   lastq    two passes, each with 0.29 ms of products and as much of exponentials
 *   pick     256 thread blocks, all at once, read 0.5 MiB each once, and every 32nd key before:
 *            0.17 GB, 0.05 ms; the two thresholds are found among a few thousand keys
 *   rows     a warp makes a row; a scheduler has four warps.  A warp takes 32 of 2048 distances at
 *            once.  Its chain is 64 loads, and for one distance in four a step of some sixty
 *            cycles: 0.03 ms
 *
 * Measured on an H200: lastq 0.44 and 0.57 ms, pick 0.10, rows 0.05; 1.17 in all.
 */
#include "config.h"
#include "kernels/select/minference/minference.h"

#include <cmath>

#include "base/workspace.h"
#include "kernels/prim/cuda.h"
#include "kernels/select/lastq/lastq.h"
#include "kernels/select/means/means.cuh"
#include "kernels/select/pick.cuh"
#include "kernels/select/qblk.cuh"

namespace {

constexpr int MAX_DIM = 256;
constexpr int LIST_WARPS = 4;
constexpr int COLUMNS = 4;		/* columns that a lane searches for at a time */

struct args {
	struct attn_batch b;
	struct lastq sums;
	const bf16_t *q;
	const float *mean;
	int sink, local, blocks, force_diag;
	int stride[2];		/* of the lists below */
	int32_t *list[2];	/* columns and distances, [head of a request][stride] */
	int32_t *n;		/* [head of a request][2] */
	struct column_lists out;
	struct minference_head head[MINFERENCE_HEADS];
};

/* ---- pick ---- */

__global__ void __launch_bounds__(PICK_THREADS, 2)
minference_pick(const __grid_constant__ struct args a)
{
	__shared__ struct pick_smem sm;
	extern __shared__ uint4 room[];
	struct pick_kept &kept = *(struct pick_kept *)room;
	const int at = blockIdx.x, slash = blockIdx.y, r = at / a.b.shape.q_heads;
	const struct minference_head head = a.head[at % a.b.shape.q_heads];
	const int rows = a.b.rows.row0[r + 1] - a.b.rows.row0[r], end = a.b.rows.pos0[r] + rows;
	const int n = min(slash ? head.slash : head.vertical, end);
	const int forced = slash ? a.local : a.sink;
	const float *mass = (slash ? a.sums.slash : a.sums.column) + (size_t)at * a.sums.stride;
	int32_t *list = a.list[slash] + (size_t)at * a.stride[slash];
	const auto key = [=](int i) { return i < forced ? ~0u : minference_key(mass[i]); };
	const auto take = [&](int many, const auto &key, const auto &place) {
		const struct pick p = pick_find<PICK_COUNT>(sm, many, n, key);

		pick_walk(sm, p, many, key, [=](int i, bool taken, int rank) {
			if (taken)
				list[rank] = place(i);
		});
	};

	if (head.pattern != PATTERN_SLASH || rows <= 1)
		return;
	const int few = pick_sift(sm, kept, end, n, key);

	if (few)
		take(few, [&](int i) { return key(kept.at[i]); },
		     [&](int i) { return kept.at[i]; });
	else
		take(end, key, [](int i) { return i; });
	if (!threadIdx.x)
		a.n[at * 2 + slash] = n;
}

/* ---- rows ---- */

__device__ __forceinline__ struct minference_row row_at(const struct args &a, size_t row)
{
	return { a.out.run + row * a.out.max_run, a.out.col + row * a.out.max_col, 0, 0 };
}

/*
 * Write the runs of minference_merge(), by a warp; returns where the last run ends.
 *
 * Let x = end - distance, ascending.  Runs that follow each other without a gap begin at the same
 * place modulo tok, a power of two.  So a run that reaches over an x ends at the first such place
 * from x on.  Lanes need only know where runs last began anew.  They do after a gap of 2 tok, and
 * never after one up to tok.  Only gaps in between are checked one by one.
 */
__device__ int merge_runs(int tok, const int32_t *s, int n_s, int end, struct minference_row *out)
{
	const int lane = threadIdx.x % 32;
	int before = -tok, place = -tok;	/* the last x; where runs last began anew */

	for (int at = 0; at < n_s; at += 32) {
		/* skipped, or the last x again */
		const int distance = s[max(n_s - 1 - at - lane, 0)];
		const int x = distance < end ? max(end - distance, tok) : -tok;
		const int below = __shfl_up_sync(~0u, x, 1), prev = lane ? below : before;
		uint32_t anew = __ballot_sync(~0u, x - prev >= 2 * tok);

		for (uint32_t open = __ballot_sync(~0u, x - prev > tok && x - prev < 2 * tok); open;
		     open &= open - 1) {
			const int i = __ffs(open) - 1;
			const uint32_t past = anew & ((1u << i) - 1);
			const int last = __shfl_sync(~0u, x, 31 - __clz(past | 1));
			const int hi = prev + (((past ? last : place) - prev) & (tok - 1));

			anew |= __ballot_sync(~0u, lane == i && x > hi + tok);
		}
		const uint32_t past = anew & ((2u << lane) - 1);
		const int last = __shfl_sync(~0u, x, 31 - __clz(past | 1));
		const int own = past ? last : place;
		const int hi = prev + ((own - prev) & (tok - 1));
		const bool first = anew >> lane & 1;
		const uint32_t runs = __ballot_sync(~0u, first || x > hi);

		if (runs >> lane & 1)
			out->run[out->n_run + __popc(runs & ((1u << lane) - 1))] =
				first ? x - tok : hi;
		out->n_run += __popc(runs);
		before = __shfl_sync(~0u, x, 31);
		place = __shfl_sync(~0u, own, 31);
	}
	return before + ((place - before) & (tok - 1));
}

/* Write the columns of minference_merge(): below hi, and in no run. */
__device__ void merge_columns(int tok, const int32_t *v, int n_v, int hi,
			      struct minference_row *out)
{
	const int lane = threadIdx.x % 32, top = out->n_run ? 1 << (31 - __clz(out->n_run)) : 0;

	for (int at = lane; at - lane < n_v; at += 32 * COLUMNS) {
		int column[COLUMNS], runs[COLUMNS];	/* runs that begin up to the column */

#pragma unroll
		for (int i = 0; i < COLUMNS; i++) {
			column[i] = at + i * 32 < n_v ? v[at + i * 32] : INT32_MAX;
			runs[i] = 0;
		}
		for (int step = top; step; step /= 2)
#pragma unroll
			for (int i = 0; i < COLUMNS; i++)
				if (runs[i] + step <= out->n_run &&
				    out->run[runs[i] + step - 1] <= column[i])
					runs[i] += step;
#pragma unroll
		for (int i = 0; i < COLUMNS; i++) {
			const bool alone = column[i] < hi &&
				(!runs[i] || column[i] >= out->run[runs[i] - 1] + tok);
			const uint32_t all = __ballot_sync(~0u, alone);

			if (alone)
				out->col[out->n_col + __popc(all & ((1u << lane) - 1))] = column[i];
			out->n_col += __popc(all);
		}
	}
}

__global__ void __launch_bounds__(LIST_WARPS * 32)
minference_rows(const __grid_constant__ struct args a)
{
	const int i = blockIdx.x * LIST_WARPS + threadIdx.x / 32, tok = a.b.shape.page_tok;
	const bool lead = threadIdx.x % 32 == 0;

	if (i >= a.b.rows.n_qblk * a.b.shape.q_heads)
		return;
	const int h = i / a.b.rows.n_qblk;
	const struct qblk s = qblk_at(a.b, i % a.b.rows.n_qblk);
	const struct minference_head head = a.head[h];
	const int rows = a.b.rows.row0[s.req + 1] - a.b.rows.row0[s.req];
	const struct attn_band band = minference_band(&head, rows);
	const size_t row = (size_t)(i % a.b.rows.n_qblk) * a.b.shape.q_heads + h;
	const int at = s.req * a.b.shape.q_heads + h, end = (s.blk + 1) * tok;
	struct minference_row out = row_at(a, row);

	if (rows == 1 || head.pattern == PATTERN_SHAPE) {
		if (lead)
			out.n_run = ashape_runs(&band, &a.b, s.req, s.blk, out.run);
	} else if (head.pattern == PATTERN_SLASH) {
		const int hi = merge_runs(tok, a.list[1] + (size_t)at * a.stride[1],
					  a.n[at * 2 + 1], end, &out);

		__syncwarp();
		merge_columns(tok, a.list[0] + (size_t)at * a.stride[0], a.n[at * 2], hi, &out);
	} else {
		return;
	}
	if (lead) {
		a.out.n_run[row] = out.n_run;
		a.out.n_col[row] = out.n_col;
		a.out.band[row] = band;
	}
}

/* ---- means ---- */

__global__ void __launch_bounds__(PICK_THREADS, 1)
minference_means(const __grid_constant__ struct args a, float *__restrict__ product)
{
	__shared__ union {
		struct pick_smem pick;
		struct mean_room room[PICK_WARPS];
	} sm;
	__shared__ alignas(16) float query[MAX_DIM];
	const struct qblk s = qblk_at(a.b, blockIdx.x);
	const int h = blockIdx.y, kv_head = h / (a.b.shape.q_heads / a.b.shape.kv_heads);
	const int tok = a.b.shape.page_tok, n = min(s.blk + 1, a.blocks);
	const int rows = a.b.rows.row0[s.req + 1] - a.b.rows.row0[s.req];
	const int end = a.b.rows.pos0[s.req] + rows;
	const size_t row = (size_t)blockIdx.x * a.b.shape.q_heads + h;
	const struct minference_row out = row_at(a, row);
	const int diag = a.force_diag ? s.blk : -1;

	if (a.head[h].pattern != PATTERN_BLOCK || rows == 1)
		return;
	product += row * a.b.keys.max_kv_blk;
	mean_rows(a.b, s.row + s.lo, s.row + s.hi, h, 1, a.q, query);
	__syncthreads();
	for (int at = threadIdx.x / 32 * 32; at <= s.blk; at += PICK_THREADS) {
		const int j = at + threadIdx.x % 32;
		float sum[1];

		dots_by_lines(sum, query,
			      means_at(&a.b, s.req, min(j, s.blk), kv_head, a.mean),
			      a.b.shape.head_dim, sm.room[threadIdx.x / 32]);
		if (j <= s.blk)
			product[j] = sum[0] * minference_fill(tok, end, j);
	}
	__syncthreads();
	const auto key = [=](int j) { return j == diag ? ~0u : minference_key(product[j]); };
	const struct pick p = pick_find<PICK_COUNT>(sm.pick, s.blk + 1, n, key);

	pick_walk(sm.pick, p, s.blk + 1, key, [=](int j, bool taken, int rank) {
		if (taken)
			out.run[rank] = j * tok;
	});
	if (!threadIdx.x) {
		a.out.n_run[row] = n;
		a.out.n_col[row] = 0;
		a.out.band[row] = {};
	}
}

/* ---- launch ---- */

/* The arrays in work, behind lastq's part. */
struct room {
	int stride[2];
	int32_t *list[2], *n;
	float *product;
};

struct room room_at(const struct minference_self *x, const struct attn_shape *s,
		    const struct attn_limits *l, int n_qblk, struct workspace *w)
{
	const size_t heads = (size_t)l->max_req * s->q_heads;
	const size_t products = x->any_block ? (size_t)n_qblk * s->q_heads * l->max_kv_blk : 0;
	const int most = l->max_kv_blk * s->page_tok;
	struct room r;

	workspace_take(w, lastq_work_bytes(s, l), 1);
	r.stride[0] = x->max_vertical < most ? x->max_vertical : most;
	r.stride[1] = x->max_slash < most ? x->max_slash : most;
	for (int i = 0; i < 2; i++)
		r.list[i] = (int32_t *)workspace_take(w, heads * r.stride[i], sizeof *r.list[i]);
	r.n = (int32_t *)workspace_take(w, heads * 2, sizeof *r.n);
	r.product = (float *)workspace_take(w, products, sizeof *r.product);
	return r;
}

bool has(const struct minference_head *head, int n, int pattern)
{
	for (int i = 0; i < n; i++)
		if (head[i].pattern == pattern)
			return true;
	return false;
}

}

size_t minference_work_bytes(const void *self, const struct attn_shape *s,
			     const struct attn_limits *l)
{
	struct workspace w = workspace_at(NULL);

	room_at((const struct minference_self *)self, s, l, attn_max_qblk(l, s->page_tok), &w);
	return w.used;
}

enum ar_status minference_enqueue(const struct attn_call *call, const void *self,
				  const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const struct minference_self *x = (const struct minference_self *)self;
	const struct minference_head *head = x->head + (size_t)call->layer * x->q_heads;
	const struct attn_limits all = { .max_req = b->rows.n_req, .max_kv_blk = b->keys.max_kv_blk,
					 .n_sm = b->n_sm, .max_page = b->keys.n_page };
	struct workspace w = workspace_at(call->work);
	const struct room r = room_at(x, &b->shape, &all, b->rows.n_qblk, &w);
	const int heads = b->shape.q_heads, rows = b->rows.n_qblk * heads;
	cudaStream_t on = (cudaStream_t)call->stream;
	void (*const pick)(struct args) = minference_pick;	/* the kernel, not the reference */
	struct args a = { .b = *b, .sums = {}, .q = call->q, .mean = (const float *)call->state,
			  .sink = (int)x->rule.sink, .local = (int)x->rule.local,
			  .blocks = (int)x->rule.blocks, .force_diag = x->rule.force_diag,
			  .stride = { r.stride[0], r.stride[1] },
			  .list = { r.list[0], r.list[1] }, .n = r.n, .out = out->columns };
	enum ar_status st = AR_OK;

	if (!b->rows.n_qblk)
		return AR_OK;
	memcpy(a.head, head, heads * sizeof *head);
	if (has(head, heads, PATTERN_SLASH)) {
		st = lastq_enqueue(b, (int)x->rule.last, call->q, call->kv.k, &a.sums, call->work,
				   call->stream, err);
		if (st)
			return st;
		CU(cudaFuncSetAttribute(pick, cudaFuncAttributeMaxDynamicSharedMemorySize,
					sizeof(struct pick_kept)));
		pick<<<dim3(b->rows.n_req * heads, 2), PICK_THREADS, sizeof(struct pick_kept),
			on>>>(a);
		CU_LAUNCHED();
	}
	minference_rows<<<(rows + LIST_WARPS - 1) / LIST_WARPS, LIST_WARPS * 32, 0, on>>>(a);
	CU_LAUNCHED();
	if (x->any_block)
		st = means_update_enqueue(b, call->kv.k, (float *)call->state, call->stream, err);
	if (st || !has(head, heads, PATTERN_BLOCK))
		return st;
	minference_means<<<dim3(b->rows.n_qblk, heads), PICK_THREADS, 0, on>>>(a, r.product);
	CU_LAUNCHED();
out:
	return st;
}
