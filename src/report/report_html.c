/* SPDX-License-Identifier: Apache-2.0 */
/* The report as a page: the first screen, and the parts that have something to show.  What would
 * bring the others is said at the end. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "src/report/chart_query.h"
#include "src/report/page.h"
#include "src/report/page_first.h"
#include "src/report/report_query.h"
#include "src/report/write_html.h"

enum { ROOM = 400 }; /* bytes of a title */

struct page {
	const struct report *r;
	int64_t baseline;
	FILE *f;
	bool any;	/* the part has something */
	bool *shown;	/* of each part */
	char name[200]; /* of the baseline */
};

static const struct section *find_section(const char *name)
{
	const struct section *s = sections;

	while (strcmp(s->name, name))
		s++;
	return s;
}

/* Write the rows of sql as a section without a file of its own. */
static enum ar_status put_table(struct page *p, const struct section *s, struct ar_err *err)
{
	struct document d = { .writer = &write_html, .f = p->f };
	enum ar_status st = report_section(p->r, s, p->baseline, &d, err);

	p->any = p->any || d.n_rows;
	return st;
}

static enum ar_status query_item(struct page *p, const struct page_item *i, int64_t each,
				 struct chart *c, struct ar_err *err)
{
	sqlite3_stmt *q;
	enum ar_status st = report_prepare(&q, p->r, i->text, err);

	chart_init(c, &i->spec);
	if (!st && (report_bind(q, ":baseline", p->baseline) || report_bind(q, ":each", each)))
		st = report_fail(p->r->db, err);
	if (!st)
		st = chart_query(c, q, err);
	if (st)
		ar_err_prefix(err, "%s", i->name);
	sqlite3_finalize(q);
	return st;
}

/* Set out to the title with the name of the baseline, cut to fit. */
static const char *expand(const struct page *p, const char *title, char out[ROOM])
{
	static const char word[] = "{baseline}";
	const char *at = title ? strstr(title, word) : NULL;

	if (!at)
		return title;
	snprintf(out, ROOM, "%.*s%s%s", (int)(at - title), title, p->name, at + strlen(word));
	return out;
}

static const struct page_item *find_item(const char *name)
{
	const struct page_item *i = page_items;

	while ((i->kind != PAGE_CHART && i->kind != PAGE_EACH) || strcmp(i->name, name))
		i++;
	return i;
}

static void put_title(const struct page *p, const struct page_item *i)
{
	char buf[ROOM];

	fputs("<h3>", p->f);
	text_put_xml(expand(p, i->title, buf), p->f);
	fputs("</h3>\n", p->f);
}

static void put_chart(const struct chart *c, FILE *f)
{
	chart_put_html(c, f);
	if (c->hidden)
		fprintf(f,
			"<p class=\"note\">%zu marks are left out, so that the page stays small: "
			"of each series at most about %zu are drawn.  Lines keep their shape, of "
			"points every n-th is drawn.</p>\n",
			c->hidden, c->most);
}

static enum ar_status put_one(struct page *p, const struct page_item *i, struct ar_err *err)
{
	struct chart c;
	char title[ROOM];
	struct chart_spec named = i->spec;
	enum ar_status st = query_item(p, i, 0, &c, err);

	if (!st && c.n) {
		p->any = true;
		named.x.title = expand(p, i->spec.x.title, title);
		c.spec = &named;
		put_title(p, i);
		put_chart(&c, p->f);
		page_sql("SQL", i->text, p->f);
	}
	chart_release(&c);
	return st;
}

/* Write the first panel of the chart beside the first table; *done: it has one. */
static enum ar_status put_beside(struct page *p, const char *name, bool *done, struct ar_err *err)
{
	const struct page_item *i = find_item(name);
	struct chart_spec narrow = i->spec;
	struct chart c;
	char title[ROOM];
	enum ar_status st = query_item(p, i, 0, &c, err);

	if (!st && c.n) {
		narrow.x.title = expand(p, i->spec.x.title, title);
		narrow.flags &= ~(unsigned)CHART_WIDE;
		c.spec = &narrow;
		chart_keep_first(&c);
		fputs("<figure>\n", p->f);
		put_title(p, i);
		chart_put_html(&c, p->f);
		fputs("</figure>\n", p->f);
		*done = true;
	}
	chart_release(&c);
	return st;
}

