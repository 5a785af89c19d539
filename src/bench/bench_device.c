/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inputs, launches and times.  Repeats take turns on the sets of a load.  All repeats are enqueued
 * behind other work before the first is waited for, so that the GPU does not wait for the host.  In
 * the trace the layer number is the repeat, so that each kernel is counted for its repeat.
 */
#include "config.h"
#include "src/bench/bench_load.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/rng.h"
#include "base/stats.h"
#include "kernels/layer/layer.h"
#include "kernels/prim/cuda.h"

static const size_t ahead_bytes = (size_t)6 << 30;
enum { WARM = 3, MARKS = BENCH_STAGES + 1, L2_TIMES = 4, MAX_SETS = 64 };

struct step {
	enum phase phase;
	enum ar_status (*enqueue)(const struct bench_load *l, int set, struct ar_err *err);
};

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

/* ---- loads ---- */

void bench_drop(struct bench_load *l, int keep)
{
	cudaDeviceSynchronize();
	while (l->n_alloc > keep)
		cudaFree(l->alloc[--l->n_alloc]);
}

static void load_release(struct bench_load *l)
{
	bench_drop(l, 0);
	gemm_close(l->gemm);
}

enum ar_status bench_take(struct bench_load *l, void *to, size_t bytes, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	void *p;

	assert(l->n_alloc < BENCH_ALLOCS);
	CU(cudaMalloc(&p, bytes ? bytes : 1));
	l->alloc[l->n_alloc++] = p;
	memcpy(to, &p, sizeof p);
out:
	return st;
}

enum ar_status bench_upload(struct bench_load *l, void *to, const void *host, size_t bytes,
			    struct ar_err *err)
{
	enum ar_status st = bench_take(l, to, bytes, err);
	void *p;

	if (st)
		return st;
	memcpy(&p, to, sizeof p);
	if (bytes)
		CU(cudaMemcpy(p, host, bytes, cudaMemcpyHostToDevice));
out:
	return st;
}

static uint64_t next_seed(const struct bench_load *l)
{
	return rng_mix(l->d->env.seed + (uint64_t)l->n_alloc);
}

/* n elements for each set, about normal.  Each call draws new values. */
static enum ar_status take_random(struct bench_load *l, bf16_t **to, size_t n, float scale,
				  struct ar_err *err)
{
	size_t all = n * (size_t)l->n_set;
	uint64_t seed = next_seed(l);
	enum ar_status st = bench_take(l, to, all * sizeof **to, err);

	return st ? st : layer_fill(*to, all, seed, scale, l->d->stream, err);
}

static enum ar_status take_keys(struct bench_load *l, struct ar_err *err)
{
	enum ar_status st;

	l->busy_seed = next_seed(l);
	st = take_random(l, &l->kv.k, l->kv_len, 1, err);
	l->busy = l->kv.k;
	l->busy_len = l->kv_len * (size_t)l->n_set;
	return st;
}

int bench_sets(const struct bench_load *l, size_t used, size_t taken)
{
	size_t n = (L2_TIMES * l->d->l2_bytes + used - 1) / used, left = 0, total = 0, fit;

	cudaMemGetInfo(&left, &total);
	fit = left / 4 * 3 / taken;
	n = n < 2 ? 2 : n > MAX_SETS ? MAX_SETS : n;
	return (int)(n < fit ? n : fit ? fit : 1);
}

static enum ar_status take_tiles(struct bench_load *l, struct ar_err *err)
{
	const struct executor *x = l->c->executor;
	struct attn_batch host = l->c->b;
	struct attn_tile *tile;
	const struct gpu *gpu;
	enum ar_status st = gpu_current(&gpu, err);

	if (st)
		return st;
	assert(attn_is_chunked(&host));
	l->b.n_sm = host.n_sm = executor_n_sm(x, &host.shape, gpu);
	l->b.n_tile = x->plan(&host, l->c->lists.heads, NULL);
	tile = malloc((size_t)l->b.n_tile * sizeof *tile);
	if (!tile)
		return ar_nomem(err);
	x->plan(&host, l->c->lists.heads, tile);
	l->b.n_part = executor_count_parts(tile, l->b.n_tile);
	st = bench_upload(l, &l->b.tile, tile, (size_t)l->b.n_tile * sizeof *tile, err);
	free(tile);
	return st;
}

