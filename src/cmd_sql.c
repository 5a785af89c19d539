/* SPDX-License-Identifier: Apache-2.0 */
/* attnreplay sql: run the user's SQL queries over a database. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profiler/store/store.h"
#include "src/cmd.h"
#include "src/report/writer.h"

struct sql_args {
	int format;
	bool views;
};

/* clang-format off */
static const struct opt sql_opts[] = {
	{ .name = "format", .type = OPT_ENUM, .off = offsetof(struct sql_args, format),
	  .arg = "NAME", .def = "table", .choice = writer_names,
	  .help = "output format" },
	{ .name = "views", .type = OPT_FLAG, .off = offsetof(struct sql_args, views),
	  .help = "print the SQL that creates the views, for use in sqlite3" },
	{ .name = NULL }
};
/* clang-format on */

static enum ar_status read_all(FILE *f, char **out, struct ar_err *err)
{
	char *text = NULL;
	size_t cap = 0;
	ssize_t n;

	errno = 0;
	n = getdelim(&text, &cap, 0, f);
	if (n > 0 && text[n - 1]) {
		*out = text;
		return AR_OK;
	}
	free(text);
	if (n > 0)
		return ar_fail(err, AR_DATA, "<stdin>: byte %zd is NUL; want text", n);
	if (ferror(f))
		return ar_fail(err, AR_DATA, "<stdin>: %s", strerror(errno));
	return ar_fail(err, AR_USAGE, "<stdin>: no query");
}

/* Line, from 1, on which the statement at p begins within sql. */
static unsigned line_of(const char *sql, const char *p)
{
	unsigned line = 1;

	p += strspn(p, " \t\r\n");
	for (; sql < p; sql++)
		line += *sql == '\n';
	return line;
}

/* Run the statement at *p and move *p behind it.  The database is open for reading only.  Two more
 * kinds of statements are refused: some would write elsewhere, as into a temporary table; others
 * return no columns, as ATTACH. */
static enum ar_status run_one(sqlite3 *db, const char **p, struct document *d, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	sqlite3_stmt *q = NULL;

	if (sqlite3_prepare_v2(db, *p, -1, &q, p))
		st = writer_fail(db, err);
	else if (q && (!sqlite3_stmt_readonly(q) || !sqlite3_column_count(q)))
		st = ar_fail(err, AR_USAGE, "this statement is no query; sql runs queries only");
	else if (q)
		st = writer_query(d, q, err);
	sqlite3_finalize(q);
	return st;
}

static enum ar_status run_all(sqlite3 *db, const char *sql, const struct report_writer *writer,
			      struct ar_err *err)
{
	struct document d = { .writer = writer, .f = stdout };
	const char *p = sql;
	enum ar_status st = AR_OK;

	while (*p && !st) {
		const char *begin = p;

		st = run_one(db, &p, &d, err);
		if (st)
			ar_err_prefix(err, "query:%u", line_of(sql, begin));
	}
	writer_finish(&d);
	return st;
}

static enum ar_status cmd_sql_run(int argc, char **argv, struct ar_err *err)
{
	struct sql_args a = { 0 };
	struct opt_group g[] = { { .opts = sql_opts, .base = &a }, { .opts = NULL } };
	sqlite3 *db = NULL;
	char *text = NULL;
	enum ar_status st = opt_init(g, err);

	if (!st)
		st = opt_parse(g, &argc, argv, err);
	if (!st && argc != (a.views ? 0 : 2))
		st = ar_fail(err, AR_USAGE,
			     "want a database and a query, or --views alone; try "
			     "'attnreplay sql --help'");
	if (!st && a.views)
		fputs(store_views, stdout);
	if (st || a.views)
		goto out;
	st = store_open_read(&db, argv[0], err);
	if (!st && !strcmp(argv[1], "-"))
		st = read_all(stdin, &text, err);
	if (st)
		goto out;
	writer_heed_interrupt(db);
	st = run_all(db, text ? text : argv[1], writers[a.format], err);
	if (st == AR_DATA || st == AR_DB)
		ar_err_prefix(err, "%s", argv[0]);
out:
	free(text);
	sqlite3_close(db);
	opt_release(g);
	return st;
}

static void cmd_sql_options(void (*show)(const struct opt_group *, FILE *), FILE *f)
{
	struct opt_group g[] = { { .title = "Options", .opts = sql_opts }, { .opts = NULL } };

	show(g, f);
}

const struct cmd cmd_sql = {
	.name = "sql",
	.usage = "[OPTION]... DB QUERY\n[OPTION]... DB -\n--views",
	.title = "run SQL queries over a database",
	.run = cmd_sql_run,
	.options = cmd_sql_options,
};
