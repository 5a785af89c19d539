/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last queries' rows on Hopper: (max, sum) of the exponentials of each row over a segment of
 * keys.  lastq_sm90.cu makes the rows' totals from them.
 *
 * A thread block takes segments of a KV head's keys, and 256 queries.  These are the rows of four
 * query heads of 64 places or of two of 128, and stay in shared memory.  Queries are the product's
 * rows: a thread has two rows, and keeps only their bases and sums from step to step.  So four warp
 * groups of 64 queries fit.  A thread of the fifth issues the copies, 128 keys a step, straight
 * from the paged cache.  Per step and group:
 *
 *   S = Q K^T               wgmma m64n128k16, both operands in shared memory
 *   sum += exp2(S - base)   64 values a thread, in registers: ffma, ex2 and fadd
 *
 * No step looks for its maximum.  A thread has a base for its share of a row, which begins below
 * all scores.  The base moves only if the sum would pass LIMIT or be infinite; the step is then
 * added again.  A sum is at most LIMIT before a step.  So one that passes it has a score some 30
 * above the base, and one repetition is enough.  Keys ascend: a thread that sees none of a row's
 * keys in the segment's first step sees none later.  Its base and sum stay as they began.
 *
 * If pieces are asked for (lastq.cuh), a step is a block of keys.  Its sums are written, two for
 * each row.  They need one base for the four threads of a row; when it moves, pieces that the
 * segment has written before are rescaled.  The border between a row's two pieces goes through one
 * tile of eight keys: the same for all lanes of a warp.  The other tiles are added up without a
 * check: each of a head's eight warps has its own code for that.
 *
 * Budget of a step of four groups at D = 128, in cycles of a multiprocessor:
 *
 *   tensor cores             2048
 *   special function units   2048 for 32768 exponentials
 *   shared memory            1536 for operands
 *   schedulers               some 1000
 *   K                        32 KiB, 12 bytes a cycle at the rate below
 *
 * Groups use the two kinds of units in turn, without barriers.  A group's chain alone is 512 cycles
 * of products and some 600 of exponentials, so four groups keep either kind busy.  But beside
 * tensor cores that are always busy, the special function units give only three quarters of their
 * rate.  Measured: 844 cycles instead of 587 for a group's ffma and ex2.  Every ffma and fadd also
 * delays the tensor cores by about a cycle.  On an H200 a loop of only these instructions takes
 * 2742 cycles, 2713 with turns at issuing; two groups with two accumulators take 1612 for half the
 * queries.  At 128K tokens, 8 requests, 16 heads over 4 and 64 rows there are 32768 steps: 0.38 ms
 * at that rate, measured 0.44.  128 rows take twice as long.
 *
 * Pieces add some twenty instructions to the 200 of a thread's step, and a step of 256 queries
 * writes 2 KiB.  With them a step takes 2900 cycles.  Segments of 8192 keys, a thread block each,
 * took 3140: 100 for the last wave, which was not full, and 120 for the starts.  Tried: code of the
 * eight warps kept apart, so that no branch stands between the exponentials of a step, 1.010 ms
 * instead of 1.017; turns at issuing, 1 % slower; four exponentials under way (proxyattn_sm90.cu),
 * 0.5 % faster.
 *
 *   registers   accumulators 64, of 112 (setmaxnreg)
 *   shared      Q 64 KiB, four stages of K 128 KiB; at D = 256 steps of 64 keys, 128 KiB and three
 *               stages of 32 KiB, and operands take all 128 bytes that it gives in a cycle
 *
 * Nothing hides the start of a segment, when Q arrives.  So there are as many thread blocks as
 * multiprocessors, each with the same number of keys (lastq.cuh); most have one or two segments.
 * Thread blocks with the other heads of the same KV heads take the same keys at the same time.
 */
#include "config.h"

#include <cfloat>
#include <cmath>

#include "kernels/prim/cuda.h"
#include "kernels/prim/group_registers.cuh"
#include "kernels/prim/ring.cuh"
#include "kernels/prim/softmax.cuh"
#include "kernels/prim/tensor_map.h"
#include "kernels/select/lastq/lastq.cuh"

/* In code for other architectures the kernel is a trap, and its parts are unused. */
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#pragma nv_diag_suppress 177
#endif

