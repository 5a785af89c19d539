/* SPDX-License-Identifier: Apache-2.0 */
/* One loop on all processors. */
#ifndef AR_PARALLEL_H
#define AR_PARALLEL_H

#include "base/status.h"

/* Call work with every i below n, on all processors.  Stop at the first failure or at an interrupt,
 * and return it. */
typedef enum ar_status parallel_fn(void *ctx, int i, struct ar_err *err);
enum ar_status parallel_each(int n, parallel_fn *work, void *ctx, struct ar_err *err);

#endif
