/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FlexPrefill's selection on the device; the rule is in flexprefill.c.  After the means of keys and
 * the sums by block of lastq.h come
 *
 *   judge    (head of a request): p, JS, and so whether the head is query-aware
 *   lastq    the sums by position, for heads that are not query-aware
 *   weigh    (head of a request, direction): for the same heads, how many columns or diagonals
 *            carry gamma
 *   decide   (head of a request, direction): the blocks or slashes that are taken, as bits
 *   aware    (query block, KV head): for query-aware heads, the softmax over the means
 *   mask     (head of a request): which of these values are within gamma, and the mask rows
 *
 * Budget at 128K tokens, 8 requests, 16 heads and 128 rows:
 *
 *   lastq, first pass    0.58 ms of products and as much of exponentials; 128 MiB of pieces, for
 *                        its sums by block, written and read in 0.06 ms: 0.64 ms at least
 *   lastq, second pass   0.58 ms times the share of heads that are not query-aware
 *   weigh                up to 256 thread blocks, all at once, read 0.5 MiB each once: 0.03 ms.
 *                        Before that, they find three thresholds from 4096 keys each, by some
 *                        thirty sums over the thread block of about 200 cycles: 0.01 ms
 *   others               they read values of blocks, not of tokens.  For query-aware heads, aware
 *                        reads the most: 64 x 4 thread blocks take 1024 means of 512 bytes each,
 *                        128 MiB from L2
 *
 * With no head query-aware it takes 2.07 ms on an H200 after a rest of 0.15 s, 19.5 % of the 10.6
 * that dense attention takes.  Without a rest it takes 2.27, and dense attention 12.4.  Kernel by
 * kernel: lastq's first pass 0.85, its second 1.01, its sums by block 0.04, weigh 0.10, judge 0.02,
 * decide and mask 0.03, all others 0.02.
 *
 * The products of both passes alone would take 1.36 ms at 810 TFLOP/s, which products reach after a
 * rest (proxyattn_sm90.cu): 13 % of dense attention.  With what values take beside them, both
 * passes need 5590 cycles for 256 queries and 128 keys (lastq_rows_sm90.cu, lastq_sm90.cu).  They
 * take 6520, 1.85 ms.  So 1.58 ms are the least, 14.9 % of dense attention.  All kernels take 1.31
 * times that.
 *
 * In an older run, where dense attention took 11.3 to 11.7 ms, it took 1.19 to 1.29 with all heads
 * query-aware.
 */
#include "config.h"
#include "kernels/select/flexprefill/flexprefill.h"

#include <cmath>

#include "base/workspace.h"
#include "kernels/prim/cuda.h"
#include "kernels/prim/device.cuh"
#include "kernels/select/lastq/lastq.h"
#include "kernels/select/means/means.cuh"
#include "kernels/select/pick.cuh"
#include "kernels/select/qblk.cuh"

