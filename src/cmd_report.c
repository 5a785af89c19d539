/* SPDX-License-Identifier: Apache-2.0 */
/* attnreplay report: show the runs, how long requests waited, where the time went, and how accurate
 * the methods were. */
#include "config.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "src/cmd.h"
#include "src/export/export.h"
#include "src/report/report.h"
#include "src/report/source.h"

struct report_args {
	int64_t run; /* 0: all */
	int format, dialect;
	char *slo;	/* NULL: the limits given to each run */
	char *baseline; /* DB:RUN or RUN; NULL: the dense run of each run */
	char *table;	/* NULL: all */
};

/* clang-format off */
static const struct opt report_opts[] = {
	{ .name = "run", .type = OPT_INT, .off = offsetof(struct report_args, run), .arg = "ID",
	  .min = 1, .max = 1e15, .help = "report this run only" },
	{ .name = "baseline", .type = OPT_STR, .off = offsetof(struct report_args, baseline),
	  .arg = "DB:RUN",
	  .help = "compare with this run, or RUN of the one database; if not given, with the dense "
		  "run of each run" },
	{ .name = "format", .type = OPT_ENUM, .off = offsetof(struct report_args, format),
	  .arg = "NAME", .def = "table", .choice = writer_names,
	  .help = "output format" },
	{ .name = "table", .type = OPT_STR, .off = offsetof(struct report_args, table),
	  .arg = "NAME",
	  .help = "write this table alone; JSON and CSV name the tables of a report" },
	{ .name = "dialect", .type = OPT_ENUM, .off = offsetof(struct report_args, dialect),
	  .arg = "TOOL", .def = "attnreplay", .choice = report_dialects,
	  .help = "report the figures of this tool, by its definitions and names" },
	{ .name = "slo", .type = OPT_STR, .off = offsetof(struct report_args, slo), .arg = "LIST",
	  .help = "latency limits for goodput, such as ttft:500ms,tpot:50ms,e2e:10s; if not given, "
		  "those of each run" },
	{ .name = NULL }
};
/* clang-format on */

/* The runs to report: the operands, with room for a baseline after them. */
struct sources {
	struct opt_list operand; /* with the databases of folders */
	struct store_source *v;
	size_t n;
	int64_t baseline;	    /* of a single database; 0: none */
	struct store_source *named; /* of several, one of v; NULL: none */
};

/* A baseline from a database that is no operand is reported with the operands. */
static enum ar_status add_baseline(struct sources *s, char *text, struct ar_err *err)
{
	struct store_source b;
	uint64_t run;
	size_t i = 0;

	if (s->n == 1 && num_u64(text, strlen(text), &run) && run && run <= INT64_MAX) {
		s->baseline = (int64_t)run;
		return AR_OK;
	}
	source_parse(&b, &text, 1);
	if (!b.run)
		return ar_fail(err, AR_USAGE,
			       "baseline '%s': want DB:RUN, or RUN with a single database", text);
	if (s->n == 1 && !strcmp(b.path, s->v->path)) {
		s->baseline = b.run;
		return AR_OK;
	}
	while (i < s->n && (strcmp(b.path, s->v[i].path) || (s->v[i].run && s->v[i].run != b.run)))
		i++;
	s->v[s->n] = b;
	s->named = &s->v[s->n];
	s->n += i == s->n;
	return AR_OK;
}

static enum ar_status parse_sources(struct sources *s, int argc, char **argv,
				    const struct report_args *a, struct ar_err *err)
{
	enum ar_status st = source_expand(&s->operand, argv, (size_t)argc, err);

	if (st)
		return st;
	s->n = s->operand.n;
	s->v = calloc(s->n + 1, sizeof *s->v);
	if (!s->v)
		return ar_nomem(err);
	source_parse(s->v, s->operand.v, s->n);
	if (a->run && (s->n > 1 || s->v->run))
		return ar_fail(err, AR_USAGE, "--run is for one database; write %s:RUN instead",
			       s->v->path);
	if (a->run)
		s->v->run = a->run;
	return a->baseline ? add_baseline(s, a->baseline, err) : AR_OK;
}

