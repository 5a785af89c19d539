/* SPDX-License-Identifier: Apache-2.0 */
/* The SQL function of ratios with their intervals. */
#ifndef AR_REPORT_INTERVAL_H
#define AR_REPORT_INTERVAL_H

#include <sqlite3.h>

/* Add to db the aggregate ratio_interval(place, x, base): p50 of x over p50 of base, and the interval
 * of 95 % of that ratio, as a JSON list of three.  Both are resampled at the same places, in blocks
 * that follow each other in order of place (bootstrap.h), 1,000 times.  Pairs with a NULL are left
 * out.  NULL without pairs; of one pair the interval is null.  Returns an SQLite result code. */
int interval_register(sqlite3 *db);

#endif
