/* SPDX-License-Identifier: Apache-2.0 */
/* The SQL function of means with their intervals. */
#ifndef AR_REPORT_INTERVAL_H
#define AR_REPORT_INTERVAL_H

#include <sqlite3.h>

/* Add to db the aggregate mean_interval(place, x): the mean of x and its interval of 95 %, as a
 * JSON list of three.  Values are resampled one by one, as independent ones, 2,000 times, for the
 * interval of the bootstrap-t (Efron and Tibshirani 1993, 12.5); NULL values are left out.  Rows
 * come in any order: their places order them.  mean_interval(place, sum, n) takes values in groups:
 * a row has the number of a group's values and their sum.  Groups are resampled as a whole, as
 * their values are alike.  Of fewer than 12 values or groups the interval is null.
 *
 * Returns an SQLite result code. */
int interval_register(sqlite3 *db);

#endif