namespace {

constexpr int BOX = 64;			/* columns and rows of a TMA box */
constexpr int GROUPS = 4;		/* of warps that compute */
constexpr int ROWS = GROUPS * 64;
using registers = group_registers<GROUPS>;
constexpr int THREADS = registers::THREADS;
constexpr float LIMIT = 0x1p60f;

template <int D> constexpr int KEYS = D == 256 ? 64 : 128;	/* of a step */
template <int D> constexpr int STAGES = D == 256 ? 3 : 4;

/* A slab is 64 columns of all rows, as TMA swizzles it. */
template <int D> struct alignas(1024) smem {
	bf16_t q[D / BOX][ROWS][BOX];
	bf16_t k[STAGES<D>][D / BOX][KEYS<D>][BOX];
	uint64_t q_full, q_empty;
	struct ring<STAGES<D>> ring;
};
template <int D> constexpr int SMEM_BYTES = sizeof(struct smem<D>) + 1024;
static_assert(SMEM_BYTES<128> <= 227 * 1024 && SMEM_BYTES<256> <= 227 * 1024, "shared memory");

struct args {
	struct attn_batch b;
	struct lastq_parts parts;
};

/* The work of a thread block: pages [page, stop) of a range, for some query heads of each KV head.
 */
struct share {
	int page, stop;
	int head, groups;	/* the first of a KV head; of warps that have queries */
};

/* The keys of a share that belong to one request and one KV head. */
struct spot {
	int r, end;		/* request, the end of its keys */
	int first, stop;	/* keys [first, stop); a step begins at first */
	int kv_head, head;	/* the first of its query heads */
	int part;		/* lastq_part() */
};

__device__ __forceinline__ struct share share_of(const struct args &a)
{
	const struct attn_shape &s = a.b.shape;
	const int group = s.q_heads / s.kv_heads, slots = ROWS / a.parts.pad;
	const int head = (int)blockIdx.x * slots, page = (int)blockIdx.y * a.parts.range;

	return { page, min(page + a.parts.range, a.b.keys.n_page * s.kv_heads), head,
		 min(group - head, slots) * a.parts.pad / 64 };
}

/* Find the request with this page, in the order of lastq_pages_before(). */
__device__ __forceinline__ int request_of(const struct attn_batch &b, int page)
{
	int r = 0;

	for (int over = b.rows.n_req; over - r > 1;) {
		const int middle = (r + over) / 2;

		if (b.keys.page0[middle] * b.shape.kv_heads <= page)
			r = middle;
		else
			over = middle;
	}
	return r;
}

/* Move the next segment from the share to *w.  Returns false if there is none. */
__device__ __forceinline__ bool next_spot(const struct args &a, struct share &s, struct spot &w)
{
	const struct attn_shape &x = a.b.shape;
	const int round = LASTQ_LEAST / x.page_tok;

	while (s.page < s.stop) {
		const int r = request_of(a.b, s.page), pages = lastq_pages(a.b, r);
		const int at = s.page - lastq_pages_before(a.b, r, 0);
		const int kv_head = at / pages, page = at % pages;
		const int n = min(pages - page, s.stop - s.page);

		w.r = r;
		w.end = lastq_end(a.parts, a.b, r);
		w.first = (page + round - 1) / round * LASTQ_LEAST;
		w.stop = min((page + n + round - 1) / round * LASTQ_LEAST, w.end);
		w.kv_head = kv_head;
		w.head = kv_head * (x.q_heads / x.kv_heads) + s.head;
		w.part = lastq_part(a.parts, a.b, r, kv_head, s.page - page, w.first / x.page_tok);
		s.page += n;
		if (w.first < w.stop && a.b.rows.row0[r] < a.b.rows.row0[r + 1])
			return true;
	}
	return false;
}

/* at: steps before this segment's.  Returns the steps after it. */
template <int D>
__device__ __forceinline__ int copy(struct smem<D> &s, const struct args &a, const struct spot &w,
				    int groups, int at, const CUtensorMap *qmap,
				    const CUtensorMap *kmap)
{
	constexpr int BOXES = KEYS<D> / BOX;
	const int shift = __ffs(a.b.shape.page_tok) - 1, pad = a.parts.pad;
	const int32_t *page = a.b.keys.page + a.b.keys.page0[w.r];

	mbarrier_expect_tx(&s.q_full, groups * 64 * D * 2);
	for (int i = 0; i < groups * 64; i += 64)
		for (int c = 0; c < D / BOX; c++)
			tma_load_3d(s.q[c][i], qmap, &s.q_full, c * BOX, w.head + i / pad,
				    a.b.rows.row0[w.r + 1] - pad + i % pad);
	for (int key = w.first; key < w.stop; key += KEYS<D>, at++) {
		const int st = s.ring.stage(at);
		uint64_t *full;
		int y[BOXES];

#pragma unroll
		for (int i = 0; i < BOXES; i++) {
			/* past the last box, that box is copied again; its keys are hidden */
			const int from = min(key / BOX + i, (w.stop - 1) / BOX) * BOX;

			y[i] = ((page[from >> shift] * a.b.shape.kv_heads + w.kv_head) << shift) +
			       (from & ((1 << shift) - 1));
		}
		full = s.ring.producer_acquire(at);
		mbarrier_expect_tx(full, sizeof s.k[0]);
#pragma unroll
		for (int i = 0; i < BOXES; i++)
			for (int c = 0; c < D / BOX; c++)
				tma_load_2d(s.k[st][c][i * BOX], kmap, full, c * BOX, y[i]);
	}
	return at;
}

template <int D>
__device__ __forceinline__ void produce(struct smem<D> &s, const struct args &a,
					struct share share, const CUtensorMap *qmap,
					const CUtensorMap *kmap)
{
	int at = 0, phase = 0;		/* steps so far; of the barriers of Q */
	struct spot w;

	while (next_spot(a, share, w)) {
		mbarrier_wait(&s.q_empty, phase ^ 1);
		at = copy<D>(s, a, w, share.groups, at, qmap, kmap);
		phase ^= 1;
	}
}

/* Compute acc = Q K^T of a step for this group's queries, and release the keys. */
template <int D>
__device__ __forceinline__ void multiply(float (&acc)[KEYS<D> / 2], struct smem<D> &s,
					 struct ring<STAGES<D>> *ring, int step, int group)
{
	const uint64_t queries = wgmma_desc(s.q[0][group * 64], 16, 1024);
	uint64_t keys = wgmma_desc(s.k[ring->stage(step)], 16, 1024);

