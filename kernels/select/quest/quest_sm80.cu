/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quest on the device; the rule is in quest.c.  Three kernels:
 *
 *   scores  bound by reading the bounds of pages.  With q- = min(q, 0) and q+ = max(q, 0), a score
 *           is q- least + q+ most: a product of rows of 2 head_dim channels, as the bounds lie.  So
 *           it is a matrix product.  Sums over heads are linear, too: a sum or mean of queries is
 *           one row, split into three of bf16, which have its 24 bits together.
 *   pick    a thread block per list of scores: by pick.cuh the largest, a bit each.
 *   lists   a thread block per list, a thread per 32 pages: the bits of its heads, put together.
 *
 * A warp of `scores` takes 16 pages at a time, straight from memory to registers.  A lane reads 16
 * bytes of a page at a time, so it has channels 8 t .. 8 t + 7 where mma wants 2 t and others.  The
 * order of channels does not matter as long as both operands have the same.
 *
 * On an H200, with 8 requests of 128K, 32 query and 8 KV heads of 128 and pages of 16, the three
 * take 75, 26 and 5.6 us by head.  To read the bounds at the rate of a copy would take 63.  Eight
 * thread blocks of `scores` for each multiprocessor take 78, sixteen 82.  Lists from a word for
 * each page, by pick_walk(), took 24.6.
 */
#include "config.h"
#include "kernels/select/quest/quest.h"

#include <cmath>

#include "base/gpu.h"
#include "kernels/prim/cuda.h"
#include "kernels/select/pieces.cuh"
#include "kernels/select/top.cuh"

