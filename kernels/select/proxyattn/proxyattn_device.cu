/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ProxyAttn's selection on the device; the rule is in proxyattn.c, how rows lie in proxyattn.cuh.
 * Kernels:
 *
 *   rows    the rows that are scored, the groups' means and the heads' own, one after another.
 *   keys    for groups over several KV heads, the means of their keys.
 *   score   proxyattn_sm90.cu, elsewhere proxyattn_sm80.cu: all products, and one number for each
 *           row and block of keys.  So one pass over the keys is enough.  Attention itself, one
 *           number for each row and key, is never stored; a block's number is 1/64 or 1/128 of it.
 *   lines   grid (line, 128 blocks of keys): the logarithms of the rows' sums, then by block the
 *           maximum, or the sum, over rows.
 *   need    a thread block per (request, head): how many blocks its mass takes.
 *   pick    a thread block per (query block, head).
 *
 * Budget for 8 requests of 128K tokens and chunks of 1024, 16 query heads over 4 KV heads, D 128, 4
 * groups, n = q-stride: 49152 / n rows meet 131072 keys each.
 *
 *   score   1.65 / n TFLOP, of dense attention's 8.8; 6.4 / n G exponentials; K once, 1.1 GB
 *   rows    34 MB at n = 1, read and written
 *   lines   4 bytes a row and block, written and read once: 200 / n MB
 *
 * On an H200 it takes 2.69 ms at n = 1 after a rest of 0.15 s, 25.3 % of the 10.6 that dense
 * attention takes.  Without a rest it takes 3.00, 0.89 at n = 4 and 0.53 at 8, and dense attention
 * takes 12.4.  In an older run at n = 1 lines took 0.07, rows 0.03, pick 0.02, need 0.01, and score
 * all else.  The products alone take 2.0 ms after a rest and 2.4 without, 19 % of dense attention.
 * The 2745 cycles that a step of score needs with its exponentials (proxyattn_sm90.cu) are 2.33 ms,
 * 22 %.
 */
#include "config.h"
#include "kernels/select/proxyattn/proxyattn.h"

#include <climits>
#include <cmath>

#include "base/gpu.h"
#include "base/workspace.h"
#include "kernels/prim/cuda.h"
#include "kernels/select/proxyattn/proxyattn.cuh"
#include "kernels/select/qblk.cuh"
#include "kernels/select/selectors.h"
#include "kernels/select/top.cuh"

