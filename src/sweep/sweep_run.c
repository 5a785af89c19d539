/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/sweep/sweep_run.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/forked.h"
#include "base/log.h"
#include "src/sweep/publish.h"
#include "src/sweep/scratch.h"

enum { POLL_NS = 100000000 }; /* a signal may come just before a wait begins */

/* A point that runs. */
struct job {
	struct sweep_point p;
	char *local; /* its database while it runs, in a folder that `lock` holds */
	int lock;
	pid_t pid;
};

struct runner {
	struct sweep_base *b;
	const struct sweep_how *how;
	struct job *job; /* [how->jobs] pid 0: free */
	size_t n_running, from;
	enum sweep_state *state; /* of the points from `from` on */
	sigset_t before;	 /* signals that were blocked before */
	bool stopped;		 /* running points were told to end */
	struct ar_err err;	 /* the first failure */
};

char *sweep_path(const char *dir, const char *key, const char *ending)
{
	char *s;

	return asprintf(&s, "%s/%s%s", dir, key, ending) < 0 ? NULL : s;
}

/* ---- one point ---- */

/* Replace this process by 'attnreplay run --db LOCAL ...'. */
static void child_main(const struct runner *r, int lock, int log, char **argv)
{
	const int nothing = open("/dev/null", O_RDONLY);

	sigprocmask(SIG_SETMASK, &r->before, NULL);
	if (nothing >= 0 && dup2(nothing, 0) >= 0 && dup2(log, 1) >= 0 && dup2(log, 2) >= 0 &&
	    !fcntl(lock, F_SETFD, 0))
		execv("/proc/self/exe", argv);
	_exit(127);
}

static enum ar_status spawn(const struct runner *r, struct job *j, struct ar_err *err)
{
	const size_t n = j->p.args.n;
	char **argv = calloc(n + 5, sizeof *argv);
	char *path = sweep_path(r->how->out, j->p.key, ".log");
	enum ar_status st = argv && path ? AR_OK : ar_nomem(err);
	int log = -1;

	if (!st) {
		argv[0] = (char[]){ "attnreplay" };
		argv[1] = (char[]){ "run" };
		argv[2] = (char[]){ "--db" };
		argv[3] = j->local;
		memcpy(argv + 4, j->p.args.v, n * sizeof *argv);
		log = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
		if (log < 0)
			st = ar_fail(err, AR_IO, "%s: cannot write: %s", path, strerror(errno));
	}
	if (!st) {
		j->pid = fork_bound(SIGTERM);
		if (!j->pid)
			child_main(r, j->lock, log, argv);
		if (j->pid < 0) {
			j->pid = 0;
			st = ar_fail(err, AR_IO, "cannot start a process: %s", strerror(errno));
		}
	}
	if (log >= 0)
		close(log);
	free(path);
	free(argv);
	return st;
}

static void job_release(struct job *j)
{
	sweep_point_release(&j->p);
	scratch_close(j->local, j->lock);
	*j = (struct job){ .lock = -1 };
}

static void tell(const struct runner *r, const struct sweep_point *p, enum sweep_state state)
{
	r->state[p->number - r->from] = state;
	if (!r->how->quiet)
		printf("%zu: %s %s\n", p->number, p->key,
		       state == SWEEP_DONE ? "done" : "is there");
}

/* Start point i, unless its database is there. */
static enum ar_status start_point(struct runner *r, struct job *j, size_t i, struct ar_err *err)
{
	enum ar_status st = sweep_point_open(&j->p, r->b, i, err);
	char *path = st ? NULL : sweep_path(r->how->out, j->p.key, ".db");

	if (!st && !path)
		st = ar_nomem(err);
	if (!st && !r->how->force && sweep_point_done(&j->p, r->b, path)) {
		tell(r, &j->p, SWEEP_THERE);
	} else if (!st) {
		st = scratch_open(&j->local, &j->lock, j->p.key, err);
		if (!st)
			st = spawn(r, j, err);
	}
	free(path);
	r->n_running += j->pid != 0;
	if (!j->pid)
		job_release(j);
	return st;
}

/* Move the database of the point to its place. */
static enum ar_status keep_database(const struct runner *r, const struct job *j, bool done,
				    struct ar_err *err)
{
	char *path = sweep_path(r->how->out, j->p.key, ".db");
	char *failed = sweep_path(r->how->out, j->p.key, ".failed.db");
	enum ar_status st = path && failed ? AR_OK : ar_nomem(err);

	if (!st)
		st = done ? publish(j->local, path, err) : publish_failed(j->local, failed, err);
	if (!st && done)
		unlink(failed); /* of an earlier call */
	free(path);
	free(failed);
	return st;
}

