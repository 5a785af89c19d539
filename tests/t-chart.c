/* SPDX-License-Identifier: Apache-2.0 */
/* The chart module: axes, thinning, places worked by hand, foreign text, and failures. */
#include "config.h"

#include <math.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "src/chart/chart.h"
#include "src/chart/chart_item.h"
#include "src/report/chart_query.h"
#include "tests/alloc_fault.h"
#include "tests/tap.h"

static const struct chart_spec plain = {
	CHART_POINT, { "x", CHART_LINEAR, 0 }, { "y", CHART_LINEAR, 0 }, 0
};

static struct chart_mark mark(enum chart_geom geom, double x, double y)
{
	return (struct chart_mark){ .geom = geom,
				    .series = "s",
				    .style = 1,
				    .x = x,
				    .y = y,
				    .x_lo = NAN,
				    .x_hi = NAN,
				    .y_lo = NAN,
				    .y_hi = NAN,
				    .value = NAN };
}

static void add(struct chart *c, struct chart_mark m)
{
	struct ar_err err;

	if (chart_add(c, &m, &err))
		bail_out("%s", err.msg);
}

/* The drawing of c, which is released; the caller frees the text. */
static char *draw(struct chart *c, bool file)
{
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);

	if (!f)
		bail_out("no memory");
	chart_finish(c);
	if (file)
		chart_put_svg(c, 1, f);
	else
		chart_put_html(c, f);
	fclose(f);
	chart_release(c);
	return text;
}

static int count(const char *text, const char *what)
{
	int n = 0;

	for (; (text = strstr(text, what)); text += strlen(what))
		n++;
	return n;
}

/* ---- axes ---- */

static void test_ticks(void)
{
	struct chart_range linear = { CHART_LINEAR, 0, 100 }, log = { CHART_LOG, 1, 1000 };
	struct chart_range narrow = { CHART_LOG, 20, 60 }, wide = { CHART_LOG, 1e-9, 1e9 };
	double at[CHART_TICKS_MAX];

	is_int(chart_ticks(&linear, 5, at), 6, "0 to 100 has six ticks");
	ok(at[1] > 19.99 && at[1] < 20.01, "... of 20");
	is_int(chart_ticks(&log, 9, at), 10, "three decades have 1, 2 and 5");
	ok(at[1] > 1.99 && at[1] < 2.01 && at[9] > 999 && at[9] < 1001, "... up to the end");
	is_int(chart_ticks(&log, 3, at), 4, "with less room, powers of ten");
	is_int(chart_ticks(&narrow, 4, at), 5, "within a decade, ticks are even");
	ok(chart_ticks(&wide, 6, at) <= 8, "many decades have few ticks");
	ok(chart_place(&log, 10) > 0.333 && chart_place(&log, 10) < 0.334, "a decade of three");
	ok(chart_place(&log, 0) <= 0 && chart_place(&log, 1e9) >= 1, "values outside: the edge");
}

static void test_number(void)
{
	char buf[40];

	is_str(chart_number(buf, sizeof buf, 0.25), "0.25", "small numbers are as they are");
	is_str(chart_number(buf, sizeof buf, 1500), "1500", "... up to four digits");
	is_str(chart_number(buf, sizeof buf, 25000), "25k", "then thousands");
	is_str(chart_number(buf, sizeof buf, -2.5e7), "-25M", "... millions");
	is_str(chart_number(buf, sizeof buf, 4e10), "40G", "... and more");
	is_str(chart_number(buf, sizeof buf, 1e-17), "0", "what rounding left of 0 is 0");
}

static void test_range(void)
{
	struct chart c;
	struct chart_spec log = plain;
	struct chart_range r;

	log.y = (struct chart_axis){ NULL, CHART_LOG, 1e-4 };
	chart_init(&c, &log);
	add(&c, mark(CHART_POINT, 3, 0));
	add(&c, mark(CHART_POINT, 7, 1));
	r = chart_range_of(&c, 0, 0, c.n);
	ok(r.lo == 0 && r.hi > 7, "a linear axis begins at its least value");
	r = chart_range_of(&c, 1, 0, c.n);
	ok(r.lo > 5e-5 && r.lo < 1e-4 && r.hi > 1, "0 is at the least value of a logarithmic axis");
	chart_release(&c);
	chart_init(&c, &plain);
	r = chart_range_of(&c, 0, 0, 0);
	ok(r.hi > r.lo, "an empty chart has axes");
	chart_release(&c);
	chart_release(&c);
}