	asm volatile("" : "+l"(keys));	/* so that the sums below are sums */

	ring->consumer_wait(step);
	wgmma_fence();
#pragma unroll
	for (int k = 0; k < D / 16; k++) {	/* addresses in units of 16 bytes */
		const int slab = k / 4, piece = k % 4 * 2;

		wgmma_ss<KEYS<D>>(acc, queries + slab * (sizeof s.q[0] / 16) + piece,
				  keys + slab * (sizeof s.k[0][0] / 16) + piece, k != 0);
	}
	wgmma_commit();
	wgmma_wait<0>();
	hold<KEYS<D> / 2>(acc);
	ring->consumer_release(step);
}

/* A thread's two rows, the accumulator's rows lane / 4 and 8 more of a warp: element 4 i + 2 r + c
 * is row r, key 8 i + 2 (lane % 4) + c of the step. */
struct rows {
	int pos, step;		/* the last key that the first sees; how many more the other */
	float base[2], sum[2];	/* of this thread's keys */
};

template <int N>
__device__ __forceinline__ void hide(float (&acc)[N], const struct rows &t, int key)
{
	const int ahead = key + (int)threadIdx.x % 4 * 2 - t.pos;

#pragma unroll
	for (int i = 0; i < N; i++)
		if (ahead + i / 4 * 8 + i % 2 > i / 2 % 2 * t.step)
			acc[i] = -INFINITY;
}

/* Sum a step's exponentials in two pieces, as lastq_parts.piece wants them, over this thread's
 * keys.  piece[row][0]: keys up to the row's own place among 128; [1]: keys past it.  V: number of
 * the warp in its head; the border crosses tile 2 V + row. */
template <int D, int V, int N>
__device__ __forceinline__ void split(float (&piece)[2][2], const float (&acc)[N],
				      const struct rows &t)
{
	const int lane = threadIdx.x % 32, last = lane / 4 - lane % 4 * 2;

	piece[0][0] = piece[0][1] = piece[1][0] = piece[1][1] = 0;
#pragma unroll
	for (int i = 0; i < N; i++) {
		const int r = i / 2 % 2, past = i / 4 - (2 * V + r);
		const float p = ex2(fmaf(acc[i], softmax_scale_log2<D>, -t.base[r]));

		if (past < 0 || (!past && i % 2 <= last))
			piece[r][0] += p;
		else
			piece[r][1] += p;
	}
}

/* Call split for warp v.  Each warp has its own template, so that accumulators keep static
 * indices. */
template <int D, int N, int V = 0>
__device__ __forceinline__ void split_of(int v, float (&piece)[2][2], const float (&acc)[N],
					 const struct rows &t)
{
	if constexpr (V < 7)
		if (v != V)
			return split_of<D, N, V + 1>(v, piece, acc, t);
	split<D, V>(piece, acc, t);
}

/* Add this step's exponentials to the sums, in next; returns the larger sum. */
template <int D, int N>
__device__ __forceinline__ float add(float (&next)[2], const float (&acc)[N], const struct rows &t)
{
	float odd[2] = { 0, 0 };

	next[0] = t.sum[0];
	next[1] = t.sum[1];
#pragma unroll
	for (int i = 0; i < N; i++) {
		const int r = i / 2 % 2;

		(i % 2 ? odd : next)[r] += ex2(fmaf(acc[i], softmax_scale_log2<D>, -t.base[r]));
	}
	next[0] += odd[0];
	next[1] += odd[1];
	return fmaxf(next[0], next[1]);
}

/* Raise bases to at least this step's scores.  COMMON: the four threads of a row share one base. */
template <int D, bool COMMON, int N>
__device__ __forceinline__ void rebase(struct rows &t, const float (&acc)[N])
{
#pragma unroll
	for (int r = 0; r < 2; r++) {
		const float old = t.base[r];
		float top = -INFINITY;

#pragma unroll
		for (int i = 2 * r; i < N; i += 4)
			top = fmaxf(top, fmaxf(acc[i], acc[i + 1]));
		if (COMMON)
			top = quad_max(top);
		/* rounded up: with a score above it the step might never fit */
		t.base[r] = fmaxf(old, __fmul_ru(top, softmax_scale_log2<D>));
		t.sum[r] *= ex2(old - t.base[r]);
	}
}

/* Add the step's pieces to the sums, and store them at to[0].  Earlier steps' pieces, at
 * to[-stride] and so on, are rescaled when bases move. */
template <int D, int N>
__device__ __forceinline__ void add_pieces(struct rows &t, const float (&acc)[N], float *to,
					   ptrdiff_t stride, int step)
{
	const int warp = threadIdx.x / 32 % 8, up = threadIdx.x & 2;
	const float before = up ? t.base[1] : t.base[0];
	float piece[2][2], next[2];

	for (;;) {
		split_of<D>(warp, piece, acc, t);
		next[0] = t.sum[0] + (piece[0][0] + piece[0][1]);
		next[1] = t.sum[1] + (piece[1][0] + piece[1][1]);
		if (!__any_sync(~0u, fmaxf(next[0], next[1]) > LIMIT))
			break;
		rebase<D, true>(t, acc);
	}
	t.sum[0] = next[0];
	t.sum[1] = next[1];
	to[0] = lastq_deal(piece);

	const float after = up ? t.base[1] : t.base[0];

	if (after != before)
		for (int i = 1; i <= step; i++)
			to[-i * stride] *= ex2(before - after);
}

/* at: steps before this segment's.  Returns the steps after it. */
template <int D, bool PIECES>
__device__ __forceinline__ int weigh(struct smem<D> &s, const struct args &a, const struct spot &w,
				     int at)
{
	const int group = warp_group();
	const int lane = threadIdx.x % 32, pad = a.parts.pad;
	const int place = threadIdx.x / 32 * 16 + lane / 4, head = w.head + place / pad;
	const int of_group = a.b.shape.q_heads / a.b.shape.kv_heads;
	float2 *const part = a.parts.part + ((size_t)w.part * of_group + head % of_group) * pad +
			     place % pad;
	/* of row lane / 2 % 2 of the two, and half lane % 2 */
	const ptrdiff_t stride = (ptrdiff_t)a.b.shape.q_heads * LASTQ_PIECES;
	float *piece = PIECES ? lastq_piece(a.parts, a.b, w.r, w.first, head) +
				lane % 2 * LASTQ_MAX + place % pad + lane / 2 % 2 * 8 : NULL;
	struct rows t = { w.end - pad + place % pad, 8, { -FLT_MAX, -FLT_MAX }, { 0, 0 } };
	struct ring<STAGES<D>> *ring = &s.ring;
	float acc[KEYS<D> / 2], next[2];
	int step = 0;

	if (a.parts.past) {
		t.pos = w.end - 1;
		t.step = 0;
	}
	/* keep the address in a register; otherwise each step derives it anew */
	asm volatile("" : "+l"(ring));

	for (int key = w.first; key < w.stop; key += KEYS<D>, step++) {
		multiply<D>(acc, s, ring, at + step, group);
		if (key + KEYS<D> >= w.stop && threadIdx.x % 128 == 0)
			mbarrier_arrive(&s.q_empty);
		if (key + KEYS<D> > w.end - pad)	/* may hold keys past a row */
			hide(acc, t, key);
		if constexpr (PIECES) {
			add_pieces<D>(t, acc, piece, stride, step);
			piece += stride;
		} else {
			while (add<D>(next, acc, t) > LIMIT)
				rebase<D, false>(t, acc);
			t.sum[0] = next[0];
			t.sum[1] = next[1];
		}
	}
#pragma unroll
	for (int r = 0; r < 2; r++) {
		const float top = quad_max(t.base[r]);
		const float sum = quad_sum(t.sum[r] * ex2(t.base[r] - top));

		if (lane % 4 == 0)
			part[8 * r] = make_float2(top, sum);
	}
	return at + step;
}

template <int D, bool PIECES>
__device__ __forceinline__ void consume(struct smem<D> &s, const struct args &a,
					struct share share)
{
	int at = 0, phase = 0;
	struct spot w;

