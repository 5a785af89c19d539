/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Twilight on the device; the rule is in twilight.c.  Four kernels:
 *
 *   append  grid (query block, KV head), a warp per new key.
 *   scores  the candidates of a list, for all its heads.  A warp multiplies 16 keys by the queries
 *           of 8 heads, straight from memory to registers.  Codes of 4 bits become bf16 there.
 *   limits  grid (list, head of the list): by top.cuh the fewest whose weights reach the goal.
 *   lists   a thread block per list: candidates that any head keeps, in order.
 *
 * Scratch: a limit for each query head of each request; then of a request, scores, [q_heads][keys
 * of its pages].
 *
 * The keys of top.cuh count steps below the largest score.  Bits of floats, which ascend as well,
 * share their first digits, so that most of a thread block's atomics meet in a few bins.
 *
 * On an H200, with 8 requests of 128K, 32 query and 8 KV heads of 128, random keys, after quest of
 * budget 8192 and pages of 16, p .85, us:
 *	scores, by a thread per key, with limits; lists		304.7 + 134.5
 *	three kernels; thread blocks of 256 for limits		 63.6 + 43.8 + 30.4
 *	no division, one instruction to make codes numbers,
 *	512 threads, all loads of a turn at once		 54.8 + 26.3 + 25.1
 *	2, 3, 6, 12, 16 thread blocks of scores for each multiprocessor, not 8:
 *								 68.5, 74.3, 66.9, 64.4, 66.0
 *	keys asked for a turn ahead, two thread blocks at once		 57 to 60
 *	scores of lists asked for a turn ahead						 22.6
 * With the last two the step took 350.5 beside 352.7, so neither is kept.
 * The step took .48 of the speed of quest alone, and now .90 (318.6 to 353.0).  The candidates' 118
 * MB of short keys take 28 at the rate of a copy.  With scores at that rate, and limits and lists
 * for nothing, it would be 1.18; with lists of single tokens read at that rate, too, 1.26.  Scores
 * issue 421 instructions for 32 candidates, which takes 23 us beside the 28 of memory.  A warp does
 * not overlap the two, and 24 warps of a multiprocessor do not hide it.  Lists use 64 of 132
 * multiprocessors, as there are 64 of them.
 */
#include "config.h"
#include "kernels/select/twilight/twilight.h"

#include <cfloat>

#include "base/gpu.h"
#include "kernels/prim/cuda.h"
#include "kernels/select/pieces.cuh"
#include "kernels/select/qblk.cuh"
#include "kernels/select/top.cuh"

