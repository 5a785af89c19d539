/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/host/host_probe.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum ar_status host_probe(struct probe *p, int device, struct ar_err *err)
{
	enum ar_status st;

	*p = (struct probe){ 0 };
	st = probe_loop(p, err);
	if (st || device == HOST_PROBE_NO_GPU)
		return st;
#if HAVE_CUDA
	return host_probe_launches(p, device, err);
#else
	return ar_fail(err, AR_NODEV, "GPU %d: this program was built without CUDA", device);
#endif
}

struct answer {
	enum ar_status st;
	struct ar_err err;
	struct probe p;
};

/* In the child: write the answer to the pipe. */
static void tell(int device, int to)
{
	struct answer a = { 0 };

	a.st = host_probe(&a.p, device, &a.err);
	_exit(write(to, &a, sizeof a) != sizeof a);
}

enum ar_status host_probe_apart(struct probe *p, int device, struct ar_err *err)
{
	static int asked = HOST_PROBE_NO_GPU - 1;
	static struct probe known;
	struct answer a = { .st = AR_IO };
	ssize_t n = -1;
	pid_t child;
	int fd[2];

	*p = known;
	if (asked == device)
		return AR_OK;
	if (!fflush(NULL) && !pipe(fd)) {
		child = fork();
		if (!child)
			tell(device, fd[1]);
		close(fd[1]);
		if (child > 0) {
			n = read(fd[0], &a, sizeof a);
			waitpid(child, NULL, 0);
		}
		close(fd[0]);
	}
	if (n != sizeof a)
		return ar_fail(err, AR_IO,
			       "cannot measure how fast this host is: its process ended without a "
			       "result");
	if (a.st) {
		*err = a.err;
		return a.st;
	}
	asked = device;
	*p = known = a.p;
	return AR_OK;
}
