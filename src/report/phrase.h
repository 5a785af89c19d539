/* SPDX-License-Identifier: Apache-2.0 */
/* The SQL functions that word figures.  A speed-up is baseline / this: above 1 this is faster. */
#ifndef AR_REPORT_PHRASE_H
#define AR_REPORT_PHRASE_H

#include <sqlite3.h>

/* Add to db times(x): "1.18x", in three digits; and faster(x, lo, hi), of a speed-up and its
 * interval: "1.18x faster [1.09, 1.35]", "1.18x slower [1.09, 1.35]" with a number above 1, or
 * "1.03x slower to 1.06x faster" if the interval holds 1, "as fast, 1.00x [1.00, 1.00]" if it is no
 * more than that.  Ends that are NULL are left out.  NULL and speed-ups that are not above 0 give
 * NULL.  thousands(n): "950", or "4.1K" from 1000 on.  And program(): the version of this program.
 *
 * Returns an SQLite result code. */
int phrase_register(sqlite3 *db);

#endif
