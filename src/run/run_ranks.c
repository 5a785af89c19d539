/* SPDX-License-Identifier: Apache-2.0 */
/* --ranks local: the ranks of a model, each a process of this host that runs the whole simulation.
 * Rank 0 prints and stores. */
#include "config.h"
#include "src/run/run.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "src/run/workers.h"

enum { NAP_NS = 2000000, ID_NAP_NS = 1000000 };

/* How a rank ended. */
struct rank_end {
	bool ended; /* it came to its end */
	enum ar_status st;
	struct ar_err err;
};

struct ranks_shared {
	struct rank_page page;
	struct rank_end end[RANKS_MAX];
	/* Of rank 0. */
	const struct backend *backend;
	int64_t num_blocks;
	struct run_outcome out;
};

struct ranks {
	struct ranks_shared *shared;
	pid_t pid[RANKS_MAX]; /* 0: it has ended */
	int n, left;
	int64_t grace_ns, stop_ns; /* stop_ns 0: no rank has failed */
	int asked;		   /* the signal that the others got */
};

/* ---- a rank ---- */

/* NCCL listens in the process that makes the id, so that is a rank. */
static enum ar_status get_id(struct world_join *j, struct ar_err *err)
{
	const struct timespec nap = { 0, ID_NAP_NS };
	const struct nccl *nccl;
	enum ar_status st = nccl_load(&nccl, err);

	if (!st && !j->rank && nccl->GetUniqueId(&j->page->id))
		st = ar_fail(err, AR_NODEV, "NCCL cannot make an id: %s", nccl->GetLastError(NULL));
	if (!st && !j->rank)
		atomic_store(&j->page->has_id, 1);
	for (int64_t ns = 0; !st && !atomic_load(&j->page->has_id); ns += ID_NAP_NS) {
		if (ns > j->join_ns || atomic_load(&j->page->stop))
			st = ar_fail(err, AR_NODEV, "rank %d of %d: rank 0 has made no id", j->rank,
				     j->size);
		nanosleep(&nap, NULL);
	}
	j->id = j->page->id;
	return st;
}

static enum ar_status join(struct run_session *s, struct ranks_shared *x, int rank,
			   struct ar_err *err)
{
	struct world_join j = { .rank = rank,
				.size = (int)s->o.tp,
				.join_ns = s->o.comm_join_ns,
				.timeout_ns = s->o.comm_timeout_ns,
				.page = &x->page };
	enum ar_status st = get_id(&j, err);

	return st ? st : world_open(&s->world, &j, err);
}

static void rank_main(struct run *r, size_t i, struct ranks_shared *x, int rank)
{
	struct run_session *s = &r->session;
	struct rank_end *e = &x->end[rank];

	prctl(PR_SET_PDEATHSIG, SIGTERM); /* end in order when the parent is killed */
	if (rank) {
		s->o.db = NULL;
		s->json.f = NULL;
		s->print = 0;
		log_level = LOG_ERROR;
	}
	e->st = join(s, x, rank, &e->err);
	if (!e->st)
		e->st = run_method(r, i, &e->err);
	if (e->st && e->st != AR_INTERRUPTED)
		rank_page_fail(&x->page, rank);
	if (!rank) {
		x->backend = s->backend;
		x->num_blocks = r->in.limits.num_blocks;
		x->out = r->out;
	}
	e->ended = true;
	_exit(0);
}

void run_leave_ranks(struct run_session *s)
{
	world_close(s->world);
	s->world = NULL;
}

/* ---- their parent ---- */

/* A rank has ended, with the status of waitpid(). */
static void take_end(struct ranks *x, int rank, int status)
{
	struct rank_end *e = &x->shared->end[rank];
	const long long step = atomic_load(&x->shared->page.step[rank]);

	if (!e->ended)
		e->st = ar_fail(&e->err, AR_IO,
				"rank %d of %d (pid %d) ended by %s %d in iteration %lld", rank,
				x->n, (int)x->pid[rank],
				WIFSIGNALED(status) ? "signal" : "exit status",
				WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
				step ? step - 1 : 0);
	if (e->st) {
		if (e->st != AR_INTERRUPTED)
			rank_page_fail(&x->shared->page, rank);
		if (!x->stop_ns)
			x->stop_ns = workers_now_ns();
	}
	x->pid[rank] = 0;
	x->left--;
}

static void signal_all(struct ranks *x, int sig)
{
	for (int i = 0; i < x->n; i++)
		if (x->pid[i])
			kill(x->pid[i], sig);
	x->asked = sig;
}

/* End ranks that do not end when another has failed, or when the user asks. */
static void press(struct ranks *x)
{
	const int64_t since = x->stop_ns ? workers_now_ns() - x->stop_ns : 0;

	if (x->asked != SIGKILL && since > 2 * x->grace_ns)
		signal_all(x, SIGKILL);
	else if (!x->asked && (ar_interrupted() || since > x->grace_ns))
		signal_all(x, SIGTERM);
}

static void wait_all(struct ranks *x)
{
	const struct timespec nap = { 0, NAP_NS };
	int status;

	while (x->left) {
		for (int i = 0; i < x->n; i++)
			if (x->pid[i] && waitpid(x->pid[i], &status, WNOHANG) > 0)
				take_end(x, i, status);
		press(x);
		if (x->left)
			nanosleep(&nap, NULL);
	}
}

static enum ar_status conclude(struct run *r, const struct ranks *x, struct ar_err *err)
{
	const int stop = atomic_load(&x->shared->page.stop);
	const struct rank_end *cause = &x->shared->end[stop ? stop - 1 : 0];

	if (x->shared->end[0].ended) {
		r->session.backend = x->shared->backend;
		r->in.limits.num_blocks = x->shared->num_blocks;
		r->out = x->shared->out;
	}
	if (cause->st && err)
		*err = cause->err;
	return cause->st;
}

/* Start all before any of them uses a GPU or NCCL. */
static enum ar_status start_all(struct run *r, size_t i, struct ranks *x, struct ar_err *err)
{
	for (int k = 0; k < x->n; k++) {
		x->pid[k] = fork();
		if (!x->pid[k])
			rank_main(r, i, x->shared, k);
		if (x->pid[k] < 0) {
			x->pid[k] = 0;
			signal_all(x, SIGKILL);
			return ar_fail(err, AR_IO, "cannot start a process: %s", strerror(errno));
		}
		x->left++;
	}
	return AR_OK;
}

enum ar_status run_method_ranks(struct run *r, size_t i, struct ar_err *err)
{
	const int64_t most = 5000000000, timeout = r->session.o.comm_timeout_ns;
	struct ranks x = { .n = (int)r->session.o.tp, .grace_ns = timeout < most ? timeout : most };
	enum ar_status st, st2;

	x.shared = workers_share(sizeof *x.shared);
	if (!x.shared)
		return ar_nomem(err);
	fflush(NULL);
	st = start_all(r, i, &x, err);
	wait_all(&x);
	st2 = conclude(r, &x, st ? NULL : err);
	workers_unshare(x.shared, sizeof *x.shared);
	return st ? st : st2;
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
