/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/ranks/world.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/number.h"
#include "replay/ranks/world_device.h"

enum {
	SPIN_NS = 1000000,
	NAP_NS = 50000,
	STOP_NS = 500000000,
	ABORT_NS = 300000000,
	LONGEST_TIMES = 20
};
enum { RUNNING = -1 }; /* beside the results of NCCL */

/* A call in a thread of its own, as it may block for ever. */
struct apart {
	int (*call)(struct world *w);
	atomic_int result;
};

struct world {
	struct world_join join;
	const struct nccl *nccl;
	struct nccl_comm *comm;	     /* NULL: aborted */
	bool agreed;		     /* see world_agree() */
	struct world_device *device; /* NULL: data are in host memory */
	void *stream;		     /* that world_wait() waits for */
	struct apart apart;
	int64_t last_ns, longest_ns; /* end of the last call; the longest time from one on */
	long long step;		     /* calls of this rank that wait */
};

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void rank_page_fail(struct rank_page *page, int rank)
{
	int none = 0;

	atomic_compare_exchange_strong(&page->stop, &none, rank + 1);
}

static void *run_apart(void *ctx)
{
	struct world *w = ctx;
	int result = w->apart.call(w);

	atomic_store(&w->apart.result, result);
	return NULL;
}

/* The thread may outlive the world, which is not freed then: the process ends soon. */
static void start_apart(struct world *w, int (*call)(struct world *w))
{
	pthread_t thread;

	w->apart.call = call;
	atomic_store(&w->apart.result, RUNNING);
	if (pthread_create(&thread, NULL, run_apart, w))
		run_apart(w);
	else
		pthread_detach(thread);
}

static bool is_apart(struct world *w)
{
	return atomic_load(&w->apart.result) == RUNNING;
}

/* Wait as others do: at first without sleep. */
static void rest(int64_t waited_ns)
{
	const struct timespec nap = { 0, NAP_NS };

	if (waited_ns < SPIN_NS)
		sched_yield();
	else
		nanosleep(&nap, NULL);
}

static int abort_comm(struct world *w)
{
	return w->nccl->CommAbort(w->comm);
}

/* No call of the library after this.  Kernels of collectives end at once; the abort itself waits
 * for CUDA graphs that have some, so it is not waited for. */
static void give_up(struct world *w)
{
	const int64_t start = now_ns();

	if (w->join.page)
		rank_page_fail(w->join.page, w->join.rank);
	if (w->comm && !is_apart(w)) {
		start_apart(w, abort_comm);
		while (is_apart(w) && now_ns() - start < ABORT_NS)
			rest(now_ns() - start);
	}
	w->comm = NULL;
}

/* The ranks that have made fewer calls than this one, as "rank 1, 3", if that is known. */
static void find_behind(const struct world *w, char *text, size_t size)
{
	size_t n = 0;

	for (int i = 0; i < w->join.size && w->join.page && n < size; i++)
		if (atomic_load(&w->join.page->step[i]) < w->step)
			n += (size_t)snprintf(text + n, size - n, "%s%d", n ? ", " : "rank ", i);
	if (!n)
		snprintf(text, size, "the other ranks");
}

static enum ar_status no_answer(struct world *w, int64_t limit, struct ar_err *err)
{
	char who[160], time[32];

	find_behind(w, who, sizeof who);
	give_up(w);
	return ar_fail(err, w->step == 1 ? AR_NODEV : AR_IO,
		       "rank %d of %d: no answer from %s within %s", w->join.rank, w->join.size,
		       who, num_time_str(time, sizeof time, (double)limit));
}

static enum ar_status failed(struct world *w, int result, const char *what, struct ar_err *err)
{
	const char *text = w->nccl->GetErrorString(result);
	const char *more = w->nccl->GetLastError(NULL);

	give_up(w);
	return ar_fail(err, w->step == 1 ? AR_NODEV : AR_IO,
		       "rank %d of %d: NCCL cannot %s: %s%s%s", w->join.rank, w->join.size, what,
		       text, more && *more ? "; " : "", more ? more : "");
}

static enum ar_status stopped(struct world *w, struct ar_err *err)
{
	give_up(w);
	return ar_fail(err, AR_IO, "rank %d of %d: another rank has failed", w->join.rank,
		       w->join.size);
}

static int poll_comm(struct world *w)
{
	int result;

	return w->nccl->CommGetAsyncError(w->comm, &result) ? NCCL_REMOTE_ERROR : result;
}

/* What is apart may go on when it has returned. */
static int poll_apart(struct world *w)
{
	const int result = atomic_load(&w->apart.result);

	return result == RUNNING	  ? NCCL_IN_PROGRESS :
	       result == NCCL_IN_PROGRESS ? poll_comm(w) :
					    result;
}

