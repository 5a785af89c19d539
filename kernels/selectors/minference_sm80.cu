/*
 * MInference's selection on the device; the rule is in minference.c.  After the sums of lastq.h,
 * and the means of keys where a head has the pattern block_sparse, come
 *
 *   pick     (head of a request, direction): the columns or distances that are taken
 *   rows     (query block, head): merge them into runs and columns, or an A-shape
 *   means    (query block, head): the blocks of block_sparse heads
 *
 * Budget at 128K tokens, 8 requests, 16 heads and 64 rows: lastq's two passes, each with 0.29 ms
 * of products and as much of exponentials.  pick: 256 thread blocks, all there at once, read
 * 0.5 MiB each five times, 0.7 GB, 0.15 ms, and add each key to a histogram.  rows is a chain of
 * some fifty cycles for each of 2048 distances, 0.1 ms; a warp does one row with one lane, since
 * lanes with a row each would go different ways, and there are only four rows for each scheduler.
 */
#include "config.h"
#include "kernels/selectors/minference.h"

#include <cmath>

#include "kernels/cuda.h"
#include "kernels/qblk.cuh"
#include "kernels/selectors/lastq.h"
#include "kernels/selectors/means.cuh"
#include "kernels/selectors/pick.cuh"

namespace {

constexpr int MAX_DIM = 256;
constexpr int LIST_WARPS = 4;

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
	const int at = blockIdx.x, slash = blockIdx.y, r = at / a.b.shape.q_heads;
	const struct minference_head head = a.head[at % a.b.shape.q_heads];
	const int rows = a.b.row0[r + 1] - a.b.row0[r], end = a.b.ctx[r] + rows;
	const int n = min(slash ? head.slash : head.vertical, end);
	const int forced = slash ? a.local : a.sink;
	const float *mass = (slash ? a.sums.slash : a.sums.column) + (size_t)at * a.sums.stride;
	int32_t *list = a.list[slash] + (size_t)at * a.stride[slash];
	const auto key = [=](int i) { return i < forced ? ~0u : minference_key(mass[i]); };

	if (head.pattern != PATTERN_SLASH || rows <= 1)
		return;
	const struct pick p = pick_find<PICK_COUNT>(sm, end, n, key);

	pick_walk(sm, p, end, key, [=](int i, bool taken, int rank) {
		if (taken)
			list[rank] = i;
	});
	if (!threadIdx.x)
		a.n[at * 2 + slash] = n;
}

/* ---- rows ---- */

__device__ __forceinline__ struct minference_row row_at(const struct args &a, size_t row)
{
	return { a.out.run + row * a.out.max_run, a.out.col + row * a.out.max_col, 0, 0 };
}

__global__ void __launch_bounds__(LIST_WARPS * 32)
minference_rows(const __grid_constant__ struct args a)
{
	const int i = blockIdx.x * LIST_WARPS + threadIdx.x / 32, tok = a.b.shape.page_tok;

	if (i >= a.b.n_qblk * a.b.shape.q_heads || threadIdx.x % 32)
		return;
	const int h = i / a.b.n_qblk;
	const struct qblk s = qblk_at(a.b, i % a.b.n_qblk);
	const struct minference_head head = a.head[h];
	const int rows = a.b.row0[s.req + 1] - a.b.row0[s.req];
	const struct attn_band band = minference_band(&head, rows);
	const size_t row = (size_t)(i % a.b.n_qblk) * a.b.shape.q_heads + h;
	const int at = s.req * a.b.shape.q_heads + h;
	struct minference_row out = row_at(a, row);

	if (rows == 1 || head.pattern == PATTERN_SHAPE)
		out.n_run = ashape_runs(&band, &a.b, s.req, s.blk, out.run);
	else if (head.pattern == PATTERN_SLASH)
		minference_merge(tok, a.list[0] + (size_t)at * a.stride[0], a.n[at * 2],
				 a.list[1] + (size_t)at * a.stride[1], a.n[at * 2 + 1],
				 (s.blk + 1) * tok, &out);
	else
		return;
	a.out.n_run[row] = out.n_run;
	a.out.n_col[row] = out.n_col;
	a.out.band[row] = band;
}

/* ---- means ---- */

