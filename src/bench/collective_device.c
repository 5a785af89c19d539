/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives on GPUs, by the times of kernels.  A repeat is a barrier, an all-reduce of two
 * elements, and a chain: a small kernel and the collective, in turn.  The chain takes from the end
 * of the barrier to the end of the last kernel.  What a collective adds is that less the time of a
 * chain of small kernels alone, for each link: gaps between kernels belong to it.  A kernel holds
 * the stream until repeats are enqueued, so that no repeat waits for the host.  The layer number in
 * the trace is the repeat.
 */
#include "config.h"
#include "src/bench/collective.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/gpu.h"
#include "base/rng.h"
#include "kernels/layer/layer.h"
#include "kernels/prim/cuda.h"
#include "profiler/cupti/prof.h"
#include "replay/engine/graphs.h"
#include "replay/ranks/rank_id.h"
#include "src/run/rank_group.h"

enum { WARM = 2, BARRIER = 2, CHAIN = 8, SMALL = 8192, AT_ONCE = 20 };
static const int64_t hold_ns = 200000000;

/* The phases of a repeat's kernels. */
enum { IS_BARRIER = PHASE_HEAD, IS_SMALL = PHASE_NORM, IS_COMM = PHASE_COMM };

struct collective_rank {
	struct world *world;
	struct collective_env env;
	struct prof *prof;
	cudaStream_t stream;
	struct collective_buffers b; /* on the device */
	bf16_t *barrier, *small;     /* on the device */
	bf16_t *host;		     /* the result on the host */
	volatile int *go;	     /* pinned */
	/* The current one.  NULL: small kernels alone. */
	const struct collective *c;
	int64_t small_ns[2]; /* a link of the chain of small kernels, in line and in a graph */
};

/* Of a repeat, from the trace. */
struct span {
	int64_t barrier_end, end, own; /* own: of its collectives together */
	int n;			       /* of its collectives */
};

static void close_device(struct collective_rank *r)
{
	if (!r)
		return;
	world_close(r->world);
	cudaFree(r->b.in);
	cudaFree(r->b.out);
	cudaFree(r->barrier);
	cudaFree(r->small);
	cudaFreeHost((void *)r->go);
	cudaFreeHost(r->host);
	if (r->stream)
		cudaStreamDestroy(r->stream);
	prof_close(r->prof);
	free(r);
}

static enum ar_status take_memory(struct collective_rank *r, struct ar_err *err)
{
	const size_t bytes = (size_t)r->env.bytes;
	enum ar_status st = AR_OK;

	CU(cudaStreamCreate(&r->stream));
	CU(cudaMalloc((void **)&r->b.in, bytes));
	CU(cudaMalloc((void **)&r->b.out, bytes));
	CU(cudaMalloc((void **)&r->barrier, BARRIER * sizeof *r->barrier));
	CU(cudaMemset(r->barrier, 0, BARRIER * sizeof *r->barrier));
	CU(cudaMalloc((void **)&r->small, SMALL * sizeof *r->small));
	CU(cudaHostAlloc((void **)&r->go, sizeof *r->go, cudaHostAllocMapped));
	CU(cudaHostAlloc((void **)&r->host, bytes, cudaHostAllocDefault));
out:
	return st;
}

static enum ar_status find_device(struct collective_rank *r, struct collective_about *about,
				  struct ar_err *err)
{
	const struct gpu *gpu;
	int n = 0, cuda = 0;
	enum ar_status st = AR_OK;

	if (cudaGetDeviceCount(&n) != cudaSuccess || r->env.device >= n)
		return ar_fail(err, AR_NODEV,
			       "there is no GPU %d, only %d of them; each rank needs one: change "
			       "--tp or --devices",
			       r->env.device, n);
	CU(cudaSetDevice(r->env.device));
	CU(cudaDriverGetVersion(&cuda));
	st = gpu_current(&gpu, err);
	if (st)
		return st;
	snprintf(about->gpu, sizeof about->gpu, "%s", gpu->name);
	snprintf(about->driver, sizeof about->driver, "CUDA %d.%d", cuda / 1000, cuda % 1000 / 10);
	st = layer_supported(err);
out:
	return st;
}

