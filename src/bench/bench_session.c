/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/bench/bench_session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "src/bench/bench_plan.h"
#include "src/bench/bench_sample.h"
#include "src/bench/bench_values.h"

/* Largest relative L2 error of a correct result, against double precision. */
static const double rel_l2_most = 0.01;

/* ---- inputs ---- */

static enum ar_status no_layer(const struct bench_session *s, int64_t want, struct ar_err *err)
{
	const struct capture_info *info = capture_info(s->capture);

	return ar_fail(err, AR_USAGE,
		       "--layer %lld: %s holds %d layers from %d to %d; 'attnreplay "
		       "capture info' lists them",
		       (long long)want, info->name, info->n_layers, info->layer[0],
		       info->layer[info->n_layers - 1]);
}

static enum ar_status choose_layers(struct bench_session *s, struct ar_err *err)
{
	const struct capture_info *info = s->capture ? capture_info(s->capture) : NULL;
	int64_t want[BENCH_LIST];
	enum ar_status st = AR_OK;

	s->n_layer = info ? info->n_layers : 1;
	if (s->a->layer && !info)
		return ar_fail(err, AR_USAGE,
			       "--layer without --capture: random inputs have no "
			       "layers");
	if (s->a->layer)
		st = bench_counts("layer", s->a->layer, want, &s->n_layer, err);
	if (st)
		return st;
	s->layer = calloc((size_t)s->n_layer, sizeof *s->layer);
	if (!s->layer)
		return ar_nomem(err);
	for (int i = 0; i < s->n_layer; i++) {
		s->layer[i] = s->a->layer ? capture_find_layer(info, (uint64_t)want[i]) : i;
		if (s->layer[i] < 0)
			return no_layer(s, want[i], err);
	}
	return AR_OK;
}

enum ar_status bench_session_open(struct bench_session *s, const struct bench_args *a,
				  struct ar_err *err)
{
	enum ar_status st = AR_OK;

	*s = (struct bench_session){ .a = a };
	if (a->capture)
		st = capture_open(&s->capture, a->capture, err);
	return st ? st : choose_layers(s, err);
}

enum ar_status bench_session_device(struct bench_session *s, struct ar_err *err)
{
	const struct bench_args *a = s->a;
	const struct bench_env env = { (int)a->device, (int)a->repeat, (int)a->sample,
				       (uint64_t)a->seed };

	return a->dry_run ? AR_OK : bench_open(&s->device, &env, err);
}

void bench_session_close(struct bench_session *s)
{
	bench_close(s->device);
	for (int i = 0; i < BENCH_INPUTS; i++)
		bench_input_release(&s->input[i]);
	capture_close(s->capture);
	free(s->layer);
	*s = (struct bench_session){ 0 };
}

static struct attn_shape heads_of(const struct bench_shape *s)
{
	return (struct attn_shape){ (int)s->q_heads, (int)s->kv_heads, (int)s->head_dim, 0 };
}

/* Set the heads of all GPUs: from the options, from shape if the capture fits, or from the
 * capture. */
static void choose_heads(const struct bench_session *s, int64_t tp, struct bench_shape *shape)
{
	const struct capture_info *info = s->capture ? capture_info(s->capture) : NULL;
	struct attn_shape rank = heads_of(shape);

	rank.q_heads /= (int)tp;
	rank.kv_heads /= (int)tp;
	if (s->a->heads || (!info && !shape->q_heads)) {
		shape->q_heads = s->a->q_heads;
		shape->kv_heads = s->a->kv_heads;
		shape->head_dim = s->a->head_dim;
	} else if (info && !bench_input_fits(info, &rank)) {
		shape->q_heads = info->q_heads;
		shape->kv_heads = info->kv_heads;
		shape->head_dim = info->head_dim;
	}
}

static enum ar_status check_capture(const struct capture_info *info,
				    const struct bench_shape *shape, struct ar_err *err)
{
	const struct attn_shape rank = heads_of(shape);

	if (bench_input_fits(info, &rank))
		return AR_OK;
	return ar_fail(err, AR_USAGE,
		       "%s has %d query heads over %d KV heads of size %d, which "
		       "cannot make %d over %d of size %d; change --q-heads, --kv-heads, "
		       "--head-dim or --tp",
		       info->name, info->q_heads, info->kv_heads, info->head_dim, rank.q_heads,
		       rank.kv_heads, rank.head_dim);
}

enum ar_status bench_session_heads(const struct bench_session *s, int64_t tp,
				   struct bench_shape *shape, struct ar_err *err)
{
	choose_heads(s, tp, shape);
	if (shape->q_heads % tp || shape->kv_heads % tp)
		return ar_fail(err, AR_USAGE,
			       "--tp %lld: does not divide %lld query heads and "
			       "%lld KV heads",
			       (long long)tp, (long long)shape->q_heads,
			       (long long)shape->kv_heads);
	shape->q_heads /= tp;
	shape->kv_heads /= tp;
	return s->capture ? check_capture(capture_info(s->capture), shape, err) : AR_OK;
}

