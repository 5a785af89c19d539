/* SPDX-License-Identifier: Apache-2.0 */
/* SQL functions for read connections.  median(x) and percentile(x, p) are aggregate and window
 * functions.  They interpolate by the linear rule of base/stats.h, and ignore NULL.  mcnemar(b, c)
 * is the p and the aggregate spearman(x, y) the rank correlation of base/paired.h; NULL where there
 * is none.  The aggregate runs(x) is the text "run 3" or "runs 1, 3 to 5"; NULL: no rows.  The
 * others: distribution.h. */
#ifndef AR_FUNCTIONS_H
#define AR_FUNCTIONS_H

#include <sqlite3.h>

int functions_register(sqlite3 *db); /* returns an SQLite result code */

#endif
