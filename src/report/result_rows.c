/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/report/result_rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/text.h"

/* Column i of q and the next one are the ends of an interval around the one before. */
static bool is_interval(sqlite3_stmt *q, int i)
{
	const char *of = i ? sqlite3_column_name(q, i - 1) : NULL;
	const char *lo = sqlite3_column_name(q, i), *hi = sqlite3_column_name(q, i + 1);
	size_t n = of ? strlen(of) : 0;

	return of && hi && !strncmp(lo, of, n) && !strcmp(lo + n, "_lo") && !strncmp(hi, of, n) &&
	       !strcmp(hi + n, "_hi");
}

enum ar_status rows_begin(struct document *d, sqlite3_stmt *q, struct ar_err *err)
{
	struct rows *t = calloc(1, sizeof *t);

	d->state = t;
	if (!t)
		return ar_nomem(err);
	t->col = calloc((size_t)sqlite3_column_count(q), sizeof *t->col);
	if (!t->col)
		return ar_nomem(err);
	for (int i = 0; i < sqlite3_column_count(q); i++) {
		struct rows_column *c = &t->col[t->n_col++];

		c->from = i;
		c->half = d->fold_intervals && is_interval(q, i);
		i += c->half;
	}
	return AR_OK;
}

enum ar_status rows_add(struct document *d, sqlite3_stmt *q, struct ar_err *err)
{
	struct rows *t = d->state;
	enum ar_status st = AR_OK;
	const char *text;

	if (!GROW(t->cell, t->cap, t->n_cell + (size_t)t->n_col))
		return ar_nomem(err);
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
static int decimals(const struct rows *t, int col)
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

static bool is_numeric(const struct rows *t, int col)
{
	for (size_t i = (size_t)col; i < t->n_cell; i += (size_t)t->n_col)
		if (t->cell[i].type == SQLITE_INTEGER || t->cell[i].type == SQLITE_FLOAT)
			return true;
	return false;
}

const char *rows_text(const struct rows *t, size_t k, char buf[ROWS_TEXT])
{
	const struct cell *c = &t->cell[k];
	int dec = t->col[k % (size_t)t->n_col].decimals;

	if (c->type != SQLITE_FLOAT)
		return c->text;
	if (dec < 0)
		snprintf(buf, ROWS_TEXT, "%.2e", c->r);
	else
		snprintf(buf, ROWS_TEXT, "%.*f", dec, c->r);
	return buf;
}

const char *rows_head(const struct rows *t, int i, sqlite3_stmt *q)
{
	return t->col[i].half ? "±" : sqlite3_column_name(q, t->col[i].from);
}

static int width(const struct rows *t, int col, const char *head)
{
	int most = text_put(head, NULL);
	char buf[ROWS_TEXT];

	for (size_t k = (size_t)col; k < t->n_cell; k += (size_t)t->n_col) {
		int w = text_put(rows_text(t, k, buf), NULL);

		most = w > most ? w : most;
	}
	return most;
}

const struct rows *rows_measure(struct document *d, sqlite3_stmt *q)
{
	struct rows *t = d->state;

	if (!t || d->failed || (!t->n_cell && d->title))
		return NULL;
	for (int i = 0; i < t->n_col; i++) {
		struct rows_column *c = &t->col[i];

		c->decimals = c->half ? c[-1].decimals : decimals(t, i);
		c->numeric = is_numeric(t, i);
		c->width = width(t, i, rows_head(t, i, q));
	}
	return t;
}

void rows_end(struct document *d)
{
	struct rows *t = d->state;

	for (size_t i = 0; t && i < t->n_cell; i++)
		free(t->cell[i].text);
	if (t) {
		free(t->cell);
		free(t->col);
	}
	free(t);
}