const char *bench_session_input(const struct bench_session *s)
{
	return s->capture ? capture_info(s->capture)->name : "random";
}

int64_t bench_session_tok(const struct bench_session *s)
{
	return s->capture ? capture_info(s->capture)->n_tok : 0;
}

int64_t bench_session_repeats(const struct bench_session *s, const struct bench_shape *shape)
{
	const struct attn_shape heads = heads_of(shape);

	return s->capture ? bench_input_repeats(capture_info(s->capture), &heads) : 0;
}

void bench_session_print(const struct bench_session *s, const struct bench_shape *shape)
{
	int64_t n = bench_session_repeats(s, shape);

	if (!s->capture) {
		puts("input: random, the same for every request");
		return;
	}
	printf("input: ");
	text_put(bench_session_input(s), stdout);
	printf(", layers %d; %lld tokens, repeated where the context is longer, the same for every "
	       "request",
	       s->n_layer, (long long)bench_session_tok(s));
	if (n > 1)
		printf("; its %lld query heads over %lld KV heads %lld times",
		       (long long)(shape->q_heads / n), (long long)(shape->kv_heads / n),
		       (long long)n);
	putchar('\n');
}

/* Inputs of the i-th layer for a shape.  Inputs read before serve again if they have its heads and
 * enough tokens. */
static enum ar_status load_input(struct bench_session *s, int i, const struct bench_shape *shape,
				 struct bench_input **out, struct ar_err *err)
{
	bool last = i >= BENCH_INPUTS - 1;
	struct bench_input *x = &s->input[last ? BENCH_INPUTS - 1 : i];
	const struct attn_shape want = heads_of(shape);

	*out = x;
	if (x->data && (!last || s->last_layer == i) && x->asked >= shape->context &&
	    !memcmp(&x->shape, &want, sizeof want))
		return AR_OK;
	bench_input_release(x);
	if (last)
		s->last_layer = i;
	return s->capture ?
		       bench_input_capture(x, s->capture, s->layer[i], &want, shape->context, err) :
		       bench_input_random(x, &want, shape->context, (uint64_t)s->a->seed, err);
}

/* ---- measurements ---- */

const char *bench_session_method(const struct bench_session *s, const char *method)
{
	size_t n = strlen(method);

	for (size_t i = 0; i < s->a->use.n; i++)
		if (!strncmp(s->a->use.v[i], method, n) && s->a->use.v[i][n] == '=')
			return s->a->use.v[i] + n + 1;
	return method;
}

static void add_core(struct bench_sum *sum, const struct bench_core *core, int weight)
{
	for (int i = 0; i < BENCH_PART_N; i++) {
		sum->us[i] += weight * core->us[i];
		sum->core_us += weight * core->us[i];
	}
	sum->event_us += weight * core->event_us;
	sum->traced &= core->traced;
	sum->kept += weight * core->kept;
	selection_add(&sum->count, &core->count, weight);
	sum->rel_l2 = fmax(sum->rel_l2, core->rel_l2);
	sum->dense_l2 = fmax(sum->dense_l2, core->dense_l2);
	sum->off |= core->checked && !(core->rel_l2 <= rel_l2_most);
}

static int count_chunks(const struct bench_shape *shape)
{
	return (int)((shape->context + shape->chunk - 1) / shape->chunk);
}

static int count_samples(const struct bench_shape *shape, struct bench_chunks chunks)
{
	return chunks.last ? 1 : bench_samples(count_chunks(shape), chunks.samples);
}

/* A sample: the chunk [ctx, ctx + n), and how many chunks it stands for. */
struct chunk_place {
	int ctx, n, weight;
};

static struct chunk_place place_of(const struct bench_shape *shape, struct bench_chunks chunks,
				   int i)
{
	struct bench_sample at = bench_sample_at(count_chunks(shape), chunks.samples, i);
	int64_t ctx = chunks.last ? shape->context - shape->chunk : at.chunk * shape->chunk;
	int64_t left = shape->context - ctx, n = left < shape->chunk ? left : shape->chunk;

	return (struct chunk_place){ (int)ctx, (int)n, chunks.last ? 1 : at.weight };
}

static enum ar_status run_chunks(struct bench_prefill *p, const struct bench_shape *shape,
				 struct bench_chunks chunks, struct bench_sum *sum,
				 struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (int i = 0; i < sum->n_sample && !st; i++) {
		struct chunk_place at = place_of(shape, chunks, i);
		struct bench_core core;

		if (ar_interrupted())
			return ar_fail(err, AR_INTERRUPTED, "interrupted");
		st = bench_prefill_run(p, at.ctx, at.n, &core, err);
		if (!st)
			add_core(sum, &core, at.weight);
	}
	return st;
}

static enum ar_status run_layer(struct bench_session *s, int i, const char *method,
				const struct bench_shape *shape, struct bench_chunks chunks,
				struct bench_sum *sum, struct ar_err *err)
{
	struct bench_prefill *p = NULL;
	struct bench_input *x;
	enum ar_status st = load_input(s, i, shape, &x, err);