namespace {

constexpr int WARPS = 8, THREADS = WARPS * 32;	/* of scores */
constexpr int WAVES = 8;		/* thread blocks of scores for each multiprocessor */
constexpr int KEPT = 9216;		/* scores in shared memory */
constexpr int LIST_THREADS = 1024;	/* of lists */
constexpr int OWN = 4, FOUR = 4;	/* candidates of a thread, heads at once */

/* ---- append ---- */

__global__ void __launch_bounds__(128)
twilight_keys(struct attn_batch b, const bf16_t *__restrict__ k, void *state)
{
	const struct qblk s = qblk_at(b, blockIdx.x);
	const int lane = threadIdx.x % 32, dim = b.shape.head_dim;

	for (int i = s.lo + threadIdx.x / 32; i < s.hi; i += 4) {
		const int t = s.blk * b.shape.page_tok + i;
		const uint32_t *from = (const uint32_t *)(k + pieces_key(&b, s.req, blockIdx.y, t));
		struct twilight_key *to = twilight_key(&b, s.req, blockIdx.y, t, state);
		float low = FLT_MAX, high = -FLT_MAX;

		for (int d = lane; d < dim / 2; d += 32) {
			const float even = __uint_as_float(from[d] << 16);
			const float odd = __uint_as_float(from[d] & 0xffff0000);

			low = fminf(low, fminf(even, odd));
			high = fmaxf(high, fmaxf(even, odd));
		}
#pragma unroll
		for (int j = 16; j; j /= 2) {
			low = fminf(low, __shfl_xor_sync(~0u, low, j));
			high = fmaxf(high, __shfl_xor_sync(~0u, high, j));
		}
		const float step = fmaxf(high - low, 1e-9f) / 15;

		for (int d = lane; d < dim / 2; d += 32)
			((uint8_t *)(to + 1))[d] =
				twilight_code(__uint_as_float(from[d] << 16), low, step) |
				twilight_code(__uint_as_float(from[d] & 0xffff0000), low, step)
					<< 4;
		if (!lane)
			*to = { low, step };
	}
}

/* ---- lists and their scratch ---- */

/* A head keeps the scores that are less than `past` below its largest. */
struct limit {
	float max, past;
};

/* A list of n candidates.  Its head h has scores in score + h * room, and limit[h]. */
struct place {
	int r, head, kv, n;	/* head: the first */
	float *score;
	size_t room;
	struct limit *limit;
};

__host__ __device__ size_t limit_bytes(const struct attn_shape &s, int n_req)
{
	return ((size_t)n_req * s.q_heads * sizeof(struct limit) + 15) / 16 * 16;
}

__device__ struct place place_of(const struct attn_batch &b, const struct piece_lists &from,
				 int list, void *work)
{
	const struct attn_shape &s = b.shape;
	const int groups = s.q_heads / from.heads, r = list / groups;
	const int head = list % groups * from.heads;
	char *scores = (char *)work + limit_bytes(s, b.rows.n_req);
	float *score = (float *)pieces_scratch(b, r, s.page_tok, s.q_heads * sizeof *score, scores);
	/* lists differ in length: each head has room for all keys */
	const size_t room = (size_t)(b.keys.page0[r + 1] - b.keys.page0[r]) * s.page_tok;

	return { r, head, head / (s.q_heads / s.kv_heads),
		 twilight_candidates(&from, list, b.keys.len[r]), score + head * room, room,
		 (struct limit *)work + (size_t)r * s.q_heads + head };
}

/* ---- scores ---- */

/* The first channel of pair i that lane t of four multiplies; the other is STEP further.  A lane
 * reads 8 bytes of codes at a time, or 16 of an exact key. */
template <bool EXACT> constexpr int STEP = EXACT ? 1 : 4;

template <bool EXACT> __device__ __forceinline__ int channel(int i, int t)
{
	return EXACT ? 8 * (t + i / 4 * 4) + i % 4 * 2 :
		       16 * (t + i / 8 * 4) + i / 4 % 2 * 8 + i % 4;
}

/* A lane's pairs of the queries, of head lane / 4 of each eight, and the sum of all channels. */
template <int D, int EIGHTS> struct rows {
	uint32_t q[EIGHTS][D / 8];
	float sum[EIGHTS];
};

template <int D, int EIGHTS, bool EXACT>
__device__ __forceinline__ void load_rows(struct rows<D, EIGHTS> &x, const bf16_t *__restrict__ q,
					  int heads, int lane)
{
#pragma unroll
	for (int e = 0; e < EIGHTS; e++) {
		const int h = e * 8 + lane / 4;

		x.sum[e] = 0;
#pragma unroll
		for (int i = 0; i < D / 8; i++) {
			const bf16_t *from = q + h * D + channel<EXACT>(i, lane % 4);

			x.q[e][i] = h < heads ? from[0] | (uint32_t)from[STEP<EXACT>] << 16 : 0;
			x.sum[e] += __uint_as_float(x.q[e][i] << 16) +
				    __uint_as_float(x.q[e][i] & 0xffff0000);
		}
		x.sum[e] = quad_sum(x.sum[e]);
	}
}

/* A lane's share of a key. */
template <int D, bool EXACT> struct share {
	uint32_t word[EXACT ? D / 8 : D / 32];
	float2 scale;	/* low, step */
};

template <int D, bool EXACT>
__device__ __forceinline__ void load_key(struct share<D, EXACT> &x, const void *__restrict__ keys,
					 int at, int t)
{
	if constexpr (EXACT) {
		const uint4 *from = (const uint4 *)((const bf16_t *)keys + (size_t)at * D) + t;

#pragma unroll
		for (int i = 0; i < D / 32; i++)
			*(uint4 *)&x.word[4 * i] = __ldg(from + 4 * i);
	} else {
		const uint2 *from = (const uint2 *)((const char *)keys +
						    (size_t)at * twilight_key_bytes(D));

		x.scale = __ldg((const float2 *)from);
#pragma unroll
		for (int i = 0; i < D / 64; i++)
			*(uint2 *)&x.word[2 * i] = __ldg(from + 1 + t + 4 * i);
	}
}

/* Pair i of the key as bf16: 128 + code is its bits, and the difference is exact. */
template <int D, bool EXACT>
__device__ __forceinline__ uint32_t pair_of(const struct share<D, EXACT> &x, int i)
{
	uint32_t r;

	if (EXACT)
		return x.word[i];
	/* (word & codes) | 128, in one instruction, which the compiler makes two of */
	asm("lop3.b32 %0, %1, %2, %3, 0xea;"
	    : "=r"(r)
	    : "r"(x.word[i / 4] >> i % 4 * 4), "r"(0x000f000f), "r"(0x43004300));
	asm("fma.rn.bf16x2 %0, %0, %1, %2;" : "+r"(r) : "r"(0x3f803f80), "r"(0xc300c300));
	return r;
}

/* Score a tile of 16 keys, of which a lane has shares of two, lane / 4 and that + 8.  c[e]: of
 * heads 8 e + 2 (lane % 4) and the next, for one key and the other. */
template <int D, int EIGHTS, bool EXACT>
__device__ __forceinline__ void score(float (&c)[EIGHTS][4], const struct rows<D, EIGHTS> &x,
				      const struct share<D, EXACT> (&k)[2])
{
#pragma unroll
	for (int i = 0; i < D / 8; i += 2) {
		const uint32_t a[4] = { pair_of(k[0], i), pair_of(k[1], i), pair_of(k[0], i + 1),
					pair_of(k[1], i + 1) };

#pragma unroll
		for (int e = 0; e < EIGHTS; e++)
			mma_m16n8k16(c[e], a, x.q[e][i], x.q[e][i + 1]);
	}
}

/* The candidate that a lane looks up for its warp: its piece, bits of heads, and where its key
 * lies. */
struct look {
	int piece, mask, key;
};

/* Grid (list, stretch of candidates).  A warp takes 32 candidates at a time.  It asks for pieces
 * two turns ahead and for pages one turn ahead. */
template <int D, int EIGHTS, bool EXACT>
__global__ void __launch_bounds__(THREADS, EXACT || D > 128 ? 1 : EIGHTS > 1 ? 2 : 3)
twilight_scores(struct attn_batch b, const bf16_t *__restrict__ queries,
		const void *__restrict__ keys, struct piece_lists from, void *work)
{
	const struct attn_shape &s = b.shape;
	const struct place at = place_of(b, from, blockIdx.x, work);
	const int lane = threadIdx.x % 32, t = lane % 4, step = gridDim.y * WARPS;
	const int shift = __ffs(from.tok) - 1, page_shift = __ffs(s.page_tok) - 1;
	const int32_t *page = b.keys.page + b.keys.page0[at.r];
	const size_t list = (size_t)blockIdx.x * from.stride;
	const float by = 1 / sqrtf((float)D);
	struct rows<D, EIGHTS> rows;
	struct look now, next, then;
	int tile = blockIdx.y * WARPS + threadIdx.x / 32;
	const auto place = [&](int tile) { return min(tile * 32 + lane, at.n - 1); };
	const auto ask_piece = [&](struct look &x, int tile) {
		const size_t i = list + (place(tile) >> shift);

		x.piece = from.piece[i];
		x.mask = from.mask ? from.mask[i] : 0xffff;
	};
	const auto ask_page = [&](struct look &x, int tile) {
		const int pos = (x.piece << shift) + (place(tile) & (from.tok - 1));

		x.key = ((page[pos >> page_shift] * s.kv_heads + at.kv) << page_shift) +
			(pos & (s.page_tok - 1));
	};

	if (tile * 32 >= at.n)
		return;
	ask_piece(now, tile);
	load_rows<D, EIGHTS, EXACT>(rows, queries + ((size_t)at.r * s.q_heads + at.head) * D,
				    from.heads, lane);
	ask_page(now, tile);
	ask_piece(next, tile + step);
	for (; tile * 32 < at.n; tile += step) {
		struct share<D, EXACT> k[2][2];

#pragma unroll
		for (int j = 0; j < 4; j++)
			load_key(k[j / 2][j % 2], keys,
				 __shfl_sync(~0u, now.key, j * 8 + lane / 4), t);
		ask_page(next, tile + step);
		ask_piece(then, tile + 2 * step);
#pragma unroll
		for (int j = 0; j < 2; j++) {
			float c[EIGHTS][4] = {};

			score(c, rows, k[j]);
#pragma unroll
			for (int i = 0; i < EIGHTS * 4; i++) {
				const int e = i / 4, h = e * 8 + t * 2 + i % 2, key = i / 2 % 2;
				const int own = j * 16 + key * 8 + lane / 4;
				const bool seen = __shfl_sync(~0u, now.mask, own) >> h & 1;
				const float sum =
					__shfl_sync(~0u, rows.sum[e], (t * 2 + i % 2) * 4);
				const float2 scale = k[j][key].scale;
				const float x = (EXACT ? c[e][i % 4] :
						 scale.x * sum + scale.y * c[e][i % 4]) * by;

				if (h < from.heads && tile * 32 + own < at.n)
					at.score[h * at.room + tile * 32 + own] =
						!seen ? -INFINITY : isnan(x) ? -FLT_MAX : x;
			}
		}
		now = next;
		next = then;
	}
}

/* ---- limits ---- */

/* A key that ascends with the score: it counts steps below the largest, so keys spread over their
 * digits.  0: the head does not see it.  1 << 32 steps below, weights are 0. */
constexpr float STEPS = 0x1p27f;	/* of a difference of 1 */

__device__ __forceinline__ uint32_t key_of(float x, float max)
{
	return x == -INFINITY ? 0 : ~min(__float2uint_rz((max - x) * STEPS), ~1u);
}

__device__ __forceinline__ uint64_t weight_of(uint32_t key)
{
	return key ? top_fixed(expf((float)~key / -STEPS)) : 0;
}

/* What keeps just the scores whose keys are at least `least`, and those that have no number. */
__device__ __forceinline__ struct limit limit_of(float max, uint32_t least)
{
	return { max, least > 1 ? __uint2float_ru(-least) / STEPS : INFINITY };
}

__device__ __forceinline__ bool keeps(const struct limit &l, float x)
{
	return !(l.max - x >= l.past);
}

constexpr int LIMIT_THREADS = 512, LIMIT_WARPS = LIMIT_THREADS / 32, BATCH = 8;

struct limit_smem {
	struct top_room<LIMIT_THREADS> top;
	int own[LIMIT_WARPS][32];
	float max[LIMIT_WARPS];
	int n;
	uint32_t key[KEPT];
};

/* Gather the scores of a list that its head sees, in any order; sm.n becomes how many, even if more
 * than the room.  A warp takes 32 pieces at a time.  Returns the largest. */
__device__ float gather(struct limit_smem &sm, const struct piece_lists &from, int list, int head,
			int n, const float *__restrict__ score)
{
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, shift = __ffs(from.tok) - 1;
	const int pieces = (n + from.tok - 1) >> shift;
	const uint16_t *mask = from.mask ? from.mask + (size_t)list * from.stride : NULL;
	const auto ask = [=](int p) { return p < pieces && (!mask || mask[p] >> head & 1); };
	float max = -FLT_MAX;
	bool sees = ask(warp * 32 + lane);

	for (int first = warp * 32; first < pieces; first += LIMIT_THREADS) {
		const bool next = ask(first + LIMIT_THREADS + lane);
		const uint32_t seen = __ballot_sync(~0u, sees);
		const bool last = seen && first + 31 - __clz(seen) == pieces - 1;
		const int own = (__popc(seen) << shift) - (last ? (pieces << shift) - n : 0);
		int at = lane ? 0 : atomicAdd(&sm.n, own);

		at = __shfl_sync(~0u, at, 0);
		if (sees)
			sm.own[warp][__popc(seen & ((1u << lane) - 1))] = first + lane;
		__syncwarp();
		for (int i0 = lane; i0 < own; i0 += BATCH * 32) {
			float x[BATCH];

#pragma unroll
			for (int k = 0; k < BATCH; k++) {
				const int i = min(i0 + k * 32, own - 1);

				x[k] = score[(sm.own[warp][i >> shift] << shift) +
					     (i & (from.tok - 1))];
			}
#pragma unroll
			for (int k = 0; k < BATCH; k++) {
				max = fmaxf(max, x[k]);
				if (i0 + k * 32 < own && at + i0 + k * 32 < KEPT)
					sm.key[at + i0 + k * 32] = __float_as_uint(x[k]);
			}
		}
		__syncwarp();
		sees = next;
	}
	max = warp_max(max);
	if (!lane)
		sm.max[warp] = max;
	__syncthreads();
	for (int w = 0; w < LIMIT_WARPS; w++)
		max = fmaxf(max, sm.max[w]);
	return max;
}

/* Grid (list, head of the list). */
__global__ void __launch_bounds__(LIMIT_THREADS, 2)
twilight_limits(struct attn_batch b, struct twilight rule, struct piece_lists from, void *work)
{
	__shared__ struct limit_smem sm;
	const struct place at = place_of(b, from, blockIdx.x, work);
	const float *score = at.score + blockIdx.y * at.room;
	uint32_t least = 1;
	float max;
	const auto find = [&](const auto &key, int n) {
		const uint64_t whole = top_sum(key, n, 0, weight_of, sm.top);

		if (whole)
			least = top_find(key, n, twilight_goal(rule.mass, whole), weight_of,
					 sm.top).key;
	};

	if (rule.mass >= 1 || b.keys.len[at.r] < from.all_below) {
		if (!threadIdx.x)
			at.limit[blockIdx.y] = limit_of(0, least);
		return;
	}
	if (!threadIdx.x)
		sm.n = 0;
	__syncthreads();
	max = gather(sm, from, blockIdx.x, blockIdx.y, at.n, score);
	if (sm.n <= KEPT) {
		for (int i = threadIdx.x; i < sm.n; i += LIMIT_THREADS)
			sm.key[i] = key_of(__uint_as_float(sm.key[i]), max);
		find([&](int i) { return sm.key[i]; }, sm.n);
	} else {
		find([=](int i) { return key_of(score[i], max); }, at.n);
	}
	if (!threadIdx.x)
		at.limit[blockIdx.y] = limit_of(max, least);
}

/* ---- lists ---- */

/* A thread block per list.  A thread takes OWN candidates at a time. */
__global__ void __launch_bounds__(LIST_THREADS)
twilight_lists(struct attn_batch b, struct twilight rule, struct piece_lists from,
	       struct piece_lists to, void *work)
{
	__shared__ int count[2][32];
	__shared__ struct limit limit[16];
	const struct place at = place_of(b, from, blockIdx.x, work);
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, shift = __ffs(from.tok) - 1;
	const size_t in = (size_t)blockIdx.x * from.stride, out = (size_t)blockIdx.x * to.stride;
	int kept = 0;

