/* SPDX-License-Identifier: Apache-2.0 */
/* Piece lists on the device, by a thread block of PICK_THREADS. */
#ifndef AR_PIECES_CUH
#define AR_PIECES_CUH

#include <type_traits>

#include "kernels/select/pick.cuh"
#include "kernels/select/pieces.h"

/* Write list i: the pieces that p takes of n > 0; their keys are the bits of a mask. */
template <typename Key>
static __device__ __forceinline__ void pieces_list(struct pick_smem &sm, const struct pick &p,
						   const struct piece_lists &l, int i, int n,
						   const Key &key)
{
	const size_t at = (size_t)i * l.stride;

	pick_walk(sm, p, n, key, [=](int j, bool taken, uint32_t rank) {
		if (taken) {
			l.piece[at + rank] = j;
			if (l.mask)
				l.mask[at + rank] = (uint16_t)key(j);
		}
		if (j == n - 1)
			l.n[i] = (int)rank + taken;
	});
}

/* Where request r's scratch begins, of `bytes` for each token or piece of its pages, `per_page` of
 * which a page has. */
static __device__ __forceinline__ void *pieces_scratch(const struct attn_batch &b, int r,
						       int per_page, size_t bytes, void *work)
{
	return (char *)work + (size_t)(b.keys.page0[r] - b.keys.page0[0]) * per_page * bytes;
}

/* The bytes of all requests.  Rows that only fill a graph have a page each. */
static inline size_t pieces_scratch_bytes(const struct attn_limits *l, int per_page, size_t bytes)
{
	return (size_t)(l->max_page + l->max_req) * per_page * bytes;
}

/* Call f with the head size as a constant. */
template <typename F> static inline void pieces_of_dim(int dim, const F &f)
{
	if (dim == 64)
		f(std::integral_constant<int, 64>());
	else if (dim == 128)
		f(std::integral_constant<int, 128>());
	else
		f(std::integral_constant<int, 256>());
}

#endif
