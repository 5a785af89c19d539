/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fewest largest scores of a row whose weights reach a goal.  A thread block finds their least
 * without sorting, by the digits of keys that ascend with the scores.  It makes a histogram of the
 * first digit; then of the next digit of the keys that share the digits found so far, and so on.
 * Weights are integers, so sums do not depend on their order.
 *
 * Below, key(i) is the key of score i, and weight(key) its weight.  If weights have 32 bits, their
 * sum has no more.
 */
#ifndef AR_TOP_CUH
#define AR_TOP_CUH

#include "kernels/prim/device.cuh"

static constexpr int TOP_THREADS = 256, TOP_WARPS = TOP_THREADS / 32;

/* A number in [0, 1] as a weight. */
static __device__ __forceinline__ uint64_t top_fixed(float x)
{
	return __float2ull_rz(x * 0x1p40f);
}

/* x < y just when top_key(x) < top_key(y). */
static __device__ __forceinline__ uint32_t top_key(float x)
{
	const uint32_t u = __float_as_uint(x + 0.0f);	/* -0 is 0 */

	return u >> 31 ? ~u : u | 1u << 31;
}

static __device__ __forceinline__ float top_value(uint32_t key)
{
	return __uint_as_float(key >> 31 ? key & ~(1u << 31) : ~key);
}

// digits of a key, from the top
static constexpr int TOP_DIGITS = 4, TOP_BINS = 256;

/* Of a thread block of THREADS. */
template <int THREADS> struct top_room {
	uint32_t lo[TOP_DIGITS][TOP_BINS];	// words of the bins' weights
	uint32_t hi[TOP_DIGITS][TOP_BINS];
	uint64_t part[THREADS / 32];
	int ties[2][THREADS / 32];
};

struct top_smem : top_room<TOP_THREADS> {};

/* The weight of all scores whose key is at least `least`. */
template <int THREADS, typename Key, typename Weight>
static __device__ uint64_t top_sum(const Key &key, int n, uint32_t least, const Weight &weight,
				   struct top_room<THREADS> &sm)
{
	unsigned long long sum = 0;

	for (int i = threadIdx.x; i < n; i += THREADS) {
		const uint32_t k = key(i);

		sum += k >= least ? weight(k) : 0;
	}
	sum = warp_sum(sum);
	__syncthreads();	/* the last use of part is over */
	if (threadIdx.x % 32 == 0)
		sm.part[threadIdx.x / 32] = sum;
	__syncthreads();
	sum = 0;
	for (int w = 0; w < THREADS / 32; w++)
		sum += sm.part[w];
	return sum;
}

/* The place of a digit's bin.  A lane has eight bins, and the lanes' first bins are neighbours. */
static __device__ __forceinline__ int top_bin(uint32_t digit)
{
	return (int)(digit % 8 * 32 + digit / 8);
}

template <int THREADS>
static __device__ __forceinline__ void top_add(struct top_room<THREADS> &sm, int at, uint32_t digit,
					       uint32_t weight)
{
	atomicAdd(&sm.lo[at][top_bin(digit)], weight);
}

template <int THREADS>
static __device__ __forceinline__ void top_add(struct top_room<THREADS> &sm, int at, uint32_t digit,
					       uint64_t weight)
{
	const uint32_t lo = (uint32_t)weight;
	const uint32_t before = atomicAdd(&sm.lo[at][top_bin(digit)], lo);
	const uint32_t hi = (uint32_t)(weight >> 32) + (before + lo < before);

	if (hi)
		atomicAdd(&sm.hi[at][top_bin(digit)], hi);
}

/* Find the largest digit whose bin, with the bins above, weighs at least `rest`.  `rest` then
 * loses the weight of the bins above.  By each warp alone. */
template <int THREADS, typename Sum>
static __device__ __forceinline__ uint32_t top_digit(const struct top_room<THREADS> &sm, int at,
						     Sum &rest)
{
	const int lane = threadIdx.x % 32, own = 31 - lane;
	Sum x[8], sum = 0;
	int i;

#pragma unroll
	for (i = 0; i < 8; i++) {
		x[i] = sm.lo[at][i * 32 + own];
		if constexpr (sizeof(Sum) == 8)
			x[i] |= (Sum)sm.hi[at][i * 32 + own] << 32;
		sum += x[i];
	}
	Sum above = sum;

	for (int d = 1; d < 32; d *= 2) {
		const Sum before = __shfl_up_sync(~0u, above, d);

		above += lane >= d ? before : 0;
	}
	const int owner = __ffs(__ballot_sync(~0u, above >= rest)) - 1;

	above -= sum;
#pragma unroll
	for (i = 7; i > 0; i--) {
		if (above + x[i] >= rest)
			break;
		above += x[i];
	}
	rest = __shfl_sync(~0u, rest - above, owner);
	return __shfl_sync(~0u, own * 8 + i, owner);
}

