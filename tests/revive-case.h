/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of a backend whose decodes revive dropped tokens, on four layers of full attention:
 * LazyLLM acts after layers 0 and 2.  Its choices and the outputs of layer 3 are compared with a
 * naive computation by positions, in double. */
#ifndef AR_REVIVE_CASE_H
#define AR_REVIVE_CASE_H

#include "tests/drops-case.h"

/* read, engine, tolerance: as in drops_test_all(). */
void revive_test_all(const struct backend *b, mixed_read_fn *read, drops_engine_fn *engine,
		     double tolerance);
enum { REVIVE_N_TEST = 16 };

#endif