	if ((int)threadIdx.x < from.heads)
		limit[threadIdx.x] = at.limit[threadIdx.x];
	__syncthreads();
	for (int first = 0, turn = 0; first < at.n; first += LIST_THREADS * OWN, turn ^= 1) {
		const int i0 = first + threadIdx.x * OWN;
		uint32_t heads[OWN] = {};
		int piece[OWN], own = 0, upto;

#pragma unroll
		for (int i = 0; i < OWN; i++)
			piece[i] = from.piece[in + (min(i0 + i, at.n - 1) >> shift)];
		for (int h0 = 0; h0 < from.heads && i0 < at.n; h0 += FOUR) {
			float x[FOUR][OWN];

#pragma unroll
			for (int k = 0; k < FOUR; k++)
				*(float4 *)x[k] = *(const float4 *)(
					at.score + min(h0 + k, from.heads - 1) * at.room + i0);
#pragma unroll
			for (int k = 0; k < FOUR * OWN; k++) {
				const int h = min(h0 + k / OWN, from.heads - 1), i = i0 + k % OWN;
				const float own = x[k / OWN][k % OWN];
				const bool newest = rule.keep_newest && i == at.n - 1 &&
						    own != -INFINITY;

				if (i < at.n && (keeps(limit[h], own) || newest))
					heads[k % OWN] |= 1u << h;
			}
		}
#pragma unroll
		for (int i = 0; i < OWN; i++)
			own += heads[i] != 0;
		upto = own;
#pragma unroll
		for (int i = 1; i < 32; i *= 2) {
			const int left = __shfl_up_sync(~0u, upto, i);

			upto += lane >= i ? left : 0;
		}
		if (lane == 31)
			count[turn][warp] = upto;
		__syncthreads();
		const int other = lane < LIST_THREADS / 32 ? count[turn][lane] : 0;
		size_t rank = out + kept + __reduce_add_sync(~0u, lane < warp ? other : 0) + upto -
			      own;

		kept += __reduce_add_sync(~0u, other);
#pragma unroll
		for (int i = 0; i < OWN; i++)
			if (heads[i]) {
				to.piece[rank] = (piece[i] << shift) + ((i0 + i) & (from.tok - 1));
				to.mask[rank++] = (uint16_t)heads[i];
			}
	}
	if (!threadIdx.x)
		to.n[blockIdx.x] = kept;
}

template <int D, int EIGHTS, bool EXACT>
void launch_scores(const dim3 &grid, const struct attn_call *call)
{
	const void *keys = EXACT ? (const void *)call->kv.k : call->state;

	twilight_scores<D, EIGHTS, EXACT><<<grid, THREADS, 0, (cudaStream_t)call->stream>>>
		(*call->b, call->q, keys, *call->from, call->work);
}

template <int D> void launch_dim(const dim3 &grid, const struct attn_call *call, bool exact)
{
	const auto launch = call->from->heads > 8 ?
				    exact ? launch_scores<D, 2, true> : launch_scores<D, 2, false> :
				    exact ? launch_scores<D, 1, true> : launch_scores<D, 1, false>;

	launch(grid, call);
}

enum ar_status enqueue_scores(const struct attn_call *call, int lists, bool exact,
			      struct ar_err *err)
{
	const struct gpu *gpu;
	enum ar_status st = gpu_current(&gpu, err);
	dim3 grid;