static enum ar_status open_device(struct collective_rank **out, const struct world_join *j,
				  const struct collective_env *env, struct collective_about *about,
				  struct ar_err *err)
{
	struct collective_rank *r = calloc(1, sizeof *r);
	struct world_join mine = *j;
	enum ar_status st;

	*out = NULL;
	if (!r)
		return ar_nomem(err);
	r->env = *env;
	mine.gpu = true;
	mine.device = env->device;
	st = prof_open(&r->prof, err);
	if (!st)
		st = find_device(r, about, err);
	if (!st)
		st = take_memory(r, err);
	if (!st)
		st = rank_join(&r->world, &mine, err);
	if (st)
		close_device(r);
	else
		*out = r;
	return st;
}

static void mark(const struct collective_rank *r, int repeat, int phase)
{
	prof_phase(r->prof, repeat < 0 ? PHASE_NO_LAYER : repeat,
		   repeat < 0 ? PHASE_NONE : (enum phase)phase);
}

static enum ar_status enqueue_one(struct collective_rank *r, int repeat, struct ar_err *err)
{
	enum ar_status st;

	mark(r, repeat, IS_BARRIER);
	st = world_reduce(r->world, r->barrier, BARRIER, r->stream, err);
	for (int k = 0; k < CHAIN && !st; k++) {
		mark(r, repeat, IS_SMALL);
		st = layer_fill(r->small, SMALL, 1, 1, r->stream, err);
		mark(r, repeat, IS_COMM);
		if (!st && r->c)
			st = collective_enqueue(r->world, &r->b, r->c, r->stream, err);
	}
	prof_phase(r->prof, PHASE_NO_LAYER, PHASE_NONE);
	return st;
}

/* Enqueue repeats from `from` on.  Those below 0 are of no phase. */
static enum ar_status enqueue(struct collective_rank *r, int from, int to, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (int i = from; i < to && !st; i++)
		st = enqueue_one(r, i, err);
	return st;
}

static enum ar_status enqueue_all(void *self, struct ar_err *err)
{
	struct collective_rank *r = self;

	return enqueue(r, 0, r->env.repeat, err);
}

/* The digest of one result from random inputs, which differ between ranks. */
static enum ar_status look(struct collective_rank *r, struct collective_seen *seen,
			   struct ar_err *err)
{
	size_t n;
	bf16_t *in = collective_input(&r->b, r->c, world_size(r->world), &n);
	const uint64_t seed = rng_mix(r->env.seed + (uint64_t)world_rank(r->world));
	enum ar_status st = layer_fill(in, n, seed, 1, r->stream, err);

	if (!st)
		st = collective_enqueue(r->world, &r->b, r->c, r->stream, err);
	if (!st)
		st = world_wait(r->world, r->stream, err);
	if (st)
		return st;
	CU(cudaMemcpy(r->host, r->b.out, (size_t)r->c->bytes, cudaMemcpyDeviceToHost));
	seen->digest = collective_digest(r->host, (size_t)r->c->bytes / sizeof *r->host);
	CU(cudaMemsetAsync(r->b.in, 0, (size_t)r->env.bytes, r->stream));
	CU(cudaMemsetAsync(r->b.out, 0, (size_t)r->env.bytes, r->stream));
out:
	return st;
}

/* Hold the stream while repeats are enqueued. */
static enum ar_status run_held(struct collective_rank *r, int from, int to, struct ar_err *err)
{
	enum ar_status st;

	*r->go = 0;
	st = layer_hold(r->go, hold_ns, r->stream, err);
	if (!st)
		st = enqueue(r, from, to, err);
	*r->go = 1;
	return st ? st : world_wait(r->world, r->stream, err);
}

static enum ar_status run_inline(struct collective_rank *r, struct ar_err *err)
{
	const int n = r->env.repeat;
	enum ar_status st = enqueue(r, -WARM, 0, err);

	for (int i = 0; i < n && !st; i += AT_ONCE)
		st = run_held(r, i, i + AT_ONCE < n ? i + AT_ONCE : n, err);
	return st;
}

