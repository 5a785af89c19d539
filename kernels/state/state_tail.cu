/* SPDX-License-Identifier: Apache-2.0 */
/* Keep the last rows of sequences.  grid (channels, sequence). */
#include "config.h"
#include "kernels/state/state_rows.cuh"

#include "kernels/prim/cuda.h"

namespace {

constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS) state_tails(const state_conv c, const state_batch b)
{
	const int channel = (blockIdx.x * THREADS + threadIdx.x) * 8;
	const state_seq seq = b.seq[blockIdx.y];
	pack<8> x[STATE_CONV - 1];

	if (channel >= c.channels)
		return;
#pragma unroll
	for (int i = 0; i < STATE_CONV - 1; i++)
		x[i] = input<8>(c, seq, seq.n_row - (STATE_CONV - 1) + i, channel);
#pragma unroll
	for (int i = 0; i < STATE_CONV - 1; i++)
		*reinterpret_cast<pack<8> *>(
			c.tail + ((int64_t)seq.slot * (STATE_CONV - 1) + i) * c.channels +
			channel) = x[i];
}

} /* namespace */

enum ar_status state_keep_tails(const struct state_conv *c, const struct state_batch *b,
				void *stream, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	const dim3 grid((c->channels / 8 - 1) / THREADS + 1, b->n_seq);

	state_tails<<<grid, THREADS, 0, (cudaStream_t)stream>>>(*c, *b);
	CU_LAUNCHED();
out:
	return st;
}
