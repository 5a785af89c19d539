/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/run/run.h"

#include "base/log.h"

/* The run after i whose process may start early; i: there is none. */
static size_t next_apart(const struct run *r, size_t i)
{
	size_t next = i + 1;

	while (next < r->in.n_runs && !run_is_left(&r->session.o, next))
		next++;
	return next < r->in.n_runs && r->session.o.ranks == RUN_RANKS_ONE ? next : i;
}

static bool is_apart(const struct run *r, size_t i)
{
	return r->in.n_runs > 1 || run_plugin(&r->in, i);
}

bool run_has_one_process(const struct run *r)
{
	return r->session.o.ranks == RUN_RANKS_ONE && !is_apart(r, 0);
}

static enum ar_status run_one(struct run *r, size_t i, struct ar_err *err)
{
	if (r->session.o.ranks == RUN_RANKS_LOCAL)
		return run_method_ranks(r, i, err);
	return is_apart(r, i) ? run_method_apart(r, i, next_apart(r, i), err) :
				run_method_here(r, i, err);
}

/* A method with a selector from a file has a process of its own, which may fail: the others go
 * on.  Of several errors the last is returned; the errors before it are printed. */
static enum ar_status run_each(struct run *r, struct ar_err *err)
{
	enum ar_status st = AR_OK, one;
	bool go_on = true;
	struct ar_err e;

	for (size_t i = r->session.first; i < r->in.n_runs && go_on; i++) {
		if (!run_is_left(&r->session.o, i))
			continue;
		one = run_one(r, i, &e);
		if (!one)
			continue;
		if (st)
			log_line(LOG_ERROR, "%s", err->msg);
		st = one;
		*err = e;
		go_on = run_plugin(&r->in, i) && one != AR_INTERRUPTED;
	}
	run_drop_ahead(&r->session);
	return st;
}

enum ar_status run_all(struct run *r, struct ar_err *err)
{
	char key[RUN_KEY_SIZE];
	enum ar_status st = run_describe(&r->session, err);

	if (r->session.place.rank)
		run_mute_rank(&r->session);
	for (size_t i = r->session.first + 1; r->in.plan && i < r->in.n_runs && !st; i++)
		if (run_is_left(&r->session.o, i))
			st = run_try_method(r, r->in.plan[i]->name, err);
	/* The processes of several methods share the files that this reads. */
	for (size_t i = 0; i < r->in.n_runs && r->in.n_runs > 1 && r->session.o.db && !st; i++)
		st = run_make_key(&r->in, &r->session, i, key, err);
	if (!st)
		st = run_json_open(&r->session, err);
	if (!st)
		st = run_each(r, err);
	return run_json_close(&r->session, st, err);
}
