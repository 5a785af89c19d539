/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last queries' rows on Hopper: (max, sum) of the exponentials of each row over a segment of
 * keys.  lastq_sm90.cu makes the rows' totals from them.
 *
 * A thread block takes a segment of one KV head's keys and 256 queries.  These are the rows of four
 * query heads of 64 places or of two of 128, and stay in shared memory.  Queries are the product's
 * rows: a thread has two rows, and keeps only their bases and sums from step to step.  So four warp
 * groups of 64 queries fit.  Warp 16 issues the copies, 128 keys a step, straight from the paged
 * cache.  Per step and group:
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
 * writes 2 KiB.  Tried: code of the eight warps kept apart, so that no branch stands between the
 * exponentials of a step, 1.010 ms instead of 1.017.
 *
 *   registers   accumulators 64, of 96: a scheduler has 5 of the 17 warps
 *   shared      Q 64 KiB, four stages of K 128 KiB; at D = 256 steps of 64 keys, 128 KiB and three
 *               stages of 32 KiB, and operands take all 128 bytes that it gives in a cycle
 *
 * Nothing hides the start of a thread block, when Q arrives, so segments are long: up to MOST keys,
 * in such numbers that the thread blocks fill whole waves.
 */
#include "config.h"

#include <cfloat>
#include <cmath>

#include "kernels/prim/cuda.h"
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
constexpr int THREADS = GROUPS * 128 + 32;
constexpr int LEAST = LASTQ_SEGMENT_LEAST, MOST = 8192;	/* keys of a segment */
constexpr float LIMIT = 0x1p60f;

template <int D> constexpr int KEYS = D == 256 ? 64 : 128;	/* of a step */
template <int D> constexpr int STAGES = D == 256 ? 3 : 4;

/* A slab is 64 columns of all rows, as TMA swizzles it. */
template <int D> struct alignas(1024) smem {
	bf16_t q[D / BOX][ROWS][BOX];
	bf16_t k[STAGES<D>][D / BOX][KEYS<D>][BOX];
	uint64_t q_full;
	struct ring<STAGES<D>> ring;
};
template <int D> constexpr int SMEM_BYTES = sizeof(struct smem<D>) + 1024;
static_assert(SMEM_BYTES<128> <= 227 * 1024 && SMEM_BYTES<256> <= 227 * 1024, "shared memory");

struct args {
	struct attn_batch b;
	struct lastq_parts parts;
	int n;			/* rows that take part, at most parts.pad */
};

/* The work of a thread block. */
struct spot {
	int r, end, n;		/* request; the end of its keys, rows that take part */
	int segment;		/* its keys are [first, stop); a step begins at first */
	int first, stop;
	int kv_head, head;	/* the first of its query heads */
	int groups;		/* of warps that have queries */
};

__device__ __forceinline__ struct spot spot_of(const struct args &a)
{
	const struct attn_shape &s = a.b.shape;
	const int group = s.q_heads / s.kv_heads, slots = ROWS / a.parts.pad;
	const int slabs = gridDim.x / s.kv_heads, at = (int)blockIdx.x % slabs * slots;
	const int r = blockIdx.z, rows = a.b.rows.row0[r + 1] - a.b.rows.row0[r];
	const int end = lastq_end(a.parts, a.b, r);
	const int segment = blockIdx.y, len = lastq_segment_keys(a.parts, end);
	const int kv_head = (int)blockIdx.x / slabs;

	return { r, end, min(a.n, rows), segment, segment * len, min(segment * len + len, end),
		 kv_head, kv_head * group + at, min(group - at, slots) * a.parts.pad / 64 };
}

template <int D>
__device__ __forceinline__ void produce(struct smem<D> &s, const struct args &a,
					const struct spot &w, const CUtensorMap *qmap,
					const CUtensorMap *kmap)
{
	constexpr int BOXES = KEYS<D> / BOX;
	const int shift = __ffs(a.b.shape.page_tok) - 1, pad = a.parts.pad;
	const int32_t *page = a.b.keys.page + a.b.keys.page0[w.r];
	int at = 0;

	mbarrier_expect_tx(&s.q_full, w.groups * 64 * D * 2);
	for (int i = 0; i < w.groups * 64; i += 64)
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
}

