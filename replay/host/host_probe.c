/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process that measures launches makes its context while this one starts its driver.  A driver
 * starts in half the time while another process uses the GPU.  Launches are measured while this
 * process waits.
 */
#include "config.h"
#include "replay/host/host_probe.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/forked.h"

/* Measure the loop, then launches.  wait, ctx: see host_probe_launches(). */
static enum ar_status probe_when(struct probe *p, int device, void (*wait)(void *ctx), void *ctx,
				 struct ar_err *err)
{
	enum ar_status st;

	*p = (struct probe){ 0 };
	st = probe_loop(p, err);
	if (st || device == HOST_PROBE_NO_GPU)
		return st;
#if HAVE_CUDA
	return host_probe_launches(p, device, wait, ctx, err);
#else
	(void)wait, (void)ctx;
	return ar_fail(err, AR_NODEV, "GPU %d: this program was built without CUDA", device);
#endif
}

enum ar_status host_probe(struct probe *p, int device, struct ar_err *err)
{
	return probe_when(p, device, NULL, NULL, err);
}

struct answer {
	enum ar_status st;
	struct ar_err err;
	struct probe p;
};

/* read(), again where a signal ends it. */
static bool read_all(int from, void *to, size_t n)
{
	ssize_t got;

	while ((got = read(from, to, n)) < 0 && errno == EINTR)
		;
	return got == (ssize_t)n;
}

/* In the child: wait until the parent has shut down its end of the socket, or has ended. */
static void wait_for_parent(void *parent)
{
	char none;

	read_all(*(const int *)parent, &none, 1);
}

/* In the child: write the answer to the socket.  It is closed after the GPU's memory is free. */
static void tell(int device, int parent)
{
	struct answer a = { 0 };
	bool told;

	a.st = probe_when(&a.p, device, wait_for_parent, &parent, &a.err);
	told = write(parent, &a, sizeof a) == sizeof a;
#if HAVE_CUDA
	if (device != HOST_PROBE_NO_GPU)
		host_probe_reset();
#endif
	_exit(!told);
}

/* The process that measures.  fd: the socket to it; -1: there is none. */
static struct {
	int device, fd;
	bool has_told;
	struct answer a;
} process = { .fd = -1 };

static void drop_process(void)
{
	if (process.fd >= 0)
		close(process.fd);
	process.fd = -1;
	process.has_told = false;
}

void host_probe_begin(int device)
{
	pid_t child;
	int end[2];

	if (process.fd >= 0 && process.device == device)
		return;
	drop_process();
	if (fflush(NULL) || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, end))
		return;
	child = fork_apart(); /* what has used the GPU takes long to end */
	if (!child) {
		close(end[0]);
		tell(device, end[1]);
	}
	close(end[1]);
	process.device = device;
	process.fd = end[0];
	if (child < 0)
		drop_process();
}

void host_probe_take(void)
{
	if (process.fd < 0 || process.has_told)
		return;
	shutdown(process.fd, SHUT_WR);
	process.has_told = read_all(process.fd, &process.a, sizeof process.a);
}

enum ar_status host_probe_apart(struct probe *p, int device, struct ar_err *err)
{
	enum ar_status st;

	host_probe_begin(device);
	host_probe_take();
	if (!process.has_told) {
		drop_process();
		return ar_fail(err, AR_IO,
			       "cannot measure how fast this host is: its process ended without a "
			       "result");
	}
	st = process.a.st;
	*p = process.a.p;
	if (st) {
		*err = process.a.err;
		drop_process();
	}
	return st;
}

void host_probe_leave(void)
{
	char end;

	host_probe_take();
	if (process.fd >= 0)
		read_all(process.fd, &end, 1);
}
