/* SPDX-License-Identifier: Apache-2.0 */
/* --ranks local: the ranks of a model, each a process of this host that runs the whole simulation.
 * Rank 0 prints and stores. */
#include "config.h"
#include "src/run/run.h"

#include <stdlib.h>

#include "base/log.h"
#include "src/run/rank_group.h"
#include "src/run/workers.h"

/* Of rank 0, all shared. */
struct first_rank {
	bool ended;
	const struct backend *backend;
	int64_t num_blocks;
	struct run_outcome out;
};

struct rank_run {
	struct run *r;
	size_t i; /* of the method */
	struct first_rank *first;
};

static enum ar_status run_rank(void *self, const struct world_join *j, struct ar_err *err)
{
	struct rank_run *x = self;
	struct run_session *s = &x->r->session;
	enum ar_status st;

	if (j->rank) {
		s->o.db = NULL;
		s->json.f = NULL;
		s->print = 0;
		log_level = LOG_ERROR;
	}
	st = rank_join(&s->world, j, err);
	if (!st)
		st = run_method(x->r, x->i, err);
	if (!j->rank)
		*x->first = (struct first_rank){ true, s->backend, x->r->in.limits.num_blocks,
						 x->r->out };
	return st;
}

void run_leave_ranks(struct run_session *s)
{
	world_close(s->world);
	s->world = NULL;
}

static void take_first(struct run *r, const struct first_rank *x)
{
	if (!x->ended)
		return;
	r->session.backend = x->backend;
	r->in.limits.num_blocks = x->num_blocks;
	r->out = x->out;
}

enum ar_status run_method_ranks(struct run *r, size_t i, struct ar_err *err)
{
	const struct run_options *o = &r->session.o;
	const struct rank_group g = { (int)o->tp, o->comm_join_ns, o->comm_timeout_ns,
				      "iteration" };
	struct rank_run x = { r, i, workers_share(sizeof *x.first) };
	enum ar_status st;

	if (!x.first)
		return ar_nomem(err);
	st = rank_group_run(&g, run_rank, &x, err);
	take_first(r, x.first);
	workers_unshare(x.first, sizeof *x.first);
	return st;
}

enum ar_status run_check_ranks(const struct run_options *o, const struct backend *b,
			       struct ar_err *err)
{
	const bool local = o->ranks == RUN_RANKS_LOCAL;
	const char *given = opt_given(o->group, "comm-join")	? "comm-join" :
			    opt_given(o->group, "comm-timeout") ? "comm-timeout" :
								  NULL;

	if (!local && given)
		return ar_fail(err, AR_USAGE,
			       "%s has no effect without --ranks local; leave it out", given);
	if (local && o->tp == 1)
		return ar_fail(err, AR_USAGE,
			       "ranks local has no effect with --tp 1; leave it out");
	if (local && o->tp > RANKS_MAX)
		return ar_fail(err, AR_USAGE, "ranks local: at most %d ranks; lower --tp",
			       RANKS_MAX);
	if (local && b->uses_gpu)
		return ar_fail(err, AR_USAGE,
			       "ranks local: backend %s runs one rank so far; leave it out, and "
			       "collectives are of --comm",
			       b->name);
	if (local && !getenv("ATTNREPLAY_NCCL"))
		return ar_fail(err, AR_USAGE,
			       "ranks local: backend %s has its data in the memory of the host, "
			       "which NCCL does not reach; name a library that does in "
			       "ATTNREPLAY_NCCL",
			       b->name);
	return AR_OK;
}