/* Compute acc = Q K^T of a step for this group's queries, and release the keys. */
template <int D>
__device__ __forceinline__ void multiply(float (&acc)[KEYS<D> / 2], struct smem<D> &s,
					 struct ring<STAGES<D>> *ring, int step, int group)
{
	const uint64_t queries = wgmma_desc(s.q[0][group * 64], 16, 1024);
	const uint64_t keys = wgmma_desc(s.k[ring->stage(step)], 16, 1024);

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

template <int D, bool PIECES>
__device__ __forceinline__ void consume(struct smem<D> &s, const struct args &a,
					const struct spot &w)
{
	const int group = warp_group();
	const int lane = threadIdx.x % 32, pad = a.parts.pad;
	const int place = threadIdx.x / 32 * 16 + lane / 4, head = w.head + place / pad;
	const size_t at = lastq_first_part(a.parts, a.b, w.r) + w.segment;
	float2 *const part = a.parts.part + (at * a.b.shape.q_heads + head) * pad + place % pad;
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

	mbarrier_wait(&s.q_full, 0);
	for (int key = w.first; key < w.stop; key += KEYS<D>, step++) {
		multiply<D>(acc, s, ring, step, group);
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
}

/* grid (KV head and slab of 256 queries, segment, request) */
template <int D, bool PIECES>
__global__ void __launch_bounds__(THREADS, 1)
lastq_rows(const __grid_constant__ CUtensorMap qmap, const __grid_constant__ CUtensorMap kmap,
	   const __grid_constant__ struct args a)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
	extern __shared__ char raw[];
	/* an offset: a pointer made from an integer would lose its address space and load slower */
	struct smem<D> &s = *(struct smem<D> *)(raw + (-smem_addr(raw) & 1023));
	const struct spot w = spot_of(a);

	if (w.first >= w.stop || !w.n)
		return;
	if (threadIdx.x == 0) {
		mbarrier_init(&s.q_full, 1);
		s.ring.init(1, w.groups);
		fence_barrier_init();
	}
	__syncthreads();
	if (threadIdx.x < w.groups * 128)
		consume<D, PIECES>(s, a, w);
	else if (threadIdx.x == GROUPS * 128)
		produce<D>(s, a, w, &qmap, &kmap);
#else
	__trap();
#endif
}

/* ---- launch ---- */

/* Choose the keys of a segment, if each segment has n thread blocks. */
int segment_keys(const struct attn_batch *b, int n)
{
	const int64_t keys = (int64_t)b->keys.n_page * b->shape.page_tok;

	if (!b->n_sm)
		return MOST;
	const int64_t full = (int64_t)MOST * b->n_sm, waves = (keys * n + full - 1) / full;
	/* a segment of each request may be short */
	const int64_t room = waves * b->n_sm / n - b->rows.n_req;
	const int64_t even = room > 0 ? (keys + room - 1) / room : MOST;

	return even < MOST ? (int)((even + LEAST - 1) / LEAST * LEAST) : MOST;
}

template <int D, bool PIECES = false>
enum ar_status launch(const struct args &a, const CUtensorMap &qmap, const bf16_t *k, int n,
		      cudaStream_t stream, struct ar_err *err)
{
	/* the size of the cache is unknown here; page numbers bound the accesses */
	const uint64_t dim[2] = { D, INT32_MAX };
	const uint32_t box[2] = { BOX, BOX };
	const int keys = a.b.keys.max_kv_blk * a.b.shape.page_tok;
	const dim3 grid(n, (keys + a.parts.segment - 1) / a.parts.segment, a.b.rows.n_req);
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

/* Room for the parts.  Segments shorter than MOST fill at most the waves that longer ones would
 * begin. */
size_t lastq_rows_work_bytes(const struct attn_shape *s, const struct attn_limits *l)
{
	const size_t whole = (size_t)l->max_page * s->page_tok / MOST;
	const size_t more = l->max_req > l->n_sm ? l->max_req : l->n_sm;

	return (whole + more) * s->q_heads * LASTQ_MAX * sizeof(float2);
}

enum ar_status lastq_rows_enqueue(const struct attn_batch *b, int n, const CUtensorMap &qmap,
				  const bf16_t *k, struct lastq_parts *parts, cudaStream_t stream,
				  struct ar_err *err)
{
	const int group = b->shape.q_heads / b->shape.kv_heads, slots = ROWS / parts->pad;
	const int blocks = b->shape.kv_heads * ((group + slots - 1) / slots);

	parts->segment = segment_keys(b, blocks);
	const struct args a = { *b, *parts, n };

	switch (b->shape.head_dim) {
	case 64: return (parts->piece ? launch<64, true> : launch<64>)
			(a, qmap, k, blocks, stream, err);
	case 128: return (parts->piece ? launch<128, true> : launch<128>)
			(a, qmap, k, blocks, stream, err);
	default: return launch<256>(a, qmap, k, blocks, stream, err);
	}
}
