/* SPDX-License-Identifier: Apache-2.0 */
/* The SQL function of sums by key, for tables whose rows are in another order. */
#ifndef AR_REPORT_SUMS_H
#define AR_REPORT_SUMS_H

#include <sqlite3.h>

/* Add the aggregate sums(key, x, y) to db.  It spares the sort of all rows that GROUP BY key takes.
 * It returns a JSON list of [key, sum of x, sum of y], ascending by key.
 *
 * key: an integer from 0 to 4095; x and y: integers.  Sums end at the limits of 64 bits.
 *
 * Returns an SQLite result code. */
int sums_register(sqlite3 *db);

#endif