namespace {

constexpr int WARPS = 8, THREADS = WARPS * 32, HEADS = 16;
constexpr int SPLITS = 3;		/* bf16 parts of a float */
constexpr int WAVES = 2;		/* thread blocks of `scores` for each multiprocessor */
template <int D> constexpr int TILES = D > 128 ? 1 : 2;	/* of 8 pages, at a time */

/* The rows that are multiplied, [least][most]; the padding keeps banks apart. */
template <int D> struct queries {
	__align__(16) bf16_t row[HEADS][2 * D + 32];
};

/* Whether a row of len keys keeps all pages. */
__device__ __forceinline__ bool keeps_all(const struct quest &p, const struct piece_lists &l,
					  int len)
{
	return quest_kept(&p, &l, len) == pieces_of(len, l.tok);
}

/* q- and q+; NaN is in both. */
__device__ __forceinline__ float below(float q)
{
	return q > 0 ? 0 : q;
}

__device__ __forceinline__ float above(float q)
{
	return q < 0 ? 0 : q;
}

__device__ __forceinline__ bf16_t bf16_of(float x)
{
	return (bf16_t)pack_bf16(x, 0);
}

/* Split x into bf16 that add up to it. */
__device__ __forceinline__ void split(float x, bf16_t (&to)[SPLITS])
{
#pragma unroll
	for (int i = 0; i < SPLITS; i++) {
		to[i] = bf16_of(x);
		x -= bf16_to_f32(to[i]);
	}
}

/* Rows of up to HEADS queries, zeros past them. */
template <int D>
__device__ void load_heads(struct queries<D> &s, const bf16_t *__restrict__ q, int heads)
{
	for (int i = threadIdx.x; i < HEADS * D; i += THREADS) {
		const int h = i / D, d = i % D;
		const float x = h < heads ? bf16_to_f32(q[h * D + d]) : 0;

		s.row[h][d] = bf16_of(below(x));
		s.row[h][D + d] = bf16_of(above(x));
	}
}

/* Rows of the sum or mean of `heads` queries. */
template <int D>
__device__ void load_joint(struct queries<D> &s, const bf16_t *__restrict__ q, int heads, bool mean)
{
	for (int d = threadIdx.x; d < D; d += THREADS) {
		float sum = 0, low = 0, high = 0;
		bf16_t part[2][SPLITS];

		for (int h = 0; h < heads; h++) {
			const float x = bf16_to_f32(q[h * D + d]);

			sum += x;
			low += below(x);
			high += above(x);
		}
		split(mean ? below(sum / (float)heads) : low, part[0]);
		split(mean ? above(sum / (float)heads) : high, part[1]);
#pragma unroll
		for (int i = 0; i < HEADS; i++) {
			s.row[i][d] = i < SPLITS ? part[0][i % SPLITS] : 0;
			s.row[i][D + d] = i < SPLITS ? part[1][i % SPLITS] : 0;
		}
	}
}

/* Where a lane reads page j of the bounds of a KV head. */
template <int D>
__device__ __forceinline__ const uint4 *page_at(const struct attn_batch &b, const struct bounds &x,
						const bf16_t *state, int r, int kv, int j)
{
	return (const uint4 *)(state + bounds_at(&x, &b, r, kv, j)) + threadIdx.x % 4;
}

/* Grid (stretch of pages, group of heads, request).  JOINT: the group has one row. */
template <int D, bool JOINT>
__global__ void __launch_bounds__(THREADS, 2)
quest_scores(struct attn_batch b, struct quest p, struct bounds x, struct piece_lists l,
	     size_t bytes, const bf16_t *__restrict__ q, const bf16_t *__restrict__ state,
	     void *work)
{
	constexpr int T = TILES<D>, STEPS = 2 * D / 32;	/* of two mma */
	__shared__ struct queries<D> rows;
	const struct attn_shape &s = b.shape;
	const int heads = l.heads, first = blockIdx.y * heads;
	const int r = blockIdx.z, kv = first / (s.q_heads / s.kv_heads), len = b.keys.len[r];
	const int n = pieces_of(len, x.tok), known = quest_known(&p, len);
	const int lane = threadIdx.x % 32, g = lane / 4;
	float *score = (float *)pieces_scratch(b, r, s.page_tok / x.tok, bytes, work);
	int tile = blockIdx.x * WARPS + threadIdx.x / 32;

	if ((int)blockIdx.x * WARPS * T * 8 >= n || keeps_all(p, l, len))
		return;
	q += ((size_t)r * s.q_heads + first) * D;
	if (JOINT)
		load_joint(rows, q, heads, p.share != QUEST_SUM);
	else
		load_heads(rows, q, heads);
	__syncthreads();
	for (; tile * T * 8 < n; tile += gridDim.x * WARPS) {
		uint4 k[T][STEPS];
		float c[T][4] = {};

#pragma unroll
		for (int i = 0; i < T; i++) {
			const uint4 *from = page_at<D>(b, x, state, r, kv,
						       min((tile * T + i) * 8 + g, n - 1));

#pragma unroll
			for (int d = 0; d < STEPS; d++)
				k[i][d] = __ldg(from + d * 4);
		}
#pragma unroll
		for (int d = 0; d < STEPS; d++) {
			const uint4 a = *(const uint4 *)&rows.row[g][d * 32 + lane % 4 * 8];
			const uint4 a8 = *(const uint4 *)&rows.row[g + 8][d * 32 + lane % 4 * 8];
			const uint32_t low[4] = { a.x, a8.x, a.y, a8.y };
			const uint32_t high[4] = { a.z, a8.z, a.w, a8.w };

#pragma unroll
			for (int i = 0; i < T; i++) {
				mma_m16n8k16(c[i], low, k[i][d].x, k[i][d].y);
				mma_m16n8k16(c[i], high, k[i][d].z, k[i][d].w);
			}
		}
#pragma unroll
		for (int i = 0; i < T; i++)
#pragma unroll
			for (int e = 0; e < 4; e++) {
				const int j = (tile * T + i) * 8 + lane % 4 * 2 + e % 2;
				const int h = JOINT ? 0 : g + e / 2 * 8;
				float sum = c[i][e];

				if (JOINT)	/* rows of lanes with the same t */
					sum += __shfl_down_sync(~0u, c[i][e], 4) +
					       __shfl_down_sync(~0u, c[i][e], 8);
				if (j >= n || h >= heads || (JOINT && (g || e > 1)))
					continue;
				score[(size_t)(JOINT ? blockIdx.y : first + h) * n + j] =
					isnan(sum) || j >= known ? -INFINITY : sum;
			}
	}
}

/* Grid (list of scores, request).  `join` lists are added up first. */
__global__ void __launch_bounds__(PICK_THREADS)
quest_pick(struct attn_batch b, struct quest p, struct piece_lists l, int join, size_t bytes,
	   void *work)
{
	__shared__ struct pick_smem sm;
	const int r = blockIdx.y, len = b.keys.len[r], n = pieces_of(len, l.tok);
	const int last = quest_last(&p, n), kept = quest_kept(&p, &l, len) - last;
	float *score = (float *)pieces_scratch(b, r, b.shape.page_tok / l.tok, bytes, work) +
		       (size_t)blockIdx.x * n;
	const auto key = [=](int j) { return top_key(score[j]); };
	struct pick found = { ~0u, 0, 0 };	/* none */

	if (keeps_all(p, l, len))
		return;
	for (int j = threadIdx.x; join > 1 && j < n; j += PICK_THREADS) {
		float sum = score[j];

		for (int h = 1; h < join; h++)
			sum += score[(size_t)h * n + j];
		score[j] = isnan(sum) ? -INFINITY : sum;
	}
	__syncthreads();
	if (kept > 0)
		found = pick_find<PICK_COUNT>(sm, n - last, kept, key);
	__syncthreads();
	/* a word of bits takes the place of the first of its scores */
	pick_walk(sm, found, n, [=](int j) { return j < n - last ? key(j) : 0; },
		  [=](int j, bool taken, uint32_t) {
			  const uint32_t bits = __ballot_sync(~0u, taken || j >= n - last);

			  if (j % 32 == 0)
				  ((uint32_t *)score)[j] = bits;
		  });
}

/* Grid (list, request).  A list has the pages of `rows` lists of scores, with a bit for each. */
__global__ void __launch_bounds__(PICK_THREADS)
quest_lists(struct attn_batch b, struct quest p, struct piece_lists l, int rows, bool same,
	    size_t bytes, void *work)
{
	__shared__ uint32_t count[PICK_WARPS];
	const int r = blockIdx.y, len = b.keys.len[r], n = pieces_of(len, l.tok);
	const bool all = keeps_all(p, l, len);
	const uint32_t *taken =
		(const uint32_t *)pieces_scratch(b, r, b.shape.page_tok / l.tok, bytes, work) +
		(same ? 0 : (size_t)blockIdx.x * rows * n);
	const int i = r * gridDim.x + blockIdx.x;
	const size_t at = (size_t)i * l.stride;
	int kept = 0;

	for (int first = 0; first < n; first += PICK_THREADS * 32) {
		const int j0 = first + threadIdx.x * 32;
		const uint32_t valid = j0 + 32 <= n ? ~0u : j0 < n ? (1u << n % 32) - 1 : 0;
		uint32_t own[HEADS], any = 0;

#pragma unroll
		for (int h = 0; h < HEADS; h++) {
			own[h] = !valid ? 0 : all ? ~0u : h < rows ? taken[(size_t)h * n + j0] : 0;
			any |= own[h];
		}
		any &= valid;
		uint32_t rank = kept + pick_scan(__popc(any), count);

		for (; any; any &= any - 1, rank++) {
			const int bit = __ffs(any) - 1;
			uint32_t bits = 0;

#pragma unroll
			for (int h = 0; h < HEADS; h++)
				bits |= (own[h] >> bit & 1) << h;
			l.piece[at + rank] = j0 + bit;
			if (l.mask)
				l.mask[at + rank] = (uint16_t)bits;
		}
		for (int w = 0; w < PICK_WARPS; w++)
			kept += count[w];
	}
	if (!threadIdx.x)
		l.n[i] = kept;
}

/* Scratch of a piece. */
size_t piece_bytes(const struct quest *p, const struct attn_shape *s)
{
	return (size_t)quest_rows(p, s) * sizeof(float);
}

template <int D>
void launch_scores(const dim3 &grid, const struct attn_call *call, const struct quest *p,
		   const struct piece_lists &l, cudaStream_t stream)
{
	const struct attn_shape *s = &call->b->shape;
	const auto kernel = p->share == QUEST_HEAD ? quest_scores<D, false> : quest_scores<D, true>;

	kernel<<<grid, THREADS, 0, stream>>>(*call->b, *p, quest_bounds(p), l, piece_bytes(p, s),
					     call->q, (const bf16_t *)call->state, call->work);
}

enum ar_status enqueue_scores(const struct attn_call *call, const struct quest *p,
			      const struct piece_lists &l, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const int groups = pieces_groups(&b->shape, &l), n_list = groups * b->rows.n_req;
	const cudaStream_t stream = (cudaStream_t)call->stream;
	const struct gpu *gpu;
	enum ar_status st = gpu_current(&gpu, err);
	dim3 grid;

	if (st)
		return st;
	grid = dim3(max(WAVES * gpu->n_sm / n_list, 1), groups, b->rows.n_req);
	pieces_of_dim(b->shape.head_dim,
		      [&](auto dim) { launch_scores<dim>(grid, call, p, l, stream); });
	CU_LAUNCHED();
out:
	return st;
}

}