static enum ar_status take_lists(struct bench_load *l, struct ar_err *err)
{
	const struct attn_batch *h = &l->c->b;
	const struct executor_lists *from = &l->c->lists;
	size_t n = (size_t)l->c->n_list, tok = (size_t)(h->keys.n_page * h->shape.page_tok);
	struct executor_lists *to = &l->lists;
	enum ar_status st = AR_OK;

	to->heads = from->heads;
	to->blocks.stride = from->blocks.stride;
	if (from->blocks.block)
		st = bench_upload(l, &to->blocks.block, from->blocks.block,
				  n * (size_t)from->blocks.stride * sizeof *from->blocks.block,
				  err);
	if (!st && from->blocks.block)
		st = bench_upload(l, &to->blocks.n, from->blocks.n, n * sizeof *from->blocks.n,
				  err);
	if (!st && from->tokens.tok)
		st = bench_upload(l, &to->tokens.tok, from->tokens.tok,
				  tok * (size_t)h->shape.kv_heads * sizeof *from->tokens.tok, err);
	if (!st && from->tokens.tok)
		st = bench_upload(l, &to->tokens.n, from->tokens.n, n * sizeof *from->tokens.n,
				  err);
	return st;
}

enum ar_status bench_take_batch(struct bench_load *l, struct ar_err *err)
{
	const struct attn_rows *rows = &l->c->b.rows;
	const struct attn_keys *keys = &l->c->b.keys;
	size_t n = (size_t)rows->n_req;
	const struct {
		const int32_t **to, *from;
		size_t n;
	} array[] = {
		{ &l->b.rows.row0, rows->row0, n + 1 },
		{ &l->b.rows.pos, rows->pos, (size_t)rows->n_row },
		{ &l->b.rows.pos0, rows->pos0, n },
		{ &l->b.rows.qblk0, rows->qblk0, n + 1 },
		{ &l->b.rows.left, rows->left, n },
		{ &l->b.keys.len, keys->len, n },
		{ &l->b.keys.page0, keys->page0, n + 1 },
		{ &l->b.keys.page, keys->page, (size_t)keys->n_page },
	};
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < sizeof array / sizeof *array && !st; i++)
		st = bench_upload(l, array[i].to, array[i].from, array[i].n * sizeof(int32_t), err);
	if (!st && rows->first)
		st = bench_upload(l, &l->b.rows.first, rows->first,
				  (size_t)rows->n_row * sizeof *rows->first, err);
	if (!st && l->c->executor)
		st = take_tiles(l, err);
	return st ? st : take_lists(l, err);
}

/* Add one random row to all queries of a request.  So, as in models, some blocks matter more than
 * others to a whole query block. */
static enum ar_status lean_queries(const struct bench_load *l, struct ar_err *err)
{
	const struct attn_shape *s = &l->b.shape;
	size_t width = (size_t)s->q_heads * (size_t)s->head_dim, rows = l->q_len / width;
	uint64_t seed = rng_mix(l->d->env.seed + 1000);
	bf16_t *q = malloc((l->q_len + width) * sizeof *q), *lean = q + l->q_len;
	enum ar_status st = q ? AR_OK : ar_nomem(err);

	if (st)
		return st;
	layer_fill_ref(q, l->q_len, seed, 0.5f);
	for (size_t i = 0; i < rows; i++) {
		if (i % (rows / (size_t)l->b.rows.n_req) == 0)
			layer_fill_ref(lean, width, rng_mix(seed + i), 1);
		for (size_t j = 0; j < width; j++)
			q[i * width + j] =
				bf16_from_f32(bf16_to_f32(q[i * width + j]) + bf16_to_f32(lean[j]));
	}
	for (int i = 0; i < l->n_set; i++)
		CU(cudaMemcpy(l->q + (size_t)i * l->q_len, q, l->q_len * sizeof *q,
			      cudaMemcpyHostToDevice));
out:
	free(q);
	return st;
}

