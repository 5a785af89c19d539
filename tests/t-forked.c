/* SPDX-License-Identifier: Apache-2.0 */
/* A process that is bound to its parent ends with it: when the parent is killed later, and when it
 * is killed before the process could ask for the signal.  One that is apart is no child. */
#include "config.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/forked.h"
#include "tests/tap.h"

static bool early; /* the parent is killed before prctl() */
static pid_t parent;
static int out[2]; /* a byte: the process goes on */

static void kill_parent(void)
{
	const struct timespec nap = { 0, 1000000 };

	kill(parent, SIGKILL);
	while (getppid() == parent)
		nanosleep(&nap, NULL);
}

int prctl(int op, ...)
{
	unsigned long value;
	va_list ap;

	va_start(ap, op);
	value = va_arg(ap, int);
	va_end(ap);
	if (early)
		kill_parent();
	return (int)syscall(SYS_prctl, op, value, 0, 0, 0);
}

static void child(void)
{
	if (write(out[1], "b", 1) != 1)
		_exit(1);
	kill_parent();
	nanosleep(&(struct timespec){ 0, 50000000 }, NULL); /* the signal comes just after */
	if (write(out[1], "a", 1) != 1)
		_exit(1);
	_exit(0);
}

/* How many bytes the process wrote. */
static int bytes(void)
{
	char c;
	int n = 0, status;

	if (pipe(out))
		bail_out("no pipe");
	parent = fork();
	if (!parent) {
		parent = getpid();
		if (!fork_bound(SIGTERM))
			child();
		for (;;)
			pause();
	}
	close(out[1]);
	while (read(out[0], &c, 1) == 1)
		n++;
	close(out[0]);
	waitpid(parent, &status, 0);
	return n;
}

/* The process lives until it may write. */
static void test_apart(void)
{
	int may[2];
	pid_t p;
	char c = 0;

	if (pipe(out) || pipe(may))
		bail_out("no pipe");
	p = fork_apart();
	if (!p)
		_exit(read(may[0], &c, 1) != 1 || write(out[1], "z", 1) != 1);
	is_int(p, 1, "a process apart is started");
	ok(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD, "... and is no child");
	ok(write(may[1], "x", 1) == 1 && read(out[0], &c, 1) == 1 && c == 'z', "... but runs");
}

int main(void)
{
	plan(5);
	is_int(bytes(), 1, "a process gets a signal when its parent ends");
	early = true;
	is_int(bytes(), 0, "... also when that was before it could ask for one");
	test_apart();
	return done_testing();
}
