/* SPDX-License-Identifier: Apache-2.0 */
/* All rows of a result, for writers that must know a whole column: reals of a column have as many
 * decimals as its largest value wants. */
#ifndef AR_RESULT_ROWS_H
#define AR_RESULT_ROWS_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "src/report/writer.h"

struct cell {
	int type; /* SQLite's */
	double r;
	char *text; /* of every type but FLOAT, owned */
};

struct rows {
	int n_col;
	size_t n_cell, cap;
	struct cell *cell; /* [n_cell]; row by row */
	struct rows_column {
		int from;     /* column of the result */
		bool half;    /* half the distance of column from and the next.  The two are an
				 * interval around the column before; it has that one's decimals */
		int decimals; /* of its reals; -1: with exponents */
		bool numeric; /* holds numbers, which stand to the right */
		int width;    /* on a terminal, of its name or its widest text */
	} * col;	      /* [n_col] */
};

/* begin() and row() of a writer, which keep all rows in d->state. */
enum ar_status rows_begin(struct document *d, sqlite3_stmt *q, struct ar_err *err);
enum ar_status rows_add(struct document *d, sqlite3_stmt *q, struct ar_err *err);

/* In end(): the rows, with columns measured.  NULL: nothing is to be written, because the result
 * broke off, or has a title and no rows. */
const struct rows *rows_measure(struct document *d, sqlite3_stmt *q);
void rows_end(struct document *d); /* release d->state */

const char *rows_head(const struct rows *t, int i, sqlite3_stmt *q); /* name of column i */
/* Text of cell k; may use buf. */
enum { ROWS_TEXT = 400 };
const char *rows_text(const struct rows *t, size_t k, char buf[ROWS_TEXT]);

#endif