namespace {

constexpr int MAX_DIM = 256;
constexpr int AWARE_THREADS = 256;
constexpr int AWARE_HEADS = 4;		/* heads that read the means of keys together */

struct args {
	struct attn_batch b;
	struct flexprefill p;
	struct lastq blocks, sums;
	const bf16_t *q;
	const float *mean;
	float scale;
	/* by head of a request */
	uint32_t *bits;		/* [2][mask_words + 1] of blocks */
	int *count;		/* [2] keys to take, if want is set */
	int *want;		/* columns must be counted */
	int *aware;		/* the head is query-aware; neither flag: it keeps everything */
	/* by query block and head */
	float *p_row;		/* [max_kv_blk]; judge uses the row of a chunk's first query
				 * block */
	uint32_t *mask;
};

/* A head of a request. */
struct whose {
	int r, head, kv_head;
	int ctx, rows, end, nb;
	bool open;
};

__device__ struct whose whose_at(const struct args &a, int r, int head)
{
	const struct attn_batch &b = a.b;
	const int tok = b.shape.page_tok;
	struct whose w;

	w.r = r;
	w.head = head;
	w.kv_head = head / (b.shape.q_heads / b.shape.kv_heads);
	w.ctx = b.rows.pos0[r];
	w.rows = b.rows.row0[r + 1] - b.rows.row0[r];
	w.end = w.ctx + w.rows;
	w.nb = (w.end + tok - 1) / tok;
	w.open = flexprefill_open(&a.p, tok, w.rows, w.end);
	return w;
}

/* ---- weigh ---- */

/* A range of keys, from a sample, that probably holds the last key within the budget.  Keys are in
 * units of 2^-31 of their sum. */
struct bracket {
	uint32_t least, most;
};

template <typename Key>
__device__ __forceinline__ struct bracket bracket_of(struct pick_smem &sm, struct pick_kept &kept,
						     int n, uint32_t budget, const Key &key)
{
	const auto sample = [&](int i) { return (uint32_t)kept.at[i]; };
	const float rest = budget < 1u << 31 ? ((1u << 31) - budget) * ((float)PICK_SAMPLE / n) : 0;
	uint32_t sum = 0;

	for (int i = threadIdx.x; i < PICK_SAMPLE; i += PICK_THREADS) {
		kept.at[i] = (int32_t)key((int)((uint64_t)i * n / PICK_SAMPLE));
		sum += (uint32_t)kept.at[i];
	}
	sum = pick_sum(sm, sum, 0);
	const auto at = [&](float below) {
		const uint32_t units = (uint32_t)fminf(fmaxf(below, 0), 0x1p31f);

		return pick_find<PICK_WEIGHT>(sm, PICK_SAMPLE, sum - min(units, sum), sample).key;
	};
	/* four standard deviations at the most: no key of the rest is larger than its first */
	const float error = 4 * sqrtf(rest * at(rest));

	return { at(rest - error), at(rest + error) };
}

/* Sums over the keys that a thread saw. */
struct seen {
	uint32_t above, heavy;	/* keys above the bracket, and their sum */
	uint32_t all;		/* sum of the keys in or above it */
};

__global__ void __launch_bounds__(PICK_THREADS, 2)
flexprefill_weigh(const struct args a)
{
	__shared__ struct pick_smem sm;
	extern __shared__ uint4 room[];
	struct pick_kept &kept = *(struct pick_kept *)room;
	const int at = blockIdx.x, slash = blockIdx.y, tok = a.b.shape.page_tok;
	const struct whose w = whose_at(a, at / a.b.shape.q_heads, at % a.b.shape.q_heads);
	const float *mass = slash ? a.sums.slash + (size_t)at * a.sums.stride + w.end - 1 :
				    a.sums.column + (size_t)at * a.sums.stride;
	const uint32_t budget = flexprefill_budget(&a.p, 1);
	const int step = slash ? -1 : 1;	/* diagonals from the longest distance on */
	const auto key = [=](int i) { return flexprefill_units(mass[step * i], 31); };
	struct bracket in = { ~0u, ~0u };	/* none are */
	struct seen s = { 0, 0, 0 };
	struct pick p;

	if (!a.want[at])
		return;
	if (w.end > PICK_KEPT)
		in = bracket_of(sm, kept, w.end, budget, key);
	const int have = pick_gather(sm, kept, w.end, in.least, in.most, key,
				     [&](int, const uint32_t (&x)[PICK_SPAN]) {
#pragma unroll
		for (int i = 0; i < PICK_SPAN; i++) {
			s.above += x[i] > in.most;
			s.heavy += x[i] > in.most ? x[i] : 0;
			s.all += x[i] >= in.least ? x[i] : 0;
		}
	});
	s.above = pick_sum(sm, s.above, 0);
	s.heavy = pick_sum(sm, s.heavy, 1);
	s.all = pick_sum(sm, s.all, 0);
	if (have <= PICK_KEPT && s.heavy <= budget && (s.all > budget || !in.least)) {
		p = pick_find<PICK_WEIGHT>(sm, have, budget - s.heavy,
					   [&](int i) { return key(kept.at[i]); });
		p.above += s.above;
	} else {
		p = pick_find<PICK_WEIGHT>(sm, w.end, budget, key);
	}
	if (!threadIdx.x)
		a.count[at * 2 + slash] = flexprefill_count(&a.p, tok, w.nb,
							    (int)(p.above + p.room));
}

/* ---- softmax over means ---- */

/* Merge x[i] of all threads of the block in a fixed order.  part: N for each warp. */
template <int N, typename Join>
__device__ __forceinline__ void block_join(float (&x)[N], float *part, const Join &join)
{
	const int warps = blockDim.x / 32;

#pragma unroll
	for (int i = 0; i < N; i++)
		for (int lanes = 16; lanes; lanes /= 2)
			x[i] = join(x[i], __shfl_xor_sync(~0u, x[i], lanes));
	__syncthreads();		/* the last use of part is over */
	if (threadIdx.x % 32 == 0)
#pragma unroll
		for (int i = 0; i < N; i++)
			part[threadIdx.x / 32 * N + i] = x[i];
	__syncthreads();
#pragma unroll
	for (int i = 0; i < N; i++)
		x[i] = part[i];
	for (int w = 1; w < warps; w++)
#pragma unroll
		for (int i = 0; i < N; i++)
			x[i] = join(x[i], part[w * N + i]);
}

template <int N>
__device__ __forceinline__ void block_sum(float (&x)[N], float *part)
{
	block_join(x, part, [](float a, float b) { return a + b; });
}

/* Load everything first, because a load does not pass the store before it. */
template <int N>
__device__ __forceinline__ void load_heads(float (&x)[N], const float *src, int stride)
{
#pragma unroll
	for (int i = 0; i < N; i++)
		x[i] = src[i * stride];
}

template <int HEADS, int THREADS> struct attention_smem {
	alignas(16) float query[HEADS * MAX_DIM];
	struct mean_room room[THREADS / 32];
	float part[THREADS / 32 * HEADS];
};

/* Compute out[j], j < n: softmax of the mean of batch rows [lo, hi) against the means of blocks.  N
 * heads share their keys, from the head of w on, max_kv_blk apart.  A thread reads back only its
 * own writes. */
template <int N, typename Smem>
__device__ __forceinline__ void block_attention(const struct args &a, const struct whose &w, int lo,
						int hi, int n, Smem &sm, float *out)
{
	const int stride = a.b.keys.max_kv_blk, warp = threadIdx.x / 32;
	float x[N], max[N], sum[N];

	__syncthreads();		/* the last use of query is over */
	mean_rows(a.b, lo, hi, w.head, N, a.q, sm.query);
	__syncthreads();
#pragma unroll
	for (int i = 0; i < N; i++) {
		max[i] = -INFINITY;
		sum[i] = 0;
	}
	for (int at = warp * 32; at < n; at += blockDim.x) {
		const int j = at + threadIdx.x % 32;

		dots_by_lines(x, sm.query, means_at(&a.b, w.r, min(j, n - 1), w.kv_head, a.mean),
			      a.b.shape.head_dim, sm.room[warp]);
		if (j >= n)
			break;
#pragma unroll
		for (int i = 0; i < N; i++) {
			out[i * stride + j] = x[i] * a.scale;
			max[i] = fmaxf(max[i], x[i] * a.scale);
		}
	}
	block_join(max, sm.part, [](float a, float b) { return fmaxf(a, b); });
	for (int j = threadIdx.x; j < n; j += blockDim.x) {
		load_heads(x, out + j, stride);
#pragma unroll
		for (int i = 0; i < N; i++)
			sum[i] += out[i * stride + j] = expf(x[i] - max[i]);
	}
	block_sum(sum, sm.part);
	for (int j = threadIdx.x; j < n; j += blockDim.x) {
		load_heads(x, out + j, stride);
#pragma unroll
		for (int i = 0; i < N; i++)
			out[i * stride + j] = x[i] / sum[i];
	}
}

/* ---- judge ---- */

/* The mass of a block, or of a block of diagonals. */
__device__ __forceinline__ uint32_t mass_of(const struct args &a, int at, int slash, int j)
{
	const float *mass = slash ? a.blocks.slash : a.blocks.column;

	return flexprefill_units(mass[(size_t)at * a.blocks.stride + j], 31);
}

template <typename Smem>
__device__ __forceinline__ bool query_aware(const struct args &a, const struct whose &w, int at,
					    Smem &sm, float *p)
{
	const int n = min(w.rows, a.b.shape.page_tok), end = a.b.rows.row0[w.r + 1];
	float js[1] = { 0 };

	block_attention<1>(a, w, end - n, end, w.nb, sm, p);
	for (int j = threadIdx.x; j < w.nb; j += blockDim.x) {
		const float mass = mass_of(a, at, 0, j) * 0x1p-31f, m = (p[j] + mass) / 2;

		js[0] += p[j] > 0 ? 0.5f * p[j] * logf(p[j] / m) : NAN;
		js[0] += mass > 0 ? 0.5f * mass * logf(mass / m) : 0;
	}
	block_sum(js, sm.part);
	return sqrtf(js[0] < 0 ? 0 : js[0]) < a.p.tau;	/* not where js is NaN */
}

__global__ void __launch_bounds__(PICK_THREADS, 1)
flexprefill_judge(const struct args a)
{
	__shared__ struct attention_smem<1, PICK_THREADS> sm;
	const int at = blockIdx.x;
	const struct whose w = whose_at(a, at / a.b.shape.q_heads, at % a.b.shape.q_heads);
	const size_t row = (size_t)a.b.rows.qblk0[w.r] * a.b.shape.q_heads + w.head;
	const bool aware = !w.open &&
			   query_aware(a, w, at, sm, a.p_row + row * a.b.keys.max_kv_blk);

	if (!threadIdx.x) {
		a.aware[at] = aware;
		a.want[at] = !w.open && !aware;
	}
}

/* ---- decide ---- */

__global__ void __launch_bounds__(PICK_THREADS, 1)
flexprefill_decide(const struct args a)
{
	__shared__ struct pick_smem sm;
	const int at = blockIdx.x, slash = blockIdx.y;
	const struct whose w = whose_at(a, at / a.b.shape.q_heads, at % a.b.shape.q_heads);
	const int forced = slash ? w.nb - 1 : 0;
	uint32_t *bits = a.bits + (size_t)(at * 2 + slash) * (a.b.keys.mask_words + 1);
	const auto key = [=](int j) { return j == forced ? ~0u : mass_of(a, at, slash, j); };

	if (w.open)
		return;
	const int n = a.want[at] ? a.count[at * 2 + slash] :
				   flexprefill_count(&a.p, a.b.shape.page_tok, w.nb, 0);
	const struct pick p = pick_find<PICK_COUNT>(sm, w.nb, n, key);

	pick_walk(sm, p, w.nb, key, [=](int j, bool taken, int) {
		const uint32_t word = __ballot_sync(~0u, taken);

		if (j % 32 == 0)
			bits[j / 32] = word;
	});
	if (!threadIdx.x)	/* for shifts past the end */
		bits[(w.nb + 31) / 32] = 0;
}

/* ---- aware ---- */

/* Compute the shares of N heads from `head` on, of which one is query-aware. */
template <int N, typename Smem>
__device__ __forceinline__ void attend_blocks(const struct args &a, const struct qblk &s, int head,
					      Smem &sm)
{
	const size_t row = (size_t)blockIdx.x * a.b.shape.q_heads + head;
	bool aware = false;

	for (int i = 0; i < N; i++)
		aware |= a.aware[s.req * a.b.shape.q_heads + head + i];
	if (aware)
		block_attention<N>(a, whose_at(a, s.req, head), s.row + s.lo, s.row + s.hi,
				   s.blk + 1, sm, a.p_row + row * a.b.keys.max_kv_blk);
}

__global__ void __launch_bounds__(AWARE_THREADS, 2)
flexprefill_aware(const struct args a)
{
	__shared__ struct attention_smem<AWARE_HEADS, AWARE_THREADS> sm;
	const struct qblk s = qblk_at(a.b, blockIdx.x);
	const int group = a.b.shape.q_heads / a.b.shape.kv_heads;
	int head = blockIdx.y * group;
	const int end = head + group;

	for (; head + AWARE_HEADS <= end; head += AWARE_HEADS)
		attend_blocks<AWARE_HEADS>(a, s, head, sm);
	for (; head < end; head++)
		attend_blocks<1>(a, s, head, sm);
}

/* ---- mask ---- */

/* Word c / 32 of block row blk: the vertical-slash pattern, or everything. */
__device__ uint32_t pattern(const struct args &a, const struct whose &w, int at, int blk, int c)
{
	const uint32_t *bits = a.bits + (size_t)at * 2 * (a.b.keys.mask_words + 1);
	const uint32_t *slash = bits + a.b.keys.mask_words + 1;
	const int s = c + w.nb - 1 - blk;	/* the slash of block c */

	if (c > blk)
		return 0;
	const uint32_t up_to = blk - c < 31 ? (2u << (blk - c)) - 1 : ~0u;

	return (w.open ? ~0u : bits[c / 32] |
		__funnelshift_r(slash[s / 32], slash[s / 32 + 1], s % 32)) & up_to;
}

__global__ void __launch_bounds__(PICK_THREADS, 1)
flexprefill_mask(const struct args a)
{
	__shared__ struct pick_smem sm;
	const int at = blockIdx.x, words = a.b.keys.mask_words;
	const struct whose w = whose_at(a, at / a.b.shape.q_heads, at % a.b.shape.q_heads);
	const int first = w.ctx / a.b.shape.page_tok, n_row = w.rows ? w.nb - first : 0;
	const bool aware = a.aware[at];
	const int shift = flexprefill_shift(n_row), n = n_row * words * 32;
	const size_t row = (size_t)a.b.rows.qblk0[w.r] * a.b.shape.q_heads + w.head;
	const size_t p_stride = (size_t)a.b.shape.q_heads * a.b.keys.max_kv_blk;
	const size_t mask_stride = (size_t)a.b.shape.q_heads * words;
	const float *p_row = a.p_row + row * a.b.keys.max_kv_blk;
	uint32_t *mask = a.mask + row * words;
	const auto key = [=](int i) {
		const int y = i / (words * 32), j = i % (words * 32);
		const bool there = aware && j <= first + y;
		const float p = p_row[there ? y * p_stride + j : 0];

		return there ? flexprefill_units(p, shift) : 0;
	};
	struct pick p = { ~0u, 0, 0 };

	if (aware)
		p = pick_find<PICK_WEIGHT>(sm, n, flexprefill_budget(&a.p, n_row), key);
	pick_walk(sm, p, n, key, [=](int i, bool taken, int) {
		const int y = i / (words * 32), j = i % (words * 32);
		const uint32_t word = __ballot_sync(~0u, taken && j <= first + y);

		if (j % 32 == 0)
			mask[y * mask_stride + j / 32] = word | pattern(a, w, at, first + y, j);
	});
}

/* ---- launch ---- */

/* Point a into work, behind lastq's part. */
void lay_out(struct args *a, const struct attn_shape *s, const struct attn_limits *l, int n_qblk,
	     struct workspace *w)
{
	const size_t heads = (size_t)l->max_req * s->q_heads, words = (l->max_kv_blk + 31) / 32 + 1;
	const size_t rows = (size_t)n_qblk * s->q_heads;

