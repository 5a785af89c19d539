/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/select/curve.h"

#include <math.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/text.h"
#include "src/report/chart_query.h"
#include "src/report/writer.h"
#include "traces/importers/trace_record.h"

enum { CSV_MAX = 64 << 20, LINE_NAME = 200, N_VALUES = 3 };
static const char *const value_names[N_VALUES] = { "density_executed", "rel_l2_mean",
						   "recall_mean" };

/* ---- reading ---- */

/* The text of `key` in a part of a composition, such as "select=": up to a comma or slash. */
static struct span method_part_text(const char *method, const char *key)
{
	const char *s = strstr(method, key);
	struct span v = { "", 0 };

	if (s) {
		v.s = s + strlen(key);
		v.n = strcspn(v.s, ",/");
	}
	return v;
}

static bool span_is(struct span v, const char *text)
{
	return v.n == strlen(text) && !memcmp(v.s, text, v.n);
}

/* The line that a method belongs to: its name, or the parts of a composition.  The oracle bounds
 * the recall of blocks of its size, so that is in its name.  Returns whether it is the oracle. */
static bool name_line(const char *method, struct span block_tokens, char name[LINE_NAME])
{
	struct span select = method_part_text(method, "select="),
		    u = method_part_text(method, "/union=");
	struct span exec = method_part_text(method, "/exec="),
		    block = method_part_text(method, ",block=");

	if (strncmp(method, "select=", 7)) {
		snprintf(name, LINE_NAME, "%.*s", (int)strcspn(method, ":"), method);
		return false;
	}
	if (!span_is(select, "oracle") || !span_is(u, "none") || !span_is(exec, "blocksparse")) {
		snprintf(name, LINE_NAME, "%.*s/%.*s/%.*s", (int)select.n, select.s, (int)u.n, u.s,
			 (int)exec.n, exec.s);
		return false;
	}
	block = block.n ? block : block_tokens;
	snprintf(name, LINE_NAME, block.n ? "oracle, blocks of %.*s" : "oracle", (int)block.n,
		 block.s);
	return true;
}

static enum ar_status value_of(const struct record *r, const char *name, double *out,
			       struct ar_err *err)
{
	struct span v = record_find(r, name)->value;
	char text[40];

	snprintf(text, sizeof text, "%.*s", (int)v.n, v.s);
	if (!num_real(text, out) || !isfinite(*out))
		return ar_fail(err, AR_DATA, "%s '%s' is no number", name, span_show(v).s);
	return AR_OK;
}

static enum ar_status add_row(sqlite3 *db, sqlite3_stmt *q, const struct record *r,
			      struct ar_err *err)
{
	const struct field *tokens = record_find(r, "block_tokens");
	struct span m = record_find(r, "method")->value;
	char *method = strndup(m.s, m.n), name[LINE_NAME];
	enum ar_status st = method ? AR_OK : ar_nomem(err);
	double v;

	for (int i = 0; i < N_VALUES && !st; i++) {
		st = value_of(r, value_names[i], &v, err);
		if (!st && sqlite3_bind_double(q, 4 + i, v))
			st = writer_fail(db, err);
	}
	if (!st &&
	    (sqlite3_bind_int(q, 1,
			      name_line(method, tokens ? tokens->value : (struct span){ "", 0 },
					name)) ||
	     sqlite3_bind_text(q, 2, name, -1, SQLITE_TRANSIENT) ||
	     sqlite3_bind_text(q, 3, method, -1, SQLITE_TRANSIENT) ||
	     sqlite3_step(q) != SQLITE_DONE))
		st = writer_fail(db, err);
	sqlite3_reset(q);
	free(method);
	return st;
}

static enum ar_status check_header(const struct record *r, struct ar_err *err)
{
	bool has = record_find(r, "method");

	for (int i = 0; i < N_VALUES; i++)
		has = has && record_find(r, value_names[i]);
	return has ? AR_OK :
		     ar_fail(err, AR_DATA,
			     "want the columns method, density_executed, rel_l2_mean and "
			     "recall_mean, as 'attnreplay select --csv' writes them");
}

/* The next line of *text, NUL-terminated in place; NULL: there is none. */
static char *next_line(char **text)
{
	char *line = *text, *end = strchrnul(line, '\n');

	if (!*line)
		return NULL;
	*text = *end ? end + 1 : end;
	*end = 0;
	if (end > line && end[-1] == '\r')
		end[-1] = 0;
	return line;
}

static enum ar_status read_rows(sqlite3 *db, sqlite3_stmt *q, char *text, const char *path,
				struct ar_err *err)
{
	struct record r = { 0 };
	enum ar_status st = AR_OK;
	char *line;
	int n = 0;

