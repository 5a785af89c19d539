/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/ranks/world.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/number.h"

enum { SPIN_NS = 1000000, NAP_NS = 50000, STOP_NS = 500000000, LONGEST_TIMES = 20 };

struct world {
	struct world_join join;
	const struct nccl *nccl;
	struct nccl_comm *comm;	     /* NULL: aborted */
	int64_t last_ns, longest_ns; /* end of the last call; the longest time from one on */
	long long step;		     /* calls of this rank */
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

/* No call of the library after this. */
static void give_up(struct world *w)
{
	if (w->join.page)
		rank_page_fail(w->join.page, w->join.rank);
	if (w->comm)
		w->nccl->CommAbort(w->comm);
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

/* Wait as others do: at first without sleep. */
static void rest(int64_t waited_ns)
{
	const struct timespec nap = { 0, NAP_NS };

	if (waited_ns < SPIN_NS)
		sched_yield();
	else
		nanosleep(&nap, NULL);
}

/* Wait until the call that returned `result` has ended, for at most `limit` ns. */
static enum ar_status wait_for(struct world *w, int result, const char *what, int64_t limit,
			       struct ar_err *err)
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
		if (w->nccl->CommGetAsyncError(w->comm, &result))
			result = NCCL_REMOTE_ERROR;
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

static enum ar_status join_all(struct world *w, struct ar_err *err)
{
	const struct world_join *j = &w->join;
	struct nccl_config config = { .size = sizeof config,
				      .magic = NCCL_MAGIC,
				      .version = NCCL_OLDEST,
				      .blocking = 0,
				      .cga_cluster_size = NCCL_UNDEFINED,
				      .min_ctas = NCCL_UNDEFINED,
				      .max_ctas = NCCL_UNDEFINED,
				      .split_share = NCCL_UNDEFINED };
	int result = w->nccl->CommInitRankConfig(&w->comm, j->size, j->id, j->rank, &config);

	count_step(w);
	if (result && result != NCCL_IN_PROGRESS)
		w->comm = NULL;
	return wait_for(w, result, "join the other ranks", j->join_ns, err);
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
	if (!st)
		st = join_all(w, err);
	w->last_ns = now_ns();
	if (!st)
		*out = w;
	else
		free(w);
	return st;
}

void world_close(struct world *w)
{
	if (!w)
		return;
	if (w->comm &&
	    !wait_for(w, w->nccl->CommFinalize(w->comm), "end", w->join.timeout_ns, NULL))
		w->nccl->CommDestroy(w->comm);
	free(w);
}

int world_rank(const struct world *w)
{
	return w->join.rank;
}

int world_size(const struct world *w)
{
	return w->join.size;
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

enum ar_status world_gather(struct world *w, const void *mine, void *all, size_t bytes,
			    struct ar_err *err)
{
	const int64_t limit = limit_of(w);
	enum ar_status st;
	int result;

	if (!w->comm)
		return stopped(w, err);
	result = w->nccl->AllGather(mine, all, bytes, NCCL_UINT8, w->comm, NULL);
	count_step(w);
	st = wait_for(w, result, "gather", limit, err);
	w->last_ns = now_ns();
	return st;
}
