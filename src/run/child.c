/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/run/run.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/forked.h"
#include "base/log.h"

/* What a run hands on to the next: the parent writes it to the child when its turn comes, and the
 * child writes it back.  A byte after it says that the process of the run before is gone. */
struct handed {
	const struct backend *backend; /* chosen by --backend auto */
	int64_t num_blocks;
	struct run_outcome out;
};

/* The child writes one message when its replay is over, and one when the run has ended. */
struct message {
	bool ended;
	enum ar_status st; /* how, if it has, as are err and run */
	struct ar_err err;
	struct handed run;
};

static void take(struct run *r, const struct handed *run)
{
	r->session.backend = run->backend;
	r->in.limits.num_blocks = run->num_blocks;
	r->out = run->out;
}

static struct handed hand_on(const struct run *r)
{
	return (struct handed){ r->session.backend, r->in.limits.num_blocks, r->out };
}

/* read(), again where a signal ends it. */
static ssize_t read_on(int from, void *to, size_t n)
{
	ssize_t got;

	while ((got = read(from, to, n)) < 0 && errno == EINTR)
		;
	return got;
}

void run_tell_replayed(const struct run_session *s)
{
	const struct message m = { .run.backend = s->backend };

	if (s->parent)
		(void)!write(s->parent, &m, sizeof m); /* its parent lives, or it is killed */
}

void run_wait_alone(const struct run_session *s)
{
	char gone;

	if (s->parent)
		(void)!read_on(s->parent, &gone, sizeof gone); /* as above */
}

static void child_main(struct run *r, size_t i, bool ahead, int parent)
{
	struct message m = { .ended = true };
	struct handed before;

	if (ahead)
		run_attach(r, i);
	if (read_on(parent, &before, sizeof before) != sizeof before)
		_exit(1); /* its turn does not come */
	take(r, &before);
	r->session.parent = parent;
	m.st = run_method_here(r, i, &m.err);
	m.run = hand_on(r);
	_exit(write(parent, &m, sizeof m) != sizeof m);
}

/* Start the process of run i.  ahead: its turn is not yet, so it only begins to use the GPU. */
static enum ar_status start(struct run *r, size_t i, bool ahead, struct run_process *p,
			    struct ar_err *err)
{
	int end[2];

	*p = (struct run_process){ 0 };
	if (fflush(stdout) || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, end))
		return ar_fail(err, AR_IO, "cannot start a process: %s", strerror(errno));
	p->pid = fork_bound(SIGKILL);
	if (p->pid < 0) {
		ar_fail(err, AR_IO, "cannot start a process: %s", strerror(errno));
		p->pid = 0;
		close(end[0]);
	} else if (!p->pid) {
		close(end[0]);
		child_main(r, i, ahead, end[1]);
	}
	close(end[1]);
	p->run = i;
	p->fd = end[0];
	return p->pid ? AR_OK : AR_IO;
}

static void release(struct run_process *p)
{
	if (p->pid)
		close(p->fd);
	*p = (struct run_process){ 0 };
}

void run_drop_ahead(struct run_session *s)
{
	struct run_process *p = &s->ahead;

	if (!p->pid)
		return;
	kill(p->pid, SIGKILL);
	while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR)
		;
	release(p);
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

/* Read the messages of run p->run until it has ended.  Start the process of run next when the
 * replay is over, unless it is the same.  False: the process ended without a last message. */
static bool read_messages(struct run *r, const struct run_process *p, size_t next,
			  struct message *m)
{
	bool stopped = false;
	struct ar_err unused;
	ssize_t n;

	for (;;) {
		while ((n = read(p->fd, m, sizeof *m)) < 0 && errno == EINTR) {
			kill(p->pid, SIGTERM); /* we were asked to stop: stop the child */
			stopped = true;
		}
		if (n != sizeof *m || m->ended)
			return n == sizeof *m;
		r->session.backend = m->run.backend;
		if (next != p->run && !stopped)
			start(r, next, true, &r->session.ahead, &unused); /* or in its turn */
	}
}

/* Where the process is gone, reading its messages says so. */
static void tell(const struct run_process *p, const void *what, size_t n)
{
	(void)!send(p->fd, what, n, MSG_NOSIGNAL);
}

static void give_turn(const struct run *r, struct run_process *p)
{
	const struct handed run = hand_on(r);

	tell(p, &run, sizeof run);
	p->turn = true;
}

static enum ar_status parent_wait(struct run *r, const struct run_process *p, size_t next,
				  struct ar_err *err)
{
	struct message m;
	bool told;
	int status;

	end_waits(SIGHUP);
	end_waits(SIGINT);
	end_waits(SIGTERM);
	told = read_messages(r, p, next, &m);
	if (told)
		take(r, &m.run);
	if (told && !m.st && r->session.ahead.pid)
		give_turn(r, &r->session.ahead); /* a process takes long to end */
	while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!told) {
		run_fail_lost(&r->session);
		return ended(r, p->run, status, err);
	}
	*err = m.err;
	return m.st;
}

/* Run method i in a process of its own, so that runs can be compared.  When a second run of the
 * same method shared the process, its CUDA graphs had 8 % longer spans under trace. */
enum ar_status run_method_apart(struct run *r, size_t i, size_t next, struct ar_err *err)
{
	struct run_process p = r->session.ahead;
	enum ar_status st = AR_OK;

	r->session.ahead = (struct run_process){ 0 };
	if (!p.pid)
		st = start(r, i, false, &p, err);
	assert(st || p.run == i);
	if (p.turn && ar_interrupted())
		kill(p.pid, SIGTERM); /* it exists since before */
	if (!st && !p.turn)
		give_turn(r, &p);
	if (!st) {
		tell(&p, "", 1);
		st = parent_wait(r, &p, next, err);
	}
	release(&p);
	return st;
}
