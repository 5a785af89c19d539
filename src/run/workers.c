/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/run/workers.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/forked.h"
#include "base/log.h"

enum { MOST_WORKERS = 64 };

struct tasks {
	int n;
	void (*task)(void *self, int i);
	void *self;
	int64_t give_up_ns;
	const char *title;
	atomic_int *next; /* shared */
};

void *workers_share(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

void workers_unshare(void *p, size_t bytes)
{
	if (p)
		munmap(p, bytes);
}

int64_t workers_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int workers_count(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n < 1 ? 1 : n > MOST_WORKERS ? MOST_WORKERS : (int)n;
}

static void work(const struct tasks *x)
{
	int i;

	log_level = LOG_ERROR;
	while ((i = atomic_fetch_add(x->next, 1)) < x->n && workers_now_ns() < x->give_up_ns)
		x->task(x->self, i);
	_exit(0);
}

static void stop(const pid_t *child, int n)
{
	for (int i = 0; i < n; i++)
		if (child[i])
			kill(child[i], SIGKILL);
}

/* Wait for all, and stop them at an interrupt. */
static void wait_for(pid_t *child, int n, const struct tasks *x)
{
	struct timespec nap = { 0, 500000 };
	int left = n;

	while (left) {
		for (int i = 0; i < n; i++)
			if (child[i] && waitpid(child[i], NULL, WNOHANG)) {
				child[i] = 0;
				left--;
			}
		if (ar_interrupted())
			stop(child, n);
		if (left && progress_due()) {
			int at = atomic_load(x->next);

			progress(x->title, (unsigned long)(at < x->n ? at : x->n),
				 (unsigned long)x->n);
		}
		if (left)
			nanosleep(&nap, NULL);
		if (nap.tv_nsec < 20000000)
			nap.tv_nsec *= 2;
	}
	progress_end();
}

static enum ar_status run_tasks(const struct tasks *x, struct ar_err *err)
{
	const int most = workers_count(), want = x->n < most ? x->n : most;
	pid_t child[MOST_WORKERS];
	int n = 0;

	fflush(NULL); /* show what is printed; an error comes again where more is printed */
	while (n < want && (child[n] = fork_bound(SIGKILL)) > 0)
		n++;
	if (n < want && !child[n])
		work(x);
	if (!n)
		return ar_fail(err, AR_IO, "cannot start a process: %s", strerror(errno));
	wait_for(child, n, x);
	return ar_interrupted() ? ar_fail(err, AR_INTERRUPTED, "interrupted") : AR_OK;
}

enum ar_status workers_run(int n, void (*task)(void *self, int i), void *self, int64_t give_up_ns,
			   const char *title, struct ar_err *err)
{
	struct tasks x = { .n = n,
			   .task = task,
			   .self = self,
			   .give_up_ns = give_up_ns,
			   .title = title,
			   .next = workers_share(sizeof *x.next) };
	enum ar_status st = x.next ? run_tasks(&x, err) : ar_nomem(err);

	workers_unshare(x.next, sizeof *x.next);
	return st;
}