enum ar_status quest_append(const struct attn_call *call, const void *self, struct ar_err *err)
{
	const struct bounds x = quest_bounds((const struct quest *)self);

	return bounds_append_enqueue(&x, call, err);
}

size_t quest_work_bytes(const void *self, const struct attn_shape *s, const struct attn_limits *l)
{
	const struct quest *p = (const struct quest *)self;

	return pieces_scratch_bytes(l, s->page_tok / (int)p->page, piece_bytes(p, s));
}

enum ar_status quest_enqueue(const struct attn_call *call, const void *self,
			     const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const struct quest *p = (const struct quest *)self;
	const struct piece_lists *l = &out->pieces;
	const bool same = p->share == QUEST_REQUEST;
	const int rows = quest_rows(p, &b->shape), n_req = b->rows.n_req;
	const size_t bytes = piece_bytes(p, &b->shape);
	const cudaStream_t stream = (cudaStream_t)call->stream;
	enum ar_status st = AR_OK;

	if (!n_req)
		return AR_OK;
	st = enqueue_scores(call, p, *l, err);
	if (st)
		return st;
	quest_pick<<<dim3(same ? 1 : rows, n_req), PICK_THREADS, 0, stream>>>
		(*b, *p, *l, same ? rows : 1, bytes, call->work);
	CU_LAUNCHED();
	quest_lists<<<dim3(pieces_groups(&b->shape, l), n_req), PICK_THREADS, 0, stream>>>
		(*b, *p, *l, p->share == QUEST_HEAD ? l->heads : 1, same, bytes, call->work);
	CU_LAUNCHED();
out:
	return st;
}