	workspace_take(w, lastq_blocks_work_bytes(s, l), 1);
	a->bits = (uint32_t *)workspace_take(w, heads * 2 * words, sizeof *a->bits);
	a->count = (int *)workspace_take(w, heads * 2, sizeof *a->count);
	a->want = (int *)workspace_take(w, heads, sizeof *a->want);
	a->aware = (int *)workspace_take(w, heads, sizeof *a->aware);
	a->p_row = (float *)workspace_take(w, rows * l->max_kv_blk, sizeof *a->p_row);
}

}

size_t flexprefill_work_bytes(const void *, const struct attn_shape *s,
			      const struct attn_limits *l)
{
	struct workspace w = workspace_at(NULL);
	struct args a;

	lay_out(&a, s, l, attn_max_qblk(l, s->page_tok), &w);
	return w.used;
}

static struct args args_of(const struct attn_batch *b, const struct flexprefill *p, const bf16_t *q,
			   const float *mean, uint32_t *mask, const struct lastq *blocks,
			   void *work)
{
	const struct attn_limits all = { .max_req = b->rows.n_req, .max_kv_blk = b->keys.max_kv_blk,
					 .n_sm = b->n_sm, .max_page = b->keys.n_page };
	struct args a = { *b, *p, *blocks, {}, q, mean,
			  (float)(1 / sqrt((double)b->shape.head_dim)) };
	struct workspace w = workspace_at(work);

	a.mask = mask;
	lay_out(&a, &b->shape, &all, b->rows.n_qblk, &w);
	return a;
}

