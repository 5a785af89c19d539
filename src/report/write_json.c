/* SPDX-License-Identifier: Apache-2.0 */
/* A result is an array of objects.  Named results are members of one object, others follow
 * each other. */
#include "config.h"
#include "src/report/writer.h"

#include <math.h>

#include "base/text.h"

static void put_blob(FILE *f, const unsigned char *b, int n)
{
	putc('"', f);
	for (int i = 0; i < n; i++)
		fprintf(f, "%02x", b[i]);
	putc('"', f);
}

static void put_value(FILE *f, sqlite3_stmt *q, int i)
{
	const char *text;
	char buf[40];
	double r;

	switch (sqlite3_column_type(q, i)) {
	case SQLITE_INTEGER: fprintf(f, "%lld", sqlite3_column_int64(q, i)); break;
	case SQLITE_FLOAT:
		r = sqlite3_column_double(q, i);
		fputs(isfinite(r) ? writer_real(buf, sizeof buf, r) : "null", f);
		break;
	case SQLITE_TEXT:
		text = (const char *)sqlite3_column_text(q, i);
		text_put_json_n(text, (size_t)sqlite3_column_bytes(q, i), f);
		break;
	case SQLITE_BLOB: put_blob(f, sqlite3_column_blob(q, i), sqlite3_column_bytes(q, i)); break;
	default: fputs("null", f);
	}
}

static enum ar_status json_begin(struct document *d, sqlite3_stmt *q, struct ar_err *err)
{
	(void)q;
	(void)err;
	if (d->name) {
		fputs(d->n_results ? ",\n" : "{\n", d->f);
		text_put_json(d->name, d->f);
		fputs(": ", d->f);
	}
	putc('[', d->f);
	return AR_OK;
}

static enum ar_status json_row(struct document *d, sqlite3_stmt *q, struct ar_err *err)
{
	(void)err;
	fputs(d->n_rows ? ",\n{" : "\n{", d->f);
	for (int i = 0; i < sqlite3_column_count(q); i++) {
		if (i)
			fputs(", ", d->f);
		text_put_json(sqlite3_column_name(q, i), d->f);
		fputs(": ", d->f);
		put_value(d->f, q, i);
	}
	putc('}', d->f);
	return AR_OK;
}

static void json_end(struct document *d, sqlite3_stmt *q)
{
	(void)q;
	fputs(d->n_rows ? "\n]" : "]", d->f);
	if (!d->name)
		putc('\n', d->f);
}

static void json_finish(struct document *d)
{
	if (d->name)
		fputs("\n}\n", d->f);
}

extern const struct report_writer write_json;
const struct report_writer write_json = {
	.name = "json",
	.begin = json_begin,
	.row = json_row,
	.end = json_end,
	.finish = json_finish,
};
