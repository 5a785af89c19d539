/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks on two GPUs over NCCL, each a process: what they add up and gather, in line and in CUDA
 * graphs, behind a kernel that holds the stream; and how they end if one dies or hangs.  A library
 * that lets ranks share a GPU (NCCL_MULTI_RANK_GPU_ENABLE=1) needs one. */
#include "config.h"
#include "tests/tap.h"

enum { N_TEST = 15, RANKS = 2 };

#if HAVE_CUDA
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kernels/layer/layer.h"
#include "kernels/prim/cuda.h"
#include "replay/engine/graphs.h"
#include "replay/ranks/world.h"
#include "src/run/workers.h"
#include "tests/rank_processes.h"

enum { ROWS = 2048, WIDTH = 4096, CALLS = 200, IN_GRAPH = 20, LAUNCHES = 30 };
#define HOLD_NS 20000000
#define LIMIT_NS 2000000000

/* What a rank does beside its sums. */
enum act { WORK, DIE, SLEEP };

static struct shared {
	struct rank_page page;
	struct end {
		enum ar_status st;
		struct ar_err err;
		bool gathered, added, captured, done;
		uint64_t digest; /* of the sums */
		double gather_us, line_us[2], graph_us[2], leave_ms;
		int signal;
	} end[RANKS];
} * shared;

struct rank {
	struct world *w;
	struct end *e;
	cudaStream_t stream;
	bf16_t *x, *all;
	int *go;
	struct graphs graphs;
	int rows; /* of a sum */
};

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static enum ar_status gather(struct rank *r, struct ar_err *err)
{
	char mine[256], all[RANKS * 256];
	const double start = now_us();
	enum ar_status st = AR_OK;

	r->e->gathered = true;
	for (int i = 0; i < CALLS && !st; i++) {
		memset(mine, 'a' + world_rank(r->w) + i % 8, sizeof mine);
		st = world_gather(r->w, mine, all, sizeof mine, err);
		for (int k = 0; k < RANKS * 256 && !st; k++)
			r->e->gathered &= all[k] == 'a' + k / 256 + i % 8;
	}
	r->e->gather_us = (now_us() - start) / CALLS;
	return st;
}

/* Sums in a row, as in a decoder. */
static enum ar_status enqueue(void *ctx, struct ar_err *err)
{
	struct rank *r = ctx;
	const size_t n = (size_t)r->rows * WIDTH;
	enum ar_status st = AR_OK;

	for (int i = 0; i < IN_GRAPH && !st; i++)
		st = world_reduce(r->w, r->x, n, r->stream, err);
	return st ? st : world_gather_on(r->w, r->x, r->all, n * sizeof *r->x, r->stream, err);
}

/* Time of the sums behind a hold that ends when all is enqueued; graph: from a graph. */
static enum ar_status run_held(struct rank *r, bool graph, double *us, struct ar_err *err)
{
	cudaEvent_t begin, end;
	enum ar_status st;
	float ms = 0;

	*r->go = 0;
	CU(cudaEventCreate(&begin));
	CU(cudaEventCreate(&end));
	CU(cudaMemsetAsync(r->x, 0, (size_t)r->rows * WIDTH * sizeof *r->x, r->stream));
	st = layer_hold(r->go, HOLD_NS, r->stream, err);
	if (!st)
		st = world_reduce(r->w, r->all, 1, r->stream, err); /* a barrier */
	CU(cudaEventRecord(begin, r->stream));
	if (!st)
		st = graph ? graphs_launch(&r->graphs, r->rows, r->stream, err) : enqueue(r, err);
	CU(cudaEventRecord(end, r->stream));
	*r->go = 1;
	if (!st)
		st = world_wait(r->w, r->stream, err);
	if (st)
		return st;
	CU(cudaEventElapsedTime(&ms, begin, end));
	*us = (double)ms * 1e3 / (IN_GRAPH + 1);
	cudaEventDestroy(begin);
	cudaEventDestroy(end);
out:
	return st;
}

/* Sums of values that differ between ranks: the bits of all ranks must be the same. */
static enum ar_status add_up(struct rank *r, struct ar_err *err)
{
	const size_t n = (size_t)ROWS * WIDTH;
	bf16_t *host = malloc(n * sizeof *host);
	enum ar_status st = host ? AR_OK : ar_nomem(err);

	if (st)
		return st;
	for (size_t i = 0; i < n; i++)
		host[i] = bf16_from_f32((float)(i % 1021) * (world_rank(r->w) ? 0.37f : 1.f));
	CU(cudaMemcpy(r->x, host, n * sizeof *host, cudaMemcpyHostToDevice));
	st = world_reduce(r->w, r->x, n, r->stream, err);
	if (!st)
		st = world_wait(r->w, r->stream, err);
	if (st)
		goto out;
	CU(cudaMemcpy(host, r->x, n * sizeof *host, cudaMemcpyDeviceToHost));
	r->e->added = true;
	for (size_t i = 0; i < n; i++) {
		const float a = bf16_round((float)(i % 1021)),
			    b = bf16_round((float)(i % 1021) * 0.37f);

		r->e->added &= host[i] == bf16_from_f32(a + b);
		r->e->digest = r->e->digest * 1000003 + host[i];
	}
out:
	free(host);
	return st;
}

static enum ar_status measure(struct rank *r, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (int k = 0; k < 2 && !st; k++) {
		r->rows = k ? ROWS : 64;
		for (int i = 0; i < 3 && !st; i++)
			st = run_held(r, false, &r->e->line_us[k], err);
		if (!st)
			st = graphs_capture(&r->graphs, r->rows, enqueue, r, r->stream, err);
		for (int i = 0; i < LAUNCHES && !st; i++)
			st = run_held(r, true, &r->e->graph_us[k], err);
	}
	r->e->captured = !st;
	return st;
}

