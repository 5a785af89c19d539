/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The largest of many keys, by a thread block of PICK_THREADS.
 *
 * pick_find() finds the largest keys that fit into a budget.  If each key weighs 1, these are the k
 * largest.  If a key weighs itself, these are the largest that add up to no more than the budget.
 *
 * Up to PICK_KEPT keys stay in registers.  The threshold is found bit by bit, with a sum for each
 * bit, until only one key can be it.  There is no histogram: keys agree in their upper bits, so its
 * buckets would be few and crowded.  A sum over the thread block takes about 200 cycles, most of
 * them around its barrier.  So if one warp's registers can hold the keys, that warp works alone,
 * without barriers.
 *
 * More than PICK_KEPT keys take three rounds, over 11, 11 and 10 bits.  A round adds up the weights
 * of the keys that share the digits found so far.  Keys whose digit is 0 come last and need no sum.
 *
 * pick_walk() then goes through the keys in order, so that of equal keys the first are taken.  Each
 * warp takes a stretch of keys, and counts its own first.
 *
 * Keys lie in global memory, so a thread asks for PICK_BATCH keys before it looks at the first.
 * Neighbours often share a digit.  So a bucket's weight is kept in several copies, in different
 * banks, for lanes that add to it at once.
 *
 * pick_gather() reads many keys once and keeps the places of keys between two bounds, in order.  A
 * sample gives the bounds, so that few keys are left for pick_find() and pick_walk().  A warp takes
 * PICK_SPAN words at a time, a bit for each key, independently of the other warps.  Barriers come
 * only after PICK_SECTION words, to number the bits.  pick_sift() does the same if few keys of many
 * are wanted.
 */
#ifndef AR_PICK_CUH
#define AR_PICK_CUH

#include "kernels/prim/device.cuh"

constexpr int PICK_THREADS = 512;
constexpr int PICK_WARPS = PICK_THREADS / 32;
constexpr int PICK_BUCKETS = 2048;
constexpr int PICK_OWN = PICK_BUCKETS / PICK_THREADS;	/* of a thread */
constexpr int PICK_COPIES = 4;
constexpr int PICK_BATCH = 8;
constexpr int PICK_SAMPLE = 4096;
constexpr int PICK_KEPT = 12288;
constexpr int PICK_KEYS = PICK_KEPT / PICK_THREADS;	/* in a thread's registers */
constexpr int PICK_SPAN = 16;
constexpr int PICK_SECTION = PICK_OWN * PICK_THREADS;	/* words */
static_assert(PICK_OWN == 4, "a uint4 is a thread's words");

struct pick {
	uint32_t key;		/* all larger keys are taken */
	uint32_t above;		/* how many keys are larger */
	uint32_t room;		/* how many keys equal to it are taken */
};

struct pick_smem {
	uint32_t sum[2][PICK_WARPS], top[PICK_WARPS];
	uint32_t count[PICK_BUCKETS], weight[PICK_BUCKETS][PICK_COPIES];
	uint32_t warp_count[PICK_WARPS], warp_weight[PICK_WARPS];
	uint32_t digit, above, left, equal;
	struct pick found;
};

/* The places of the kept keys. */
struct pick_kept {
	uint4 bits[PICK_THREADS];	/* of a section */
	int32_t at[PICK_KEPT];
};

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

enum pick_by { PICK_COUNT, PICK_WEIGHT };

/* The weight of a bucket of n keys. */
template <enum pick_by BY>
static __device__ __forceinline__ uint32_t pick_weight(const struct pick_smem &sm, int bucket,
						       uint32_t n)
{
	uint32_t sum = 0;

#pragma unroll
	for (int i = 0; BY == PICK_WEIGHT && i < PICK_COPIES; i++)
		sum += sm.weight[bucket][i];
	return BY == PICK_WEIGHT ? sum : n;
}

/* Find one digit, sm.digit, and the weight above it. */
template <enum pick_by BY>
static __device__ __forceinline__ void pick_digit(struct pick_smem &sm, uint32_t budget)
{
	const uint32_t all = sm.count[0];	/* of every digit; bucket 0 has no sums */
	uint32_t n[PICK_OWN], w[PICK_OWN], count = 0, weight = 0;

	/* a thread's buckets, from the largest on */
	const int first = PICK_BUCKETS - 1 - PICK_OWN * (int)threadIdx.x;

#pragma unroll
	for (int i = 0; i < PICK_OWN; i++) {
		n[i] = first - i ? sm.count[first - i] : 0;
		w[i] = first - i ? pick_weight<BY>(sm, first - i, n[i]) : 0;
		count += n[i];
		weight += w[i];
	}
	count = pick_scan(count, sm.warp_count);
	weight = pick_scan(weight, sm.warp_weight);
#pragma unroll
	for (int i = 0; i < PICK_OWN; i++) {
		const int b = first - i;

		/* the first digit that does not fit as a whole */
		if (weight <= budget && (!b || weight + w[i] > budget)) {
			sm.digit = b;
			sm.above = count;
			sm.left = budget - weight;
			sm.equal = b ? n[i] : all - count;
		}
		count += n[i];
		weight += w[i];
	}
	__syncthreads();
}

