/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of a backend that runs verify entries. */
#ifndef AR_VERIFY_CASE_H
#define AR_VERIFY_CASE_H

#include "tests/mixed-case.h"

/* tolerance: largest difference from the outputs of the same rows as a chunk; 0: equal bits. */
void verify_test_all(const struct backend *b, mixed_read_fn *read, double tolerance);
enum { VERIFY_N_TEST = 3 };

#endif