static struct attn_limits limits_of(const struct attn_batch *b)
{
	return (struct attn_limits){ b->rows.n_req, b->rows.n_row, b->keys.max_kv_blk, b->n_sm,
				     b->keys.n_page };
}

/* State and lists of the selector.  Means of past blocks are random; the selector takes those of
 * the chunk's blocks from the keys. */
static enum ar_status take_selection(struct bench_load *l, struct ar_err *err)
{
	const struct attn_batch *b = &l->b;
	const struct attn_shape *s = &b->shape;
	const struct attn_limits limits = limits_of(b);
	const struct method *m = l->d->method;
	size_t n_mask = (size_t)b->rows.n_qblk * (size_t)s->q_heads;
	size_t n_list = (size_t)b->rows.n_req * (size_t)union_groups(union_heads(m->u, s), s);
	size_t words = (size_t)b->keys.mask_words;
	enum ar_status st = take_random(l, &l->state, l->state_len, 1.5f, err);

	if (!st)
		st = lean_queries(l, err);
	if (!st)
		st = bench_take(l, &l->mask, n_mask * words * sizeof *l->mask, err);
	if (!st)
		st = bench_take(l, &l->table, n_list * words * sizeof *l->table, err);
	if (!st)
		st = bench_take(l, &l->lists.blocks.n, n_list * sizeof *l->lists.blocks.n, err);
	l->lists.blocks.stride = b->keys.max_kv_blk;
	if (!st)
		st = bench_take(l, &l->lists.blocks.block,
				n_list * (size_t)b->keys.max_kv_blk * sizeof *l->lists.blocks.block,
				err);
	if (!st)
		st = bench_take(l, &l->work, m->selector->work_bytes(m->self, s, &limits), err);
	return st;
}

static enum ar_status take_case(struct bench_load *l, struct ar_err *err)
{
	const struct attn_shape *s = &l->c->b.shape;
	bool select = l->c->what == BENCH_SELECT;
	size_t n_page = (size_t)l->c->b.keys.page0[l->c->b.rows.n_req];
	size_t dim = (size_t)s->head_dim, kv_row = (size_t)s->kv_heads * dim, read;
	struct attn_limits limits;
	enum ar_status st;

	l->b = l->c->b;
	l->q_len = (size_t)l->b.rows.n_row * (size_t)s->q_heads * dim;
	l->kv_len = n_page * (size_t)s->page_tok * kv_row;
	l->state_len = select ? n_page * kv_row : 0;
	read = select ? l->state_len : 2 * l->kv_len;
	if (bench_decodes(l->c->what))
		read = (size_t)((double)read * (double)l->c->pairs / (double)l->c->dense_pairs);
	l->n_set = bench_sets(l, (l->q_len + read) * sizeof *l->q,
			      (l->q_len + l->state_len + 2 * l->kv_len) * sizeof *l->q);
	st = bench_take_batch(l, err);
	if (!st)
		st = take_random(l, &l->q, l->q_len, 1, err);
	if (!st)
		st = take_keys(l, err);
	if (!st && select)
		return take_selection(l, err);
	if (!st)
		st = take_random(l, &l->kv.v, l->kv_len, 1, err);
	if (!st)
		st = bench_take(l, &l->out, l->q_len * sizeof *l->out, err);
	limits = limits_of(&l->b);
	if (!st)
		st = bench_take(l, &l->work,
				bench_decodes(l->c->what) ?
					decode_work_bytes(s, &limits) :
					l->c->executor->work_bytes(s, &limits, l->lists.heads),
				err);
	return st;
}

/* ---- steps ---- */

struct kv_cache bench_kv_at(const struct bench_load *l, int set)
{
	size_t at = (size_t)set * l->kv_len;

	return (struct kv_cache){ l->kv.k + at, l->kv.v ? l->kv.v + at : NULL };
}

