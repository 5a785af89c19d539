/* SPDX-License-Identifier: Apache-2.0 */
/* RFC 4180, with plain line feeds: a line of names, then the rows; NULL is an empty field, an
 * empty text "".  Results are separated by an empty line; those of a report begin with "# NAME". */
#include "config.h"
#include "src/report/writer.h"

#include "base/text.h"

static void put_blob(FILE *f, const unsigned char *b, int n)
{
	for (int i = 0; i < n; i++)
		fprintf(f, "%02x", b[i]);
}

static enum ar_status csv_begin(struct document *d, sqlite3_stmt *q, struct ar_err *err)
{
	(void)err;
	if (d->n_results)
		putc('\n', d->f);
	if (d->name)
		fprintf(d->f, "# %s\n", d->name);
	for (int i = 0; i < sqlite3_column_count(q); i++) {
		if (i)
			putc(',', d->f);
		text_put_csv(sqlite3_column_name(q, i), d->f);
	}
	putc('\n', d->f);
	return AR_OK;
}

static void put_value(FILE *f, sqlite3_stmt *q, int i)
{
	const char *text;
	char buf[40];

	switch (sqlite3_column_type(q, i)) {
	case SQLITE_INTEGER: fprintf(f, "%lld", sqlite3_column_int64(q, i)); break;
	case SQLITE_FLOAT:
		fputs(writer_real(buf, sizeof buf, sqlite3_column_double(q, i)), f);
		break;
	case SQLITE_TEXT:
		text = (const char *)sqlite3_column_text(q, i);
		text_put_csv_n(text, (size_t)sqlite3_column_bytes(q, i), f);
		break;
	case SQLITE_BLOB: put_blob(f, sqlite3_column_blob(q, i), sqlite3_column_bytes(q, i)); break;
	}
}

static enum ar_status csv_row(struct document *d, sqlite3_stmt *q, struct ar_err *err)
{
	(void)err;
	for (int i = 0; i < sqlite3_column_count(q); i++) {
		if (i)
			putc(',', d->f);
		put_value(d->f, q, i);
	}
	putc('\n', d->f);
	return AR_OK;
}

extern const struct report_writer write_csv;
const struct report_writer write_csv = {
	.name = "csv",
	.begin = csv_begin,
	.row = csv_row,
};