/* ---- marks ---- */

/* The plot is 440 - 52 - 14 wide; x reaches from 0 to 10.2, y from 0 to 10. */
static void test_places(void)
{
	struct chart c;
	struct chart_mark m = mark(CHART_POINT, 5.1, 5);
	char *s;

	chart_init(&c, &plain);
	add(&c, m);
	m.x = 10;
	m.y = 10;
	m.ring = true;
	m.y_lo = 8;
	m.y_hi = 10;
	add(&c, m);
	s = draw(&c, false);
	ok(strstr(s, "translate(187.0 105.0)"), "a point is where it belongs");
	is_int(count(s, "class=\"ring\""), 1, "a ring is drawn where asked for");
	is_int(count(s, "class=\"line\""), 1, "... and bars of error");
	is_int(count(s, "<svg class=\"chart\""), 2, "a panel, and a sample in the legend");
	free(s);
}

static void test_stack(void)
{
	static const struct chart_spec rows = {
		CHART_BAR, { NULL, CHART_LINEAR, 0 }, { NULL, CHART_ROWS, 0 }, 0
	};
	struct chart c;
	struct chart_mark m = mark(CHART_BAR, 30, NAN);
	char *s;

	chart_init(&c, &rows);
	m.row = "a row";
	add(&c, m);
	m.series = "t";
	m.x = 70;
	m.hatch = true;
	add(&c, m);
	m.row = "b";
	m.style = -1;
	add(&c, m);
	s = draw(&c, false);
	/* 422 wide for 0 to 102 */
	ok(strstr(s, "x=\"0.0\" y=\"16.0\" width=\"124.12\""), "a bar is as long as its value");
	ok(strstr(s, "x=\"124.1\" y=\"16.0\" width=\"289.61\""),
	   "... and the next begins behind it");
	is_int(count(s, "url(#hatch)"), 3, "bars are hatched, in the legend as well");
	ok(strstr(s, ">a row</text>") && strstr(s, "class=\"none\""), "rows have names");
	free(s);
}

static void test_lines(void)
{
	struct chart c;
	char *s;

	chart_init(&c, &plain);
	add(&c, mark(CHART_LINE, 0, 0));
	add(&c, mark(CHART_LINE, 1, 1));
	add(&c, mark(CHART_LINE, 2, NAN));
	add(&c, mark(CHART_LINE, 3, 1));
	add(&c, mark(CHART_STEPS, 0, 0));
	add(&c, mark(CHART_STEPS, 4, 1));
	s = draw(&c, false);
	is_int(count(s, "class=\"line c1"), 3,
	       "lines and steps are paths, one stands in the legend");
	ok(strstr(s, "0.0 210.0L91.7 0.0M275.0 0.0\""), "a line breaks where it has no value");
	ok(strstr(s, "0.0 210.0H366.7V0.0\""), "steps are level, then upright");
	free(s);
}

static void test_cells(void)
{
	static const struct chart_spec heat = {
		CHART_CELL, { NULL, CHART_LINEAR, NAN }, { NULL, CHART_LINEAR, NAN }, 0
	};
	static const float cell[] = { 0, 0.5f, 0.5f, 1 };
	const struct chart_box box = { 10, 20, 30, 40 };
	struct chart c;
	struct chart_mark m = mark(CHART_CELL, 4, 7);
	char *s = NULL;
	size_t n;
	FILE *f = open_memstream(&s, &n);

	if (!f)
		bail_out("no memory");
	chart_heat(&box, cell, 2, 2, f);
	fclose(f);
	ok(strstr(s, "d=\"M1 0h1v1h-1zM0 1h1v1h-1z\"><title>0.438 to 0.5<"),
	   "cells of a level are one path");
	is_int(count(s, "<path"), 2, "... and 0 is none");
	free(s);
	chart_init(&c, &heat);
	m.value = 0.5;
	add(&c, m);
	m.x = 5;
	m.value = 0.01;
	add(&c, m);
	s = draw(&c, false);
	ok(strstr(s, "M0 0h1v1h-1z\"><title>0.469 to 0.5<") && strstr(s, "M1 0h1v1h-1z"),
	   "cells of a chart begin at its least column, levels end at the greatest value");
	ok(strstr(s, ">most: 0.5<"), "... which it names");
	ok(strstr(s, ">4</text>") && strstr(s, ">7</text>") && !strstr(s, "4.5"),
	   "whole columns and lines have ticks");
	free(s);
}