	if (st)
		return st;
	st = bench_prefill_open(&p, s->device, method, shape, x, err);
	if (st)
		sum->refused = st == AR_USAGE || st == AR_DATA;
	else
		st = run_chunks(p, shape, chunks, sum, err);
	bench_prefill_close(p);
	return st;
}

enum ar_status bench_session_check(const char *method, const struct bench_shape *shape,
				   int *page_tok, bool *refused, struct ar_err *err)
{
	struct bench_shape paged = *shape;
	struct attn_shape heads = heads_of(shape);
	struct plan *p = NULL;
	enum ar_status st = bench_plan(&p, method, err);

	if (!st) {
		paged.page_tok = *page_tok = heads.page_tok = method_page_tok(plan_single(p));
		st = method_supported(method_prefill(plan_single(p)), &heads, NULL, 0, err);
		plan_free(p);
	}
	if (refused)
		*refused = st == AR_USAGE;
	return st ? st : bench_shape_check(BENCH_DENSE, &paged, err);
}

enum ar_status bench_session_check_drop(const struct bench_session *s, const char *method,
					struct ar_err *err)
{
	struct plan *p = NULL;
	enum ar_status st = bench_plan(&p, method, err);

	for (int i = 0; i < s->n_layer && !st; i++)
		st = bench_plan_drop(
			p, s->capture ? capture_info(s->capture)->layer[s->layer[i]] : 0, err);
	plan_free(p);
	return st;
}

enum ar_status bench_session_run(struct bench_session *s, const char *method,
				 const struct bench_shape *shape, struct bench_chunks chunks,
				 struct bench_sum *sum, struct ar_err *err)
{
	int n_chunk = count_chunks(shape);
	struct bench_sum x = { .rel_l2 = NAN, .dense_l2 = NAN, .traced = true };
	enum ar_status st;

	x.n_chunk = chunks.last ? 1 : n_chunk;
	x.n_sample = count_samples(shape, chunks);
	st = bench_session_check(method, shape, &x.page_tok, &x.refused, err);
	for (int i = 0; i < s->n_layer && s->device && !st; i++)
		st = run_layer(s, i, method, shape, chunks, &x, err);
	for (int i = 0; i < BENCH_PART_N; i++)
		x.us[i] = s->device ? x.us[i] / s->n_layer : NAN;
	x.kept = s->device ? x.kept / (s->n_layer * x.n_chunk) : NAN;
	x.core_us = s->device ? x.core_us / s->n_layer : NAN;
	x.event_us = s->device ? x.event_us / s->n_layer : NAN;
	*sum = x;
	return st;
}

/* ---- matched methods ---- */

double bench_sparsity(const struct selection_count *c, bool selected)
{
	return 100 * (1 - (selected ? bench_ratio(c->tiles_sel, c->tiles_total) :
				      bench_ratio(c->group_sel, c->group_total)));
}

/* One prefill for each layer, of one request: all requests are equal. */
struct match_job {
	struct bench_prefill **p; /* [n_layer] */
	int n_layer;
	struct bench_shape shape;
	struct bench_chunks chunks;
	bool selected;
};

static enum ar_status sparsity_of(void *ctx, const char *method, double *sparsity,
				  struct ar_err *err)
{
	const struct match_job *j = ctx;
	int n = count_samples(&j->shape, j->chunks);
	struct selection_count sum = { 0 }, x;
	enum ar_status st = AR_OK;

	for (int l = 0; l < j->n_layer && !st; l++) {
		st = bench_prefill_use(j->p[l], method, err);
		for (int i = 0; i < n && !st; i++) {
			struct chunk_place at = place_of(&j->shape, j->chunks, i);

			if (ar_interrupted())
				return ar_fail(err, AR_INTERRUPTED, "interrupted");
			st = bench_prefill_count(j->p[l], at.ctx, at.n, &x, err);
			if (!st)
				selection_add(&sum, &x, at.weight);
		}
	}
	if (!st)
		*sparsity = bench_sparsity(&sum, j->selected);
	return st;
}

enum ar_status bench_session_match(struct bench_session *s, const char *method,
				   const struct bench_shape *shape, struct bench_chunks chunks,
				   struct bench_goal goal, struct bench_match *out,
				   struct ar_err *err)
{
	struct match_job j = {
		.n_layer = s->n_layer, .shape = *shape, .chunks = chunks, .selected = goal.selected
	};
	enum ar_status st = AR_OK;
	struct bench_input *x;

	j.shape.batch = 1;
	j.p = calloc((size_t)s->n_layer, sizeof(*j.p));
	if (!j.p)
		return ar_nomem(err);
	for (int i = 0; i < s->n_layer && !st; i++) {
		st = load_input(s, i, shape, &x, err);
		if (!st)
			st = bench_prefill_open(&j.p[i], s->device, method, &j.shape, x, err);
	}
	if (!st)
		st = bench_match(method, goal.sparsity, sparsity_of, &j, out, err);
	for (int i = 0; i < s->n_layer; i++)
		bench_prefill_close(j.p[i]);
	free(j.p);
	return st;
}
