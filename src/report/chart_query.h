/* SPDX-License-Identifier: Apache-2.0 */
/* Charts from statements. */
#ifndef AR_CHART_QUERY_H
#define AR_CHART_QUERY_H

#include <sqlite3.h>

#include "src/chart/chart.h"

/* Run q to its end and add a mark for each row; then finish the chart.  A column sets the member of
 * struct chart_mark that has its name; others are left out, NULL is "" or NaN.  AR_DB: a geometry
 * that there is not.  Other errors: as from writer_query(). */
enum ar_status chart_query(struct chart *c, sqlite3_stmt *q, struct ar_err *err);

#endif