static void test_shapes(void)
{
	struct chart c;
	struct chart_mark span = mark(CHART_SPAN, NAN, NAN), rule = mark(CHART_RULE, NAN, 4);
	struct chart_spec low = plain;
	char *s;

	low.flags = CHART_WIDE | CHART_LOW | CHART_ZOOM;
	span.x_lo = 0, span.x_hi = 5, span.y_lo = 0, span.y_hi = 4;
	chart_init(&c, &low);
	add(&c, span);
	span.panel = "other";
	add(&c, span);
	rule.panel = "other";
	rule.title = "a limit";
	add(&c, rule);
	rule.x = 2;
	add(&c, rule);
	s = draw(&c, false);
	is_int(count(s, "class=\"rule\""), 2, "rules run along and across");
	is_int(count(s, "<title>a limit</title>"), 2, "... and have titles");
	is_int(count(s, ">x</text>"), 1, "low panels share the title of their axis");
	ok(strstr(s, "class=\"panels wide zoom\"") && strstr(s, "data-lo=\"0\""),
	   "the script can zoom");
	free(s);
}

static void test_thinning(void)
{
	struct chart c;

	chart_init(&c, &plain);
	for (int i = 0; i < 5000; i++)
		add(&c, mark(CHART_LINE, i, i == 2345 ? 1000 : i % 7));
	for (int i = 0; i < 5000; i++)
		add(&c, mark(CHART_POINT, i, i));
	chart_finish(&c);
	ok(c.hidden >= 10000 - 2 * CHART_POINTS_MAX, "%zu of 10000 marks are hidden", c.hidden);
	for (size_t i = 0; i < c.n; i++) {
		const struct chart_item *k = &c.item[i];

		if (k->geom == CHART_LINE && k->x == 2345)
			ok(!k->hidden, "the peak of a line stays");
		if (k->geom == CHART_LINE && (k->x == 0 || k->x == 4999))
			ok(!k->hidden, "... and its ends");
	}
	chart_release(&c);
	chart_init(&c, &plain);
	for (int i = 0; i < CHART_POINTS_MAX; i++)
		add(&c, mark(CHART_LINE, i, i));
	chart_finish(&c);
	ok(!c.hidden, "a short line is drawn whole");
	chart_release(&c);
}

/* Forty series of 96 points, with one of 20, and one long line: the short one stays whole. */
static void test_many_series(void)
{
	struct chart c;
	size_t drawn = 0, drawn_short = 0;
	char name[16];

	chart_init(&c, &plain);
	for (int i = 0; i < 40 * 96; i++) {
		struct chart_mark m = mark(CHART_POINT, i, i);

		snprintf(name, sizeof name, "series %d", i / 96);
		m.series = name;
		add(&c, m);
	}
	for (int i = 0; i < 20; i++)
		add(&c, mark(CHART_POINT, i, i));
	for (int i = 0; i < 1000; i++)
		add(&c, mark(CHART_LINE, i, i % 13));
	chart_finish(&c);
	for (size_t i = 0; i < c.n; i++) {
		drawn += !c.item[i].hidden;
		drawn_short += !c.item[i].hidden && c.item[i].geom == CHART_POINT &&
			       !strcmp(c.series.name[c.item[i].series], "s");
	}
	ok(drawn <= CHART_PANEL_MAX && drawn > CHART_PANEL_MAX / 2, "many series share: %zu marks",
	   drawn);
	is_int((long long)drawn_short, 20, "a short one is whole");
	is_int((long long)c.most, 48, "... and of the others so many are left");
	is_int((long long)c.hidden, (long long)(c.n - drawn), "what is hidden is counted");
	is_int((long long)chart_n_single(&c), 40 * 48 + 20,
	       "marks of a line are none of their own");
	chart_release(&c);
}

