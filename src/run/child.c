/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/run/run.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/forked.h"
#include "base/log.h"

/* How a run ended: the child writes it to the pipe. */
struct child_result {
	enum ar_status st;
	struct ar_err err;
	const struct backend *backend; /* chosen by --backend auto */
	int64_t num_blocks;
	struct run_outcome out;
};

static void child_main(struct run *r, size_t i, int to)
{
	struct child_result res = { 0 };

	res.st = run_method_here(r, i, &res.err);
	res.backend = r->session.backend;
	res.num_blocks = r->in.limits.num_blocks;
	res.out = r->out;
	_exit(write(to, &res, sizeof res) != sizeof res);
}

/* Let the signal interrupt a system call that waits (EINTR), not restart it. */
static void end_waits(int sig)
{
	struct sigaction a;

	if (sigaction(sig, NULL, &a))
		return;
	a.sa_flags &= ~SA_RESTART;
	sigaction(sig, &a, NULL);
}

void run_fail_lost(const struct run_session *s)
{
	struct ar_err err;

	if (s->o.db && store_fail_runs(s->o.db, &err))
		log_warn("%s", err.msg);
}

static enum ar_status ended(const struct run *r, size_t i, int status, struct ar_err *err)
{
	const struct plugin *p = run_plugin(&r->in, i);
	enum ar_status st =
		ar_fail(err, AR_IO, "the process of method '%s' ended without a result, %s %d",
			run_label(r, i), WIFSIGNALED(status) ? "by signal" : "with exit status",
			WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));

	if (p)
		ar_err_prefix(err, "%s", p->path);
	return st;
}

static enum ar_status parent_wait(struct run *r, size_t i, pid_t child, int from,
				  struct ar_err *err)
{
	struct child_result res;
	ssize_t n;
	int status;

	end_waits(SIGHUP);
	end_waits(SIGINT);
	end_waits(SIGTERM);
	while ((n = read(from, &res, sizeof res)) < 0 && errno == EINTR)
		kill(child, SIGTERM); /* we were asked to stop: stop the child */
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (n != sizeof res) {
		run_fail_lost(&r->session);
		return ended(r, i, status, err);
	}
	*err = res.err;
	r->session.backend = res.backend;
	r->in.limits.num_blocks = res.num_blocks;
	r->out = res.out;
	return res.st;
}

/* Run method i in a process of its own, so that runs can be compared.  When a second run of the
 * same method shared the process, its CUDA graphs had 8 % longer spans under trace. */
enum ar_status run_method_apart(struct run *r, size_t i, struct ar_err *err)
{
	enum ar_status st;
	pid_t child;
	int fd[2];

	if (fflush(stdout) || pipe(fd))
		return ar_fail(err, AR_IO, "cannot start a process: %s", strerror(errno));
	child = fork_bound(SIGKILL);
	if (child < 0) {
		st = ar_fail(err, AR_IO, "cannot start a process: %s", strerror(errno));
	} else if (!child) {
		close(fd[0]);
		child_main(r, i, fd[1]);
	}
	close(fd[1]);
	if (child > 0)
		st = parent_wait(r, i, child, fd[0], err);
	close(fd[0]);
	return st;
}