	while (next_spot(a, share, w)) {
		mbarrier_wait(&s.q_full, phase);
		at = weigh<D, PIECES>(s, a, w, at);
		phase ^= 1;
	}
}

/* Grid (slab of 256 queries of a KV head, range). */
template <int D, bool PIECES>
__global__ void __launch_bounds__(THREADS, 1)
lastq_rows(const __grid_constant__ CUtensorMap qmap, const __grid_constant__ CUtensorMap kmap,
	   const __grid_constant__ struct args a)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
	extern __shared__ char raw[];
	/* an offset: a pointer made from an integer would lose its address space and load slower */
	struct smem<D> &s = *(struct smem<D> *)(raw + (-smem_addr(raw) & 1023));
	const struct share share = share_of(a);

	if (threadIdx.x == 0) {
		mbarrier_init(&s.q_full, 1);
		mbarrier_init(&s.q_empty, share.groups);
		s.ring.init(1, share.groups);
		fence_barrier_init();
	}
	__syncthreads();
	if (threadIdx.x >= GROUPS * 128) {
		setmaxnreg_dec<registers::COPY>();
		if (threadIdx.x == GROUPS * 128)
			produce<D>(s, a, share, &qmap, &kmap);
	} else if (warp_group() < share.groups) {
		setmaxnreg_inc<registers::COMPUTE>();
		consume<D, PIECES>(s, a, share);
	}
#else
	__trap();
#endif
}