/* The scores above key, and the first ties scores equal to it. */
struct top {
	uint32_t key;
	int64_t ties;
};

/* A top without any score. */
static __device__ __forceinline__ struct top top_none()
{
	return { ~0u, 0 };
}

/* Find the fewest scores that weigh `goal` together.  0 < goal <= the weight of all.  Keys are zero
 * after the first DIGITS digits. */
template <int DIGITS = TOP_DIGITS, int THREADS, typename Key, typename Weight>
static __device__ struct top top_find(const Key &key, int n, uint64_t goal, const Weight &weight,
				      struct top_room<THREADS> &sm)
{
	decltype(weight(0u)) rest = goal;
	uint32_t found = 0;

	__syncthreads();	/* the last use of the bins is over */
	for (int at = 0; at < DIGITS; at++)
		if (THREADS == TOP_BINS || threadIdx.x < TOP_BINS)
			sm.lo[at][threadIdx.x] = sm.hi[at][threadIdx.x] = 0;
	__syncthreads();
	for (int at = 0; at < DIGITS; at++) {
		const int shift = 24 - 8 * at;

#pragma unroll 4
		for (int i = threadIdx.x; i < n; i += THREADS) {
			const uint32_t k = key(i);

			if (!((k ^ found) >> shift >> 8))
				top_add(sm, at, k >> shift & 255, weight(k));
		}
		__syncthreads();
		found |= top_digit(sm, at, rest) << shift;
	}
	return { found, (int64_t)((rest - 1) / weight(found) + 1) };
}

/* The same with the scores themselves, and weights by score. */
template <typename Weight>
static __device__ uint64_t top_sum(const float *score, int n, const Weight &weight,
				   struct top_smem &sm)
{
	return top_sum([=](int i) { return top_key(score[i]); }, n, 0,
		       [&](uint32_t key) { return weight(top_value(key)); }, sm);
}

template <typename Weight>
static __device__ struct top top_find(const float *score, int n, uint64_t goal,
				      const Weight &weight, struct top_smem &sm)
{
	return top_find([=](int i) { return top_key(score[i]); }, n, goal,
			[&](uint32_t key) { return weight(top_value(key)); }, sm);
}

/* Whether a lane's score is in the top.  One warp goes through a row in order.  before: ties so
 * far. */
static __device__ __forceinline__ bool top_has(const struct top &top, bool there, float score,
					       int64_t &before)
{
	const uint32_t key = top_key(score);
	const uint32_t tie = __ballot_sync(~0u, there && key == top.key);
	const int64_t mine = before + __popc(tie & ((1u << threadIdx.x % 32) - 1));

	before += __popc(tie);
	return there && (key > top.key || (key == top.key && mine < top.ties));
}

/* Write the mask row of query block blk: the first block, blk itself, and each block between whose
 * key is in the top.  all: every block. */
template <typename Key>
static __device__ void top_write(const Key &key, int blk, bool all, const struct top &top,
				 uint32_t *__restrict__ mask, int words, struct top_smem &sm)
{
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	int before = 0;

	for (int first = 0, turn = 0; first < words; first += TOP_WARPS, turn ^= 1) {
		const int word = first + warp, i = word * 32 + lane;
		const bool open = !all && i > 0 && i < blk;
		const uint32_t k = open ? key(i) : 0;
		const uint32_t tie = __ballot_sync(~0u, open && k == top.key);
		int rank = before + __popc(tie & ((1u << lane) - 1));

		if (lane == 0)
			sm.ties[turn][warp] = __popc(tie);
		__syncthreads();
		for (int w = 0; w < TOP_WARPS; w++) {
			rank += w < warp ? sm.ties[turn][w] : 0;
			before += sm.ties[turn][w];
		}
		const bool among = k > top.key || (k == top.key && rank < top.ties);
		const uint32_t bits = __ballot_sync(~0u, i <= blk && (!open || among));

		if (lane == 0 && word < words)
			mask[word] = bits;
	}
}

#endif
