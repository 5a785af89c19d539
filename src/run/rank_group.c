/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/run/rank_group.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/forked.h"
#include "base/number.h"
#include "src/run/workers.h"

enum { NAP_NS = 2000000 };

/* How a rank ended. */
struct rank_end {
	bool ended; /* it came to its end */
	enum ar_status st;
	struct ar_err err;
};

struct group_shared {
	struct rank_page page;
	struct rank_end end[RANKS_MAX];
};

struct ranks {
	const struct rank_group *g;
	struct group_shared *shared;
	pid_t pid[RANKS_MAX]; /* 0: it has ended */
	int n, left;
	int64_t grace_ns, stop_ns; /* stop_ns 0: no rank has failed */
	int asked;		   /* the signal that the others got */
};

bool rank_device(const char *list, int rank, int64_t *n, int *device)
{
	uint64_t from, to;
	size_t len;

	for (*n = 0;; list += len + 1) {
		len = strcspn(list, ",");
		if (!num_range(list, len, &from, &to) || to > 1023)
			return false;
		if (rank >= *n && rank - *n <= (int64_t)(to - from))
			*device = (int)(from + (uint64_t)(rank - *n));
		*n += (int64_t)(to - from) + 1;
		if (!list[len])
			return true;
	}
}

/* ---- a rank ---- */

static void rank_main(const struct ranks *x, int rank, rank_fn *fn, void *self)
{
	struct rank_end *e = &x->shared->end[rank];
	const struct world_join j = { .rank = rank,
				      .size = x->n,
				      .join_ns = x->g->join_ns,
				      .timeout_ns = x->g->timeout_ns,
				      .page = &x->shared->page };

	e->st = fn(self, &j, &e->err);
	if (e->st && e->st != AR_INTERRUPTED)
		rank_page_fail(&x->shared->page, rank);
	e->ended = true;
	_exit(0);
}

/* ---- their parent ---- */

/* A rank has ended, with the status of waitpid(). */
static void take_end(struct ranks *x, int rank, int status)
{
	struct rank_end *e = &x->shared->end[rank];
	const struct rank_page *page = &x->shared->page;
	const long long step = atomic_load(&page->step[rank]);

	if (!e->ended)
		e->st = ar_fail(&e->err, AR_IO, "rank %d of %d (pid %d) ended by %s %d in %s %lld",
				rank, x->n, (int)x->pid[rank],
				WIFSIGNALED(status) ? "signal" : "exit status",
				WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
				x->g->calls ? "call" : "iteration",
				!x->g->calls ? atomic_load(&page->told[rank]) :
				step	     ? step - 1 :
					       0);
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

static enum ar_status conclude(const struct ranks *x, struct ar_err *err)
{
	const int stop = atomic_load(&x->shared->page.stop);
	const struct rank_end *cause = &x->shared->end[stop ? stop - 1 : 0];

	if (cause->st && err)
		*err = cause->err;
	return cause->st;
}

/* Start all before any of them uses a GPU or NCCL. */
static enum ar_status start_all(struct ranks *x, rank_fn *fn, void *self, struct ar_err *err)
{
	for (int k = 0; k < x->n; k++) {
		x->pid[k] = fork_bound(SIGTERM); /* ends in order when this one is killed */
		if (!x->pid[k])
			rank_main(x, k, fn, self);
		if (x->pid[k] < 0) {
			x->pid[k] = 0;
			signal_all(x, SIGKILL);
			return ar_fail(err, AR_IO, "cannot start a process: %s", strerror(errno));
		}
		x->left++;
	}
	return AR_OK;
}

enum ar_status rank_group_run(const struct rank_group *g, rank_fn *fn, void *self,
			      struct ar_err *err)
{
	const int64_t most = 5000000000, timeout = g->timeout_ns;
	struct ranks x = { .g = g, .n = g->n, .grace_ns = timeout < most ? timeout : most };
	enum ar_status st, st2;

	x.shared = workers_share(sizeof *x.shared);
	if (!x.shared)
		return ar_nomem(err);
	fflush(NULL);
	st = start_all(&x, fn, self, err);
	wait_all(&x);
	st2 = conclude(&x, st ? NULL : err);
	workers_unshare(x.shared, sizeof *x.shared);
	return st ? st : st2;
}
