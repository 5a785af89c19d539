/* SPDX-License-Identifier: Apache-2.0 */
/* A process that is bound to its parent ends with it: when the parent is killed later, and when it
 * is killed before the process could ask for the signal. */
#include "config.h"

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

int main(void)
{
	plan(2);
	is_int(bytes(), 1, "a process gets a signal when its parent ends");
	early = true;
	is_int(bytes(), 0, "... also when that was before it could ask for one");
	return done_testing();
}