/* Load keys first, first + step, ... below n > 0; keys past n are 0.  There are no branches: a load
 * inside one must finish before the next begins. */
template <int BATCH, typename Key>
static __device__ __forceinline__ void pick_fetch(uint32_t (&x)[BATCH], int first, int step, int n,
						  const Key &key)
{
#pragma unroll
	for (int i = 0; i < BATCH; i++)
		x[i] = key(min(first + i * step, n - 1));
#pragma unroll
	for (int i = 0; i < BATCH; i++)
		x[i] = first + i * step < n ? x[i] : 0;
}

/* Add up the digits at `shift` of the keys whose higher digits equal the digits of `known`. */
template <enum pick_by BY, typename Key>
static __device__ __forceinline__ void pick_add(struct pick_smem &sm, int n, uint32_t known,
						int shift, int width, const Key &key)
{
	uint32_t matches = 0;

	for (int first = threadIdx.x; first < n; first += PICK_BATCH * PICK_THREADS) {
		uint32_t x[PICK_BATCH];

		pick_fetch(x, first, PICK_THREADS, n, key);
#pragma unroll
		for (int i = 0; i < PICK_BATCH; i++) {
			const uint32_t digit = x[i] >> shift & ((1u << width) - 1);

			if (first + i * PICK_THREADS >= n ||
			    (uint64_t)x[i] >> (shift + width) != (uint64_t)known >> (shift + width))
				continue;
			matches++;
			if (!digit)
				continue;
			atomicAdd(&sm.count[digit], 1);
			if (BY == PICK_WEIGHT)
				atomicAdd(&sm.weight[digit][threadIdx.x % PICK_COPIES], x[i]);
		}
	}
	atomicAdd(&sm.count[0], matches);
}

/* Sum over the threads of the thread block; WARPS 1: of one warp.  odd: alternate 0 and 1, so that
 * one barrier is enough. */
template <int WARPS = PICK_WARPS>
static __device__ __forceinline__ uint32_t pick_sum(struct pick_smem &sm, uint32_t x, int odd)
{
	const int lane = threadIdx.x % 32;

	x = __reduce_add_sync(~0u, x);
	if (WARPS == 1)
		return x;
	if (!lane)
		sm.sum[odd][threadIdx.x / 32] = x;
	__syncthreads();
	return __reduce_add_sync(~0u, lane < PICK_WARPS ? sm.sum[odd][lane] : 0);
}

/* The largest x of the thread block or warp. */
template <int WARPS>
static __device__ __forceinline__ uint32_t pick_top(struct pick_smem &sm, uint32_t x)
{
	const int lane = threadIdx.x % 32;

	x = __reduce_max_sync(~0u, x);
	if (WARPS == 1)
		return x;
	__syncthreads();		/* the last use of the sums is over */
	if (!lane)
		sm.top[threadIdx.x / 32] = x;
	__syncthreads();
	return __reduce_max_sync(~0u, lane < PICK_WARPS ? sm.top[lane] : 0);
}

/* pick_find() of up to PICK_KEYS keys a thread. */
template <enum pick_by BY, int WARPS, typename Key>
static __device__ __forceinline__ struct pick pick_few(struct pick_smem &sm, int n,
						       uint32_t budget, const Key &key)
{
	constexpr int THREADS = WARPS * 32;
	uint32_t x[PICK_KEYS / PICK_BATCH][PICK_BATCH] = {}, top = 0, light = 0, heavy = 0;
	struct pick p = { 0, 0, 0 };
	int thread = threadIdx.x;
	const auto sum_above = [&](uint32_t limit, bool weigh) {
		uint32_t sum = 0;

#pragma unroll
		for (int i = 0; i < PICK_KEYS; i += PICK_OWN) {
			if (i * THREADS >= n)
				break;
#pragma unroll
			for (int k = i; k < i + PICK_OWN; k++) {
				const uint32_t own = x[k / PICK_BATCH][k % PICK_BATCH];

				sum += own <= limit ? 0 : weigh ? own : 1;
			}
		}
		return sum;
	};

	/* hide the many indices, so that a loop around this does not keep them in registers */
	asm volatile("" : "+r"(thread));
#pragma unroll
	for (int i = 0; i < PICK_KEYS; i += PICK_BATCH) {
		if (i * THREADS >= n)
			break;
		pick_fetch(x[i / PICK_BATCH], i * THREADS + thread, THREADS, n, key);
#pragma unroll
		for (int k = 0; k < PICK_BATCH; k++)
			top = max(top, x[i / PICK_BATCH][k]);
	}
	int bit = 31 - __clz(pick_top<WARPS>(sm, top));

	/* Find the threshold: the largest value whose keys, with all larger ones, exceed the
	 * budget, or 0.  It is among the 2 << bit values from p.key on.  Keys past them weigh
	 * `light`, and with them `heavy` unless p.key is 0.  A weight below 2 p.key is one key. */
	for (; bit >= 0 && (BY == PICK_COUNT ? light < budget : heavy - light - p.key >= p.key);
	     bit--) {
		const uint32_t least = p.key | 1u << bit;
		const uint32_t sum = pick_sum<WARPS>(sm, sum_above(least - 1, BY == PICK_WEIGHT),
						     bit & 1);

		if (sum > budget) {
			p.key = least;
			heavy = sum;
		} else {
			light = sum;
		}
	}
	if (bit >= 0)		/* no count: any key in the range will do, so take the largest */
		p.key = BY == PICK_COUNT ? p.key | ((2u << bit) - 1) : heavy - light;
	budget -= light;
	p.above = BY == PICK_COUNT ? light : pick_sum<WARPS>(sm, sum_above(p.key, false), bit & 1);
	p.room = n - p.above;
	if (BY == PICK_COUNT)
		p.room = min(budget, p.room);
	else if (p.key)
		p.room = budget / p.key;
	return p;
}

