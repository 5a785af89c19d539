/* The largest of a row of scores, fewest first: a whole thread block finds where they end, without
 * sorting.  What the scores count for are integers, so sums do not depend on their order. */
#ifndef AR_TOP_CUH
#define AR_TOP_CUH

#include "kernels/device.cuh"

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

/* The weights of all scores whose key is not below least. */
template <typename Weight>
static __device__ uint64_t top_sum(const float *score, int n, uint32_t least, const Weight &weight,
				   uint64_t (&part)[TOP_WARPS])
{
	unsigned long long sum = 0;

	for (int i = threadIdx.x; i < n; i += TOP_THREADS)
		if (top_key(score[i]) >= least)
			sum += weight(score[i]);
	sum = warp_sum(sum);
	__syncthreads();	/* the last use of part is over */
	if (threadIdx.x % 32 == 0)
		part[threadIdx.x / 32] = sum;
	__syncthreads();
	sum = 0;
	for (int w = 0; w < TOP_WARPS; w++)
		sum += part[w];
	return sum;
}

/* The scores above key, and the first ties of those equal to it. */
struct top {
	uint32_t key;
	int64_t ties;
};

/* None of them. */
static __device__ __forceinline__ struct top top_none()
{
	return { ~0u, 0 };
}

/* The fewest that weigh goal together; goal > 0 is not more than all of them do. */
template <typename Weight>
static __device__ struct top top_find(const float *score, int n, uint64_t goal,
				      const Weight &weight, uint64_t (&part)[TOP_WARPS])
{
	struct top top = { 0, 0 };
	uint64_t above, one;

	for (int bit = 31; bit >= 0; bit--)
		if (top_sum(score, n, top.key | 1u << bit, weight, part) >= goal)
			top.key |= 1u << bit;
	above = top_sum(score, n, top.key + 1, weight, part);
	one = weight(top_value(top.key));
	top.ties = (int64_t)((goal - above + one - 1) / one);
	return top;
}

/* Whether a lane's score is among them; one warp goes through a row in order.  before: ties so
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

#endif