/* The status with this exit code; a point that a signal ended has none. */
static enum ar_status status_of(int status)
{
	static const enum ar_status codes[] = { AR_USAGE, AR_DATA, AR_NODEV };

	for (size_t i = 0; WIFEXITED(status) && i < sizeof codes / sizeof *codes; i++)
		if (ar_exit_code(codes[i]) == WEXITSTATUS(status))
			return codes[i];
	return AR_IO;
}

static enum ar_status end_point(struct runner *r, struct job *j, int status, struct ar_err *err)
{
	const bool done = WIFEXITED(status) && !WEXITSTATUS(status);
	enum ar_status st = keep_database(r, j, done, err);

	if (st)
		return st;
	if (done) {
		tell(r, &j->p, SWEEP_DONE);
		return AR_OK;
	}
	if (r->stopped)
		return AR_OK;
	return ar_fail(err, status_of(status), "%s: point %zu ended %s %d; %s/%s.log says why",
		       r->b->file.path, j->p.number,
		       WIFSIGNALED(status) ? "by signal" : "with exit status",
		       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), r->how->out,
		       j->p.key);
}

/* ---- all points ---- */

/* The first failure is the result; others are told as they come. */
static void failed(struct runner *r, size_t number, const struct ar_err *e)
{
	r->state[number - r->from] = SWEEP_FAILED;
	if (r->err.status)
		log_line(LOG_ERROR, "%s", e->msg);
	else
		r->err = *e;
}

static void stop_all(struct runner *r)
{
	for (int64_t i = 0; i < r->how->jobs; i++)
		if (r->job[i].pid)
			kill(r->job[i].pid, SIGTERM);
	r->stopped = true;
}

/* Wait until a point ends.  A signal to this process ends all. */
static void wait_one(struct runner *r)
{
	const struct timespec poll = { .tv_nsec = POLL_NS };
	struct ar_err err = { 0 };
	sigset_t child;
	int status;
	pid_t pid;

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	while (!(pid = waitpid(-1, &status, WNOHANG))) {
		if (ar_interrupted() && !r->stopped)
			stop_all(r);
		sigtimedwait(&child, NULL, &poll);
	}
	for (int64_t i = 0; i < r->how->jobs; i++)
		if (r->job[i].pid == pid) {
			if (end_point(r, &r->job[i], status, &err))
				failed(r, r->job[i].p.number, &err);
			job_release(&r->job[i]);
			r->n_running--;
		}
	fflush(stdout);
}

static bool goes_on(const struct runner *r)
{
	return !ar_interrupted() && (!r->err.status || r->how->keep_going);
}

static struct job *free_job(const struct runner *r)
{
	for (int64_t i = 0; i < r->how->jobs; i++)
		if (!r->job[i].pid)
			return &r->job[i];
	return NULL;
}

static void run_all(struct runner *r, size_t from, size_t to)
{
	while (r->n_running || (from < to && goes_on(r))) {
		struct job *j = from < to && goes_on(r) ? free_job(r) : NULL;
		struct ar_err err = { 0 };

		if (!j)
			wait_one(r);
		else if (start_point(r, j, from, &err))
			failed(r, from, &err);
		from += j != NULL;
	}
}

static void sum_up(const enum sweep_state *state, size_t n)
{
	size_t count[] = { 0, 0, 0, 0 };

	for (size_t i = 0; i < n; i++)
		count[state[i]]++;
	printf("%zu points: %zu done, %zu there already, %zu failed, %zu to do\n", n,
	       count[SWEEP_DONE], count[SWEEP_THERE], count[SWEEP_FAILED], count[SWEEP_TODO]);
}

enum ar_status sweep_run(struct sweep_base *b, size_t from, size_t to, const struct sweep_how *how,
			 enum sweep_state *state, struct ar_err *err)
{
	struct runner r = { .b = b, .how = how, .from = from, .state = state };
	sigset_t child;

	if (mkdir(how->out, 0777) && errno != EEXIST)
		return ar_fail(err, AR_IO, "%s: cannot make the folder: %s", how->out,
			       strerror(errno));
	r.job = calloc((size_t)how->jobs, sizeof *r.job);
	if (!r.job)
		return ar_nomem(err);
	for (int64_t i = 0; i < how->jobs; i++)
		r.job[i].lock = -1;
	scratch_remove_left();
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, &r.before);
	run_all(&r, from, to);
	sigprocmask(SIG_SETMASK, &r.before, NULL);
	free(r.job);
	if (to - from > 1 && !how->quiet)
		sum_up(state, to - from);
	if (ar_interrupted() && r.err.status)
		log_line(LOG_ERROR, "%s", r.err.msg);
	if (ar_interrupted())
		return ar_fail(err, AR_INTERRUPTED,
			       "interrupted; the same command runs the missing points");
	*err = r.err;
	return r.err.status;
}