namespace {

/* ---- lines ---- */

constexpr int ROW_PIECES = 256;

/* A line, its number among all rows, and its heads. */
struct own_line {
	struct proxy_line l;
	int64_t row;
	struct proxy_heads heads;
	bool probe;
};

__device__ struct own_line line_at(const struct proxy_job &j, int at)
{
	const struct attn_shape &shape = j.b.shape;
	const int per_kv = shape.q_heads / shape.kv_heads;
	struct own_line x;
	int first, end;

	x.probe = at >= j.n_line;
	if (x.probe) {
		const int r = (at - j.n_line) / shape.q_heads, h = (at - j.n_line) % shape.q_heads;
		const struct proxy_strip s = proxy_strip_at(j, r, h / per_kv);

		x.l = { r, s.probing, proxy_end(j, r) - 1 };
		x.heads = { h, h + 1, h / per_kv, h / per_kv + 1 };
		x.row = s.row + s.probe + h % per_kv * s.probing;
	} else {
		const int g = at / j.b.rows.n_qblk, qblk = at % j.b.rows.n_qblk;
		const int r = qblk_at(j.b, qblk).req;
		const int i = qblk - j.b.rows.qblk0[r];

		x.l = proxy_sample(j, r, i);
		x.heads = proxyattn_heads(&j.p, &shape, g);
		const bool alone = x.heads.kv_end - x.heads.kv == 1;
		const struct proxy_strip s =
			proxy_strip_at(j, r, alone ? x.heads.kv : shape.kv_heads + g);

		proxy_own(j, x.heads.kv, first, end);
		x.row = s.row + (alone ? (g - first) * s.sampled : 0) + i * j.per_line;
	}
	return x;
}

/* The mean of 16 bytes of n heads, rounded to bf16; the mean of one head is itself.  Four heads are
 * loaded at once. */
__device__ __forceinline__ uint4 mean(const bf16_t *src, int n, size_t pitch)
{
	float x[8] = {};
	uint4 out;

	if (n == 1)
		return *(const uint4 *)src;
	for (int h = 0; h < n; h += 4) {
		uint4 v[4];

#pragma unroll
		for (int k = 0; k < 4; k++)
			v[k] = *(const uint4 *)(src + min(h + k, n - 1) * pitch);
#pragma unroll
		for (int k = 0; k < 4; k++) {
			const uint32_t w[4] = { v[k].x, v[k].y, v[k].z, v[k].w };
			const float there = h + k < n;

#pragma unroll
			for (int i = 0; i < 4; i++) {
				x[2 * i] += there * __uint_as_float(w[i] << 16);
				x[2 * i + 1] += there * __uint_as_float(w[i] & 0xffff0000);
			}
		}
	}
	out.x = pack_bf16(x[0] / (float)n, x[1] / (float)n);
	out.y = pack_bf16(x[2] / (float)n, x[3] / (float)n);
	out.z = pack_bf16(x[4] / (float)n, x[5] / (float)n);
	out.w = pack_bf16(x[6] / (float)n, x[7] / (float)n);
	return out;
}

/* Grid (line, ROW_PIECES of its pieces of 16 bytes). */
__global__ void __launch_bounds__(ROW_PIECES)
proxy_rows(const __grid_constant__ struct proxy_job j)
{
	const struct own_line x = line_at(j, blockIdx.x);
	const int dim = j.b.shape.head_dim, pieces = dim / 8, r = x.l.req;
	const int i = blockIdx.y * ROW_PIECES + threadIdx.x;

	if (i >= x.l.n * pieces)
		return;
	const int pos = x.l.last - i / pieces * (int)j.p.stride;
	const int64_t row =
		(int64_t)(j.b.rows.row0[r] + pos - j.b.rows.pos0[r]) * j.b.shape.q_heads;
	const bf16_t *src = j.q + (row + x.heads.q) * dim + i % pieces * 8;

	*(uint4 *)(j.row + x.row * dim + i * 8) = mean(src, x.heads.q_end - x.heads.q, dim);
}

/* Grid (block of the batch, group). */
__global__ void __launch_bounds__(256) proxy_keys(const __grid_constant__ struct proxy_job j)
{
	const struct proxy_heads h = proxyattn_heads(&j.p, &j.b.shape, blockIdx.y);
	const size_t pitch = (size_t)j.b.shape.page_tok * j.b.shape.head_dim;
	const size_t page = j.b.keys.page[blockIdx.x];
	const bf16_t *src = j.k + (page * j.b.shape.kv_heads + h.kv) * pitch;
	bf16_t *dst = j.mean + ((size_t)blockIdx.y * j.b.keys.n_page + blockIdx.x) * pitch;

	if (h.kv_end - h.kv == 1)
		return;
	for (size_t i = threadIdx.x * 8; i < pitch; i += 256 * 8)
		*(uint4 *)(dst + i) = mean(src + i, h.kv_end - h.kv, pitch);
}

constexpr int LINE_WARPS = 8;
constexpr int LINE_OWN = 4;		// blocks of keys that a warp loads for at once
constexpr int LINE_STEP = LINE_WARPS * LINE_OWN;
constexpr int LINE_BLOCKS = 128;	// for a thread block
static_assert(LINE_BLOCKS % LINE_STEP == 0, "no block is another thread block's");
constexpr int LINE_ROWS = 128;		// at most
constexpr int LINE_LANE = LINE_ROWS / 32;

/* Merge a row's sums over its segments: the logarithm, for a row at pos. */
__device__ __forceinline__ float row_sum(const struct proxy_job &j, int64_t row, int pos)
{
	const int n = pos / (j.segment * j.b.shape.page_tok) + 1;
	float max = -FLT_MAX, sum = 0;

	for (int i = 0; i < n; i++)
		max = fmaxf(max, j.sum[i * j.n_row + row]);
	for (int i = 0; i < n; i++)
		sum += ex2(j.sum[i * j.n_row + row] - max);
	return max + log2f(sum);
}

__global__ void __launch_bounds__(LINE_WARPS * 32)
proxy_lines(const __grid_constant__ struct proxy_job j)
{
	__shared__ float log_sum[LINE_ROWS];
	const struct own_line x = line_at(j, blockIdx.x);
	const int n = x.l.n, tok = j.b.shape.page_tok, stride = (int)j.p.stride;
	const int lane = threadIdx.x % 32, begin = blockIdx.y * LINE_BLOCKS;
	const int end = min(begin + LINE_BLOCKS, x.l.last / tok + 1);
	float base[LINE_LANE];
	int behind[LINE_LANE];		/* distance to the line's last row; INT_MAX: no such row */

	if (!n || begin >= end)
		return;
	for (int i = threadIdx.x; i < n; i += LINE_WARPS * 32)
		log_sum[i] = row_sum(j, x.row + i, x.l.last - i * stride);
	__syncthreads();
#pragma unroll
	for (int c = 0; c < LINE_LANE; c++) {
		const int i = c * 32 + lane;

		base[c] = i < n ? log_sum[i] : 0;
		behind[c] = i < n ? i * stride : INT_MAX;
	}
	for (int blk = begin + threadIdx.x / 32; blk < end; blk += LINE_STEP) {
		float top[LINE_OWN][LINE_LANE];

#pragma unroll
		for (int k = 0; k < LINE_OWN; k++)
#pragma unroll
			for (int c = 0; c < LINE_LANE; c++) {
				const int at = blk + k * LINE_WARPS;
				const bool seen = behind[c] <= x.l.last - at * tok;

				top[k][c] = seen ? j.top[at * j.n_row + x.row + c * 32 + lane] :
						   -INFINITY;
			}
#pragma unroll
		for (int k = 0; k < LINE_OWN; k++) {
			const int at = blk + k * LINE_WARPS;
			float most = 0, sum = 0;

#pragma unroll
			for (int c = 0; c < LINE_LANE; c++) {
				const float a = ex2(top[k][c] - base[c]);

				most = fmaxf(most, a);
				sum += a;
			}
			most = x.probe ? warp_sum(sum) / (float)n : warp_max(most);
			if (lane == 0 && at < end)
				j.score[(size_t)blockIdx.x * j.b.keys.max_kv_blk + at] = most;
		}
	}
}

/* ---- need and pick ---- */

__device__ __forceinline__ int blocks_of(const struct proxy_job &j, int r)
{
	return (proxy_end(j, r) + j.b.shape.page_tok - 1) / j.b.shape.page_tok;
}

/* Grid (request, head). */
__global__ void __launch_bounds__(TOP_THREADS)
proxy_need(const __grid_constant__ struct proxy_job j)
{
	__shared__ struct top_smem sm;
	const int at = blockIdx.x * j.b.shape.q_heads + blockIdx.y, r = blockIdx.x;
	const int n = blocks_of(j, r);
	const float *mass = j.score + (size_t)(j.n_line + at) * j.b.keys.max_kv_blk;
	const auto key = [=](int i) { return top_key(mass[i]); };
	const auto own = [](uint32_t key) { return top_fixed(top_value(key)); };
	const auto one = [](uint32_t) -> uint32_t { return 1; };

	if (proxy_rows_in(j, r) <= 1)
		return;
	const double all = (double)top_sum(key, n, 0, own, sm);
	const struct top top = top_find(key, n, max((uint64_t)ceil(j.p.mass * all), (uint64_t)1),
					own, sm);
	const uint64_t above = top_sum(key, n, top.key + 1, one, sm);

	if (threadIdx.x == 0)
		j.need[at] = (int)(above + top.ties);
}

/* Grid (query block, head). */
__global__ void __launch_bounds__(TOP_THREADS)
proxy_pick(const __grid_constant__ struct proxy_job j, uint32_t *__restrict__ mask)
{
	__shared__ struct top_smem sm;
	const struct qblk s = qblk_at(j.b, blockIdx.x);
	const int head = blockIdx.y, g = head / proxyattn_size(&j.p, &j.b.shape);
	const float *score =
		j.score + ((size_t)g * j.b.rows.n_qblk + blockIdx.x) * j.b.keys.max_kv_blk;
	const bool open = proxy_rows_in(j, s.req) <= 1;
	const int need = open ? 0 : j.need[s.req * j.b.shape.q_heads + head];
	const int free = min(proxyattn_budget(need, s.blk, blocks_of(j, s.req)) - 2, s.blk - 1);
	struct top top = top_none();

	if (!open && free > 0)
		top = top_find(score + 1, s.blk - 1, (uint64_t)free,
			       [](float) -> uint32_t { return 1; }, sm);
	mask += ((size_t)blockIdx.x * j.b.shape.q_heads + head) * j.b.keys.mask_words;
	top_write([=](int i) { return top_key(score[i]); }, s.blk, open, top, mask,
		  j.b.keys.mask_words, sm);
}

/* ---- launch ---- */

/* Point j into work; returns the bytes that takes. */
size_t lay_out(struct proxy_job *j, const struct attn_shape *s, int n_qblk, int n_req, int n_row,
	       int64_t n_page, int max_kv_blk, void *work)
{
	const int size = proxyattn_size(&j->p, s), per_kv = s->q_heads / s->kv_heads;
	const size_t segments = max((max_kv_blk - 1) / PROXY_SEGMENT + 1,
				    min(max_kv_blk, PROXY_SHORT));
	struct workspace w = workspace_at(work);

	j->n_group = proxyattn_groups(&j->p, s);
	j->n_source = s->kv_heads + (s->kv_heads > 1 && per_kv % size ? j->n_group : 0);
	j->per_line = (int)((s->page_tok + j->p.stride - 1) / j->p.stride);
	j->n_line = n_qblk * j->n_group;
	const int64_t by_row = n_row / j->p.stride + n_req, by_req = (int64_t)n_req * j->per_line;
	j->by_req = by_req < by_row;
	j->n_row = (int64_t)j->n_line * j->per_line + (j->by_req ? by_req : by_row) * s->q_heads;
	const size_t keys = (size_t)(j->n_source - s->kv_heads) * n_page * s->page_tok;
	const size_t probes = (size_t)n_req * s->q_heads;

	j->row = (bf16_t *)workspace_take(&w, j->n_row * s->head_dim, sizeof *j->row);
	j->mean = (bf16_t *)workspace_take(&w, keys * s->head_dim, sizeof *j->mean);
	j->top = (float *)workspace_take(&w, j->n_row * max_kv_blk, sizeof *j->top);
	j->sum = (float *)workspace_take(&w, j->n_row * segments, sizeof *j->sum);
	j->score = (float *)workspace_take(&w, (j->n_line + probes) * max_kv_blk,
					   sizeof *j->score);
	j->need = (int32_t *)workspace_take(&w, probes, sizeof *j->need);
	return w.used;
}

/* Run every kernel before proxy_pick. */
enum ar_status score(struct proxy_job *j, int n_sm, cudaStream_t stream, struct ar_err *err)
{
	const struct attn_batch *b = &j->b;
	const int lines = j->n_line + b->rows.n_req * b->shape.q_heads;
	const int pieces = j->per_line * b->shape.head_dim / 8;
	enum ar_status st = AR_OK;