/* ---- launch ---- */

int slabs_of(const struct attn_shape *s, int pad)
{
	const int slots = ROWS / pad;

	return (s->q_heads / s->kv_heads + slots - 1) / slots;
}

/* Choose the pages of a range, so that ranges fill the multiprocessors once. */
int range_pages(const struct attn_batch *b, int slabs)
{
	const int n = (b->n_sm ? b->n_sm : LASTQ_SHARES) / slabs;
	const int pages = b->keys.n_page * b->shape.kv_heads;
	const int even = n ? (pages + n - 1) / n : pages, least = LASTQ_LEAST / b->shape.page_tok;

	return even > least ? even : least;
}

template <int D, bool PIECES = false>
enum ar_status launch(const struct args &a, const CUtensorMap &qmap, const bf16_t *k,
		      cudaStream_t stream, struct ar_err *err)
{
	/* the size of the cache is unknown here; page numbers bound the accesses */
	const uint64_t dim[2] = { D, INT32_MAX };
	const uint32_t box[2] = { BOX, BOX };
	const int pages = a.b.keys.n_page * a.b.shape.kv_heads, range = a.parts.range;
	const dim3 grid(slabs_of(&a.b.shape, a.parts.pad), (pages + range - 1) / range);
	CUtensorMap kmap;
	enum ar_status st = tensor_map(&kmap, k, 2, dim, box, err);

	if (st)
		return st;
	CU(cudaFuncSetAttribute(lastq_rows<D, PIECES>,
				cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM_BYTES<D>));
	lastq_rows<D, PIECES><<<grid, THREADS, SMEM_BYTES<D>, stream>>>(qmap, kmap, a);
	CU_LAUNCHED();
out:
	return st;
}

}

size_t lastq_rows_work_bytes(const struct attn_shape *s, const struct attn_limits *l)
{
	const size_t ranges = l->n_sm ? l->n_sm : LASTQ_SHARES;

	return (ranges + (size_t)l->max_req * s->kv_heads) * (s->q_heads / s->kv_heads) *
	       LASTQ_MAX * sizeof(float2);
}

enum ar_status lastq_rows_enqueue(const struct attn_batch *b, const CUtensorMap &qmap,
				  const bf16_t *k, struct lastq_parts *parts, cudaStream_t stream,
				  struct ar_err *err)
{
	parts->range = range_pages(b, slabs_of(&b->shape, parts->pad));
	const struct args a = { *b, *parts };

	switch (b->shape.head_dim) {
	case 64: return (parts->piece ? launch<64, true> : launch<64>)(a, qmap, k, stream, err);
	case 128: return (parts->piece ? launch<128, true> : launch<128>)(a, qmap, k, stream, err);
	default: return launch<256>(a, qmap, k, stream, err);
	}
}
