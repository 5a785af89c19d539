/* SPDX-License-Identifier: Apache-2.0 */
/* attnreplay run: replay a trace, once for each method. */
#include "config.h"

#include <cjson/cJSON.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "src/cmd.h"
#include "src/run/run.h"

static char *options_json(const struct opt_group *g)
{
	cJSON *object = cJSON_CreateObject();
	char *s = object && opt_json(g, object) ? cJSON_PrintUnformatted(object) : NULL;

	cJSON_Delete(object);
	return s;
}

static int64_t now_utc_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static enum ar_status run(int argc, char **argv, struct ar_err *err)
{
	struct run r = { .cmdline = cmd_line("run", argc, argv), .pid = getpid() };
	char key[RUN_KEY_SIZE];
	enum ar_status st;

	st = run_options_parse(&r.o, argc, argv, err);
	r.command_utc_ns = r.o.resumed ? r.o.resumed->command_utc_ns : now_utc_ns();
	if (!st && r.o.db)
		signal(SIGPIPE, SIG_IGN); /* go on storing when nobody reads the output */
	if (!st)
		st = run_load(&r, err);
	if (!st) {
		r.options = options_json(r.o.group);
		r.setup = r.o.db ? run_setup(r.o.group) : NULL;
		if (!r.options || !r.cmdline || (r.o.db && !r.setup))
			st = ar_nomem(err);
	}
	for (size_t i = r.first + 1; i < r.n_runs && !st; i++)
		if (run_is_left(&r, i))
			st = run_try_method(&r, r.method[i]->name, err);
	/* The processes of several methods share what is read here. */
	for (size_t i = 0; i < r.n_runs && r.n_runs > 1 && r.o.db && !st; i++)
		st = run_make_key(&r, i, key, err);
	if (!st)
		st = run_json_open(&r, err);
	for (size_t i = r.first; i < r.n_runs && !st; i++)
		if (run_is_left(&r, i))
			st = r.n_runs > 1 ? run_method_apart(&r, i, err) : run_method(&r, i, err);
	st = run_json_close(&r, st, err);
	run_unload(&r);
	return st;
}

const struct cmd cmd_run = {
	.name = "run",
	.usage = "--trace FILE [OPTION]...\n--resume DB[:RUN] [OPTION]...",
	.title = "replay a request trace and measure latency, kernels and accuracy",
	.run = run,
	.options = run_options_show,
};
