/* SPDX-License-Identifier: Apache-2.0 */
/* Decode: channels one by one. */
#ifndef AR_STATE_STEP_CUH
#define AR_STATE_STEP_CUH

#include "kernels/state/state.h"

static __device__ __forceinline__ float bf16(bf16_t x)
{
	return __uint_as_float((uint32_t)x << 16);
}

static __device__ __forceinline__ float silu(float x)
{
	return __fdividef(x, 1 + __expf(-x));
}

/* The convolution of one channel of a row.  MOVES: its tail moves on. */
template <bool MOVES>
static __device__ __forceinline__ float convolve(const state_conv &c, int row, int slot,
						 int channel)
{
	bf16_t *tail = c.tail + (int64_t)slot * (STATE_CONV - 1) * c.channels + channel;
	const bf16_t *w = c.w + channel * STATE_CONV;
	bf16_t x[STATE_CONV];
	float sum = c.bias ? bf16(c.bias[channel]) : 0;

#pragma unroll
	for (int i = 0; i < STATE_CONV - 1; i++)
		x[i] = tail[i * c.channels];
	x[STATE_CONV - 1] = c.rows[(int64_t)row * c.stride + channel];
#pragma unroll
	for (int i = 0; i < STATE_CONV; i++)
		sum += bf16(w[i]) * bf16(x[i]);
#pragma unroll
	for (int i = 0; i < STATE_CONV - 1 && MOVES; i++)
		tail[i * c.channels] = x[i + 1];
	return silu(sum);
}

#endif
