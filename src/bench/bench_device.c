/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device, launches and their times.  Repeats take turns on the sets of a load.  All repeats are
 * enqueued while the GPU waits, so later it does not wait for the host.  It rests as long as for
 * other programs in contrib/bench_torch.py, as its clock depends on that.  In the trace the layer
 * number is the repeat, so that each kernel is counted for its repeat.
 *
 * Decodes have more warm-ups, as some 15 launches are slower after their inputs were written.  On
 * an H200 the median of the first ten of 32 x 8K is 128.3 us, of later ones 125.9, whether the
 * process is traced or not, and however long it rests.  With 60 warm-ups the first ten take 125.9.
 * Products or reads in between do not make later launches slow again.
 */
#include "config.h"
#include "src/bench/bench_load.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/stats.h"
#include "kernels/layer/layer.h"
#include "kernels/prim/cuda.h"

static const int64_t ahead_ns = 20000000;
enum { WARM = 3, WARM_DECODE = 20, MARKS = BENCH_STAGES + 1 };

/* ---- the device ---- */

static enum ar_status find_device(struct bench_device *d, struct ar_err *err)
{
	const struct gpu *gpu;
	int n = 0;
	cudaError_t e = cudaGetDeviceCount(&n);
	enum ar_status st = AR_OK;

	if (e != cudaSuccess || n < 1)
		return ar_fail(err, AR_NODEV,
			       "no usable GPU: %s; a benchmark needs one, --dry-run "
			       "does not",
			       e == cudaSuccess ? "there is none" : cudaGetErrorString(e));
	if (d->env.device >= n)
		return ar_fail(err, AR_NODEV, "there is no GPU %d, only 0...%d; change --device",
			       d->env.device, n - 1);
	CU(cudaSetDevice(d->env.device));
	st = gpu_current(&gpu, err);
	if (st)
		return st;
	snprintf(d->name, sizeof d->name, "%.*s", (int)sizeof d->name - 1, gpu->name);
	d->l2_bytes = gpu->l2_bytes;
	st = layer_supported(err);
out:
	return st;
}

static enum ar_status make_marks(struct bench_device *d, struct ar_err *err)
{
	size_t n = (size_t)d->env.repeat;
	enum ar_status st = AR_OK;

	d->event = calloc(n * MARKS, sizeof *d->event);
	d->time = calloc(n, sizeof *d->time);
	d->span = calloc(n, sizeof *d->span);
	if (!d->event || !d->time || !d->span)
		return ar_nomem(err);
	CU(cudaStreamCreate(&d->stream));
	CU(cudaMallocHost((void **)&d->go, sizeof *d->go));
	for (size_t i = 0; i < n * MARKS; i++)
		CU(cudaEventCreate(&d->event[i]));
out:
	return st;
}

enum ar_status bench_open(struct bench_device **out, const struct bench_env *env,
			  struct ar_err *err)
{
	struct bench_device *d = calloc(1, sizeof *d);
	struct ar_err no_prof = { 0 };
	enum ar_status st;

	*out = NULL;
	if (!d)
		return ar_nomem(err);
	d->env = *env;
	prof_open(&d->prof, &no_prof);
	st = find_device(d, err);
	if (!st)
		st = make_marks(d, err);
	if (!st)
		st = method_parse(&d->method, "compact-fp", err);
	if (st) {
		bench_close(d);
		return st;
	}
	if (no_prof.status)
		log_warn("%s; times are those of CUDA events, launch gaps included", no_prof.msg);
	*out = d;
	return AR_OK;
}

void bench_close(struct bench_device *d)
{
	if (!d)
		return;
	for (int i = 0; d->event && i < d->env.repeat * MARKS; i++)
		if (d->event[i])
			cudaEventDestroy(d->event[i]);
	if (d->stream)
		cudaStreamDestroy(d->stream);
	cudaFreeHost((void *)d->go);
	prof_close(d->prof);
	method_free(d->method);
	free(d->event);
	free(d->time);
	free(d->span);
	free(d);
}

const char *bench_gpu(const struct bench_device *d)
{
	return d->name;
}

/* ---- times ---- */

