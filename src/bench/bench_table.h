/* SPDX-License-Identifier: Apache-2.0 */
/* Output of a benchmark: one list of columns serves the text table and the JSON lines. */
#ifndef AR_BENCH_TABLE_H
#define AR_BENCH_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/binfile.h"
#include "base/status.h"

/* Members: const char *; int64_t; int64_t, where 0 does not apply; double, where only finite values
 * apply. */
enum bench_col_type { COL_TEXT, COL_INT, COL_COUNT, COL_REAL };

struct bench_col {
	const char *name, *head; /* head NULL: not in the text table */
	enum bench_col_type type;
	size_t off; /* in the row's struct */
	int width, decimals;
	double unit; /* a real of the text table is divided by it */
};

/* How a row was measured.  These columns end every table; at: offset of struct bench_how in the
 * row. */
struct bench_how {
	const char *clock; /* NULL: not measured */
	int64_t repeat, seed;
	const char *gpu;
};
#define BENCH_HOW_COLS(at) \
	{ "clock", NULL, COL_TEXT, (at) + offsetof(struct bench_how, clock), 0, 0, 0 }, \
		{ "repeat", NULL, COL_INT, (at) + offsetof(struct bench_how, repeat), 0, 0, 0 }, \
		{ "seed", NULL, COL_INT, (at) + offsetof(struct bench_how, seed), 0, 0, 0 }, \
	{ \
		"gpu", NULL, COL_TEXT, (at) + offsetof(struct bench_how, gpu), 0, 0, 0 \
	}

struct bench_table {
	const struct bench_col *cols; /* ends with name NULL */
	bool lines;		      /* standard output gets JSON lines */
	const char *path;	      /* NULL: none; else the file of JSON lines */
	struct outfile file;
};

/* Open the file at t->path, if any. */
enum ar_status bench_table_open(struct bench_table *t, struct ar_err *err);
void bench_table_heads(const struct bench_table *t);
enum ar_status bench_table_put(struct bench_table *t, const void *row, struct ar_err *err);
/* Make the file appear if st, the status of the work, is AR_OK.  Returns st, or the failure to
 * write it. */
enum ar_status bench_table_close(struct bench_table *t, enum ar_status st, struct ar_err *err);

#endif
