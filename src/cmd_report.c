/* SPDX-License-Identifier: Apache-2.0 */
/* attnreplay report: what was run, how long requests waited, where the time went, what it cost
 * in accuracy. */
#include "config.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/cmd.h"
#include "src/report/report.h"
#include "src/report/source.h"

struct report_args {
	int64_t run; /* 0: all */
	int format, dialect;
	char *slo; /* NULL: the limits given to each run */
};

/* clang-format off */
static const struct opt report_opts[] = {
	{ .name = "run", .type = OPT_INT, .off = offsetof(struct report_args, run), .arg = "ID",
	  .min = 1, .max = 1e15, .help = "report this run only" },
	{ .name = "format", .type = OPT_ENUM, .off = offsetof(struct report_args, format),
	  .arg = "NAME", .def = "table", .choice = writer_names,
	  .help = "output format" },
	{ .name = "dialect", .type = OPT_ENUM, .off = offsetof(struct report_args, dialect),
	  .arg = "TOOL", .def = "attnreplay", .choice = report_dialects,
	  .help = "report the figures of this tool, by its definitions and names" },
	{ .name = "slo", .type = OPT_STR, .off = offsetof(struct report_args, slo), .arg = "LIST",
	  .help = "latency limits for goodput, such as ttft:500ms,tpot:50ms,e2e:10s; if not given, "
		  "those of each run" },
	{ .name = NULL }
};
/* clang-format on */

static enum ar_status report(const struct store_source *source, size_t n,
			     const struct report_args *a, struct ar_err *err)
{
	struct document d = { .writer = writers[a->format], .f = stdout };
	struct report r = {
		.path = n > 1 ? "the runs of all databases" : source->path,
		.run = n > 1 ? 0 : source->run,
		.dialect = report_dialects[a->dialect],
		.slo = a->slo,
	};
	enum ar_status st = store_open_runs(&r.db, source, n, false, err);

	if (st)
		return st;
	writer_heed_interrupt(r.db);
	st = report_write(&r, &d, err);
	sqlite3_close(r.db);
	return st;
}

static enum ar_status cmd_report_run(int argc, char **argv, struct ar_err *err)
{
	struct report_args a = { 0 };
	struct opt_group g[] = { { .opts = report_opts, .base = &a }, { .opts = NULL } };
	struct store_source *source = NULL;
	enum ar_status st = opt_init(g, err);

	if (!st)
		st = opt_parse(g, &argc, argv, err);
	if (!st && !argc)
		st = ar_fail(err, AR_USAGE, "no database given; try 'attnreplay report --help'");
	if (!st && !(source = calloc((size_t)argc, sizeof *source)))
		st = ar_nomem(err);
	if (!st)
		source_parse(source, argv, (size_t)argc);
	if (!st && a.run && (argc > 1 || source->run))
		st = ar_fail(err, AR_USAGE, "--run is for one database; write %s:RUN instead",
			     source->path);
	if (!st && a.run)
		source->run = a.run;
	if (!st)
		st = report(source, (size_t)argc, &a, err);
	free(source);
	opt_release(g);
	return st;
}

static void cmd_report_options(void (*show)(const struct opt_group *, FILE *), FILE *f)
{
	struct opt_group g[] = { { .title = "Options", .opts = report_opts }, { .opts = NULL } };

	show(g, f);
}

const struct cmd cmd_report = {
	.name = "report",
	.usage = "[OPTION]... DB[:RUN]...",
	.title = "summarise and compare runs of one or more databases",
	.run = cmd_report_run,
	.options = cmd_report_options,
};
