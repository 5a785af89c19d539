/*
 * The largest of many keys, by a thread block of PICK_THREADS.
 *
 * pick_find() determines what fits into a budget, the largest keys first: where a key weighs 1
 * the k largest, where it weighs itself the most that add up to no more than the budget.  Three
 * rounds over 11, 11 and 10 bits add up the weights of the keys that share the digits found so
 * far; keys whose digit is 0 need no sum, for they come last.  pick_walk() then goes through the
 * keys in order, so that of equal ones the first are taken.
 */
#ifndef AR_PICK_CUH
#define AR_PICK_CUH

#include <stdint.h>

constexpr int PICK_THREADS = 1024;
constexpr int PICK_WARPS = PICK_THREADS / 32;
constexpr int PICK_BUCKETS = 2 * PICK_THREADS;

struct pick_smem {
	uint32_t count[PICK_BUCKETS], weight[PICK_BUCKETS];
	uint32_t warp_count[PICK_WARPS], warp_weight[PICK_WARPS];
	uint32_t digit, above, left, equal;
};

struct pick {
	uint32_t key;		/* all larger ones are taken */
	uint32_t above;		/* so many */
	uint32_t room;		/* and of those as large as key so many */
};

enum pick_by { PICK_COUNT, PICK_WEIGHT };

/* Exclusive sum over the thread block's threads of x; sum[] gets the warps' sums. */
static __device__ __forceinline__ uint32_t pick_scan(uint32_t x, uint32_t (&sum)[PICK_WARPS])
{
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	uint32_t upto = x, before = 0;

#pragma unroll
	for (int i = 1; i < 32; i *= 2) {
		const uint32_t other = __shfl_up_sync(~0u, upto, i);

		upto += lane >= i ? other : 0;
	}
	__syncthreads();		/* the last use of sum is over */
	if (lane == 31)
		sum[warp] = upto;
	__syncthreads();
	for (int w = 0; w < warp; w++)
		before += sum[w];
	return before + upto - x;
}

/* One digit: sm.digit, and what is above it. */
static __device__ __forceinline__ void pick_digit(struct pick_smem &sm, uint32_t budget)
{
	/* each thread has two buckets, from the largest on */
	const int b[2] = { PICK_BUCKETS - 1 - 2 * (int)threadIdx.x,
			   PICK_BUCKETS - 2 - 2 * (int)threadIdx.x };
	const uint32_t all = sm.count[0];	/* of every digit; bucket 0 has no sums */
	uint32_t n[2], w[2], count, weight;

#pragma unroll
	for (int i = 0; i < 2; i++) {
		n[i] = b[i] ? sm.count[b[i]] : 0;
		w[i] = b[i] ? sm.weight[b[i]] : 0;
	}
	count = pick_scan(n[0] + n[1], sm.warp_count);
	weight = pick_scan(w[0] + w[1], sm.warp_weight);
#pragma unroll
	for (int i = 0; i < 2; i++) {
		/* the first digit that does not fit as a whole */
		if (weight <= budget && (!b[i] || weight + w[i] > budget)) {
			sm.digit = b[i];
			sm.above = count;
			sm.left = budget - weight;
			sm.equal = b[i] ? n[i] : all - count;
		}
		count += n[i];
		weight += w[i];
	}
	__syncthreads();
}

/* key(i) of i < n; their sum is below 2^32 where they weigh themselves. */
template <enum pick_by BY, typename Key>
static __device__ __forceinline__ struct pick pick_find(struct pick_smem &sm, int n,
							uint32_t budget, const Key &key)
{
	struct pick p = { 0, 0, 0 };

	for (int shift = 21; shift >= 0; shift = shift == 21 ? 10 : shift - 10) {
		const int width = shift ? 11 : 10;
		uint32_t matches = 0;

		__syncthreads();
		for (int i = threadIdx.x; i < PICK_BUCKETS; i += PICK_THREADS)
			sm.count[i] = sm.weight[i] = 0;
		__syncthreads();
		for (int i = threadIdx.x; i < n; i += PICK_THREADS) {
			const uint32_t x = key(i), digit = x >> shift & ((1u << width) - 1);

			if ((uint64_t)x >> (shift + width) != (uint64_t)p.key >> (shift + width))
				continue;
			matches++;
			if (!digit)
				continue;
			atomicAdd(&sm.count[digit], 1);
			atomicAdd(&sm.weight[digit], BY == PICK_COUNT ? 1 : x);
		}
		atomicAdd(&sm.count[0], matches);
		__syncthreads();
		pick_digit(sm, budget);
		p.key |= sm.digit << shift;
		p.above += sm.above;
		budget = sm.left;
	}
	p.room = sm.equal;
	if (BY == PICK_COUNT)
		p.room = min(budget, p.room);
	else if (p.key)
		p.room = min(budget / p.key, p.room);
	return p;
}

/* use(i, taken, rank) for i < n rounded up to whole warps, by all lanes of a warp together; rank:
 * of those taken before i. */
template <typename Key, typename Use>
static __device__ __forceinline__ void pick_walk(struct pick_smem &sm, const struct pick &p, int n,
						 const Key &key, const Use &use)
{
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const uint32_t below = (1u << lane) - 1;
	uint32_t above = 0, equal = 0;

	for (int first = 0; first < n; first += PICK_THREADS) {
		const int i = first + threadIdx.x;
		const uint32_t x = i < n ? key(i) : 0;
		const uint32_t larger = __ballot_sync(~0u, i < n && x > p.key);
		const uint32_t same = __ballot_sync(~0u, i < n && x == p.key);
		uint32_t before = above, ties = equal;

		__syncthreads();
		if (!lane) {
			sm.warp_count[warp] = __popc(larger);
			sm.warp_weight[warp] = __popc(same);
		}
		__syncthreads();
		for (int w = 0; w < PICK_WARPS; w++) {
			before += w < warp ? sm.warp_count[w] : 0;
			ties += w < warp ? sm.warp_weight[w] : 0;
			above += sm.warp_count[w];
			equal += sm.warp_weight[w];
		}
		before += __popc(larger & below);
		ties += __popc(same & below);
		if (first + warp * 32 < n)
			use(i, larger >> lane & 1 || (same >> lane & 1 && ties < p.room),
			    before + min(ties, p.room));
	}
}

#endif