static enum ar_status open_rank(struct rank *r, struct ar_err *err)
{
	const size_t bytes = (size_t)ROWS * WIDTH * sizeof *r->x;
	enum ar_status st = graphs_init(&r->graphs, ROWS, err);

	if (st)
		return st;
	CU(cudaStreamCreate(&r->stream));
	CU(cudaMalloc((void **)&r->x, bytes));
	CU(cudaMalloc((void **)&r->all, RANKS * bytes));
	CU(cudaMallocHost((void **)&r->go, sizeof *r->go));
out:
	return st;
}

/* Launch graphs until the other rank is gone. */
static enum ar_status go_on(struct rank *r, enum act act, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	double us;

	for (int i = 0; i < 20 && !st; i++) {
		if (i == 10 && act == DIE)
			kill(getpid(), SIGKILL);
		if (i == 10 && act == SLEEP)
			sleep(5);
		st = run_held(r, true, &us, err);
	}
	return st;
}

static void run_rank(int rank, enum act act)
{
	struct end *e = &shared->end[rank];
	struct rank r = { .e = e };
	struct world_join join = { .rank = rank,
				   .size = RANKS,
				   .join_ns = 20000000000,
				   .timeout_ns = LIMIT_NS,
				   .page = &shared->page,
				   .gpu = true,
				   .device = rank % rank_gpus(RANKS) };
	const struct nccl *nccl;
	double start;

	e->st = nccl_load(&nccl, &e->err);
	if (!e->st && !rank && !nccl->GetUniqueId(&shared->page.id))
		atomic_store(&shared->page.has_id, 1);
	while (!e->st && !atomic_load(&shared->page.has_id))
		usleep(1000);
	join.id = shared->page.id;
	if (!e->st)
		e->st = world_open(&r.w, &join, &e->err);
	if (!e->st)
		e->st = open_rank(&r, &e->err);
	if (!e->st)
		e->st = gather(&r, &e->err);
	if (!e->st)
		e->st = add_up(&r, &e->err);
	if (!e->st)
		e->st = measure(&r, &e->err);
	if (!e->st)
		e->st = go_on(&r, rank ? act : WORK, &e->err);
	start = now_us();
	graphs_release(&r.graphs);
	world_close(r.w);
	e->leave_ms = (now_us() - start) / 1e3;
	e->done = true;
	_exit(0);
}

/* act: of rank 1.  Returns the milliseconds until all had ended. */
static double run_all(enum act act)
{
	const double start = now_us();
	pid_t child[RANKS];
	int status;

	memset(shared, 0, sizeof *shared);
	fflush(NULL);
	for (int i = 0; i < RANKS; i++)
		if (!(child[i] = fork()))
			run_rank(i, act);
	for (int i = RANKS - 1; i >= 0; i--) {
		waitpid(child[i], &status, 0);
		shared->end[i].signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
		if (shared->end[i].signal) /* as the parent of ranks does */
			rank_page_fail(&shared->page, i);
	}
	return (now_us() - start) / 1e3;
}

static void both(bool right, const char *what)
{
	if (ok(right, "%s", what))
		return;
	for (int i = 0; i < RANKS; i++)
		diag("rank %d: status %d, signal %d, %s", i, (int)shared->end[i].st,
		     shared->end[i].signal, shared->end[i].err.msg);
}

static void test_work(void)
{
	const struct end *e = shared->end;
	double ms = run_all(WORK);

	both(!e[0].st && !e[1].st && e[0].done && e[1].done, "two ranks work and end");
	both(e[0].gathered && e[1].gathered, "... gather records of the host");
	both(e[0].added && e[1].added, "... add up");
	both(e[0].digest == e[1].digest, "... to the same bits");
	both(e[0].captured && e[1].captured, "... in CUDA graphs, too");
	diag("%.0f ms in all; a gather of records %.1f us; a sum of 64 and %d rows in line %.1f, "
	     "%.1f us, in a graph %.1f, %.1f; to leave %.1f, %.1f ms",
	     ms, e[0].gather_us, ROWS, e[0].line_us[0], e[0].line_us[1], e[0].graph_us[0],
	     e[0].graph_us[1], e[0].leave_ms, e[1].leave_ms);
}

static void test_failures(void)
{
	const struct end *e = shared->end;
	double ms = run_all(DIE);

	both(e[1].signal == SIGKILL, "a rank is killed");
	both(e[0].st == AR_IO && strstr(e[0].err.msg, "another rank has failed"),
	     "... and the other ends");
	both(e[0].done && !e[0].signal, "... in order");
	diag("%.0f ms in all, %.1f to leave", ms, e[0].leave_ms);
	ms = run_all(SLEEP);
	both(e[0].st == AR_IO && strstr(e[0].err.msg, "no answer from rank 1 within"),
	     "a rank that hangs is named");
	both(e[0].done && e[1].done && e[1].st, "... and both end");
	diag("%.0f ms in all, %.1f to leave", ms, e[0].leave_ms);
}

int main(void)
{
	plan(N_TEST);
	if (!ranks_have_gpus(RANKS)) {
		skip(N_TEST, "fewer than two GPUs, or no NCCL");
		return done_testing();
	}
	shared = workers_share(sizeof *shared);
	if (!shared)
		bail_out("no memory");
	test_work();
	test_failures();
	test_work(); /* the GPUs are of use again */
	workers_unshare(shared, sizeof *shared);
	return done_testing();
}
#else
int main(void)
{
	plan(N_TEST);
	skip(N_TEST, "built without CUDA");
	return done_testing();
}
#endif
