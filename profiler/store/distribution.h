/* SPDX-License-Identifier: Apache-2.0 */
/* SQL aggregates.  distribution(x) describes the values x, by the rule of v_dist; NULL is ignored.
 * It is the JSON array [count, mean, p50, p90, p95, p99, max].  distribution(x, n) is the same of
 * values that occurred n times.
 *
 * ecdf(x, n) is the cumulative distribution of such values: an array of [x, share of the values up
 * to x], ascending, from share 0 to 1.  It has every value if there are at most 256, else 256
 * quantiles.  NULL: no rows. */
#ifndef AR_DISTRIBUTION_H
#define AR_DISTRIBUTION_H

#include <sqlite3.h>

int distribution_register(sqlite3 *db); /* returns an SQLite result code */

#endif
