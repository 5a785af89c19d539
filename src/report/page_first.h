/* SPDX-License-Identifier: Apache-2.0 */
/* The first screen of the HTML report: what ran, the answer, what it rests on, a table of speed-ups
 * with a row for each run, and a chart beside it. */
#ifndef AR_PAGE_FIRST_H
#define AR_PAGE_FIRST_H

#include <stdio.h>

#include "src/report/report.h"

/* Write all before the chart, from the tables of the sections; page_first_end() closes it.  Errors
 * as report_html(). */
enum ar_status page_first_begin(const struct report *r, const char *paths, FILE *f,
				struct ar_err *err);
void page_first_end(FILE *f);

#endif
