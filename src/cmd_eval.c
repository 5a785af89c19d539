/* SPDX-License-Identifier: Apache-2.0 */
/* attnreplay eval: measure the effect of methods on a model's answers. */
#include "config.h"

#include <signal.h>

#include "src/cmd.h"
#include "src/eval/eval.h"
#include "src/json_file.h"

static enum ar_status eval_main(int argc, char **argv, struct ar_err *err)
{
	struct eval e = { 0 };
	struct run_command c = eval_command(&e.a);
	enum ar_status st = eval_load(&e, &c, argc, argv, err), st2 = AR_OK;
	const bool quiet = json_file_alone(e.a.json);

	e.r.session.o.json = e.a.json;
	e.r.session.print = quiet ? 0 : RUN_PRINT_HEADER;
	if (!st && e.r.session.o.db)
		signal(SIGPIPE, SIG_IGN); /* as in 'attnreplay run' */
	if (!st) {
		st = run_all(&e.r, err);
		if (!quiet)
			st2 = eval_print(&e, st ? NULL : err);
	}
	eval_release(&e);
	return st ? st : st2;
}

static void eval_show_options(void (*show)(const struct opt_group *, FILE *), FILE *f)
{
	show((const struct opt_group[]){ { .title = "Tasks", .opts = eval_opts }, { 0 } }, f);
	run_options_show(RUN_OWN_RANKS, NULL, show, f);
}

const struct cmd cmd_eval = {
	.name = "eval",
	.usage = "--weights DIR --tasks FILE [OPTION]...",
	.title = "measure what methods do to a model's answers",
	.run = eval_main,
	.options = eval_show_options,
};
