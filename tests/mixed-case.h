/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of a backend on a model whose layers differ: full attention, linear, full, window. */
#ifndef AR_MIXED_CASE_H
#define AR_MIXED_CASE_H

#include "tests/backend-case.h"

/* Copy n elements of the attention output of the executed layer that ran last, from element at
 * on. */
typedef void mixed_read_fn(void *self, size_t at, size_t n, bf16_t *out);

/* The window layer, computed naively for request 0, from the activations of a backend's input.  The
 * caller frees it. */
struct naive *naive_open(const struct backend_env *env);
/* From here on the window counts positions of kept tokens, not their number. */
void naive_positions(struct naive *x);
/* The largest error of n rows from the i-th on, relative to the largest output of a row.  kept:
 * positions of the tokens in the cache, ascending; NULL: all.  out: [n][CASE_HEADS][CASE_DIM]. */
double naive_error(const struct naive *x, const int *kept, int i, int n, const bf16_t *out);

/* tolerance: of outputs against a naive computation. */
void mixed_test_all(const struct backend *b, mixed_read_fn *read, double tolerance);
enum { MIXED_N_TEST = 9 };

#endif
