/* SPDX-License-Identifier: Apache-2.0 */
/* SQL functions for read connections.  median(x) and percentile(x, p) are aggregate and window
 * functions, interpolate by the linear rule of base/stats.h, and ignore NULL.  distribution(x, n),
 * an aggregate, is the JSON array [count, mean, p50, p90, p95, p99, max] of values x that occurred
 * n times, by the rule of v_dist; NULL: no rows.  ecdf(x, n), of the same values, is an array of
 * [x, share of the values up to x], ascending, from share 0 to 1: all values up to 256, else one at
 * each 256th of their number. */
#ifndef AR_FUNCTIONS_H
#define AR_FUNCTIONS_H

#include <sqlite3.h>

int functions_register(sqlite3 *db); /* returns an SQLite result code */

#endif
