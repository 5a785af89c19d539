/* SPDX-License-Identifier: Apache-2.0 */
/* Piece lists on the device, by a thread block of PICK_THREADS. */
#ifndef AR_PIECES_CUH
#define AR_PIECES_CUH

#include "kernels/select/pick.cuh"
#include "kernels/select/pieces.h"

/* Write list i: the pieces j < n that have a bit in head(j), and their bits.  n > 0. */
template <typename Head>
static __device__ __forceinline__ void pieces_list(struct pick_smem &sm,
						   const struct piece_lists &l, int i, int n,
						   const Head &head)
{
	const struct pick any = { 0, 0, 0 };	/* every key above 0 */
	const size_t at = (size_t)i * l.stride;

	pick_walk(sm, any, n, head, [=](int j, bool taken, uint32_t rank) {
		if (taken) {
			l.piece[at + rank] = j;
			if (l.mask)
				l.mask[at + rank] = (uint16_t)head(j);
		}
		if (j == n - 1)
			l.n[i] = (int)rank + taken;
	});
}

#endif