/* The charts of an item, one of each run. */
struct each {
	int n;
	size_t n_mark;
};

static bool has_room(const struct each *e)
{
	return e->n < REPORT_EACH_MIN || (e->n < REPORT_EACH_MAX && e->n_mark < REPORT_EACH_MARKS);
}

/* The chart of one run, folded but for the first. */
static enum ar_status put_run(struct page *p, const struct page_item *i, sqlite3_stmt *runs,
			      struct each *e, struct ar_err *err)
{
	struct chart c;
	enum ar_status st = query_item(p, i, sqlite3_column_int64(runs, 0), &c, err);
	const char *label = (const char *)sqlite3_column_text(runs, 1);

	if (!st && c.n) {
		if (!e->n)
			put_title(p, i);
		fprintf(p->f, "<details%s><summary>", e->n ? "" : " open=\"open\"");
		text_put_xml(label ? label : "", p->f);
		fputs("</summary>\n", p->f);
		put_chart(&c, p->f);
		fputs("</details>\n", p->f);
		e->n++;
		e->n_mark += chart_n_single(&c);
	}
	chart_release(&c);
	return st;
}

static enum ar_status put_each(struct page *p, const struct page_item *i, struct ar_err *err)
{
	sqlite3_stmt *runs;
	struct each e = { 0 };
	int rc = SQLITE_DONE, left_out = 0;
	enum ar_status st = report_prepare(
		&runs, p->r, "SELECT run_id, label FROM run_label ORDER BY run_id", err);

	while (!st && (rc = sqlite3_step(runs)) == SQLITE_ROW)
		if (has_room(&e))
			st = put_run(p, i, runs, &e, err);
		else
			left_out++;
	if (!st && rc != SQLITE_DONE)
		st = report_fail(p->r->db, err);
	sqlite3_finalize(runs);
	if (!st && left_out)
		fprintf(p->f, "<p class=\"note\">%d more runs are left out; --run shows one.</p>\n",
			left_out);
	p->any = p->any || e.n;
	if (!st && e.n)
		page_sql("SQL", i->text, p->f);
	return st;
}

static enum ar_status put_item(struct page *p, const struct page_item *i, struct ar_err *err)
{
	const struct section own = { i->name, i->title, i->text, NULL, true };

	switch (i->kind) {
	case PAGE_TABLE: return put_table(p, find_section(i->name), err);
	case PAGE_QUERY: return put_table(p, &own, err);
	case PAGE_CHART: return put_one(p, i, err);
	case PAGE_EACH: return put_each(p, i, err);
	default: return AR_OK;
	}
}

/* Write the items of the part *i, which follow it, and move *i behind them. */
static enum ar_status put_items(struct page *p, const struct page_item **i, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	p->any = false;
	for (++*i; (*i)->kind && !page_is_part(*i) && !st; ++*i)
		st = put_item(p, *i, err);
	return st;
}

/* Write the part *i to f if it has something, and move *i behind it. */
static enum ar_status put_part(struct page *p, const struct page_item **i, FILE *f,
			       struct ar_err *err)
{
	const struct page_item *part = *i;
	const bool folded = part->kind == PAGE_FOLDED;
	char *text = NULL;
	size_t n = 0;
	enum ar_status st;

	p->f = open_memstream(&text, &n);
	if (!p->f)
		return ar_nomem(err);
	st = put_items(p, i, err);
	if (fclose(p->f) && !st)
		st = ar_nomem(err);
	if (!st && p->any && folded)
		fprintf(f, "<details id=\"%s\"><summary>%s</summary>\n%s</details>\n", part->name,
			part->title, text);
	else if (!st && p->any)
		fprintf(f, "<h2 id=\"%s\">%s</h2>\n%s", part->name, part->title, text);
	free(text);
	return st;
}

/* All parts, to f; p->shown has those that are there. */
static enum ar_status put_parts(struct page *p, FILE *f, struct ar_err *err)
{
	const struct page_item *i = page_items;
	enum ar_status st = AR_OK;

	while (i->kind && !page_is_part(i))
		i++;
	for (int n = 0; i->kind && !st; n++) {
		st = put_part(p, &i, f, err);
		p->shown[n] = p->any;
	}
	return st;
}

