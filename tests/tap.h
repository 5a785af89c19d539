/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AR_TAP_H
#define AR_TAP_H

#include <stdbool.h>
#include <stddef.h>

/* A small TAP producer.  plan(0) means "count at the end". */
void plan(unsigned n);
void skip_all(const char *why, ...) __attribute__((noreturn, format(printf, 1, 2)));
void bail_out(const char *why, ...) __attribute__((noreturn, format(printf, 1, 2)));
void diag(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void skip(unsigned n, const char *why);
void todo(const char *why); /* NULL ends the block */
int done_testing(void);
bool sanitized(void); /* the build has the sanitizers */
/* How often to repeat a test on random input: all times, or a quarter as often under sanitizers.
 * Sanitizers find wrong accesses; the build without sanitizers finds wrong rules. */
int rounds(int all);
/* From one failure that a loop makes to the next: 1, or `sparse` under sanitizers, where a round
 * takes far longer.  Take an odd number: allocations often come in pairs. */
int fault_stride(int sparse);

int tap_ok(int pass, const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
int tap_is_int(long long got, long long want, const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
int tap_is_str(const char *got, const char *want, const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
int tap_is_f32(const float *got, const float *want, size_t n, double atol, double rtol,
	       const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 8, 9)));

#define ok(x, ...) tap_ok(!!(x), __FILE__, __LINE__, __VA_ARGS__)
#define is_int(g, w, ...) tap_is_int(g, w, __FILE__, __LINE__, __VA_ARGS__)
#define is_str(g, w, ...) tap_is_str(g, w, __FILE__, __LINE__, __VA_ARGS__)
#define is_f32(g, w, n, atol, rtol, ...) \
	tap_is_f32(g, w, n, atol, rtol, __FILE__, __LINE__, __VA_ARGS__)

#endif
