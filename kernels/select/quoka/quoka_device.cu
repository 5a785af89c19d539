/* SPDX-License-Identifier: Apache-2.0 */
/*
 * QUOKA's token lists on the device; the rule is in quoka.c.  Six kernels, or eight:
 *
 *   sum      grid (query block, query head): the sum of its rows.
 *   cosine   the same grid, a thread per row: the mean of the chunk from these sums, then the row's
 *            norm and its cosine with the mean.
 *   rows     grid (request, query head): the rows with the smallest cosines, in slots.
 *   qbar     grid (QBAR_TURNS of each query block, KV head): the means of unit vectors; a warp per
 *            slot, slots dealt to the request's thread blocks in turn.
 *   score    grid (256 or 128 tokens, KV head, request): unit keys against all of qbar, one
 *            maximum a token.
 *   list_all grid (KV head, request), if lists have one slice of 4096 tokens: as rows, but in
 *            order of tokens.
 *   high, low, list
 *            grid (slice, KV head, request), if lists have more slices.  Scores are integers of 16
 *            bits.  high counts them by upper byte.  low counts scores with the upper byte of the
 *            least kept score, by lower byte.  list then knows that score and, from the counts of
 *            the slices before, where a slice's tokens go in the list.
 *
 * score takes most of the time: 2 nq ctx head_dim flops a KV head, each key read once.  It is in
 * quoka_sm90.cu for Hopper, and in quoka_sm80.cu for other devices.
 *
 * Example: eight chunks of 1024 at 128 Ki, 16 heads over four KV heads of 128 channels.  The query
 * side reads q, 34 MB, three times; the list kernels read 8 MB of scores three times.  All of it
 * takes 0.75 ms on an H200, dense attention 11.5.
 */
#include "config.h"
#include "kernels/select/quoka/quoka.cuh"

#include "base/workspace.h"
#include "kernels/prim/cuda.h"
#include "kernels/select/qblk.cuh"
#include "kernels/select/selectors.h"

namespace {

constexpr int THREADS = QUOKA_THREADS;
constexpr int WARPS = THREADS / 32;
constexpr int RUN = 16;			// scores that a thread looks at, at most
constexpr int SLICE = THREADS * RUN;
constexpr int BINS = THREADS;
constexpr int QBAR_TURNS = 4;

/* ---- work memory ---- */

/* Room for the cosines of a head.  Each request begins at a multiple of RUN, so each may waste up
 * to RUN. */
__host__ __device__ size_t cosine_stride(size_t n_row, size_t n_req)
{
	return (n_row + RUN * (n_req + 1)) / RUN * RUN;
}

__device__ size_t cosine_at(const struct quoka_job &j, int r, int head)
{
	return head * cosine_stride(j.b.rows.n_row, j.b.rows.n_req) +
	       (j.b.rows.row0[r] + RUN * r) / RUN * RUN;
}

/* Where the counts of slice 0 of a list lie.  The counts of the next slice lie KV heads * BINS
 * further. */
__device__ size_t counts_at(const struct quoka_job &j, int r, int kv_head)
{
	const size_t slice = (size_t)j.b.keys.page0[r] * j.b.shape.page_tok / SLICE + r;

	return (slice * j.b.shape.kv_heads + kv_head) * BINS;
}

struct extent {
	size_t n_qblk, n_row, n_page, n_req;
};

struct quoka_room room_at(const struct attn_shape *s, const struct extent &e, struct workspace *at)
{
	const size_t tokens = e.n_page * s->page_tok;
	const size_t counts = (tokens / SLICE + e.n_req) * s->kv_heads * BINS;
	const size_t cosines = s->q_heads * cosine_stride(e.n_row, e.n_req);
	struct quoka_room w;

