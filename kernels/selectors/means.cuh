/* Means of queries inside kernels. */
#ifndef AR_MEANS_CUH
#define AR_MEANS_CUH

#include "kernels/selectors/means.h"

static __device__ __forceinline__ float bf16_value(bf16_t x)
{
	return __uint_as_float((uint32_t)x << 16);
}

/* As means_of_rows, by the threads of a block together, each some channels. */
static __device__ __forceinline__ void mean_rows(const struct attn_batch &b, int lo, int hi,
						 int head, const bf16_t *__restrict__ q, float *out)
{
	const size_t row = (size_t)b.shape.q_heads * b.shape.head_dim;

	for (int d = threadIdx.x; d < b.shape.head_dim; d += blockDim.x) {
		const bf16_t *x = q + lo * row + (size_t)head * b.shape.head_dim + d;
		float sum = 0;

#pragma unroll 8
		for (int i = 0; i < hi - lo; i++)
			sum += bf16_value(x[i * row]);
		out[d] = sum / (float)(hi - lo);
	}
}

/* means_dot by one thread of channels in multiples of four, 16 bytes at a time. */
static __device__ __forceinline__ float dot_of_fours(const float *x, const float *y, int n)
{
	float sum = 0;

#pragma unroll 8
	for (int i = 0; i < n; i += 4) {
		const float4 a = *(const float4 *)(x + i), b = *(const float4 *)(y + i);

		sum = __fadd_rn(sum, __fmul_rn(a.x, b.x));
		sum = __fadd_rn(sum, __fmul_rn(a.y, b.y));
		sum = __fadd_rn(sum, __fmul_rn(a.z, b.z));
		sum = __fadd_rn(sum, __fmul_rn(a.w, b.w));
	}
	return sum;
}

#endif