const bf16_t *bench_q_at(const struct bench_load *l, int set)
{
	return l->q + (size_t)set * l->q_len;
}

struct attn_call bench_call(const struct bench_load *l, int set)
{
	return (struct attn_call){ .b = &l->b,
				   .q = bench_q_at(l, set),
				   .kv = bench_kv_at(l, set),
				   .out = l->out,
				   .work = l->work,
				   .stream = l->d->stream };
}

static enum ar_status attend(const struct bench_load *l, int set, struct ar_err *err)
{
	struct attn_call call = bench_call(l, set);

	return l->c->executor->enqueue(&call, &l->lists, err);
}

static enum ar_status move(const struct bench_load *l, int set, struct ar_err *err)
{
	struct attn_call call = bench_call(l, set);

	return l->c->executor->move(&call, &l->lists, err);
}

static enum ar_status decode(const struct bench_load *l, int set, struct ar_err *err)
{
	struct attn_call call = bench_call(l, set);

	return decode_enqueue(&call, 0, &l->lists.blocks, err);
}

static enum ar_status selection(const struct bench_load *l, int set, struct ar_err *err)
{
	const struct method *m = l->d->method;
	struct attn_call call = bench_call(l, set);

	call.state = l->state + (size_t)set * l->state_len;
	return m->selector->enqueue(&call, m->self, &(struct selection){ .mask = l->mask }, err);
}

static enum ar_status metadata(const struct bench_load *l, int set, struct ar_err *err)
{
	int heads = union_heads(l->d->method->u, &l->b.shape);
	struct block_lists lists = l->lists.blocks;
	enum ar_status st = union_enqueue(&l->b, heads, l->mask, l->table, l->d->stream, err);

	(void)set;
	return st ? st :
		    lists_enqueue(l->table, l->b.rows.n_req * union_groups(heads, &l->b.shape),
				  l->b.keys.mask_words, &lists, l->d->stream, err);
}

static enum ar_status product(struct bench_load *l, int set, struct ar_err *err)
{
	struct kv_cache kv = bench_kv_at(l, set);
	const struct gemm_args x = { .n_batch = 1,
				     .m = l->side,
				     .n = l->side,
				     .k = l->side,
				     .a = bench_q_at(l, set),
				     .w = kv.k,
				     .c = l->out };

	bench_stage(l, PHASE_NO_LAYER, PHASE_LINEAR);
	return gemm_run(l->gemm, &x, err);
}

static enum ar_status copy(struct bench_load *l, int set, struct ar_err *err)
{
	struct kv_cache kv = bench_kv_at(l, set);
	enum ar_status st = AR_OK;

	bench_stage(l, PHASE_NO_LAYER, PHASE_COPY);
	CU(cudaMemcpyAsync(kv.v, kv.k, l->kv_len * sizeof *kv.k, cudaMemcpyDeviceToDevice,
			   l->d->stream));
out:
	return st;
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

/* Enqueue some ms of work in few launches.  The host gets ahead of the GPU, and gaps between short
 * kernels are the GPU's own.  Refilling busy from its seed leaves the keys in it as they were. */
static enum ar_status keep_busy(const struct bench_load *l, struct ar_err *err)
{
	size_t bytes = l->busy_len * sizeof *l->busy;
	enum ar_status st = AR_OK;

	for (size_t done = 0; done < ahead_bytes && !st; done += bytes)
		st = layer_fill(l->busy, l->busy_len, l->busy_seed, 1, l->d->stream, err);
	return st;
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
	enum ar_status st = AR_OK;

