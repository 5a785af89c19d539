/* SPDX-License-Identifier: Apache-2.0 */
/* Options of attnreplay bench that take comma-separated lists. */
#ifndef AR_BENCH_VALUES_H
#define AR_BENCH_VALUES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { BENCH_LIST = 64 }; /* values of a list at most */

/* Add one value to the list `to`.  False: not a valid value, or too many values. */
typedef bool bench_item(const char *text, void *to);

/* Call item with each value of list.  An error is AR_USAGE and says what --option wants. */
enum ar_status bench_values(const char *option, const char *list, bench_item *item, void *to,
			    const char *want, struct ar_err *err);

/* Counts from 1 to INT32_MAX.  v: [BENCH_LIST]; *n: how many there are. */
enum ar_status bench_counts(const char *option, const char *list, int64_t *v, int *n,
			    struct ar_err *err);

#endif