enum ar_status flexprefill_enqueue(const struct attn_call *call, const void *self,
				   const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const struct attn_shape *s = &b->shape;
	const int heads = b->rows.n_req * s->q_heads;
	cudaStream_t on = (cudaStream_t)call->stream;
	struct lastq blocks;
	struct args a;
	enum ar_status st = AR_OK;

	if (!b->rows.n_qblk)
		return AR_OK;
	st = lastq_blocks_enqueue(b, call->q, call->kv.k, &blocks, call->work, call->stream, err);
	if (!st)
		st = means_update_enqueue(b, call->kv.k, (float *)call->state, call->stream, err);
	if (st)
		return st;
	a = args_of(b, (const struct flexprefill *)self, call->q, (const float *)call->state,
		    out->mask, &blocks, call->work);
	flexprefill_judge<<<heads, PICK_THREADS, 0, on>>>(a);
	CU_LAUNCHED();
	st = lastq_wanted_enqueue(b, call->q, call->kv.k, a.want, &a.sums, call->work, call->stream,
				  err);
	if (st)
		return st;
	CU(cudaFuncSetAttribute(flexprefill_weigh, cudaFuncAttributeMaxDynamicSharedMemorySize,
				sizeof(struct pick_kept)));
	flexprefill_weigh<<<dim3(heads, 2), PICK_THREADS, sizeof(struct pick_kept), on>>>(a);
	CU_LAUNCHED();
	flexprefill_decide<<<dim3(heads, 2), PICK_THREADS, 0, on>>>(a);
	CU_LAUNCHED();
	flexprefill_aware<<<dim3(b->rows.n_qblk, s->kv_heads), AWARE_THREADS, 0, on>>>(a);
	CU_LAUNCHED();
	flexprefill_mask<<<heads, PICK_THREADS, 0, on>>>(a);
	CU_LAUNCHED();
out:
	return st;
}
