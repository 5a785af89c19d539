/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of a backend on a model whose layers differ: full attention, linear, full, window. */
#ifndef AR_MIXED_CASE_H
#define AR_MIXED_CASE_H

#include "tests/backend-case.h"

/* Copy n elements of the attention output of the executed layer that ran last, from element at on. */
typedef void mixed_read_fn(void *self, size_t at, size_t n, bf16_t *out);

/* tolerance: of outputs against a naive computation. */
void mixed_test_all(const struct backend *b, mixed_read_fn *read, double tolerance);
enum { MIXED_N_TEST = 12 };

#endif
