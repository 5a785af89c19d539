/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of a backend with droppers, which act after layers 0 and 2.  The layers are as in
 * mixed-case.h: full attention, linear, full, window. */
#ifndef AR_DROPS_CASE_H
#define AR_DROPS_CASE_H

#include "replay/engine/attn_engine.h"
#include "tests/mixed-case.h"

/* The engine of an open backend. */
typedef const struct attn_engine *drops_engine_fn(const void *self);

/* read: as in mixed_test_all().  tolerance: of outputs against a naive computation. */
void drops_test_all(const struct backend *b, mixed_read_fn *read, drops_engine_fn *engine,
		    double tolerance);
enum { DROPS_N_TEST = 38 };

#endif
