/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/report/chart_query.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "src/report/writer.h"

#define OFF(member) offsetof(struct chart_mark, member)

static const struct column {
	const char *name;
	size_t off;
	enum { TEXT, REAL, INT, FLAG, GEOM } type;
} columns[] = {
	{ "panel", OFF(panel), TEXT }, { "series", OFF(series), TEXT },
	{ "row", OFF(row), TEXT },     { "title", OFF(title), TEXT },
	{ "geom", OFF(geom), GEOM },   { "style", OFF(style), INT },
	{ "x", OFF(x), REAL },	       { "y", OFF(y), REAL },
	{ "x_lo", OFF(x_lo), REAL },   { "x_hi", OFF(x_hi), REAL },
	{ "y_lo", OFF(y_lo), REAL },   { "y_hi", OFF(y_hi), REAL },
	{ "value", OFF(value), REAL }, { "hatch", OFF(hatch), FLAG },
	{ "ring", OFF(ring), FLAG },
};

static double real(sqlite3_stmt *q, int i)
{
	return sqlite3_column_type(q, i) == SQLITE_NULL ? NAN : sqlite3_column_double(q, i);
}

static enum ar_status geom(sqlite3_stmt *q, int i, enum chart_geom *out, struct ar_err *err)
{
	const char *name = (const char *)sqlite3_column_text(q, i);

	for (int g = 0; name && g < CHART_GEOMS; g++)
		if (!strcmp(name, chart_geoms[g])) {
			*out = (enum chart_geom)g;
			return AR_OK;
		}
	return ar_fail(err, AR_DB, "no geometry '%s'", name ? name : "");
}

static enum ar_status set_member(struct chart_mark *m, sqlite3_stmt *q, int i, struct ar_err *err)
{
	const char *name = sqlite3_column_name(q, i);

	for (size_t k = 0; k < sizeof columns / sizeof *columns; k++) {
		void *at = (char *)m + columns[k].off;

		if (strcmp(columns[k].name, name))
			continue;
		switch (columns[k].type) {
		case TEXT: *(const char **)at = (const char *)sqlite3_column_text(q, i); break;
		case REAL: *(double *)at = real(q, i); break;
		case INT: *(int *)at = sqlite3_column_int(q, i); break;
		case FLAG: *(bool *)at = sqlite3_column_int(q, i); break;
		case GEOM: return geom(q, i, at, err);
		}
	}
	return AR_OK;
}

enum ar_status chart_query(struct chart *c, sqlite3_stmt *q, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	int rc = SQLITE_DONE;

	while (!st && (rc = sqlite3_step(q)) == SQLITE_ROW) {
		struct chart_mark m = { .geom = c->spec->geom,
					.x = NAN,
					.y = NAN,
					.x_lo = NAN,
					.x_hi = NAN,
					.y_lo = NAN,
					.y_hi = NAN,
					.value = NAN };

		for (int i = 0; i < sqlite3_column_count(q) && !st; i++)
			st = set_member(&m, q, i, err);
		if (!st)
			st = chart_add(c, &m, err);
	}
	if (!st && rc != SQLITE_DONE)
		st = writer_fail(sqlite3_db_handle(q), err);
	chart_finish(c);
	return st;
}