/* Find the threshold among key(i), i < n.  Where keys weigh themselves, their sum is below 2^32. */
template <enum pick_by BY, typename Key>
static __device__ __forceinline__ struct pick pick_find(struct pick_smem &sm, int n,
							uint32_t budget, const Key &key)
{
	struct pick p = { 0, 0, 0 };

	if (n <= PICK_KEYS * 32) {
		__syncthreads();		/* the last use of sm.found is over */
		if (threadIdx.x < 32) {
			p = pick_few<BY, 1>(sm, n, budget, key);
			if (!threadIdx.x)
				sm.found = p;
		}
		__syncthreads();
		return sm.found;
	}
	if (n <= PICK_KEPT)
		return pick_few<BY, PICK_WARPS>(sm, n, budget, key);

	for (int shift = 21; shift >= 0; shift = shift == 21 ? 10 : shift - 10) {
		__syncthreads();
		/* hide the start of the unrolled loop, which would stay in registers from round to
		 * round */
#pragma unroll 1
		for (int i = threadIdx.x; i < PICK_BUCKETS; i += PICK_THREADS) {
			sm.count[i] = 0;
			for (int k = 0; BY == PICK_WEIGHT && k < PICK_COPIES; k++)
				sm.weight[i][k] = 0;
		}
		__syncthreads();
		pick_add<BY>(sm, n, p.key, shift, shift ? 11 : 10, key);
		__syncthreads();
		pick_digit<BY>(sm, budget);
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

/* Count the keys of [first, last) above p.key, and the keys equal to it, before this warp's. */
template <typename Key>
static __device__ __forceinline__ void pick_before(struct pick_smem &sm, const struct pick &p,
						   int first, int last, const Key &key,
						   uint32_t &above, uint32_t &equal)
{
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	uint32_t larger = 0, same = 0;

	for (int at = first + lane; at < last; at += PICK_BATCH * 32) {
		uint32_t x[PICK_BATCH];

		pick_fetch(x, at, 32, last, key);
#pragma unroll
		for (int i = 0; i < PICK_BATCH; i++) {
			larger += at + i * 32 < last && x[i] > p.key;
			same += at + i * 32 < last && x[i] == p.key;
		}
	}
	larger = warp_sum(larger);
	same = warp_sum(same);
	__syncthreads();		/* the last use of the sums is over */
	if (!lane) {
		sm.warp_count[warp] = larger;
		sm.warp_weight[warp] = same;
	}
	__syncthreads();
	above = equal = 0;
	for (int w = 0; w < warp; w++) {
		above += sm.warp_count[w];
		equal += sm.warp_weight[w];
	}
}

/* Call use(i, taken, rank) for i < n, rounded up to whole warps, by all lanes together.  rank: how
 * many keys before i are taken. */
template <typename Key, typename Use>
static __device__ __forceinline__ void pick_walk(struct pick_smem &sm, const struct pick &p, int n,
						 const Key &key, const Use &use)
{
	const int lane = threadIdx.x % 32, share = (n + PICK_THREADS - 1) / PICK_THREADS * 32;
	const int first = min((int)threadIdx.x / 32 * share, n), last = min(first + share, n);
	const uint32_t below = (1u << lane) - 1;
	uint32_t above, equal;

	pick_before(sm, p, first, last, key, above, equal);
	for (int at = first; at < last; at += PICK_BATCH * 32) {
		uint32_t x[PICK_BATCH];

		pick_fetch(x, at + lane, 32, last, key);
#pragma unroll
		for (int k = 0; k < PICK_BATCH && at + k * 32 < last; k++) {
			const int i = at + k * 32 + lane;
			const uint32_t larger = __ballot_sync(~0u, i < last && x[k] > p.key);
			const uint32_t same = __ballot_sync(~0u, i < last && x[k] == p.key);
			const uint32_t ties = equal + __popc(same & below);

			use(i, larger >> lane & 1 || (same >> lane & 1 && ties < p.room),
			    above + __popc(larger & below) + min(ties, p.room));
			above += __popc(larger);
			equal += __popc(same);
		}
	}
}

/* A bound, from a sample, that the `want` largest of n keys probably reach; ~0: none is useful. */
template <typename Key>
static __device__ __forceinline__ uint32_t pick_bound(struct pick_smem &sm, int n, int want,
						      const Key &key)
{
	const float expect = (float)want * PICK_SAMPLE / n;
	const float rank = expect + 4 * sqrtf(expect) + 16;	/* four standard deviations */

	if (n <= PICK_KEPT)
		return ~0u;
	if (rank / PICK_SAMPLE * n > .9f * PICK_KEPT)
		return ~0u;
	return pick_find<PICK_COUNT>(sm, PICK_SAMPLE, (int)rank, [&](int i) {
		return key((int)((uint64_t)i * n / PICK_SAMPLE));
	}).key;
}

/* Number the set bits of the words from `first` on, after `have` earlier ones, and keep their
 * places.  Returns the new count. */
static __device__ __forceinline__ int pick_number(struct pick_smem &sm, struct pick_kept &kept,
						  int first, int words, int have)
{
	const int own = threadIdx.x * PICK_OWN;
	const uint4 bits = own < words ? kept.bits[threadIdx.x] : make_uint4(0, 0, 0, 0);
	const uint32_t word[PICK_OWN] = { bits.x, bits.y, bits.z, bits.w };
	uint32_t count = 0;
	int to;

#pragma unroll
	for (int i = 0; i < PICK_OWN; i++)
		count += __popc(word[i]);
	to = have + pick_scan(count, sm.warp_count);
#pragma unroll
	for (int i = 0; i < PICK_OWN; i++)
		for (uint32_t left = word[i]; left && to < PICK_KEPT; left &= left - 1)
			kept.at[to++] = (first + own + i) * 32 + __ffs(left) - 1;
#pragma unroll
	for (int w = 0; w < PICK_WARPS; w++)
		have += sm.warp_count[w];
	return have;
}

/*
 * Keep the keys in [least, most].  Returns how many there are, even if more than the room,
 * PICK_KEPT.
 *
 * see(first, x) gets all keys once.  A warp has x[i] = key(first + 32 i + lane), and 0 past the
 * last key.
 */
template <typename Key, typename See>
static __device__ __forceinline__ int pick_gather(struct pick_smem &sm, struct pick_kept &kept,
						  int n, uint32_t least, uint32_t most,
						  const Key &key, const See &see)
{
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const int all = (n + PICK_SPAN * 32 - 1) / (PICK_SPAN * 32) * PICK_SPAN;
	int have = 0;

	for (int first = 0; first < all; first += PICK_SECTION) {
		const int words = min(PICK_SECTION, all - first);

		for (int at = warp * PICK_SPAN; at < words; at += PICK_WARPS * PICK_SPAN) {
			const int i0 = (first + at) * 32;
			uint32_t x[PICK_SPAN], own = 0;

			pick_fetch(x, i0 + lane, 32, n, key);
#pragma unroll
			for (int i = 0; i < PICK_SPAN; i++) {
				const uint32_t bits = __ballot_sync(~0u, i0 + i * 32 + lane < n &&
								    x[i] >= least && x[i] <= most);

				own = lane == i ? bits : own;
			}
			if (lane < PICK_SPAN)
				((uint32_t *)kept.bits)[at + lane] = own;
			see(i0, x);
		}
		__syncthreads();
		have = pick_number(sm, kept, first, words, have);
		__syncthreads();
	}
	return have;
}

/* Keep all keys that reach some bound.  Returns how many, or 0 if they are too many or fewer than
 * `want`.  The kept keys then include the `want` largest, and all keys equal to the least of
 * them. */
template <typename Key>
static __device__ __forceinline__ int pick_sift(struct pick_smem &sm, struct pick_kept &kept, int n,
						int want, const Key &key)
{
	const uint32_t bound = pick_bound(sm, n, want, key);

	if (bound == ~0u)
		return 0;
	const int have = pick_gather(sm, kept, n, bound, ~0u, key,
				     [](int, const uint32_t (&)[PICK_SPAN]) {});

	return have >= want && have <= PICK_KEPT ? have : 0;
}

#endif
