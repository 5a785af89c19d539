/* SPDX-License-Identifier: Apache-2.0 */
/* Accuracy-density curves from the CSV of 'attnreplay select'.  A point is a method with its
 * parameters, averaged over the rows that have it; a line joins the points of one method, or of one
 * composition. */
#ifndef AR_CURVE_H
#define AR_CURVE_H

#include <stdio.h>

#include "base/status.h"

struct sqlite3;

/* Read the CSV file path, whose columns method, density_executed, rel_l2_mean and recall_mean are
 * used, and block_tokens if it is there.  The caller closes *db.  AR_DATA: it cannot be read, or
 * has no rows; the message names file, line and column. */
enum ar_status curve_read(struct sqlite3 **db, const char *path, struct ar_err *err);

/* Draw relative L2 error and recall over the executed density. */
enum ar_status curve_put_svg(struct sqlite3 *db, FILE *f, struct ar_err *err);

/* Write the points as CSV, which curve_read() takes as well. */
enum ar_status curve_put_points(struct sqlite3 *db, FILE *f, struct ar_err *err);

#endif
