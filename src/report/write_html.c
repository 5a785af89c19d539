/* SPDX-License-Identifier: Apache-2.0 */
/* For the HTML report: a table under its title.  A result of one column is a list of lines. */
#include "config.h"
#include "src/report/write_html.h"

#include <string.h>

#include "base/text.h"
#include "src/report/result_rows.h"

static void put_list(const struct rows *t, FILE *f)
{
	char buf[ROWS_TEXT];

	fputs("<ul>\n", f);
	for (size_t i = 0; i < t->n_cell; i++) {
		fputs("<li>", f);
		text_put_xml(rows_text(t, i, buf), f);
		fputs("</li>\n", f);
	}
	fputs("</ul>\n", f);
}

enum { LONG = 60 }; /* bytes; longer text is broken into lines */

static const char *class_of(const struct rows *t, int i, const char *head, const char *text)
{
	if (t->col[i].numeric)
		return " class=\"n\"";
	if (!strcmp(head, "method"))
		return " class=\"method\"";
	return strlen(text) > LONG ? " class=\"long\"" : "";
}

/* A cell of column i.  A telephone shows its head beside it. */
static void put_cell(const struct rows *t, int i, const char *head, const char *text, FILE *f)
{
	fprintf(f, "<td%s data-h=\"", class_of(t, i, head, text));
	text_put_xml(head, f);
	fputs("\">", f);
	text_put_xml(text, f);
	fputs("</td>", f);
}

static void put_head(const struct rows *t, int i, const char *head, FILE *f)
{
	fputs(t->col[i].numeric ? "<th class=\"n\">" : "<th>", f);
	text_put_xml(head, f);
	fputs("</th>", f);
}

/* Column "weak" tells why a row says little; NULL: it does not.  Such rows are grey.  -1: none. */
static int weak_column(const struct rows *t, sqlite3_stmt *q)
{
	for (int i = 0; i < t->n_col; i++)
		if (!strcmp(rows_head(t, i, q), "weak"))
			return i;
	return -1;
}

static void put_rows(const struct rows *t, sqlite3_stmt *q, FILE *f)
{
	const int weak = weak_column(t, q);
	char buf[ROWS_TEXT];

	for (size_t k = 0; k < t->n_cell; k++) {
		int i = (int)(k % (size_t)t->n_col);

		if (!i)
			fputs(weak >= 0 && *rows_text(t, k + (size_t)weak, buf) ?
				      "<tr class=\"weak\">" :
				      "<tr>",
			      f);
		put_cell(t, i, rows_head(t, i, q), rows_text(t, k, buf), f);
		if (i == t->n_col - 1)
			fputs("</tr>\n", f);
	}
}

enum { FOLDED = 15 }; /* rows; a table with more is folded */

static void put_table(const struct rows *t, sqlite3_stmt *q, FILE *f)
{
	const size_t n = t->n_cell / (size_t)t->n_col;

	if (n > FOLDED)
		fprintf(f, "<details class=\"rows\"><summary>%zu rows</summary>\n", n);
	fputs("<div class=\"scroll\"><table>\n<thead><tr>", f);
	for (int i = 0; i < t->n_col; i++)
		put_head(t, i, rows_head(t, i, q), f);
	fputs("</tr></thead>\n<tbody>\n", f);
	put_rows(t, q, f);
	fputs("</tbody></table></div>\n", f);
	if (n > FOLDED)
		fputs("</details>\n", f);
}

static void html_end(struct document *d, sqlite3_stmt *q)
{
	const struct rows *t = rows_measure(d, q);

	if (t) {
		if (d->title) {
			fputs("<h3>", d->f);
			text_put_xml(d->title, d->f);
			fputs("</h3>\n", d->f);
		}
		if (t->n_col > 1)
			put_table(t, q, d->f);
		else
			put_list(t, d->f);
	}
	rows_end(d);
}

const struct report_writer write_html = {
	.name = "html",
	.prose = true,
	.begin = rows_begin,
	.row = rows_add,
	.end = html_end,
};
