/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers: splitmix64 (Steele, Lea, Flood 2014), with a visible state.  rng_mix() draws from
 * (seed, key) without state. */
#ifndef AR_RNG_H
#define AR_RNG_H

#include <stdint.h>

#include "base/both.h"

AR_BOTH static inline uint64_t rng_mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

struct rng {
	uint64_t state;
};

static inline uint64_t rng_u64(struct rng *r)
{
	uint64_t x = rng_mix(r->state);

	r->state += 0x9e3779b97f4a7c15u;
	return x;
}

/* Uniform in [0, n), n > 0. */
static inline uint64_t rng_below(struct rng *r, uint64_t n)
{
	return (uint64_t)(((unsigned __int128)rng_u64(r) * n) >> 64);
}

/* Uniform in [0, 1). */
static inline double rng_unit(struct rng *r)
{
	return (double)(rng_u64(r) >> 11) * 0x1p-53;
}

/* Of 64 random bits: the sum of the four numbers below 2^16, less its mean.  About normal, with the
 * deviation RNG_SUM_DEVIATION. */
#define RNG_SUM_DEVIATION 37837.23f
AR_BOTH static inline int rng_sum(uint64_t u)
{
	return (int)((u & 0xffff) + (u >> 16 & 0xffff) + (u >> 32 & 0xffff) + (u >> 48)) - 131070;
}

/* Approximately normal, mean 0, variance 1: the sum of twelve uniforms minus six.  It needs no
 * library function, so the result is the same on every machine. */
static inline float rng_normal(struct rng *r)
{
	double s = -6;

	for (int i = 0; i < 12; i++)
		s += rng_unit(r);
	return (float)s;
}

#endif