	w.score = (uint16_t *)workspace_take(at, tokens * s->kv_heads, sizeof *w.score);
	w.high = (int32_t *)workspace_take(at, counts, sizeof *w.high);
	w.low = (int32_t *)workspace_take(at, counts, sizeof *w.low);
	w.sum = (float *)workspace_take(at, e.n_qblk * s->q_heads * s->head_dim, sizeof *w.sum);
	w.scale = (float *)workspace_take(at, e.n_row * s->q_heads, sizeof *w.scale);
	w.cosine = (uint16_t *)workspace_take(at, cosines, sizeof *w.cosine);
	w.slot = (int32_t *)workspace_take(at, e.n_row * s->q_heads, sizeof *w.slot);
	w.qbar = (bf16_t *)workspace_take(at, e.n_row * s->kv_heads * s->head_dim, sizeof *w.qbar);
	return w;
}

/* ---- the largest of many keys ---- */

/* N keys, two to a word. */
template <int N>
struct alignas(N < 8 ? 2 * N : 16) run {
	uint32_t v[N / 2];
};

/* This thread's keys in a slice: n keys, at most N. */
template <int N>
struct keys {
	struct run<N> run;
	int n;

	__device__ __forceinline__ uint32_t operator[](int i) const
	{
		return run.v[i / 2] >> i % 2 * 16 & 0xffff;
	}
};

template <int N>
__device__ __forceinline__ struct keys<N> load_keys(const uint16_t *__restrict__ key, int slice,
						    int n)
{
	const int first = (slice * THREADS + threadIdx.x) * N;
	struct keys<N> x = {};

	x.n = min(max(n - first, 0), N);
	if (x.n)
		x.run = *(const struct run<N> *)(key + first);
	return x;
}

struct scratch {
	int count[BINS];
	uint32_t part[WARPS];
	int digit, rank;
};

/* Inclusive prefix sum over the thread block. */
__device__ uint32_t scan(uint32_t x, struct scratch &sm, uint32_t &all)
{
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

	for (int d = 1; d < 32; d *= 2) {
		const uint32_t y = __shfl_up_sync(~0u, x, d);

		x += lane >= d ? y : 0;
	}
	__syncthreads();	// the last use of part is over
	if (lane == 31)
		sm.part[warp] = x;
	__syncthreads();
	all = 0;
	for (int w = 0; w < WARPS; w++) {
		x += w < warp ? sm.part[w] : 0;
		all += sm.part[w];
	}
	return x;
}

/* Add keys to the counts: by upper byte; or, of keys with this upper byte, by lower byte. */
template <bool LOW, int N>
__device__ void tally(const struct keys<N> &x, uint32_t upper, struct scratch &sm)
{
#pragma unroll
	for (int i = 0; i < N; i++) {
		const bool counts = i < x.n && (!LOW || x[i] >> 8 == upper);
		const uint32_t digit = LOW ? x[i] & 255 : x[i] >> 8;
		const uint32_t same = __match_any_sync(~0u, counts ? digit : BINS);

		if (counts && threadIdx.x % 32 == __ffs(same) - 1)
			atomicAdd(&sm.count[digit], __popc(same));
	}
}

/* Find the byte of the rank-th largest key.  count: number of keys with byte threadIdx.x.  sm.rank:
 * its rank among keys with that byte, from 1. */
__device__ void find(int count, int rank, struct scratch &sm)
{
	uint32_t all;
	const int to_here = scan(count, sm, all), above = (int)all - to_here;

	if (above < rank && rank <= above + count) {
		sm.digit = threadIdx.x;
		sm.rank = rank - above;
	}
	__syncthreads();
}

/* The kept keys: the `above` keys that exceed `least`, and the first `ties` keys equal to it. */
struct cut {
	uint32_t least;
	int above, ties;
};

/* Write the indices of the kept keys of this slice.  above, ties: keys above and equal to the least
 * in the slices before; both are brought up to date.  SORTED: in order of indices; otherwise keys
 * above the least come first. */
template <bool SORTED, int N>
__device__ void write(const struct keys<N> &x, int slice, const struct cut &c, int &above,
		      int &ties, struct scratch &sm, int32_t *__restrict__ out)
{
	const int first = (slice * THREADS + threadIdx.x) * N;
	uint32_t mine = 0, all;	// above in the lower half, ties in the upper

#pragma unroll
	for (int i = 0; i < N; i++)
		if (i < x.n)
			mine += (x[i] > c.least) + ((uint32_t)(x[i] == c.least) << 16);
	const uint32_t before = scan(mine, sm, all) - mine;
	int a = above + (int)(before & 0xffff), t = ties + (int)(before >> 16);

#pragma unroll
	for (int i = 0; i < N; i++)
		if (i < x.n && x[i] > c.least) {
			out[a + (SORTED ? min(t, c.ties) : 0)] = first + i;
			a++;
		} else if (i < x.n && x[i] == c.least) {
			if (t < c.ties)
				out[t + (SORTED ? a : c.above)] = first + i;
			t++;
		}
	above += (int)(all & 0xffff);
	ties += (int)(all >> 16);
}

/* Write the indices of the `keep` largest of n keys, by one thread block.  A thread takes N keys at
 * a time. */
template <bool SORTED, int N>
__device__ void take(const uint16_t *__restrict__ key, int n, int keep, struct scratch &sm,
		     int32_t *__restrict__ out)
{
	const int n_slice = (n + THREADS * N - 1) / (THREADS * N);
	int above = 0, ties = 0;

	sm.count[threadIdx.x] = 0;
	__syncthreads();
	for (int i = 0; i < n_slice; i++)
		tally<false>(load_keys<N>(key, i, n), 0, sm);
	__syncthreads();
	find(sm.count[threadIdx.x], keep, sm);
	const int upper = sm.digit, rank = sm.rank;

	sm.count[threadIdx.x] = 0;
	__syncthreads();
	for (int i = 0; i < n_slice; i++)
		tally<true>(load_keys<N>(key, i, n), upper, sm);
	__syncthreads();
	find(sm.count[threadIdx.x], rank, sm);
	const struct cut c = { (uint32_t)(upper << 8 | sm.digit), keep - sm.rank, sm.rank };

	for (int i = 0; i < n_slice; i++)
		write<SORTED>(load_keys<N>(key, i, n), i, c, above, ties, sm, out);
}

/* ---- the query side ---- */

/* Sum the rows of a query block, a thread per pair of channels.  The order of the sum is fixed, but
 * many terms are loaded at once. */
__global__ void __launch_bounds__(128) quoka_sum(const __grid_constant__ struct quoka_job j)
{
	constexpr int AT_ONCE = 64;
	const struct qblk s = qblk_at(j.b, blockIdx.x);
	const int pairs = j.b.shape.head_dim / 2, q_heads = j.b.shape.q_heads, n = s.hi - s.lo;
	const size_t stride = (size_t)q_heads * pairs;
	const uint32_t *src;
	float2 sum = make_float2(0, 0);

	if (!j.b.rows.pos0[s.req])
		return;
	src = (const uint32_t *)j.q + (size_t)(s.row + s.lo) * stride + blockIdx.y * pairs +
	      threadIdx.x;
	for (int first = 0; first < n; first += AT_ONCE) {
		uint32_t x[AT_ONCE];

#pragma unroll
		for (int i = 0; i < AT_ONCE; i++)
			x[i] = first + i < n ? src[(first + i) * stride] : 0;
#pragma unroll
		for (int i = 0; i < AT_ONCE; i++) {
			sum.x += quoka_low_half(x[i]);
			sum.y += quoka_high_half(x[i]);
		}
	}
	((float2 *)j.w.sum)[(size_t)blockIdx.x * stride + blockIdx.y * pairs + threadIdx.x] = sum;
}

template <int D>
__global__ void __launch_bounds__(128) quoka_cosine(const __grid_constant__ struct quoka_job j)
{
	__shared__ __align__(8) float mean[D];
	const struct qblk s = qblk_at(j.b, blockIdx.x);
	const int r = s.req, head = blockIdx.y, q_heads = j.b.shape.q_heads, row = threadIdx.x;
	const int ctx = j.b.rows.pos0[r], rows = j.b.rows.row0[r + 1] - j.b.rows.row0[r];
	const bool there = row >= s.lo && row < s.hi;
	const size_t at = (size_t)(s.row + row) * q_heads + head;
	const uint4 *src = (const uint4 *)(j.q + at * D);
	float mean_squares = 0, squares = 0, dot = 0, by;
	uint4 v[D / 8];

	if (!ctx)
		return;
#pragma unroll
	for (int i = 0; i < D / 8; i++)
		v[i] = there ? src[i] : make_uint4(0, 0, 0, 0);
	for (int d = threadIdx.x; d < D; d += blockDim.x) {
		float sum = 0;

#pragma unroll 8
		for (int i = j.b.rows.qblk0[r]; i < j.b.rows.qblk0[r + 1]; i++)
			sum += j.w.sum[((size_t)i * q_heads + head) * D + d];
		mean[d] = quoka_rounded(sum / (float)rows);
	}
	__syncthreads();
#pragma unroll
	for (int i = 0; i < D / 8; i++) {
		const uint32_t x[4] = { v[i].x, v[i].y, v[i].z, v[i].w };

#pragma unroll
		for (int e = 0; e < 4; e++) {
			const float2 m = *(const float2 *)&mean[i * 8 + 2 * e];

			mean_squares += m.x * m.x;
			mean_squares += m.y * m.y;
			squares += quoka_low_half(x[e]) * quoka_low_half(x[e]);
			squares += quoka_high_half(x[e]) * quoka_high_half(x[e]);
		}
	}
	by = quoka_unit_scale(mean_squares);
	__syncthreads();
	for (int d = threadIdx.x; d < D; d += blockDim.x)
		mean[d] = quoka_rounded(mean[d] * by);
	__syncthreads();
	if (!there)
		return;
	by = quoka_unit_scale(squares);
#pragma unroll
	for (int i = 0; i < D / 8; i++)	/* else halves stay unpacked, in twice the registers */
		asm volatile("" : "+r"(v[i].x), "+r"(v[i].y), "+r"(v[i].z), "+r"(v[i].w));
#pragma unroll
	for (int i = 0; i < D / 8; i++) {
		const uint32_t x[4] = { v[i].x, v[i].y, v[i].z, v[i].w };

#pragma unroll
		for (int e = 0; e < 4; e++) {
			const float2 m = *(const float2 *)&mean[i * 8 + 2 * e];

			dot += quoka_rounded(quoka_low_half(x[e]) * by) * m.x;
			dot += quoka_rounded(quoka_high_half(x[e]) * by) * m.y;
		}
	}
	j.w.scale[at] = by;
	j.w.cosine[cosine_at(j, r, head) + s.blk * j.b.shape.page_tok + row - ctx] =
		(uint16_t)~quoka_order_of(dot);
}

__global__ void __launch_bounds__(THREADS) quoka_rows(const __grid_constant__ struct quoka_job j)
{
	__shared__ struct scratch sm;
	const int r = blockIdx.x, head = blockIdx.y, rows = j.b.rows.row0[r + 1] - j.b.rows.row0[r];

	if (j.b.rows.pos0[r])
		take<false, 4>(j.w.cosine + cosine_at(j, r, head), rows,
			       quoka_queries(&j.p, rows), sm,
			       j.w.slot + (size_t)head * j.b.rows.n_row + j.b.rows.row0[r]);
}

/* Compute qbar.  Within each 32 channels, 16-byte piece c takes pair c of each 16-byte piece of the
 * source.  A lane that loads piece t of a key then holds the pairs of two consecutive k steps. */
template <int D>
__global__ void __launch_bounds__(THREADS) quoka_qbar(const __grid_constant__ struct quoka_job j)
{
	constexpr int PAIRS = D / 2, OWN = PAIRS / 32;	// of a lane
	const struct attn_shape &s = j.b.shape;
	const int r = qblk_at(j.b, blockIdx.x / QBAR_TURNS).req, kv_head = blockIdx.y;
	const int group = s.q_heads / s.kv_heads, lane = threadIdx.x % 32;
	const int turn = blockIdx.x - j.b.rows.qblk0[r] * QBAR_TURNS;
	const int turns = (j.b.rows.qblk0[r + 1] - j.b.rows.qblk0[r]) * QBAR_TURNS;
	const float share = 1 / (float)group;
	const int row0 = j.b.rows.row0[r], nq = quoka_queries(&j.p, j.b.rows.row0[r + 1] - row0);

	if (!j.b.rows.pos0[r])
		return;
	for (int i = turn + turns * (threadIdx.x / 32); i < nq; i += turns * WARPS) {
		const size_t to = ((size_t)kv_head * j.b.rows.n_row + row0 + i) * PAIRS;
		float lo[OWN] = {}, hi[OWN] = {};

#pragma unroll 4
		for (int h = kv_head * group; h < (kv_head + 1) * group; h++) {
			const int row = row0 + j.w.slot[(size_t)h * j.b.rows.n_row + row0 + i];
			const size_t at = (size_t)row * s.q_heads + h;
			const float by = j.w.scale[at];

#pragma unroll
			for (int k = 0; k < OWN; k++) {
				const uint32_t x =
					((const uint32_t *)j.q)[at * PAIRS + lane + 32 * k];

				lo[k] += quoka_rounded(quoka_low_half(x) * by);
				hi[k] += quoka_rounded(quoka_high_half(x) * by);
			}
		}
#pragma unroll
		for (int k = 0; k < OWN; k++) {
			const int d = lane + 32 * k, c = d % 4, t = d % 16 / 4;

			((uint32_t *)j.w.qbar)[to + d / 16 * 16 + c * 4 + t] =
				pack_bf16(lo[k] * share, hi[k] * share);
		}
	}
}

/* ---- lists ---- */

/* The slice of a list that a thread block works on. */
struct list_place {
	int r, kv_head, slice, ctx, keep, n_slice;
	size_t row, counts;	// of scores and tokens; of counts
	size_t stride;		// from a slice's counts to the next one's

