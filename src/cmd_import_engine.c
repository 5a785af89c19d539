/* SPDX-License-Identifier: Apache-2.0 */
/* attnreplay import-engine: store the log of an engine as a run. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "src/cmd.h"
#include "src/engine/engine_join.h"
#include "src/engine/engine_run.h"
#include "src/revision.h"

struct args {
	char *db, *trace, *name, *steps;
	struct trace_args trace_args;
};

#define OFF(member) offsetof(struct args, member)
/* clang-format off */
static const struct opt own_opts[] = {
	{ .name = "db", .type = OPT_STR, .off = OFF(db), .arg = "FILE",
	  .help = "database to add the run to" },
	{ .name = "trace", .type = OPT_STR, .off = OFF(trace), .arg = "FILE",
	  .help = "trace that the engine ran; needed if the log does not say the lengths of "
		  "requests" },
	{ .name = "steps", .type = OPT_STR, .off = OFF(steps), .arg = "FILE",
	  .help = "log of the engine's steps, where LOG has what its clients saw" },
	{ .name = "name", .type = OPT_STR, .off = OFF(name), .arg = "NAME",
	  .help = "name of the engine with its version, such as vllm-0.24.0; if not given, what "
		  "the log says" },
	{ 0 }
};
/* clang-format on */

static enum ar_status store_run(const struct engine_run *r, const char *db, int64_t *run_id,
				struct ar_err *err)
{
	struct ar_err close_err = { 0 };
	struct store *s;
	enum ar_status st = store_open(&s, db, err);

	if (st)
		return st;
	st = engine_run_store(r, s, run_id, err);
	if (store_close(s, &close_err) && !st)
		log_warn("%s", close_err.msg); /* store_run_end() has committed all of the run */
	return st;
}

/* Open the log, with the steps of --steps if they are given. */
static enum ar_status open_log(struct engine_log **log, const char *path, const struct args *a,
			       struct ar_err *err)
{
	struct engine_log *client;
	enum ar_status st = engine_log_open(log, path, err);

	if (st || !a->steps)
		return st;
	client = *log;
	st = engine_log_open(log, a->steps, err);
	if (!st)
		st = engine_join(*log, client, err);
	engine_log_close(client);
	if (st)
		engine_log_close(*log);
	return st;
}

static enum ar_status import(const char *path, const struct args *a, const char *cmdline,
			     struct ar_err *err)
{
	struct engine_log *log;
	struct trace *t = NULL;
	int64_t run_id;
	enum ar_status st = open_log(&log, path, a, err);
	struct engine_run r;

	if (st)
		return st;
	if (a->trace)
		st = trace_read(&t, a->trace, &a->trace_args, err);
	r = (struct engine_run){ log, t, a->name, AR_REVISION, cmdline };
	if (!st)
		st = engine_run_check(&r, err);
	if (!st)
		st = store_run(&r, a->db, &run_id, err);
	if (!st)
		printf("run %" PRId64 ": %zu steps and %zu requests of %s in %s\n", run_id,
		       log->n_step, log->n_request, log->name, a->db);
	trace_free(t);
	engine_log_close(log);
	return st;
}

static enum ar_status import_engine_main(int argc, char **argv, struct ar_err *err)
{
	char *cmdline = cmd_line("import-engine", argc, argv);
	struct args a = { 0 };
	struct opt_group g[] = { { .title = "Options", .opts = own_opts, .base = &a },
				 { .title = "Trace", .opts = trace_opts, .base = &a.trace_args },
				 { 0 } };
	enum ar_status st = cmdline ? opt_init(g, err) : ar_nomem(err);

	if (!st)
		st = opt_parse(g, &argc, argv, err);
	if (!st && argc != 1)
		st = argc ? ar_fail(err, AR_USAGE,
				    "unexpected operand '%s'; import one log at a "
				    "time",
				    argv[1]) :
			    ar_fail(err, AR_USAGE, "no log given; name the log of an engine");
	if (!st && !a.db)
		st = ar_fail(err, AR_USAGE, "no database given; add --db FILE");
	if (!st)
		st = import(argv[0], &a, cmdline, err);
	opt_release(g);
	free(cmdline);
	return st;
}

static void import_engine_show_options(void (*show)(const struct opt_group *, FILE *), FILE *f)
{
	struct opt_group g[] = { { .title = "Options", .opts = own_opts },
				 { .title = "Trace", .opts = trace_opts },
				 { 0 } };

	show(g, f);
}

const struct cmd cmd_import_engine = {
	.name = "import-engine",
	.usage = "LOG --db FILE [OPTION]...",
	.title = "store the log of an engine as a run, to compare replays with it",
	.run = import_engine_main,
	.options = import_engine_show_options,
};
