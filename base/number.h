/* Numbers as people and files write them.  Exact: nothing passes through a
 * double that does not end as one. */
#ifndef AR_NUMBER_H
#define AR_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All of s[0..n) as a non-negative decimal integer: digits only. */
bool num_u64(const char *s, size_t n, uint64_t *out);

/* All of s[0..n) as "4" or "8-11": *from <= *to. */
bool num_range(const char *s, size_t n, uint64_t *from, uint64_t *to);

/* All of s[0..n) as a decimal number (sign, fraction, exponent) times unit, rounded
 * to the nearest integer, halves away from zero.  False when malformed or out
 * of range. */
bool num_scaled(const char *s, size_t n, int64_t unit, int64_t *out);

/* "6ms", "1.5s", "20us", "2h", "0": nanoseconds. */
bool num_time(const char *s, int64_t *ns);

/* "64", "64k" (1000), "64K" (1024), "1.5k", and for bytes "2GiB", "512MB".  False where it is no
 * whole number: "1.5". */
bool num_count(const char *s, int64_t *out);

bool num_real(const char *s, double *out);

/* "1.25 ms" and the like for people; returns buf. */
char *num_time_str(char *buf, size_t n, double ns);

#endif
