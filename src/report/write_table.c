/* SPDX-License-Identifier: Apache-2.0 */
/* For people: aligned columns, numbers to the right, reals of a column with as many decimals
 * as its largest value wants.  All rows are kept until the widths are known. */
#include "config.h"
#include "src/report/writer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

struct cell {
	int type; /* SQLite's */
	double r;
	char *text; /* of every type but FLOAT, owned */
};

struct column {
	int from;  /* column of the result */
	bool half; /* half the distance of from and the next one */
	int width, dec;
	bool right; /* holds numbers */
};

struct table {
	int n_col;
	struct column *col;
	size_t n_cell, cap;
	struct cell *cell;
};

/* Column i of q and the next one are the ends of an interval around the one before. */
static bool is_interval(sqlite3_stmt *q, int i)
{
	const char *of = i ? sqlite3_column_name(q, i - 1) : NULL;
	const char *lo = sqlite3_column_name(q, i), *hi = sqlite3_column_name(q, i + 1);
	size_t n = of ? strlen(of) : 0;

	return of && hi && !strncmp(lo, of, n) && !strcmp(lo + n, "_lo") && !strncmp(hi, of, n) &&
	       !strcmp(hi + n, "_hi");
}

static void set_columns(struct table *t, sqlite3_stmt *q, bool fold)
{
	for (int i = 0; i < sqlite3_column_count(q); i++) {
		struct column *c = &t->col[t->n_col++];

		c->from = i;
		c->half = fold && is_interval(q, i);
		i += c->half;
	}
}

static enum ar_status table_begin(struct document *d, sqlite3_stmt *q, struct ar_err *err)
{
	struct table *t = calloc(1, sizeof *t);

	d->state = t;
	if (!t)
		return ar_nomem(err);
	t->col = calloc((size_t)sqlite3_column_count(q), sizeof *t->col);
	if (!t->col)
		return ar_nomem(err);
	set_columns(t, q, d->fold_intervals);
	return AR_OK;
}

static enum ar_status reserve_row(struct table *t, struct ar_err *err)
{
	size_t cap = t->cap ? 2 * t->cap : 64 * (size_t)t->n_col;
	struct cell *cell;

	if (t->n_cell + (size_t)t->n_col <= t->cap)
		return AR_OK;
	cell = realloc(t->cell, cap * sizeof *cell);
	if (!cell)
		return ar_nomem(err);
	t->cell = cell;
	t->cap = cap;
	return AR_OK;
}

static enum ar_status table_row(struct document *d, sqlite3_stmt *q, struct ar_err *err)
{
	struct table *t = d->state;
	enum ar_status st = reserve_row(t, err);
	const char *text;

	for (int i = 0; i < t->n_col && !st; i++) {
		struct cell *c = &t->cell[t->n_cell++];
		int from = t->col[i].from;

		*c = (struct cell){ .type = sqlite3_column_type(q, from) };
		if (c->type == SQLITE_FLOAT) {
			c->r = sqlite3_column_double(q, from);
			if (t->col[i].half)
				c->r = (sqlite3_column_double(q, from + 1) - c->r) / 2;
			continue;
		}
		text = (const char *)sqlite3_column_text(q, from);
		c->text = strdup(text ? text : "");
		if (!c->text)
			st = ar_nomem(err);
	}
	return st;
}

/* Decimals of a column: 3, so that milliseconds show microseconds; 4 below 10, for ratios; 1 from
 * 1e5 on.  If all values are below 0.1: three digits of the smallest. -1: with exponents. */
static int decimals(const struct table *t, int col)
{
	double most = 0, least = INFINITY;

	for (size_t i = (size_t)col; i < t->n_cell; i += (size_t)t->n_col) {
		double r = t->cell[i].type == SQLITE_FLOAT ? fabs(t->cell[i].r) : 0;

		if (r > 0 && isfinite(r)) {
			most = fmax(most, r);
			least = fmin(least, r);
		}
	}
	if (most >= 1e15)
		return -1;
	if (most > 0 && most < 0.1)
		return least < 1e-5 ? -1 : 2 - (int)floor(log10(least));
	return most < 10 ? 4 : most < 1e5 ? 3 : 1;
}

static const char *cell_text(const struct cell *c, int dec, char *buf, size_t n)
{
	if (c->type != SQLITE_FLOAT)
		return c->text;
	if (dec < 0)
		snprintf(buf, n, "%.2e", c->r);
	else
		snprintf(buf, n, "%.*f", dec, c->r);
	return buf;
}

/* A half distance has the decimals of the value before it. */
static void measure(const struct table *t, int col, const char *head)
{
	struct column c = t->col[col];
	char buf[400];

	c.width = text_put(head, NULL);
	c.dec = c.half ? t->col[col - 1].dec : decimals(t, col);
	for (size_t i = (size_t)col; i < t->n_cell; i += (size_t)t->n_col) {
		int w = text_put(cell_text(&t->cell[i], c.dec, buf, sizeof buf), NULL);

		if (w > c.width)
			c.width = w;
		if (t->cell[i].type == SQLITE_INTEGER || t->cell[i].type == SQLITE_FLOAT)
			c.right = true;
	}
	t->col[col] = c;
}

static const char *head_of(const struct column *c, sqlite3_stmt *q)
{
	return c->half ? "±" : sqlite3_column_name(q, c->from);
}

/* No blanks at the end of a line. */
static void put_cell(FILE *f, const char *s, struct column c, bool first, bool last)
{
	int pad = c.width - text_put(s, NULL);

	fprintf(f, "%s%*s", first ? "" : "  ", c.right ? pad : 0, "");
	text_put(s, f);
	if (!c.right && !last)
		fprintf(f, "%*s", pad, "");
	if (last)
		putc('\n', f);
}

static void put_table(const struct table *t, FILE *f, sqlite3_stmt *q, bool head)
{
	const int last = t->n_col - 1;
	char buf[400];

	for (int i = 0; i < t->n_col; i++)
		measure(t, i, head_of(&t->col[i], q));
	for (int i = 0; i < t->n_col && head; i++)
		put_cell(f, head_of(&t->col[i], q), t->col[i], !i, i == last);
	for (size_t k = 0; k < t->n_cell; k++) {
		int i = (int)(k % (size_t)t->n_col);

		put_cell(f, cell_text(&t->cell[k], t->col[i].dec, buf, sizeof buf), t->col[i], !i,
			 i == last);
	}
}

/* A result with a title is left out when it is empty, and needs no header over one column. */
static void table_end(struct document *d, sqlite3_stmt *q)
{
	struct table *t = d->state;

	if (!t)
		return;
	if (!d->failed && (t->n_cell || !d->title)) {
		if (d->n_results)
			putc('\n', d->f);
		if (d->title)
			fprintf(d->f, "%s\n", d->title);
		put_table(t, d->f, q, !d->title || t->n_col > 1);
	}
	for (size_t i = 0; i < t->n_cell; i++)
		free(t->cell[i].text);
	free(t->cell);
	free(t->col);
	free(t);
}

extern const struct report_writer write_table;
const struct report_writer write_table = {
	.name = "table",
	.begin = table_begin,
	.row = table_row,
	.end = table_end,
};
