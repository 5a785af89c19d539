#include "config.h"
#include "src/run/run.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a run tells the process that started it. */
struct told {
	enum ar_status st;
	struct ar_err err;
	const struct backend *backend;		/* what auto became */
	int64_t num_blocks;
};

static void tell(struct run *r, size_t i, int to)
{
	struct told t = { 0 };

	prctl(PR_SET_PDEATHSIG, SIGKILL);	/* nobody waits any more */
	t.st = run_method(r, i, &t.err);
	t.backend = r->backend;
	t.num_blocks = r->limits.num_blocks;
	_exit(write(to, &t, sizeof t) != sizeof t);
}

/* From now on the signal ends a system call that waits. */
static void end_waits(int sig)
{
	struct sigaction a;

	if (sigaction(sig, NULL, &a))
		return;
	a.sa_flags &= ~SA_RESTART;
	sigaction(sig, &a, NULL);
}

static enum ar_status hear(struct run *r, size_t i, pid_t child, int from, struct ar_err *err)
{
	struct told t;
	ssize_t n;
	int status;

	end_waits(SIGINT);
	end_waits(SIGTERM);
	while ((n = read(from, &t, sizeof t)) < 0 && errno == EINTR)
		kill(child, SIGTERM);	/* stop it as we are asked to stop */
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (n != sizeof t)
		return ar_fail(err, AR_IO, "the process of method '%s' ended early, by signal %d",
			       r->method[i]->name, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
	*err = t.err;
	r->backend = t.backend;
	r->limits.num_blocks = t.num_blocks;
	return t.st;
}

/* Runs that are compared with each other each get a process: in one process the CUDA graphs of a
 * second run had 8 % longer spans under trace than those of the first, of the same method. */
enum ar_status run_method_apart(struct run *r, size_t i, struct ar_err *err)
{
	enum ar_status st;
	pid_t child;
	int fd[2];

	if (fflush(stdout) || pipe(fd))
		return ar_fail(err, AR_IO, "cannot start a process: %s", strerror(errno));
	child = fork();
	if (child < 0) {
		st = ar_fail(err, AR_IO, "cannot start a process: %s", strerror(errno));
	} else if (!child) {
		close(fd[0]);
		tell(r, i, fd[1]);
	}
	close(fd[1]);
	if (child > 0)
		st = hear(r, i, child, fd[0], err);
	close(fd[0]);
	return st;
}
