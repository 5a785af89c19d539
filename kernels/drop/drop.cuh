/* SPDX-License-Identifier: Apache-2.0 */
/* Device code that droppers share. */
#ifndef AR_DROP_CUH
#define AR_DROP_CUH

#include "kernels/drop/sum_ranks.h"
#include "kernels/select/top.cuh"

static __device__ __forceinline__ float drop_rounded(bool round, float x)
{
	return round ? __uint_as_float(pack_bf16(x, 0) << 16) : x;
}

/* Score i, in order of its parts. */
static __device__ __forceinline__ float drop_score(const struct score_parts &p, int64_t i)
{
	float sum = 0;

	for (int k = 0; k < p.n; k++)
		sum += p.at[k * p.pitch + i];
	return sum;
}

/* Call write(i, whether score i is in the top) for each of n scores.  Ties are counted in order of
 * at(0), at(1) ..., a permutation of the scores. */
template <typename Key, typename At, typename Write>
static __device__ __forceinline__ void drop_tops(const Key &key, int n, const struct top &top,
						 const At &at, const Write &write,
						 struct top_smem &sm)
{
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	int64_t before = 0;

	for (int first = 0, turn = 0; first < n; first += TOP_THREADS, turn ^= 1) {
		const bool there = first + (int)threadIdx.x < n;
		const int i = there ? at(first + (int)threadIdx.x) : 0;
		const uint32_t k = there ? key(i) : 0;
		const uint32_t tie = __ballot_sync(~0u, there && k == top.key);
		int64_t rank = before + __popc(tie & ((1u << lane) - 1));

		if (lane == 0)
			sm.ties[turn][warp] = __popc(tie);
		__syncthreads();
		for (int w = 0; w < TOP_WARPS; w++) {
			rank += w < warp ? sm.ties[turn][w] : 0;
			before += sm.ties[turn][w];
		}
		if (there)
			write(i, k > top.key || (k == top.key && rank < top.ties));
	}
}

/* The request of a row; row0[n_req] rows in all. */
static __device__ __forceinline__ int drop_request(const struct attn_rows &rows, int row)
{
	int low = 0, high = rows.n_req;		/* row0[low] <= row < row0[high] */

	while (high - low > 1) {
		const int mid = (low + high) / 2;

		if (rows.row0[mid] <= row)
			low = mid;
		else
			high = mid;
	}
	return low;
}

#endif