	if (st)
		return st;
	grid = dim3(lists, (WAVES * gpu->n_sm + lists - 1) / lists);
	pieces_of_dim(call->b->shape.head_dim,
		      [&](auto dim) { launch_dim<dim>(grid, call, exact); });
	CU_LAUNCHED();
out:
	return st;
}

}

enum ar_status twilight_append(const struct attn_call *call, const void *self, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const dim3 grid(b->rows.n_qblk, b->shape.kv_heads);
	enum ar_status st = AR_OK;

	if (((const struct twilight *)self)->estimate == TWILIGHT_EXACT || !b->rows.n_qblk)
		return AR_OK;
	twilight_keys<<<grid, 128, 0, (cudaStream_t)call->stream>>>(*b, call->kv.k, call->state);
	CU_LAUNCHED();
out:
	return st;
}

size_t twilight_work_bytes(const void *, const struct attn_shape *s, const struct attn_limits *l)
{
	return limit_bytes(*s, l->max_req) +
	       pieces_scratch_bytes(l, s->page_tok, s->q_heads * sizeof(float));
}

enum ar_status twilight_enqueue(const struct attn_call *call, const void *self,
				const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const struct twilight *p = (const struct twilight *)self;
	const struct piece_lists *from = call->from;
	const int lists = b->rows.n_req * pieces_groups(&b->shape, from);
	const cudaStream_t stream = (cudaStream_t)call->stream;
	enum ar_status st = AR_OK;

	if (!lists)
		return AR_OK;
	st = enqueue_scores(call, lists, p->estimate == TWILIGHT_EXACT, err);
	if (st)
		return st;
	twilight_limits<<<dim3(lists, from->heads), LIMIT_THREADS, 0, stream>>>
		(*b, *p, *from, call->work);
	CU_LAUNCHED();
	twilight_lists<<<lists, LIST_THREADS, 0, stream>>>(*b, *p, *from, out->pieces, call->work);
	CU_LAUNCHED();
out:
	return st;
}