__global__ void __launch_bounds__(PICK_THREADS, 1)
minference_means(const __grid_constant__ struct args a, float *__restrict__ product)
{
	__shared__ struct pick_smem sm;
	__shared__ alignas(16) float query[MAX_DIM];
	const struct qblk s = qblk_at(a.b, blockIdx.x);
	const int h = blockIdx.y, kv_head = h / (a.b.shape.q_heads / a.b.shape.kv_heads);
	const int tok = a.b.shape.page_tok, n = min(s.blk + 1, a.blocks);
	const int rows = a.b.row0[s.req + 1] - a.b.row0[s.req], end = a.b.ctx[s.req] + rows;
	const size_t row = (size_t)blockIdx.x * a.b.shape.q_heads + h;
	const struct minference_row out = row_at(a, row);
	const int diag = a.force_diag ? s.blk : -1;

	if (a.head[h].pattern != PATTERN_BLOCK || rows == 1)
		return;
	product += row * a.b.max_kv_blk;
	mean_rows(a.b, s.row + s.lo, s.row + s.hi, h, 1, a.q, query);
	__syncthreads();
	for (int j = threadIdx.x; j <= s.blk; j += PICK_THREADS) {
		float sum[1];

		dots_of_fours(sum, query, means_at(&a.b, s.req, j, kv_head, a.mean),
			      a.b.shape.head_dim);
		product[j] = sum[0] * minference_fill(tok, end, j);
	}
	__syncthreads();
	const auto key = [=](int j) { return j == diag ? ~0u : minference_key(product[j]); };
	const struct pick p = pick_find<PICK_COUNT>(sm, s.blk + 1, n, key);

	pick_walk(sm, p, s.blk + 1, key, [=](int j, bool taken, int rank) {
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

/* Bytes of work after lastq's. */
struct layout {
	int stride[2];
	size_t list[2], n, product, end;
};

struct layout layout_of(const struct minference_self *x, const struct attn_shape *s, int n_req,
			int n_qblk, int max_kv_blk)
{
	const size_t heads = (size_t)n_req * s->q_heads;
	const int most = max_kv_blk * s->page_tok;
	struct layout l;

	l.stride[0] = x->max_vertical < most ? x->max_vertical : most;
	l.stride[1] = x->max_slash < most ? x->max_slash : most;
	l.list[0] = 0;
	l.list[1] = heads * l.stride[0] * sizeof(int32_t);
	l.n = l.list[1] + heads * l.stride[1] * sizeof(int32_t);
	l.product = l.n + heads * 2 * sizeof(int32_t);
	l.end = l.product;
	if (x->any_block)
		l.end += (size_t)n_qblk * s->q_heads * max_kv_blk * sizeof(float);
	return l;
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
	return lastq_work_bytes(s, l) +
	       layout_of((const struct minference_self *)self, s, l->max_req,
			 attn_max_qblk(l, s->page_tok), l->max_kv_blk).end;
}

enum ar_status minference_enqueue(const struct attn_batch *b, const void *self, int layer,
				  const bf16_t *q, const struct kv_cache *kv, void *state,
				  const struct selection *out, void *work, void *stream,
				  struct ar_err *err)
{
	const struct minference_self *x = (const struct minference_self *)self;
	const struct minference_head *head = x->head + (size_t)layer * x->q_heads;
	const struct attn_limits all = { .max_req = b->n_req, .max_kv_blk = b->max_kv_blk };
	const struct layout l = layout_of(x, &b->shape, b->n_req, b->n_qblk, b->max_kv_blk);
	char *at = (char *)work + lastq_work_bytes(&b->shape, &all);
	const int heads = b->shape.q_heads, rows = b->n_qblk * heads;
	cudaStream_t on = (cudaStream_t)stream;
	struct args a = { .b = *b, .sums = {}, .q = q, .mean = (const float *)state,
			  .sink = (int)x->rule.sink, .local = (int)x->rule.local,
			  .blocks = (int)x->rule.blocks, .force_diag = x->rule.force_diag,
			  .stride = { l.stride[0], l.stride[1] },
			  .list = { (int32_t *)(at + l.list[0]), (int32_t *)(at + l.list[1]) },
			  .n = (int32_t *)(at + l.n), .out = out->columns };
	enum ar_status st = AR_OK;

	if (!b->n_qblk)
		return AR_OK;
	memcpy(a.head, head, heads * sizeof *head);
	if (has(head, heads, PATTERN_SLASH)) {
		st = lastq_enqueue(b, (int)x->rule.last, q, kv->k, &a.sums, work, stream, err);
		if (st)
			return st;
		minference_pick<<<dim3(b->n_req * heads, 2), PICK_THREADS, 0, on>>>(a);
		CU_LAUNCHED();
	}
	minference_rows<<<(rows + LIST_WARPS - 1) / LIST_WARPS, LIST_WARPS * 32, 0, on>>>(a);
	CU_LAUNCHED();
	if (x->any_block)
		st = means_update_enqueue(b, kv->k, (float *)state, stream, err);
	if (st || !has(head, heads, PATTERN_BLOCK))
		return st;
	minference_means<<<dim3(b->n_qblk, heads), PICK_THREADS, 0, on>>>
		(a, (float *)(at + l.product));
	CU_LAUNCHED();
out:
	return st;
}
