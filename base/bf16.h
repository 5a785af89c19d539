/* SPDX-License-Identifier: Apache-2.0 */
/* bfloat16 on the host: the upper half of a float, rounded to nearest even. */
#ifndef AR_BF16_H
#define AR_BF16_H

#include <stdint.h>
#include <string.h>

#include "base/both.h"

typedef uint16_t bf16_t;

AR_BOTH static inline float bf16_to_f32(bf16_t h)
{
	uint32_t u = (uint32_t)h << 16;
	float f;

	memcpy(&f, &u, sizeof f);
	return f;
}

static inline bf16_t bf16_from_f32(float f)
{
	uint32_t u;

	memcpy(&u, &f, sizeof u);
	if ((u & 0x7fffffff) > 0x7f800000) /* NaN stays NaN */
		return (bf16_t)(u >> 16 | 0x40);
	return (bf16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static inline float bf16_round(float f)
{
	return bf16_to_f32(bf16_from_f32(f));
}

static inline void bf16_widen(float *to, const bf16_t *from, int n)
{
	for (int i = 0; i < n; i++)
		to[i] = bf16_to_f32(from[i]);
}

/* Dot product in fp32, summed in index order. */
static inline float bf16_dot(const bf16_t *a, const bf16_t *b, int n)
{
	float sum = 0;

	for (int i = 0; i < n; i++)
		sum += bf16_to_f32(a[i]) * bf16_to_f32(b[i]);
	return sum;
}

#endif