static double median(double *x, int n)
{
	stats_sort(x, (size_t)n);
	return stats_percentile(x, (size_t)n, 50);
}

/* Times of all repeats of one phase, from the trace, to d->time.  False: a repeat has no kernel. */
static bool trace_times(struct bench_device *d, const struct prof_kernel *k, size_t n,
			enum phase phase)
{
	for (int i = 0; i < d->env.repeat; i++)
		d->span[i][0] = INT64_MAX, d->span[i][1] = INT64_MIN;
	for (; n--; k++) {
		int64_t *span;

		if (k->phase != phase || k->layer >= d->env.repeat)
			continue;
		span = d->span[k->layer];
		span[0] = k->start_ns < span[0] ? k->start_ns : span[0];
		span[1] = k->end_ns > span[1] ? k->end_ns : span[1];
	}
	for (int i = 0; i < d->env.repeat; i++) {
		if (d->span[i][1] < d->span[i][0])
			return false;
		d->time[i] = (double)(d->span[i][1] - d->span[i][0]) * 1e-3;
	}
	return true;
}

static enum ar_status read_times(const struct bench_load *l, struct bench_result *r,
				 struct ar_err *err)
{
	struct bench_device *d = l->d;
	const struct prof_kernel *kernel = NULL;
	int n = d->env.repeat;
	size_t n_kernel = 0;
	enum ar_status st = d->prof ? prof_collect(d->prof, &kernel, &n_kernel, err) : AR_OK;

	if (st)
		return st;
	for (int k = 0; k < l->n_stage; k++) {
		for (int i = 0; i < n; i++) {
			cudaEvent_t *e = &d->event[i * MARKS + k];
			float ms;

			CU(cudaEventElapsedTime(&ms, e[0], e[1]));
			d->time[i] = ms * 1e3;
		}
		r[k].us = r[k].event_us = median(d->time, n);
		r[k].min_us = d->time[0];
		r[k].traced = trace_times(d, kernel, n_kernel, l->stage[k]);
		if (!r[k].traced)
			continue;
		r[k].us = median(d->time, n);
		r[k].min_us = d->time[0];
	}
out:
	return st;
}

/* Let the GPU wait: the host gets ahead, and gaps between short kernels are the GPU's own. */
static enum ar_status get_ahead(const struct bench_device *d, struct ar_err *err)
{
	*d->go = 0;
	return layer_hold(d->go, ahead_ns, d->stream, err);
}

void bench_stage(void *load, int layer, enum phase phase)
{
	struct bench_load *l = load;
	int i = l->repeat < 0 ? 0 : l->repeat;

	(void)layer;
	assert(l->n_stage < BENCH_STAGES);
	prof_phase(l->d->prof, l->repeat < 0 ? PHASE_NO_LAYER : l->repeat, phase);
	cudaEventRecord(l->d->event[i * MARKS + l->n_stage], l->d->stream);
	l->stage[l->n_stage++] = phase;
}

enum ar_status bench_launch(struct bench_load *l, bench_launch_fn *launch, int repeat, int set,
			    struct ar_err *err)
{
	enum ar_status st;

	l->repeat = repeat;
	l->n_stage = 0;
	st = launch(l, set, err);
	if (!st)
		CU(cudaEventRecord(l->d->event[(repeat < 0 ? 0 : repeat) * MARKS + l->n_stage],
				   l->d->stream));
	prof_phase(l->d->prof, PHASE_NO_LAYER, PHASE_NONE);
out:
	return st;
}

enum ar_status bench_measure(struct bench_load *l, bench_launch_fn *launch, struct bench_result *r,
			     struct ar_err *err)
{
	const int warm = l->c && bench_decodes(l->c->what) ? WARM_DECODE : WARM;
	enum ar_status st = AR_OK;

	for (int i = -warm; i < l->d->env.repeat && !st; i++) {
		if (!i)
			st = get_ahead(l->d, err);
		if (!st)
			st = bench_launch(l, launch, i, (i + warm) % l->n_set, err);
	}
	if (st)
		return st;
	CU(cudaStreamSynchronize(l->d->stream));
	st = read_times(l, r, err);
out:
	return st;
}