	for (int i = -WARM; i < l->d->env.repeat && !st; i++) {
		if (!i)
			st = keep_busy(l, err);
		if (!st)
			st = bench_launch(l, launch, i, (i + WARM) % l->n_set, err);
	}
	if (st)
		return st;
	CU(cudaStreamSynchronize(l->d->stream));
	st = read_times(l, r, err);
out:
	return st;
}

/* ---- runs ---- */

static const struct {
	struct step step[BENCH_PARTS];
	int n;
} steps[] = {
	[BENCH_DENSE] = { { { PHASE_ATTEND, attend } }, 1 },
	[BENCH_PAST] = { { { PHASE_ATTEND, attend } }, 1 },
	[BENCH_TABLE] = { { { PHASE_ATTEND, attend } }, 1 },
	[BENCH_BLOCKSPARSE] = { { { PHASE_ATTEND, attend } }, 1 },
	[BENCH_COPY] = { { { PHASE_COPY, move }, { PHASE_ATTEND, attend } }, 2 },
	[BENCH_GATHER] = { { { PHASE_COPY, move }, { PHASE_ATTEND, attend } }, 2 },
	[BENCH_DECODE] = { { { PHASE_DECODE, decode } }, 1 },
	[BENCH_DECODE_TABLE] = { { { PHASE_DECODE, decode } }, 1 },
	[BENCH_WINDOW] = { { { PHASE_ATTEND, attend } }, 1 },
	[BENCH_DECODE_WINDOW] = { { { PHASE_DECODE, decode } }, 1 },
	[BENCH_SELECT] = { { { PHASE_SELECT, selection }, { PHASE_METADATA, metadata } }, 2 },
};

static enum ar_status launch_case(struct bench_load *l, int set, struct ar_err *err)
{
	const struct step *step = steps[l->c->what].step;
	enum ar_status st = AR_OK;

	for (int k = 0; k < steps[l->c->what].n && !st; k++) {
		bench_stage(l, PHASE_NO_LAYER, step[k].phase);
		st = step[k].enqueue(l, set, err);
	}
	return st;
}

/* Launch set 0 once more: the outputs may be those of another set. */
static enum ar_status check(struct bench_load *l, struct bench_result *r, struct ar_err *err)
{
	enum ar_status st = bench_launch(l, launch_case, -1, 0, err);

	if (st)
		return st;
	CU(cudaStreamSynchronize(l->d->stream));
	st = l->c->what == BENCH_SELECT ? bench_check_selection(l, r, err) :
					  bench_check_rows(l, &r[steps[l->c->what].n - 1], err);
out:
	return st;
}

enum ar_status bench_run(struct bench_device *d, const struct bench_case *c,
			 struct bench_result result[BENCH_PARTS], struct ar_err *err)
{
	struct bench_load l = { .d = d, .c = c };
	enum ar_status st = take_case(&l, err);

	if (!st)
		st = bench_measure(&l, launch_case, result, err);
	if (!st && d->env.sample)
		st = check(&l, result, err);
	load_release(&l);
	return st;
}

enum ar_status bench_product(struct bench_device *d, int n, struct bench_result *r,
			     struct ar_err *err)
{
	size_t len = (size_t)n * (size_t)n;
	struct bench_load l = { .d = d, .side = n, .q_len = len, .kv_len = len };
	enum ar_status st = gemm_open(&l.gemm, d->stream, err);

	l.n_set = bench_sets(&l, 2 * len * sizeof *l.q, 2 * len * sizeof *l.q);
	if (!st)
		st = take_random(&l, &l.q, len, 1, err);
	if (!st)
		st = take_keys(&l, err);
	if (!st)
		st = bench_take(&l, &l.out, len * sizeof *l.out, err);
	if (!st)
		st = bench_measure(&l, product, r, err);
	load_release(&l);
	return st;
}

enum ar_status bench_copy(struct bench_device *d, int n, struct bench_result *r, struct ar_err *err)
{
	size_t len = (size_t)n * (size_t)n;
	struct bench_load l = { .d = d, .kv_len = len };
	enum ar_status st;

	l.n_set = bench_sets(&l, len * sizeof *l.kv.k, 2 * len * sizeof *l.kv.k);
	st = take_keys(&l, err);
	if (!st)
		st = take_random(&l, &l.kv.v, len, 1, err);
	if (!st)
		st = bench_measure(&l, copy, r, err);
	load_release(&l);
	return st;
}
