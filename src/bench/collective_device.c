/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives on GPUs, by the times of their kernels.  Each repeat is a barrier, which is an
 * all-reduce of two elements, and the collective.  A kernel holds the stream until all repeats are
 * enqueued, so that no repeat waits for the host.  The layer number in the trace is the repeat.
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

enum { WARM = 4, BARRIER = 2 };
static const int64_t hold_ns = 200000000;

struct collective_rank {
	struct world *world;
	struct collective_env env;
	struct prof *prof;
	cudaStream_t stream;
	struct collective_buffers b; /* on the device */
	bf16_t *barrier, *host;	     /* on the device; the result on the host */
	volatile int *go;	     /* pinned */
	const struct collective *c;  /* the current one */
};

static void close_device(struct collective_rank *r)
{
	if (!r)
		return;
	world_close(r->world);
	cudaFree(r->b.in);
	cudaFree(r->b.out);
	cudaFree(r->barrier);
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
			       "there is no GPU %d, only %d of them; each rank needs one: lower "
			       "--tp or --device",
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

/* Enqueue repeats from `from` on, in turn with barriers.  Those below 0 are of no phase. */
static enum ar_status enqueue(struct collective_rank *r, int from, int to, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (int i = from; i < to && !st; i++) {
		st = world_reduce(r->world, r->barrier, BARRIER, r->stream, err);
		prof_phase(r->prof, i < 0 ? PHASE_NO_LAYER : i, i < 0 ? PHASE_NONE : PHASE_COMM);
		if (!st)
			st = collective_enqueue(r->world, &r->b, r->c, r->stream, err);
		prof_phase(r->prof, PHASE_NO_LAYER, PHASE_NONE);
	}
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
	enum ar_status st = layer_fill(in, n, rng_mix(r->env.seed + (uint64_t)r->env.device), 1,
				       r->stream, err);

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

/* Hold the stream while all repeats are enqueued. */
static enum ar_status run_inline(struct collective_rank *r, struct ar_err *err)
{
	enum ar_status st = enqueue(r, -WARM, 0, err);

	*r->go = 0;
	if (!st)
		st = layer_hold(r->go, hold_ns, r->stream, err);
	if (!st)
		st = enqueue(r, 0, r->env.repeat, err);
	*r->go = 1;
	return st ? st : world_wait(r->world, r->stream, err);
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

static enum ar_status read_times(struct collective_rank *r, int64_t *ns,
				 struct collective_seen *seen, struct ar_err *err)
{
	const struct prof_kernel *k;
	size_t n;
	int found = 0;
	enum ar_status st = prof_collect(r->prof, &k, &n, err);

	for (size_t i = 0; i < n && !st; i++) {
		if (k[i].phase != PHASE_COMM || k[i].layer >= r->env.repeat)
			continue;
		ns[k[i].layer] = k[i].end_ns - k[i].start_ns;
		collective_kernel(k[i].name, seen->kernel);
		found++;
	}
	if (!st && found != r->env.repeat)
		st = ar_fail(err, AR_CUDA,
			     "CUPTI has seen %d kernels of %d collectives of %lld bytes", found,
			     r->env.repeat, (long long)r->c->bytes);
	return st;
}

static enum ar_status measure_device(struct collective_rank *r, const struct collective *c,
				     int64_t *ns, struct collective_seen *seen, struct ar_err *err)
{
	enum ar_status st;

	r->c = c;
	st = look(r, seen, err);
	if (!st)
		st = c->graph ? run_graph(r, err) : run_inline(r, err);
	return st ? st : read_times(r, ns, seen, err);
}

const struct collective_way collective_device = { "device", "cupti", open_device, measure_device,
						  close_device };
