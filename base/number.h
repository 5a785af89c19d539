/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers in command lines and files.  Parsing is exact: only results of type double pass through a
 * double. */
#ifndef AR_NUMBER_H
#define AR_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Parse all of s[0..n) as a non-negative decimal integer: digits only. */
bool num_u64(const char *s, size_t n, uint64_t *out);

/* Parse all of s[0..n) as "4" or "8-11"; *from <= *to. */
bool num_range(const char *s, size_t n, uint64_t *from, uint64_t *to);

/* Parse all of s[0..n) as a decimal number (sign, fraction, exponent) and multiply it by unit.  The
 * result is rounded to the nearest integer, halves away from zero.  False: malformed or out of
 * range. */
bool num_scaled(const char *s, size_t n, int64_t unit, int64_t *out);

/* Parse a time such as "6ms", "1.5s", "20us", "2h" or "0" into nanoseconds. */
bool num_time(const char *s, int64_t *ns);

/* Parse a count such as "64", "64k" (1000), "64K" (1024) or "1.5k", or bytes such as "2GiB" or
 * "512MB".  False: not a whole number, as "1.5". */
bool num_count(const char *s, int64_t *out);

bool num_real(const char *s, double *out);

/* a + b and a * b of numbers >= 0; INT64_MAX where the result would be larger. */
static inline int64_t num_add(int64_t a, int64_t b)
{
	int64_t sum;

	return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

static inline int64_t num_mul(int64_t a, int64_t b)
{
	int64_t product;

	return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

/* Write ns for people, such as "1.25 ms"; returns buf. */
char *num_time_str(char *buf, size_t n, double ns);

#endif
