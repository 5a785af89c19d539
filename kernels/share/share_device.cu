/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bound by memory.  A block copies some of the bytes of one plane and one copy; neighbouring
 * threads move neighbouring 16 bytes.  Where the parts of a page do not begin at 16 bytes, as those
 * of a small state may, threads move a byte each.
 */
#include "config.h"
#include "kernels/share/share.h"

#include "kernels/prim/cuda.h"

namespace {

constexpr int threads = 256;
constexpr size_t step = threads * sizeof(uint4); /* bytes of a block at a time */
constexpr unsigned most_blocks = 16;		 /* for a plane and a copy */

template <class T>
__device__ void copy_parts(const char *from, char *to, size_t head, size_t bytes, int heads)
{
	const unsigned n = bytes / sizeof(T), all = n * heads;

	for (unsigned i = blockIdx.x * threads + threadIdx.x; i < all; i += gridDim.x * threads) {
		const size_t at = i / n * head + i % n * sizeof(T);

		*(T *)(to + at) = *(const T *)(from + at);
	}
}

__global__ void __launch_bounds__(threads)
	share_kernel(const struct share_plane *plane, const struct share_copy *copy)
{
	const struct share_plane p = plane[blockIdx.y];
	const struct share_copy c = copy[blockIdx.z];
	const size_t head = p.page / p.heads, bytes = p.row ? c.n_tok * p.row : head;
	const char *from = p.mem + c.from * p.page;
	char *to = p.mem + c.to * p.page;

	if (p.group != c.group)
		return;
	if (head % sizeof(uint4) || bytes % sizeof(uint4))
		copy_parts<char>(from, to, head, bytes, p.heads);
	else
		copy_parts<uint4>(from, to, head, bytes, p.heads);
}

} // namespace

enum ar_status share_pages(const struct share_plane *plane, int n_plane, size_t widest,
			   const struct share_copy *copy, int n_copy, void *stream,
			   struct ar_err *err)
{
	const size_t blocks = (widest + step - 1) / step;
	const dim3 grid(blocks < most_blocks ? (unsigned)blocks : most_blocks, (unsigned)n_plane,
			(unsigned)n_copy);
	enum ar_status st = AR_OK;

	share_kernel<<<grid, threads, 0, (cudaStream_t)stream>>>(plane, copy);
	CU_LAUNCHED();
out:
	return st;
}
