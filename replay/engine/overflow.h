/* SPDX-License-Identifier: Apache-2.0 */
/* Hidden states that are no numbers, on every backend. */
#ifndef AR_OVERFLOW_H
#define AR_OVERFLOW_H

#include "replay/engine/backend.h"
#include "replay/engine/rows.h"

/* Refuse hidden states that are not finite.  x: [n_row][hidden], those of the rows r of b, which
 * enter executed layer i or, with n_run_layers, left the last one.  AR_DATA: the message names the
 * request, and the layer that they come from. */
enum ar_status overflow_check(const struct backend_env *env, const struct batch *b,
			      const struct rows *r, int i, const bf16_t *x, struct ar_err *err);

#endif