	proxy_rows<<<dim3(lines, (pieces - 1) / ROW_PIECES + 1), ROW_PIECES, 0, stream>>>(*j);
	CU_LAUNCHED();
	if (j->n_source > b->shape.kv_heads) {
		proxy_keys<<<dim3(b->keys.n_page, j->n_group), 256, 0, stream>>>(*j);
		CU_LAUNCHED();
	}
	st = n_sm ? proxy_score_sm90(j, n_sm, stream, err) : proxy_score_sm80(j, stream, err);
	if (st)
		return st;
	proxy_lines<<<dim3(lines, (b->keys.max_kv_blk - 1) / LINE_BLOCKS + 1), LINE_WARPS * 32, 0,
		      stream>>>(*j);
	CU_LAUNCHED();
	proxy_need<<<dim3(b->rows.n_req, b->shape.q_heads), TOP_THREADS, 0, stream>>>(*j);
	CU_LAUNCHED();
out:
	return st;
}

/* n_sm: multiprocessors of the device, for the kernel for Hopper; 0: take the other one. */
enum ar_status enqueue(const struct attn_call *call, const void *self, int n_sm, uint32_t *mask,
		       struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const struct attn_shape *s = &b->shape;
	cudaStream_t stream = (cudaStream_t)call->stream;
	struct proxy_job j = { *b, *(const struct proxyattn *)self, call->q, call->kv.k };
	enum ar_status st;

	lay_out(&j, s, b->rows.n_qblk, b->rows.n_req, b->rows.n_row, b->keys.n_page,
		b->keys.max_kv_blk, call->work);
	st = score(&j, n_sm, stream, err);
	if (st)
		return st;
	proxy_pick<<<dim3(b->rows.n_qblk, s->q_heads), TOP_THREADS, 0, stream>>>(j, mask);
	CU_LAUNCHED();
out:
	return st;
}

}

size_t proxyattn_work_bytes(const void *self, const struct attn_shape *s,
			    const struct attn_limits *l)
{
	struct proxy_job j = {};

	j.p = *(const struct proxyattn *)self;
	return lay_out(&j, s, attn_max_qblk(l, s->page_tok), l->max_req, l->max_row, l->max_page,
		       l->max_kv_blk, NULL);
}

enum ar_status proxyattn_enqueue(const struct attn_call *call, const void *self,
				 const struct selection *out, struct ar_err *err)
{
	return selector_dispatch("proxyattn", call, self, out, err);
}

enum ar_status proxyattn_sm90_enqueue(const struct attn_call *call, const void *self,
				      const struct selection *out, struct ar_err *err)
{
	const struct gpu *gpu;
	enum ar_status st = gpu_current(&gpu, err);

	return st ? st : enqueue(call, self, gpu->n_sm, out->mask, err);
}

enum ar_status proxyattn_sm80_enqueue(const struct attn_call *call, const void *self,
				      const struct selection *out, struct ar_err *err)
{
	return enqueue(call, self, 0, out->mask, err);
}
