/* SPDX-License-Identifier: Apache-2.0 */
/* Hidden states that are no numbers, on every backend. */
#ifndef AR_OVERFLOW_H
#define AR_OVERFLOW_H

#include "replay/engine/backend.h"
#include "replay/engine/rows.h"

/* Fail if a hidden state is not finite.  x: [n_row][hidden], the states of rows r of batch b.  i:
 * the executed layer that x enters; n_run_layers: x left the last one.  AR_DATA: the message names
 * the request, and the layer that x comes from. */
enum ar_status overflow_check(const struct backend_env *env, const struct batch *b,
			      const struct rows *r, int i, const bf16_t *x, struct ar_err *err);

#endif