static int poll_stream(struct world *w)
{
	int busy = 0, result = NCCL_OK;

	if (HAVE_CUDA && world_device_query(w->stream, &busy, NULL))
		return NCCL_CUDA_ERROR;
	if (busy)
		result = poll_comm(w);
	return busy && !result ? NCCL_IN_PROGRESS : result;
}

/* Wait until the call that returned `result` has ended, for at most `limit` ns. */
static enum ar_status wait_for(struct world *w, int result, int (*poll)(struct world *w),
			       const char *what, int64_t limit, struct ar_err *err)
{
	const int64_t start = now_ns();
	int64_t seen = 0, now = start;

	while (result == NCCL_IN_PROGRESS) {
		if (w->join.page && atomic_load(&w->join.page->stop))
			return stopped(w, err);
		if (ar_interrupted() && !seen)
			seen = now;
		if (seen && now - seen > STOP_NS) {
			give_up(w);
			return ar_fail(err, AR_INTERRUPTED, "interrupted while ranks wait");
		}
		if (now - start > limit)
			return no_answer(w, limit, err);
		rest(now - start);
		result = poll(w);
		now = now_ns();
	}
	return result ? failed(w, result, what, err) : AR_OK;
}

/* The call has begun. */
static void count_step(struct world *w)
{
	w->step++;
	if (w->join.page)
		atomic_store(&w->join.page->step[w->join.rank], w->step);
}

static int init_comm(struct world *w)
{
	const struct world_join *j = &w->join;
	struct nccl_config config = { .size = sizeof config,
				      .magic = NCCL_MAGIC,
				      .version = NCCL_OLDEST,
				      .blocking = j->gpu,
				      .cga_cluster_size = NCCL_UNDEFINED,
				      .min_ctas = NCCL_UNDEFINED,
				      .max_ctas = NCCL_UNDEFINED,
				      .split_share = NCCL_UNDEFINED };
	struct nccl_comm *comm = NULL;
	int result = NCCL_CUDA_ERROR;

	if (!HAVE_CUDA || !j->gpu || !world_device_select(j->device, NULL))
		result = w->nccl->CommInitRankConfig(&comm, j->size, j->id, j->rank, &config);
	if (!result || result == NCCL_IN_PROGRESS)
		w->comm = comm;
	return result;
}

static enum ar_status join_all(struct world *w, struct ar_err *err)
{
	count_step(w);
	start_apart(w, init_comm);
	return wait_for(w, NCCL_IN_PROGRESS, poll_apart, "join the other ranks", w->join.join_ns,
			err);
}

static void release(struct world *w)
{
	if (is_apart(w))
		return;
	if (HAVE_CUDA)
		world_device_close(w->device);
	free(w);
}

enum ar_status world_open(struct world **out, const struct world_join *join, struct ar_err *err)
{
	struct world *w = calloc(1, sizeof *w);
	enum ar_status st;

	*out = NULL;
	if (!w)
		return ar_nomem(err);
	w->join = *join;
	st = nccl_load(&w->nccl, err);
	if (!st && HAVE_CUDA && join->gpu)
		st = world_device_open(&w->device, join->device, err);
	if (!st)
		st = join_all(w, err);
	w->last_ns = now_ns();
	if (!st)
		*out = w;
	else
		release(w);
	return st;
}

static int end_comm(struct world *w)
{
	return w->nccl->CommFinalize(w->comm);
}

static int destroy_comm(struct world *w)
{
	return w->nccl->CommDestroy(w->comm);
}

/* Run the last calls of the communicator. */
static enum ar_status end_apart(struct world *w, int (*call)(struct world *w))
{
	start_apart(w, call);
	return wait_for(w, NCCL_IN_PROGRESS, poll_apart, "end", w->join.timeout_ns, NULL);
}

void world_close(struct world *w)
{
	if (!w)
		return;
	if (w->comm && !end_apart(w, end_comm))
		end_apart(w, destroy_comm);
	release(w);
}

int world_rank(const struct world *w)
{
	return w->join.rank;
}

int world_size(const struct world *w)
{
	return w->join.size;
}

const struct nccl *world_nccl(const struct world *w)
{
	return w->nccl;
}

int world_device(const struct world *w)
{
	return w->join.gpu ? w->join.device : -1;
}

void world_count_told(struct world *w, int64_t n)
{
	if (w->join.page)
		atomic_store(&w->join.page->told[w->join.rank], n);
}

enum ar_status world_agree(struct world *w, enum ar_status st)
{
	w->agreed |= st != AR_OK;
	return st;
}

bool world_has_ended(const struct world *w)
{
	return w->agreed || !w->comm;
}

void world_stop(struct world *w)
{
	give_up(w);
}