	for (; !st && (line = next_line(&text)); n++) {
		if (!n) {
			st = record_csv_header(&r, line, err);
			st = st ? st : check_header(&r, err);
		} else {
			st = record_csv_row(&r, line, err);
			st = st ? st : add_row(db, q, &r, err);
		}
		if (st)
			ar_err_prefix(err, "%s:%d", path, n + 1);
	}
	if (!st && n < 2)
		st = ar_fail(err, AR_DATA, "%s: no rows", path);
	record_release(&r);
	return st;
}

/* point: the means, in order of lines and along each.  Styles: the oracle has the colour of text,
 * others the colours before it; then other markers and dashes. */
static const char tables[] =
	"CREATE TABLE row(oracle, line, method, density, error, recall);"
	"CREATE VIEW line AS SELECT line, oracle, min(rowid) AS place,"
	" row_number() OVER (PARTITION BY oracle ORDER BY min(rowid)) - 1 AS k"
	" FROM row GROUP BY line;"
	"CREATE VIEW point AS SELECT line, method, avg(density) AS density, avg(error) AS error,"
	" avg(recall) AS recall, place,"
	" iif(line.oracle, 15 + 32 * k, 1 + k % 14 + 32 * (k / 14)) AS style"
	" FROM row JOIN line USING(line) GROUP BY line, method ORDER BY place, density, method";

enum ar_status curve_read(sqlite3 **db, const char *path, struct ar_err *err)
{
	sqlite3_stmt *q = NULL;
	char *text = NULL;
	enum ar_status st = text_read(&text, path, CSV_MAX, err);

	*db = NULL;
	if (st)
		return st;
	if (sqlite3_open(":memory:", db) || sqlite3_exec(*db, tables, NULL, NULL, NULL) ||
	    sqlite3_prepare_v2(*db, "INSERT INTO row VALUES (?, ?, ?, ?, ?, ?)", -1, &q, NULL))
		st = *db ? writer_fail(*db, err) : ar_nomem(err);
	else
		st = read_rows(*db, q, text, path, err);
	sqlite3_finalize(q);
	free(text);
	return st;
}

/* ---- writing ---- */

/* Values below these are drawn at the edge, because a logarithmic axis has no 0. */
#define DENSITY \
	{ \
		"executed density", CHART_LOG, 1e-3 \
	}

static const struct curve {
	struct chart_spec spec;
	const char *sql;
} curves[] = {
	{ { CHART_LINE, DENSITY, { NULL, CHART_LOG, 1e-4 }, 0 },
	  "SELECT 'relative L2 error against dense, mean' AS panel, line AS series, style,"
	  " density AS x, error AS y,"
	  " printf('%s: density %.3g, error %.3g', method, density, error) AS title FROM point" },
	{ { CHART_LINE, DENSITY, { NULL, CHART_LINEAR, 0 }, 0 },
	  "SELECT 'recall of the true attention mass, mean' AS panel, line AS series, style,"
	  " density AS x, recall AS y, printf('%s: density %.3g, recall %.3g', method, density,"
	  " recall) AS title FROM point" },
};
enum { N_CURVES = sizeof curves / sizeof *curves };

static enum ar_status draw_curve(sqlite3 *db, const struct curve *how, struct chart *c,
				 struct ar_err *err)
{
	sqlite3_stmt *q;
	enum ar_status st;

	chart_init(c, &how->spec);
	if (sqlite3_prepare_v2(db, how->sql, -1, &q, NULL))
		return writer_fail(db, err);
	st = chart_query(c, q, err);
	sqlite3_finalize(q);
	return st;
}

enum ar_status curve_put_svg(sqlite3 *db, FILE *f, struct ar_err *err)
{
	struct chart c[N_CURVES] = { 0 };
	enum ar_status st = AR_OK;

	for (int i = 0; i < N_CURVES && !st; i++)
		st = draw_curve(db, &curves[i], &c[i], err);
	if (!st)
		chart_put_svg(c, N_CURVES, f);
	for (int i = 0; i < N_CURVES; i++)
		chart_release(&c[i]);
	return st;
}

enum ar_status curve_put_points(sqlite3 *db, FILE *f, struct ar_err *err)
{
	struct document d = { .writer = writer_of("csv"), .f = f };
	sqlite3_stmt *q;
	enum ar_status st;

	if (sqlite3_prepare_v2(db,
			       "SELECT method, printf('%.5g', density) + 0.0 AS density_executed,"
			       " printf('%.5g', error) + 0.0 AS rel_l2_mean,"
			       " printf('%.5g', recall) + 0.0 AS recall_mean FROM point",
			       -1, &q, NULL))
		return writer_fail(db, err);
	st = writer_query(&d, q, err);
	sqlite3_finalize(q);
	return st;
}