	__device__ list_place(const struct quoka_job &j)
	{
		r = blockIdx.z, kv_head = blockIdx.y, slice = blockIdx.x;
		ctx = j.b.rows.pos0[r];
		keep = quoka_keep(&j.p, ctx, j.b.rows.row0[r + 1] - j.b.rows.row0[r]);
		n_slice = (ctx + SLICE - 1) / SLICE;
		row = attn_token_row(&j.b.shape, j.b.keys.page0[r],
				     j.b.keys.page0[r + 1] - j.b.keys.page0[r], kv_head);
		counts = counts_at(j, r, kv_head);
		stride = (size_t)j.b.shape.kv_heads * BINS;
	}
};

/* Sum this thread's counter over all slices.  before: the sum over the slices before this one. */
__device__ int sum_counts(const struct list_place &at, const int32_t *__restrict__ count,
			  int &before)
{
	int all = 0;

	before = 0;
#pragma unroll 8
	for (int i = 0; i < at.n_slice; i++) {
		const int x = count[at.counts + i * at.stride + threadIdx.x];

		all += x;
		before += i < at.slice ? x : 0;
	}
	return all;
}

__global__ void __launch_bounds__(THREADS) quoka_high(const __grid_constant__ struct quoka_job j)
{
	__shared__ struct scratch sm;
	const struct list_place at(j);

	if (at.slice >= at.n_slice)
		return;
	sm.count[threadIdx.x] = 0;
	__syncthreads();
	tally<false>(load_keys<RUN>(j.w.score + at.row, at.slice, at.ctx), 0, sm);
	__syncthreads();
	j.w.high[at.counts + at.slice * at.stride + threadIdx.x] = sm.count[threadIdx.x];
}

__global__ void __launch_bounds__(THREADS) quoka_low(const __grid_constant__ struct quoka_job j)
{
	__shared__ struct scratch sm;
	const struct list_place at(j);
	int before;

	if (at.slice >= at.n_slice)
		return;
	sm.count[threadIdx.x] = 0;
	find(sum_counts(at, j.w.high, before), at.keep, sm);
	tally<true>(load_keys<RUN>(j.w.score + at.row, at.slice, at.ctx), sm.digit, sm);
	__syncthreads();
	j.w.low[at.counts + at.slice * at.stride + threadIdx.x] = sm.count[threadIdx.x];
}

__global__ void __launch_bounds__(THREADS) quoka_list(const __grid_constant__ struct quoka_job j)
{
	__shared__ struct scratch sm;
	const struct list_place at(j);
	const int digit = threadIdx.x;
	int high_before, low_before, ties;
	uint32_t above;

	if (!at.slice && !threadIdx.x)
		j.out.n[at.r * j.b.shape.kv_heads + at.kv_head] = at.keep;
	if (at.slice >= at.n_slice)
		return;
	find(sum_counts(at, j.w.high, high_before), at.keep, sm);
	const int upper = sm.digit;

	find(sum_counts(at, j.w.low, low_before), sm.rank, sm);
	const int lower = sm.digit;
	const struct cut c = { (uint32_t)(upper << 8 | lower), at.keep - sm.rank, sm.rank };

	sm.count[digit] = low_before;
	scan((digit > upper ? high_before : 0) + (digit > lower ? low_before : 0), sm, above);
	ties = sm.count[lower];
	int kept = (int)above;

	write<true>(load_keys<RUN>(j.w.score + at.row, at.slice, at.ctx), at.slice, c, kept, ties,
		    sm, j.out.tok + at.row);
}

__global__ void __launch_bounds__(THREADS)
quoka_list_all(const __grid_constant__ struct quoka_job j)
{
	__shared__ struct scratch sm;
	const struct list_place at(j);

	if (!threadIdx.x)
		j.out.n[at.r * j.b.shape.kv_heads + at.kv_head] = at.keep;
	if (at.ctx)
		take<true, 8>(j.w.score + at.row, at.ctx, at.keep, sm, j.out.tok + at.row);
}

/* ---- launch ---- */

enum ar_status launch_lists(const struct quoka_job &j, dim3 grid, cudaStream_t stream,
			    struct ar_err *err)
{
	enum ar_status st = AR_OK;

