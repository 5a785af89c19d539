/* SPDX-License-Identifier: Apache-2.0 */
/* For pull requests: Markdown tables, as GitHub has them, with a heading each.  A titled result of
 * one column is a list.  Results without rows are left out if they have a title. */
#include "config.h"
#include "src/report/writer.h"

#include <string.h>

#include "base/text.h"
#include "src/report/result_rows.h"

/* Foreign text ends no cell and no line, and makes no markup: a backslash precedes each character
 * that Markdown would read.  Control characters are written as for people. */
static void put_text(const char *s, FILE *f)
{
	char one[8];

	while (*s) {
		size_t n = 1;

		while (((unsigned char)s[n] & 0xc0) == 0x80 && n < 4)
			n++;
		snprintf(one, sizeof one, "%.*s", (int)n, s);
		if (strchr("\n\r\t", *s))
			one[0] = ' ';
		else if (strchr("\\`*_[]|<>&#~", *s))
			putc('\\', f);
		text_put(one, f);
		s += n;
	}
}

static void put_head(const struct rows *t, sqlite3_stmt *q, FILE *f)
{
	for (int i = 0; i < t->n_col; i++) {
		fputs(i ? " | " : "| ", f);
		put_text(rows_head(t, i, q), f);
	}
	fputs(" |\n", f);
	for (int i = 0; i < t->n_col; i++)
		fputs(t->col[i].numeric ? "|---:" : "|---", f);
	fputs("|\n", f);
}

static void put_rows(const struct rows *t, FILE *f)
{
	char buf[ROWS_TEXT];

	for (size_t k = 0; k < t->n_cell; k++) {
		int i = (int)(k % (size_t)t->n_col);

		fputs(i ? " | " : "| ", f);
		put_text(rows_text(t, k, buf), f);
		if (i == t->n_col - 1)
			fputs(" |\n", f);
	}
}

static void put_list(const struct rows *t, FILE *f)
{
	char buf[ROWS_TEXT];

	for (size_t k = 0; k < t->n_cell; k++) {
		fputs("- ", f);
		put_text(rows_text(t, k, buf), f);
		putc('\n', f);
	}
}

static void markdown_end(struct document *d, sqlite3_stmt *q)
{
	const struct rows *t = rows_measure(d, q);

	if (t) {
		if (d->n_results)
			putc('\n', d->f);
		if (d->title) {
			fputs("### ", d->f);
			put_text(d->title, d->f);
			fputs("\n\n", d->f);
		}
		if (d->title && t->n_col == 1) {
			put_list(t, d->f);
		} else {
			put_head(t, q, d->f);
			put_rows(t, d->f);
		}
	}
	rows_end(d);
}

extern const struct report_writer write_markdown;
const struct report_writer write_markdown = {
	.name = "markdown",
	.prose = true,
	.begin = rows_begin,
	.row = rows_add,
	.end = markdown_end,
};