static void test_foreign(void)
{
	static const char odd[] = "<b>&\"'\x1b\xff";
	struct chart c;
	struct chart_mark m = mark(CHART_POINT, 1, 1);
	char *s;

	chart_init(&c, &plain);
	m.series = odd;
	m.panel = odd;
	m.title = odd;
	add(&c, m);
	s = draw(&c, true);
	is_int(count(s, "&lt;b&gt;&amp;&#34;&#39;\xef\xbf\xbd\xef\xbf\xbd"), 3,
	       "foreign text is escaped, in titles and in the legend");
	ok(!strstr(s, "<b>") && !strchr(s, '\x1b'), "... and nowhere left as it was");
	ok(strstr(s, "<style>") && strstr(s, "<pattern id=\"hatch\""), "a file has its style");
	free(s);
}

static void test_long_names(void)
{
	char name[401];
	struct chart c;
	struct chart_mark m = mark(CHART_POINT, 1, 1);
	char *s;

	for (int i = 0; i < 400; i += 2)
		memcpy(name + i, "\xc3\xa4", 2);
	name[400] = 0;
	chart_init(&c, &plain);
	m.panel = name;
	add(&c, m);
	s = draw(&c, false);
	ok(strstr(s, "\xc3\xa4\xe2\x80\xa6</text>"), "a long name is cut between characters");
	ok(strstr(s, name), "... and whole in the title");
	free(s);
}

/* ---- failures ---- */

static const char rows_sql[] =
	"SELECT 'p' || (column1 / 30) AS panel, 's' || column1 AS series, 'r' AS row,"
	" 'line' AS geom, 1 AS style, column1 AS x, 2 AS y, NULL AS y_lo, 1 AS ring, 0 AS hatch,"
	" 't' AS title, 5 AS other"
	" FROM (WITH RECURSIVE n(column1) AS (SELECT 0 UNION ALL SELECT column1 + 1 FROM n"
	" WHERE column1 < 70) SELECT * FROM n)";

static enum ar_status run_query(sqlite3 *db, const char *sql, struct chart *c, struct ar_err *err)
{
	sqlite3_stmt *q;
	enum ar_status st;

	chart_init(c, &plain);
	if (sqlite3_prepare_v2(db, sql, -1, &q, NULL))
		return ar_nomem(err);
	st = chart_query(c, q, err);
	sqlite3_finalize(q);
	return st;
}

static void test_query(void)
{
	struct ar_err err = { 0 };
	struct chart c;
	bool clean = true;
	sqlite3 *db;
	long k;

	if (sqlite3_open(":memory:", &db))
		bail_out("no database");
	ok(!run_query(db, rows_sql, &c, &err) && c.n == 71, "each row is a mark");
	ok(c.panel.n == 3 && c.series.n == 71 && c.row.n == 1, "... with its names");
	ok(c.item[0].geom == CHART_LINE && c.item[0].ring && isnan(c.item[0].y_lo),
	   "... and values");
	chart_release(&c);
	ok(run_query(db, "SELECT 'box' AS geom", &c, &err) == AR_DB &&
		   strstr(err.msg, "no geometry 'box'"),
	   "another geometry is an error");
	chart_release(&c);
	ok(run_query(db, "SELECT abs(-9223372036854775808) AS x", &c, &err) == AR_USAGE,
	   "so is a statement that fails");
	chart_release(&c);
	for (k = 0;; k++) {
		enum ar_status st;

		fault_arm(k);
		st = run_query(db, rows_sql, &c, &err);
		chart_release(&c);
		if (!fault_disarm())
			break;
		clean = clean && (!st || st == AR_NOMEM);
	}
	ok(clean && k > 70, "each of %ld allocations fails cleanly", k);
	sqlite3_close(db);
}

int main(void)
{
	plan(0);
	test_ticks();
	test_number();
	test_range();
	test_places();
	test_stack();
	test_lines();
	test_cells();
	test_shapes();
	test_thinning();
	test_many_series();
	test_foreign();
	test_long_names();
	test_query();
	return done_testing();
}