/* What would bring the parts that are not there. */
static void put_lacking(const struct page *p)
{
	const bool *shown = p->shown;

	fputs("<details class=\"lacking\"><summary>What else a page can show</summary>\n<ul>\n",
	      p->f);
	for (const struct page_item *i = page_items; i->kind; i++)
		if (page_is_part(i) && !*shown++)
			fprintf(p->f, "<li>%s: it takes %s.</li>\n", i->title, i->text);
	fputs("</ul></details>\n", p->f);
}

static enum ar_status put_first(struct page *p, const char *paths, struct ar_err *err)
{
	enum ar_status st = page_first_begin(p->r, paths, p->f, err);
	bool done = false;

	for (const struct page_item *i = page_items; i->kind && !st && !done; i++)
		if (i->kind == PAGE_BESIDE)
			st = put_beside(p, i->name, &done, err);
	page_first_end(p->f);
	return st;
}

/* Make the tables that sections and charts read; the page shows their SQL at its end. */
static enum ar_status make_tables(struct page *p, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (const struct section *s = sections; s->name && !st; s++)
		if (!s->title)
			st = report_section(p->r, s, p->baseline, NULL, err);
	return st;
}

static void put_tables(FILE *f)
{
	fputs("<h3>Tables that the statements above read, beside those of the database</h3>\n", f);
	for (const struct section *s = sections; s->name; s++)
		if (!s->title)
			page_sql(s->name, s->sql, f);
}

static enum ar_status name_baseline(struct page *p, struct ar_err *err)
{
	sqlite3_stmt *q;
	const char *name;
	enum ar_status st = report_prepare(&q, p->r, "SELECT name FROM baseline_name", err);

	if (!st && sqlite3_step(q) != SQLITE_ROW)
		st = report_fail(p->r->db, err);
	if (!st && !(name = (const char *)sqlite3_column_text(q, 0)))
		st = ar_nomem(err);
	if (!st)
		snprintf(p->name, sizeof p->name, "%s", name);
	sqlite3_finalize(q);
	return st;
}

/* Write the head of the page and its first screen, with the names of its databases. */
static enum ar_status begin_page(struct page *p, struct ar_err *err)
{
	sqlite3_stmt *q;
	const char *paths;
	enum ar_status st = report_prepare(&q, p->r,
					   "SELECT iif(count(*) < 4, group_concat(path, ', '), "
					   "iif(min(dir) = max(dir), dir, '') "
					   "|| printf(' %d databases', count(*))) "
					   "FROM (SELECT DISTINCT path, "
					   "rtrim(path, replace(path, '/', '')) AS dir "
					   "FROM source_run)",
					   err);

	if (!st && sqlite3_step(q) != SQLITE_ROW)
		st = report_fail(p->r->db, err);
	if (!st) {
		paths = (const char *)sqlite3_column_text(q, 0);
		paths = paths ? paths : p->r->path;
		page_begin(paths, p->f);
		st = put_first(p, paths, err);
	}
	sqlite3_finalize(q);
	return st;
}

/* The contents, which name the parts that are there, and then these. */
static enum ar_status put_body(struct page *p, struct ar_err *err)
{
	FILE *f = p->f, *parts;
	char *text = NULL;
	size_t n = 0;
	enum ar_status st;

	parts = open_memstream(&text, &n);
	if (!parts)
		return ar_nomem(err);
	st = put_parts(p, parts, err);
	if (fclose(parts) && !st)
		st = ar_nomem(err);
	p->f = f;
	if (!st) {
		page_contents(p->shown, f);
		fputs(text, f);
		put_lacking(p);
	}
	free(text);
	return st;
}

enum ar_status report_html(const struct report *r, FILE *f, struct ar_err *err)
{
	bool shown[PAGE_PARTS_MAX];
	struct page p = { .r = r, .f = f, .shown = shown };
	enum ar_status st = report_begin(r, &p.baseline, err);

	if (!st)
		st = make_tables(&p, err);
	if (!st)
		st = name_baseline(&p, err);
	if (!st)
		st = begin_page(&p, err);
	if (!st)
		st = put_body(&p, err);
	if (!st) {
		put_tables(f);
		page_end(f);
	}
	return st;
}
