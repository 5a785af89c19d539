/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers of the rows that stay, in order.  Three kernels, without atomics:
 *
 *   drop_count   a thread block per TILE rows: how many stay
 *   drop_number  writes the numbers of its rows, behind the numbers of the tiles before
 *   drop_sizes   how many stay of each request, found in the numbers
 */
#include "config.h"
#include "kernels/drop/dropper.h"

#include "base/workspace.h"
#include "kernels/prim/cuda.h"
#include "kernels/prim/device.cuh"

namespace {

constexpr int THREADS = 256, WARPS = THREADS / 32;
constexpr int RUN = 8;			// rows of a thread, side by side
constexpr int TILE = THREADS * RUN;

/* Flags of this thread's rows, as bits. */
__device__ uint32_t flags_of(const uint8_t *keep, int n_row)
{
	const int first = blockIdx.x * TILE + threadIdx.x * RUN;
	uint32_t bits = 0;

	for (int i = 0; i < RUN && first + i < n_row; i++)
		bits |= (keep[first + i] ? 1u : 0u) << i;
	return bits;
}

/* The sum over the thread block. */
__device__ int sum(int x, int (&part)[WARPS])
{
	x = warp_sum(x);
	__syncthreads();		// the last use of part is over
	if (threadIdx.x % 32 == 0)
		part[threadIdx.x / 32] = x;
	__syncthreads();
	x = 0;
	for (int w = 0; w < WARPS; w++)
		x += part[w];
	return x;
}

__global__ void drop_count(const uint8_t *keep, int n_row, int32_t *count)
{
	__shared__ int part[WARPS];
	const int n = sum(__popc(flags_of(keep, n_row)), part);

	if (!threadIdx.x)
		count[blockIdx.x] = n;
}

/* total: of all tiles. */
__global__ void drop_number(const uint8_t *keep, int n_row, const int32_t *count, int32_t *total,
			   int32_t *index)
{
	__shared__ int part[WARPS];
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const uint32_t bits = flags_of(keep, n_row);
	int before = 0, at = __popc(bits);

	for (int i = threadIdx.x; i < blockIdx.x; i += THREADS)
		before += count[i];
	before = sum(before, part);
	for (int d = 1; d < 32; d *= 2) {
		const int below = __shfl_up_sync(~0u, at, d);

		at += lane >= d ? below : 0;
	}
	__syncthreads();
	if (lane == 31)
		part[warp] = at;
	__syncthreads();
	for (int w = 0; w < warp; w++)
		at += part[w];
	if (blockIdx.x == gridDim.x - 1 && threadIdx.x == THREADS - 1)
		*total = before + at;
	at += before - __popc(bits);
	for (int i = 0; i < RUN; i++)
		if (bits >> i & 1)
			index[at++] = blockIdx.x * TILE + threadIdx.x * RUN + i;
}

/* How many of the numbers lie below a row. */
__device__ int below(const int32_t *index, int n, int row)
{
	int low = 0, high = n;

	while (low < high) {
		const int mid = (low + high) / 2;

		if (index[mid] < row)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

__global__ void drop_sizes(const struct attn_rows rows, const int32_t *index, const int32_t *total,
			   int32_t *n_keep)
{
	const int r = blockIdx.x * THREADS + threadIdx.x;

	if (r < rows.n_req)
		n_keep[r] = below(index, *total, rows.row0[r + 1]) -
			    below(index, *total, rows.row0[r]);
}

size_t tiles(int n_row)
{
	return ((size_t)n_row + TILE - 1) / TILE;
}

}

size_t drop_index_work_bytes(int max_row)
{
	return (tiles(max_row) + 1) * sizeof(int32_t);
}

enum ar_status drop_index_enqueue(const struct attn_rows *rows, const struct drop_kept *out,
				  void *work, void *stream, struct ar_err *err)
{
	const cudaStream_t on = (cudaStream_t)stream;
	const int n = (int)tiles(rows->n_row);
	int32_t *total = (int32_t *)work, *count = total + 1;
	enum ar_status st = AR_OK;

	if (!rows->n_row) {
		CU(cudaMemsetAsync(out->n_keep, 0, rows->n_req * sizeof *out->n_keep, on));
		return AR_OK;
	}
	drop_count<<<n, THREADS, 0, on>>>(out->keep, rows->n_row, count);
	CU_LAUNCHED();
	drop_number<<<n, THREADS, 0, on>>>(out->keep, rows->n_row, count, total, out->index);
	CU_LAUNCHED();
	drop_sizes<<<(rows->n_req + THREADS - 1) / THREADS, THREADS, 0, on>>>(*rows, out->index,
									      total, out->n_keep);
	CU_LAUNCHED();
out:
	return st;
}