/* The first launch of a graph warms up. */
static enum ar_status run_graph(struct collective_rank *r, struct ar_err *err)
{
	const struct prof_kernel *k;
	struct graphs g;
	size_t n;
	enum ar_status st = graphs_init(&g, 0, err);

	if (!st)
		st = graphs_capture(&g, 0, enqueue_all, r, r->stream, err);
	for (int i = 0; i < 2 && !st; i++) {
		if (i)
			st = prof_collect(r->prof, &k, &n, err);
		if (!st)
			st = graphs_launch(&g, 0, r->stream, err);
		if (!st)
			st = world_wait(r->world, r->stream, err);
	}
	graphs_release(&g);
	return st;
}

/* The spans of all repeats, to span[repeat]. */
static enum ar_status read_spans(struct collective_rank *r, struct span *span,
				 struct collective_seen *seen, struct ar_err *err)
{
	const struct prof_kernel *k;
	size_t n;
	enum ar_status st = prof_collect(r->prof, &k, &n, err);

	for (int i = 0; i < r->env.repeat; i++)
		span[i] = (struct span){ .end = INT64_MIN };
	for (; n && !st; n--, k++) {
		struct span *x = span + (k->layer < r->env.repeat ? k->layer : 0);

		if (k->phase == PHASE_NONE || k->layer >= r->env.repeat)
			continue;
		if ((int)k->phase == IS_BARRIER)
			x->barrier_end = k->end_ns;
		else if (k->end_ns > x->end)
			x->end = k->end_ns;
		if (k->phase != PHASE_COMM)
			continue;
		x->own += k->end_ns - k->start_ns;
		x->n++;
		collective_kernel(k->name, seen->kernel);
	}
	return st;
}

static enum ar_status take_spans(struct collective_rank *r, struct span *span,
				 struct collective_time *took, struct collective_seen *seen,
				 struct ar_err *err)
{
	const int64_t alone = r->c ? r->small_ns[r->c->graph] : 0;
	const int want = r->c ? CHAIN : 0;
	enum ar_status st = read_spans(r, span, seen, err);

	for (int i = 0; i < r->env.repeat && !st; i++) {
		if (!span[i].barrier_end || span[i].end == INT64_MIN || span[i].n != want)
			return ar_fail(err, AR_CUDA, "CUPTI has seen %d kernels of %d collectives",
				       span[i].n, want);
		took[i].adds_ns = (span[i].end - span[i].barrier_end) / CHAIN - alone;
		took[i].own_ns = span[i].own / CHAIN;
	}
	return st;
}

static enum ar_status run_chain(struct collective_rank *r, bool graph, struct collective_time *took,
				struct collective_seen *seen, struct ar_err *err)
{
	struct span *span = calloc((size_t)r->env.repeat, sizeof *span);
	enum ar_status st = !span ? ar_nomem(err) : graph ? run_graph(r, err) : run_inline(r, err);

	if (!st)
		st = take_spans(r, span, took, seen, err);
	free(span);
	return st;
}

static int by_time(const void *a, const void *b)
{
	const struct collective_time *x = a, *y = b;

	return (x->adds_ns > y->adds_ns) - (x->adds_ns < y->adds_ns);
}

/* The median of the chain of small kernels. */
static enum ar_status measure_small(struct collective_rank *r, bool graph,
				    struct collective_time *took, struct ar_err *err)
{
	struct collective_seen unused;
	enum ar_status st;

	r->c = NULL;
	st = run_chain(r, graph, took, &unused, err);
	qsort(took, (size_t)r->env.repeat, sizeof *took, by_time);
	r->small_ns[graph] = took[r->env.repeat / 2].adds_ns;
	return st;
}

static enum ar_status measure_device(struct collective_rank *r, const struct collective *c,
				     struct collective_time *took, struct collective_seen *seen,
				     struct ar_err *err)
{
	enum ar_status st = r->small_ns[c->graph] ? AR_OK : measure_small(r, c->graph, took, err);

	r->c = c;
	if (!st)
		st = look(r, seen, err);
	return st ? st : run_chain(r, c->graph, took, seen, err);
}

const struct collective_way collective_device = { "device", "cupti", open_device, measure_device,
						  close_device };
