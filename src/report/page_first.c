/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/report/page_first.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "src/chart/chart.h"
#include "src/report/page.h"
#include "src/report/report_query.h"

/* Write row n of a statement. */
typedef void put_row(sqlite3_stmt *q, size_t n, FILE *f);

static const char *text_of(sqlite3_stmt *q, int i)
{
	const char *text = (const char *)sqlite3_column_text(q, i);

	return text ? text : "";
}

/* Write text as the content of an element, "": nothing. */
static void put_element(const char *element, const char *class, const char *text, FILE *f)
{
	if (!*text)
		return;
	fprintf(f, *class ? "<%s class=\"%s\">" : "<%s>", element, class);
	text_put_xml(text, f);
	fprintf(f, "</%s>", element);
}

/* The statement of an item of the first screen. */
static const char *statement(const char *name)
{
	const struct page_item *i = page_items;

	for (const struct section *s = sections; s->name; s++)
		if (!strcmp(s->name, name))
			return s->sql;

	while (i->kind != PAGE_FIRST || strcmp(i->name, name))
		i++;
	return i->text;
}

static enum ar_status each_row(const struct report *r, const char *name, put_row *put, FILE *f,
			       struct ar_err *err)
{
	sqlite3_stmt *q;
	enum ar_status st = report_prepare(&q, r, statement(name), err);
	int rc = SQLITE_DONE;

	for (size_t n = 0; !st && (rc = sqlite3_step(q)) == SQLITE_ROW; n++)
		put(q, n, f);
	if (!st && rc != SQLITE_DONE)
		st = report_fail(r->db, err);
	if (st)
		ar_err_prefix(err, "%s", name);
	sqlite3_finalize(q);
	return st;
}

/* ---- above the table ---- */

static void put_span(sqlite3_stmt *q, size_t n, FILE *f)
{
	(void)n;
	put_element("span", "", text_of(q, 0), f);
}

/* The first sentence is the headline. */
static void put_answer(sqlite3_stmt *q, size_t n, FILE *f)
{
	put_element(n ? "span" : "h1", "", text_of(q, 0), f);
	fputs(n ? "\n" : "\n<p class=\"because\">", f);
}

static void put_rest(sqlite3_stmt *q, size_t n, FILE *f)
{
	(void)n;
	fputs("<li title=\"", f);
	text_put_xml(text_of(q, 2), f);
	fputs("\">", f);
	put_element("sup", "", text_of(q, 0), f);
	text_put_xml(text_of(q, 1), f);
	fputs("</li>\n", f);
}

/* ---- the table ---- */

enum { SHORT = 24 }; /* bytes of a label that needs no second line */
enum { RUN, LABEL, STYLE, HEAD, TEXT, SMALL, CLASS, TITLE, HEAD_MARKS, MARKS };

static void put_head(sqlite3_stmt *q, FILE *f)
{
	fputs("<th scope=\"col\">", f);
	text_put_xml(text_of(q, HEAD), f);
	put_element("sup", "", text_of(q, HEAD_MARKS), f);
	fputs("</th>", f);
}

static void put_name(sqlite3_stmt *q, FILE *f)
{
	fprintf(f, "<tr><th scope=\"row\"%s>",
		strlen(text_of(q, LABEL)) > SHORT ? "" : " class=\"short\"");
	chart_put_key(sqlite3_column_int(q, STYLE), f);
	text_put_xml(text_of(q, LABEL), f);
	fputs("</th>", f);
}

static void put_cell(sqlite3_stmt *q, FILE *f)
{
	fputs("<td data-h=\"", f);
	text_put_xml(text_of(q, HEAD), f);
	putc(' ', f);
	text_put_xml(text_of(q, HEAD_MARKS), f);
	fputs("\" title=\"", f);
	text_put_xml(text_of(q, TITLE), f);
	fputs("\">", f);
	put_element("b", text_of(q, CLASS), text_of(q, TEXT), f);
	put_element("sup", "", text_of(q, MARKS), f);
	put_element("small", "", text_of(q, SMALL), f);
	fputs("</td>", f);
}

static void put_caption(sqlite3_stmt *q, size_t n, FILE *f)
{
	(void)n;
	text_put_xml(text_of(q, 0), f);
}

/* The cells of a run follow each other; those of the first run also have the heads. */
static enum ar_status put_cells(const struct report *r, FILE *head, FILE *body, struct ar_err *err)
{
	sqlite3_stmt *q;
	enum ar_status st = report_prepare(&q, r, statement("first"), err);
	int64_t first = 0, run = 0;
	int rc = SQLITE_DONE;

	while (!st && (rc = sqlite3_step(q)) == SQLITE_ROW) {
		const int64_t now = sqlite3_column_int64(q, RUN);

		if (now != run) {
			fputs(run ? "</tr>\n" : "", body);
			put_name(q, body);
		}
		run = now;
		first = first ? first : run;
		if (run == first)
			put_head(q, head);
		put_cell(q, body);
	}
	fputs(run ? "</tr>\n" : "", body);
	if (!st && rc != SQLITE_DONE)
		st = report_fail(r->db, err);
	if (st)
		ar_err_prefix(err, "first");
	sqlite3_finalize(q);
	return st;
}

static enum ar_status put_table(const struct report *r, FILE *f, struct ar_err *err)
{
	char *text = NULL;
	size_t n = 0;
	FILE *body = open_memstream(&text, &n);
	enum ar_status st;

	if (!body)
		return ar_nomem(err);
	fputs("<div class=\"scroll\"><table class=\"runs\">\n<caption>", f);
	st = each_row(r, "first_caption", put_caption, f, err);
	fputs("</caption>\n<thead><tr><th scope=\"col\">run</th>", f);
	if (!st)
		st = put_cells(r, f, body, err);
	if (fclose(body) && !st)
		st = ar_nomem(err);
	if (!st)
		fprintf(f, "</tr></thead>\n<tbody>\n%s</tbody></table></div>\n", text);
	free(text);
	return st;
}

enum ar_status page_first_begin(const struct report *r, const char *paths, FILE *f,
				struct ar_err *err)
{
	enum ar_status st;

	fputs("<header>", f);
	put_element("b", "", paths, f);
	st = each_row(r, "first_head", put_span, f, err);
	fputs("</header>\n", f);
	if (!st)
		st = each_row(r, "answer", put_answer, f, err);
	fputs("</p>\n<ul class=\"rests\">\n", f);
	if (!st)
		st = each_row(r, "first_rests", put_rest, f, err);
	fputs("</ul>\n<div class=\"first\">\n", f);
	return st ? st : put_table(r, f, err);
}

void page_first_end(FILE *f)
{
	fputs("</div>\n", f);
	page_sql("SQL", statement("first"), f);
}
