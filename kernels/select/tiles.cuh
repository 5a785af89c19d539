/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a thread block in a ragged batch, where each request fills tiles of its own. */
#ifndef AR_TILES_CUH
#define AR_TILES_CUH

#include <stdint.h>

/* Find the request of tile `at`, and the tile's number in it.  -1: there are fewer tiles.
 * count(r): tiles of request r.  By all lanes of a warp together. */
template <typename Count>
static __device__ __forceinline__ int tiles_find(int n_req, int at, int &tile, const Count &count)
{
	const int lane = threadIdx.x % 32;
	int before = 0;

	for (int base = 0; base < n_req; base += 32) {
		const int n = base + lane < n_req ? count(base + lane) : 0;
		int sum = n;

		for (int d = 1; d < 32; d *= 2) {
			const int below = __shfl_up_sync(~0u, sum, d);

			sum += lane >= d ? below : 0;
		}
		const uint32_t past = __ballot_sync(~0u, at < before + sum);

		if (past) {
			const int l = __ffs(past) - 1;

			tile = at - before - __shfl_sync(~0u, sum - n, l);
			return base + l;
		}
		before += __shfl_sync(~0u, sum, 31);
	}
	return -1;
}

#endif