/* The number that the named baseline has among several databases. */
static enum ar_status find_named(sqlite3 *db, const struct store_source *b, int64_t *run,
				 struct ar_err *err)
{
	sqlite3_stmt *q = NULL;
	enum ar_status st = AR_OK;
	int rc = sqlite3_prepare_v2(db, "SELECT run_id FROM source_run WHERE path = ? AND run = ?",
				    -1, &q, NULL);

	if (!rc)
		rc = sqlite3_bind_text(q, 1, b->path, -1, SQLITE_STATIC);
	if (!rc)
		rc = sqlite3_bind_int64(q, 2, b->run);
	if (!rc)
		rc = sqlite3_step(q);
	if (rc == SQLITE_ROW)
		*run = sqlite3_column_int64(q, 0);
	else if (rc == SQLITE_DONE)
		st = ar_fail(err, AR_USAGE,
			     "%s: no run %lld; 'attnreplay report %s' lists the runs", b->path,
			     (long long)b->run, b->path);
	else
		st = writer_fail(db, err);
	sqlite3_finalize(q);
	return st;
}

static enum ar_status report_sources(const struct sources *s, const struct report_args *a,
				     const struct export_files *files, struct ar_err *err)
{
	struct document d = { .writer = writers[a->format], .f = stdout };
	struct report r = {
		.path = s->n > 1 ? "the runs of all databases" : s->v->path,
		.run = s->n > 1 ? 0 : s->v->run,
		.baseline = s->baseline,
		.dialect = report_dialects[a->dialect],
		.slo = a->slo,
		.table = a->table,
	};
	enum ar_status st = store_open_runs(&r.db, s->v, s->n, false, err);

	if (st)
		return st;
	writer_heed_interrupt(r.db);
	if (s->named)
		st = find_named(r.db, s->named, &r.baseline, err);
	if (!st)
		st = export_wanted(files) ? export_write(files, &r, err) :
					    report_write(&r, &d, err);
	sqlite3_close(r.db);
	return st;
}

/* A table belongs to a report of its own dialect. */
static enum ar_status find_dialect(struct report_args *a, struct ar_err *err)
{
	const struct section *s;
	enum ar_status st = a->table ? report_find_table(&s, a->table, err) : AR_OK;

	for (int i = 0; !st && a->table && s->dialect && report_dialects[i]; i++)
		if (!strcmp(report_dialects[i], s->dialect))
			a->dialect = i;
	return st;
}

/* The page has its own form and no other tool's figures. */
static enum ar_status check_format(const struct report_args *a, const struct export_files *files,
				   struct ar_err *err)
{
	const char *other = a->format ? "format" : a->dialect ? "dialect" : "table";

	if (files->html && (a->format || a->dialect || a->table))
		return ar_fail(err, AR_USAGE, "--%s has no effect with --html; leave it out",
			       other);
	return AR_OK;
}

static enum ar_status cmd_report_run(int argc, char **argv, struct ar_err *err)
{
	struct report_args a = { 0 };
	struct export_files files = { 0 };
	struct opt_group g[] = { { .opts = report_opts, .base = &a },
				 { .opts = export_opts, .base = &files },
				 { .opts = NULL } };
	struct sources s = { 0 };
	enum ar_status st = opt_init(g, err);

	if (!st)
		st = opt_parse(g, &argc, argv, err);
	if (!st && !argc)
		st = ar_fail(err, AR_USAGE, "no database given; try 'attnreplay report --help'");
	if (!st)
		st = parse_sources(&s, argc, argv, &a, err);
	if (!st)
		st = check_format(&a, &files, err);
	if (!st)
		st = find_dialect(&a, err);
	if (!st)
		st = export_check(&files, s.v, s.n, err);
	if (!st)
		st = report_sources(&s, &a, &files, err);
	free(s.v);
	source_release(&s.operand);
	opt_release(g);
	return st;
}

static void cmd_report_options(void (*show)(const struct opt_group *, FILE *), FILE *f)
{
	struct opt_group g[] = { { .title = "Options", .opts = report_opts },
				 { .title = "Files for other programs", .opts = export_opts },
				 { .opts = NULL } };

	show(g, f);
}

const struct cmd cmd_report = {
	.name = "report",
	.usage = "[OPTION]... DB[:RUN]|FOLDER...",
	.title = "summarise and compare runs of one or more databases",
	.run = cmd_report_run,
	.options = cmd_report_options,
};
