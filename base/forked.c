/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/forked.h"

#include <signal.h>
#include <sys/prctl.h>
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
