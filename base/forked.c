/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/forked.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

pid_t fork_bound(int sig)
{
	const pid_t parent = getpid(), child = fork();

	if (child)
		return child;
	prctl(PR_SET_PDEATHSIG, sig);
	if (getppid() != parent) /* it ended before the line above */
		raise(sig);
	return 0;
}

pid_t fork_apart(void)
{
	pid_t child = fork(), own;
	int status;

	if (child < 0)
		return -1;
	if (!child) {
		own = fork();
		if (!own)
			return 0;
		_exit(own < 0);
	}
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	return WIFEXITED(status) && !WEXITSTATUS(status) ? 1 : -1;
}