/* How long to wait: other ranks may take longer than this one did so far. */
static int64_t limit_of(struct world *w)
{
	const int64_t now = now_ns(), took = now - w->last_ns;
	const int64_t least = w->join.timeout_ns;
	int64_t limit;

	if (took > w->longest_ns)
		w->longest_ns = took;
	limit = num_mul(LONGEST_TIMES, w->longest_ns);
	return limit > least ? limit : least;
}

/* Wait for a call that returned `result`. */
static enum ar_status settle(struct world *w, int result, int (*poll)(struct world *w),
			     const char *what, struct ar_err *err)
{
	const int64_t limit = limit_of(w);
	enum ar_status st;

	count_step(w);
	st = wait_for(w, result, poll, what, limit, err);
	w->last_ns = now_ns();
	return st;
}

static enum ar_status gather_device(struct world *w, const void *mine, void *all, size_t bytes,
				    struct ar_err *err)
{
	void *from = NULL, *to = NULL;
	int result;
	enum ar_status st = world_device_put(w->device, mine, bytes, w->join.size, &from, &to, err);

	if (st)
		return st;
	w->stream = world_device_stream(w->device);
	result = w->nccl->AllGather(from, to, bytes, NCCL_UINT8, w->comm, w->stream);
	if (result)
		return failed(w, result, "gather", err);
	st = world_device_fetch(w->device, err);
	if (!st)
		st = settle(w, NCCL_IN_PROGRESS, poll_stream, "gather", err);
	if (!st)
		world_device_get(w->device, all);
	return st;
}

enum ar_status world_gather(struct world *w, const void *mine, void *all, size_t bytes,
			    struct ar_err *err)
{
	if (!w->comm)
		return stopped(w, err);
	if (HAVE_CUDA && w->device)
		return gather_device(w, mine, all, bytes, err);
	return settle(w, w->nccl->AllGather(mine, all, bytes, NCCL_UINT8, w->comm, NULL), poll_comm,
		      "gather", err);
}

/* Data in host memory are there when the call has ended. */
static enum ar_status enqueued(struct world *w, int result, const char *what, struct ar_err *err)
{
	if (!w->device)
		return settle(w, result, poll_comm, what, err);
	return result ? failed(w, result, what, err) : AR_OK;
}

enum ar_status world_reduce(struct world *w, bf16_t *x, size_t n, void *stream, struct ar_err *err)
{
	if (!w->comm)
		return stopped(w, err);
	return enqueued(w, w->nccl->AllReduce(x, x, n, NCCL_BF16, NCCL_SUM, w->comm, stream),
			"add up", err);
}

enum ar_status world_gather_on(struct world *w, const void *from, void *to, size_t bytes,
			       void *stream, struct ar_err *err)
{
	if (!w->comm)
		return stopped(w, err);
	return enqueued(w, w->nccl->AllGather(from, to, bytes, NCCL_UINT8, w->comm, stream),
			"gather", err);
}

enum ar_status world_scatter(struct world *w, const bf16_t *from, bf16_t *to, size_t n,
			     void *stream, struct ar_err *err)
{
	if (!w->comm)
		return stopped(w, err);
	return enqueued(w,
			w->nccl->ReduceScatter(from, to, n, NCCL_BF16, NCCL_SUM, w->comm, stream),
			"add up parts", err);
}

/* All messages of a group travel at once, also where one call of it fails. */
static int swap_all(const struct world *w, const char *from, char *to, size_t bytes, void *stream)
{
	int first = w->nccl->GroupStart(), last;

	for (int i = 0; i < w->join.size && !first; i++) {
		const size_t at = (size_t)i * bytes;

		first = w->nccl->Send(from + at, bytes, NCCL_UINT8, i, w->comm, stream);
		if (!first)
			first = w->nccl->Recv(to + at, bytes, NCCL_UINT8, i, w->comm, stream);
	}
	last = w->nccl->GroupEnd();
	return first ? first : last;
}

enum ar_status world_swap(struct world *w, const void *from, void *to, size_t bytes, void *stream,
			  struct ar_err *err)
{
	if (!w->comm)
		return stopped(w, err);
	return enqueued(w, swap_all(w, from, to, bytes, stream), "swap parts", err);
}

enum ar_status world_send(struct world *w, const void *from, void *to, size_t bytes, void *stream,
			  struct ar_err *err)
{
	const struct nccl *nccl = w->nccl;

	if (!w->comm)
		return stopped(w, err);
	return enqueued(w,
			w->join.rank ? nccl->Recv(to, bytes, NCCL_UINT8, 0, w->comm, stream) :
				       nccl->Send(from, bytes, NCCL_UINT8, 1, w->comm, stream),
			"send", err);
}

enum ar_status world_wait(struct world *w, void *stream, struct ar_err *err)
{
	if (!w->comm)
		return stopped(w, err);
	if (!w->device)
		return AR_OK;
	w->stream = stream;
	return settle(w, NCCL_IN_PROGRESS, poll_stream, "wait", err);
}
