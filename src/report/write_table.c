/* SPDX-License-Identifier: Apache-2.0 */
/* For people: aligned columns, numbers to the right; sentences in lines. */
#include "config.h"
#include "src/report/writer.h"

#include <string.h>

#include "base/text.h"
#include "src/report/result_rows.h"

/* No blanks at the end of a line. */
static void put_cell(FILE *f, const char *s, struct rows_column c, bool first, bool last)
{
	int pad = c.width - text_put(s, NULL);

	fprintf(f, "%s%*s", first ? "" : "  ", c.numeric ? pad : 0, "");
	text_put(s, f);
	if (!c.numeric && !last)
		fprintf(f, "%*s", pad, "");
	if (last)
		putc('\n', f);
}

enum { LINE = 108 };

/* Where a line of s that is too long is broken: at its last blank, or NULL. */
static const char *find_break(const char *s)
{
	const char *at = strlen(s) > LINE ? s + LINE : NULL;

	while (at && at > s && *at != ' ')
		at--;
	return at > s ? at : NULL;
}

/* Sentences, in lines. */
static void put_lines(const struct rows *t, FILE *f)
{
	char buf[ROWS_TEXT], line[ROWS_TEXT];

	for (size_t k = 0; k < t->n_cell; k++) {
		const char *s = rows_text(t, k, buf), *to;

		for (; (to = find_break(s)); s = to + 1) {
			snprintf(line, sizeof line, "%.*s", (int)(to - s), s);
			text_put(line, f);
			fputs("\n  ", f);
		}
		text_put(s, f);
		putc('\n', f);
	}
}

static void put_table(const struct rows *t, FILE *f, sqlite3_stmt *q)
{
	const int last = t->n_col - 1;
	char buf[ROWS_TEXT];

	for (int i = 0; i < t->n_col; i++)
		put_cell(f, rows_head(t, i, q), t->col[i], !i, i == last);
	for (size_t k = 0; k < t->n_cell; k++) {
		int i = (int)(k % (size_t)t->n_col);

		put_cell(f, rows_text(t, k, buf), t->col[i], !i, i == last);
	}
}

/* A result with a title and one column is sentences. */
static void table_end(struct document *d, sqlite3_stmt *q)
{
	const struct rows *t = rows_measure(d, q);

	if (t) {
		if (d->n_results)
			putc('\n', d->f);
		if (d->title)
			fprintf(d->f, "%s\n", d->title);
		if (d->title && t->n_col == 1)
			put_lines(t, d->f);
		else
			put_table(t, d->f, q);
	}
	rows_end(d);
}

extern const struct report_writer write_table;
const struct report_writer write_table = {
	.name = "table",
	.begin = rows_begin,
	.row = rows_add,
	.end = table_end,
};
