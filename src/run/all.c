/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/run/run.h"

enum ar_status run_all(struct run *r, struct ar_err *err)
{
	char key[RUN_KEY_SIZE];
	enum ar_status st = run_describe(&r->session, err);

	for (size_t i = r->session.first + 1; r->in.plan && i < r->in.n_runs && !st; i++)
		if (run_is_left(&r->session.o, i))
			st = run_try_method(r, r->in.plan[i]->name, err);
	/* The processes of several methods share what is read here. */
	for (size_t i = 0; i < r->in.n_runs && r->in.n_runs > 1 && r->session.o.db && !st; i++)
		st = run_make_key(&r->in, &r->session, i, key, err);
	if (!st)
		st = run_json_open(&r->session, err);
	for (size_t i = r->session.first; i < r->in.n_runs && !st; i++)
		if (run_is_left(&r->session.o, i))
			st = r->in.n_runs > 1 ? run_method_apart(r, i, err) : run_method(r, i, err);
	return run_json_close(&r->session, st, err);
}
