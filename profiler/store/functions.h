/* SPDX-License-Identifier: Apache-2.0 */
/* SQL functions of the read connections: median(x) and percentile(x, p), aggregates and window
 * functions by the linear rule of base/stats.h; NULL is left out. */
#ifndef AR_FUNCTIONS_H
#define AR_FUNCTIONS_H

#include <sqlite3.h>

int functions_register(sqlite3 *db);	/* an SQLite result code */

#endif
