/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/parallel.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { MAX_THREADS = 64 };

struct pool {
	parallel_fn *work;
	void *ctx;
	int n;
	atomic_int next;
	pthread_mutex_t lock; /* protects the rest */
	enum ar_status st;
	struct ar_err *err;
};

static void *worker(void *arg)
{
	struct pool *p = arg;
	int i;

	while ((i = atomic_fetch_add(&p->next, 1)) < p->n) {
		struct ar_err err = { 0 };
		enum ar_status st = ar_interrupted() ?
					    ar_fail(&err, AR_INTERRUPTED, "interrupted") :
					    p->work(p->ctx, i, &err);

		if (!st)
			continue;
		pthread_mutex_lock(&p->lock);
		if (!p->st) {
			p->st = st;
			*p->err = err;
		}
		pthread_mutex_unlock(&p->lock);
		atomic_store(&p->next, p->n);
	}
	return NULL;
}

/* The calling thread works too, so that a failure to start others is no error. */
enum ar_status parallel_each(int n, parallel_fn *work, void *ctx, struct ar_err *err)
{
	struct pool p = {
		.work = work, .ctx = ctx, .n = n, .lock = PTHREAD_MUTEX_INITIALIZER, .err = err
	};
	long want = sysconf(_SC_NPROCESSORS_ONLN);
	pthread_t thread[MAX_THREADS];
	int started = 1;

	want = want > MAX_THREADS ? MAX_THREADS : want;
	while (started < want && started < n && !pthread_create(&thread[started], NULL, worker, &p))
		started++;
	worker(&p);
	for (int i = 1; i < started; i++)
		pthread_join(thread[i], NULL);
	pthread_mutex_destroy(&p.lock);
	return p.st;
}
