/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/eval/eval.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/cmd.h"

/* Logits lie beside the database; without one where temporary files are. */
static char *folder(const struct eval *e)
{
	const char *slash = e->r.session.o.db ? strrchr(e->r.session.o.db, '/') : NULL,
		   *tmp = getenv("TMPDIR");

	if (slash)
		return strndup(e->r.session.o.db, slash == e->r.session.o.db ?
							  1 :
							  (size_t)(slash - e->r.session.o.db));
	return strdup(e->r.session.o.db ? "." : tmp && *tmp ? tmp : "/tmp");
}

static enum ar_status open_results(struct eval *e, struct ar_err *err)
{
	char *dir = e->r.in.n_runs > 1 ? folder(e) : NULL;
	enum ar_status st = AR_OK;

	if (e->r.in.n_runs > 1 && !dir)
		st = ar_nomem(err);
	if (!st)
		st = eval_results_open(&e->results, e->r.in.trace, eval_vocab(e), e->r.in.n_runs,
				       dir, err);
	free(dir);
	return st;
}

enum ar_status eval_load(struct eval *e, struct run_command *c, int argc, char **argv,
			 struct ar_err *err)
{
	enum ar_status st;

	e->r = (struct run){ .session = { .cmdline = cmd_line("eval", argc, argv),
					  .pid = getpid() } };
	e->watch = eval_watch(e);
	e->r.session.watch = &e->watch;
	e->own = c->own;
	st = e->r.session.cmdline ? AR_OK : ar_nomem(err);
	if (!st)
		st = run_options_parse(&e->r.session.o, c, argc, argv, err);
	if (!st)
		st = run_load(&e->r, err);
	if (!st)
		st = open_results(e, err);
	return st;
}

void eval_release(struct eval *e)
{
	eval_results_close(&e->results);
	run_unload(&e->r);
	free(e->prompt);
	opt_release((struct opt_group[]){ e->own, { 0 } });
}

enum ar_status eval_run(struct eval *e, size_t i, struct eval_summary *out, struct ar_err *err)
{
	struct run *r = &e->r;
	const bool apart = !r->session.backend || r->session.backend->uses_gpu;
	enum ar_status st = r->session.o.ranks == RUN_RANKS_LOCAL ? run_method_ranks(r, i, err) :
			    apart				  ? run_method_apart(r, i, i, err) :
								    run_method(r, i, err);

	*out = eval_results_summary(&e->results, i);
	return st;
}

enum ar_status eval_try(struct eval *e, size_t i, const char *method, struct eval_summary *out,
			struct ar_err *err)
{
	enum ar_status st = run_set_method(&e->r, i, method, err);

	return st ? st : eval_run(e, i, out, err);
}
