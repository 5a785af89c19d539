/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of a backend whose layers take the lists of decodes of other layers. */
#ifndef AR_REUSE_CASE_H
#define AR_REUSE_CASE_H

#include "tests/mixed-case.h"

void reuse_test_all(const struct backend *b, mixed_read_fn *read);
enum { REUSE_N_TEST = 17 };

#endif