	if (grid.x == 1) {
		quoka_list_all<<<grid, THREADS, 0, stream>>>(j);
	} else {
		quoka_high<<<grid, THREADS, 0, stream>>>(j);
		CU_LAUNCHED();
		quoka_low<<<grid, THREADS, 0, stream>>>(j);
		CU_LAUNCHED();
		quoka_list<<<grid, THREADS, 0, stream>>>(j);
	}
	CU_LAUNCHED();
out:
	return st;
}

template <int D>
enum ar_status launch(const struct quoka_job &j, quoka_score_fn *score, cudaStream_t stream,
		      struct ar_err *err)
{
	const struct attn_shape &s = j.b.shape;
	const int tokens = j.b.keys.max_kv_blk * s.page_tok;
	const dim3 rows(j.b.rows.n_qblk, s.q_heads);
	const dim3 slots(j.b.rows.n_qblk * QBAR_TURNS, s.kv_heads);
	const dim3 slices((tokens + SLICE - 1) / SLICE, s.kv_heads, j.b.rows.n_req);
	enum ar_status st = AR_OK;

	quoka_sum<<<rows, D / 2, 0, stream>>>(j);
	CU_LAUNCHED();
	quoka_cosine<D><<<rows, s.page_tok, 0, stream>>>(j);
	CU_LAUNCHED();
	quoka_rows<<<dim3(j.b.rows.n_req, s.q_heads), THREADS, 0, stream>>>(j);
	CU_LAUNCHED();
	quoka_qbar<D><<<slots, THREADS, 0, stream>>>(j);
	CU_LAUNCHED();
	st = score(&j, stream, err);
	if (st)
		return st;
	return launch_lists(j, slices, stream, err);
out:
	return st;
}

enum ar_status enqueue(const struct attn_call *call, const void *self, quoka_score_fn *score,
		       const struct token_lists *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	cudaStream_t stream = (cudaStream_t)call->stream;
	const struct extent e = { (size_t)b->rows.n_qblk, (size_t)b->rows.n_row,
				  (size_t)b->keys.n_page, (size_t)b->rows.n_req };
	struct workspace at = workspace_at(call->work);
	const struct quoka_job j = { *b, *(const struct quoka *)self, call->q, call->kv.k, *out,
				     room_at(&b->shape, e, &at) };

	switch (b->shape.head_dim) {
	case 64:
		return launch<64>(j, score, stream, err);
	case 128:
		return launch<128>(j, score, stream, err);
	default:
		return launch<256>(j, score, stream, err);
	}
}

}

size_t quoka_work_bytes(const void *, const struct attn_shape *s, const struct attn_limits *l)
{
	const struct extent e = { (size_t)attn_max_qblk(l, s->page_tok), (size_t)l->max_row,
				  (size_t)l->max_page, (size_t)l->max_req };

	struct workspace at = workspace_at(NULL);

	room_at(s, e, &at);
	return at.used;
}

enum ar_status quoka_enqueue(const struct attn_call *call, const void *self,
			     const struct selection *out, struct ar_err *err)
{
	return selector_dispatch("quoka", call, self, out, err);
}

enum ar_status quoka_sm90_enqueue(const struct attn_call *call, const void *self,
				  const struct selection *out, struct ar_err *err)
{
	return enqueue(call, self, quoka_score_sm90, &out->tokens, err);
}

enum ar_status quoka_sm80_enqueue(const struct attn_call *call, const void *self,
				  const struct selection *out, struct ar_err *err)
{
	return enqueue(call, self, quoka_score_sm80, &out->tokens, err);
}
