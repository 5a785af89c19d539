/* SPDX-License-Identifier: Apache-2.0 */
/* attnreplay run: replay a trace, once for each method. */
#include "config.h"

#include <signal.h>
#include <unistd.h>

#include "src/cmd.h"
#include "src/json_file.h"
#include "src/run/run.h"
#include "src/tune/match.h"

static enum ar_status run_main(int argc, char **argv, struct ar_err *err)
{
	struct run r = { .session = { .tuner = &match_tuner,
				      .cmdline = cmd_line("run", argc, argv),
				      .pid = getpid() } };
	enum ar_status st;

	st = run_options_parse(&r.session.o, NULL, argc, argv, err);
	if (!json_file_alone(r.session.o.json))
		r.session.print = RUN_PRINT_HEADER | RUN_PRINT_RESULT;
	if (!st && r.session.o.db)
		signal(SIGPIPE, SIG_IGN); /* go on storing when nobody reads the output */
	if (!st)
		st = run_load(&r, err);
	if (!st)
		st = run_all(&r, err);
	run_unload(&r);
	return st;
}

static void run_show_options(void (*show)(const struct opt_group *, FILE *), FILE *f)
{
	run_options_show(RUN_OWN_ALL, NULL, show, f);
}

const struct cmd cmd_run = {
	.name = "run",
	.usage = "--trace FILE [OPTION]...\n--resume DB[:RUN] [OPTION]...",
	.title = "replay a request trace and measure latency, kernels and accuracy",
	.run = run_main,
	.options = run_show_options,
};
