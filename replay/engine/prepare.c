/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/engine/prepare.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/rng.h"
#include "kernels/support.h"
#include "model/layer_gap.h"
#include "model/rope.h"

/* Layers of a random capture that stand for all: each that is read takes memory. */
enum { RANDOM_LAYERS = 4 };

static enum ar_status check_same(const struct capture_info *a, const struct capture_info *b,
				 struct ar_err *err)
{
	if (a->q_heads != b->q_heads || a->kv_heads != b->kv_heads || a->head_dim != b->head_dim)
		return ar_fail(err, AR_USAGE,
			       "%s has %d/%d heads of %d, %s has %d/%d of %d; captures "
			       "of one run come from one model",
			       a->name, a->q_heads, a->kv_heads, a->head_dim, b->name, b->q_heads,
			       b->kv_heads, b->head_dim);
	if (a->n_layers != b->n_layers ||
	    memcmp(a->layer, b->layer, (size_t)a->n_layers * sizeof *a->layer) != 0)
		return ar_fail(err, AR_USAGE,
			       "%s and %s hold different layers; captures of one run "
			       "hold the same",
			       a->name, b->name);
	if (!rope_equal(&a->rope, &b->rope))
		return ar_fail(err, AR_DATA,
			       "%s and %s have different rotary embeddings; replay them in "
			       "separate runs",
			       b->name, a->name);
	return AR_OK;
}

static bool same_heads(const struct layer_spec *a, const struct layer_spec *b)
{
	return a->q_heads == b->q_heads && a->kv_heads == b->kv_heads && a->head_dim == b->head_dim;
}

/* Captures have one shape, so layers with attention must. */
static enum ar_status check_layers(const struct model *m, struct ar_err *err)
{
	const struct layer_spec *a = model_attention(m);
	int first = (int)(a - m->layer);

	if (!mixer_attends(a->mixer))
		return ar_fail(err, AR_USAGE,
			       "model %s has no layer with attention, but captures are of such "
			       "layers; use --backend roofline without --capture",
			       m->name);
	for (int i = first + 1; i < m->n_layers; i++) {
		const struct layer_spec *b = &m->layer[i];

		if (mixer_attends(b->mixer) && !same_heads(a, b))
			return ar_fail(err, AR_USAGE,
				       "model %s: layer %d has %d/%d heads of %d, layer %d has "
				       "%d/%d of %d; captures have one shape, so a run with them "
				       "needs the same heads in all layers with attention",
				       m->name, first, a->q_heads, a->kv_heads, a->head_dim, i,
				       b->q_heads, b->kv_heads, b->head_dim);
	}
	return AR_OK;
}

enum ar_status prepare_check_kernels(const struct model *m, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (int i = 0; i < m->n_layers && !st; i++) {
		const struct layer_spec *l = &m->layer[i];
		/* any page size: that of the run is not known yet */
		const struct attn_shape s = { l->q_heads, l->kv_heads, l->head_dim, 64 };

		if (!mixer_attends(l->mixer))
			continue;
		st = support_check("decode", &s, l->cache, 0, err);
		if (!st && l->rotary_dim % 16)
			st = ar_fail(err, AR_USAGE,
				     "layer %d: RoPE rotates %d channels of a head, but its kernel "
				     "needs a multiple of 16; use --backend cpu",
				     i, l->rotary_dim);
	}
	if (st)
		ar_err_prefix(err, "model %s, backend cuda", m->name);
	return st;
}

/* Whether layer i of the whole model can be split into tp parts.  If it has attention, each part
 * must have the heads of c. */
static bool layer_fits(const struct capture_info *c, const struct model *m, int i,
		       int whole_q_heads, int whole_kv_heads, int tp)
{
	struct layer_spec l = m->layer[i];
	struct model whole = { .n_layers = 1, .layer = &l, .tp = 1, .vocab = m->vocab * m->tp };

	if (mixer_attends(l.mixer)) {
		l.q_heads = whole_q_heads;
		l.kv_heads = whole_kv_heads;
	}
	l.delta.k_heads *= m->tp;
	l.delta.v_heads *= m->tp;
	l.ssm.heads *= m->tp;
	l.ssm.groups *= l.ssm.groups > 1 ? m->tp : 1;
	l.ffn *= m->tp;
	l.shared_ffn *= m->tp;
	if (model_split(&whole, tp, NULL))
		return false;
	return !mixer_attends(l.mixer) ||
	       (l.q_heads == c->q_heads && l.kv_heads == c->kv_heads && l.head_dim == c->head_dim);
}

/* The value of --tp with which each rank has the heads of c; 0: none. */
static int fitting_tp(const struct capture_info *c, const struct model *m, int whole_q_heads,
		      int whole_kv_heads)
{
	int tp = whole_q_heads / c->q_heads;

	for (int i = 0; tp && i < m->n_layers; i++)
		if (!layer_fits(c, m, i, whole_q_heads, whole_kv_heads, tp))
			tp = 0;
	return tp;
}

enum ar_status prepare_check_model(const struct capture_info *c, const struct model *m,
				   int whole_q_heads, int whole_kv_heads, struct ar_err *err)
{
	const struct layer_spec *l = model_attention(m);
	bool rank = c->q_heads == l->q_heads && c->kv_heads == l->kv_heads;
	bool whole = c->q_heads == whole_q_heads && c->kv_heads == whole_kv_heads;
	enum ar_status st = model_check_gap(m, err);
	char fits[64] = "";
	int tp;

	if (!st)
		st = check_layers(m, err);
	if (st || ((rank || whole) && c->head_dim == l->head_dim))
		return st;
	tp = fitting_tp(c, m, whole_q_heads, whole_kv_heads);
	if (tp)
		snprintf(fits, sizeof fits, ", or --tp %d, whose ranks have such heads", tp);
	return ar_fail(err, AR_USAGE,
		       "%s has %d/%d heads of %d, model %s has %d/%d of %d%s; take the model it "
		       "was captured from%s, or --capture random:0",
		       c->name, c->q_heads, c->kv_heads, c->head_dim, m->name, l->q_heads,
		       l->kv_heads, l->head_dim, m->tp > 1 ? " on each rank" : "", fits);
}

/* Parse list s, as "0,4,8-11", to indices into the capture's layers.  list: [max]. */
static enum ar_status parse_layers(const char *s, const struct capture_info *c, int *list, int max,
				   int *len, struct ar_err *err)
{
	const char *all = s;

	*len = 0;
	for (;; s++) {
		size_t n = strcspn(s, ",");
		uint64_t from, to;

		if (!num_range(s, n, &from, &to))
			return ar_fail(err, AR_USAGE,
				       "layers '%s': want numbers and ranges such as 0,4,8-11",
				       all);
		for (; from <= to; from++) {
			int i = capture_find_layer(c, from);

			if (i < 0)
				return ar_fail(err, AR_USAGE,
					       "layers '%s': %s does not hold layer %" PRIu64
					       "; 'attnreplay capture info' lists those it holds",
					       all, c->name, from);
			if (*len == max)
				return ar_fail(err, AR_USAGE,
					       "layers '%s': more than the model's %d layers", all,
					       max);
			list[(*len)++] = i;
		}
		s += n;
		if (!*s)
			return AR_OK;
	}
}

/* Spread the listed layers evenly over the layers with attention. */
static void spread_layers(int *captured, const struct model *m, const int *list, int len)
{
	int64_t n = 0, at = 0;

	for (int i = 0; i < m->n_layers; i++)
		n += mixer_attends(m->layer[i].mixer);
	for (int i = 0; i < m->n_layers; i++)
		captured[i] = !mixer_attends(m->layer[i].mixer) ? -1 : list[at++ * len / n];
}

static enum ar_status map_layers(struct prepared *p, const struct prepare_in *in,
				 struct ar_err *err)
{
	const struct capture_info *c = in->info[0];
	int n = in->model->n_layers, len = 0;
	enum ar_status st = AR_OK;
	int *list;

	list = malloc((size_t)n * sizeof *list);
	p->captured_layer = malloc((size_t)n * sizeof *p->captured_layer);
	if (!list || !p->captured_layer)
		st = ar_nomem(err);
	else if (in->layers)
		st = parse_layers(in->layers, c, list, n, &len, err);
	else
		for (; len < c->n_layers && len < n && !(c->random && len == RANDOM_LAYERS); len++)
			list[len] = len;
	if (!st)
		spread_layers(p->captured_layer, in->model, list, len);
	free(list);
	return st;
}

static enum ar_status choose_layers(struct prepared *p, const struct prepare_in *in,
				    struct ar_err *err)
{
	int64_t n = in->model->n_layers, k = in->sample_layers ? in->sample_layers : n;

	if (k > n)
		return ar_fail(err, AR_USAGE,
			       "sample-layers %" PRId64 ": %s has %" PRId64 " layers", k,
			       in->model->name, n);
	if (k < n && model_odd_layer(in->model))
		return ar_fail(err, AR_USAGE,
			       "sample-layers %" PRId64 ": layers 0 and %d of %s differ, but the "
			       "executed layers stand for the others, which needs layers that are "
			       "alike; leave it out",
			       k, model_odd_layer(in->model), in->model->name);
	p->run_layer = malloc((size_t)k * sizeof *p->run_layer);
	if (!p->run_layer)
		return ar_nomem(err);
	p->n_run_layers = (int)k;
	for (int64_t i = 0; i < k; i++)
		p->run_layer[i] = (int)((2 * i + 1) * n / (2 * k));
	return AR_OK;
}

static uint64_t request_key(const struct trace *t, size_t i)
{
	const struct request *r = &t->req[i];

	return r->n_block ? rng_mix(trace_block(t, r, 0)) : rng_mix(~(uint64_t)i);
}

/* The capture that ranks first for request i among captures of at least n_tok tokens; -1: none. */
static int pick_capture(const struct prepare_in *in, size_t i, int64_t n_tok)
{
	uint64_t key = in->seed ^ request_key(in->trace, i), best = 0;
	int pick = -1;

	for (size_t c = 0; c < in->n_capture; c++) {
		uint64_t rank = rng_mix(rng_mix(key) + c);

		if (!in->tile && in->info[c]->n_tok < n_tok)
			continue;
		if (pick < 0 || rank > best) {
			pick = (int)c;
			best = rank;
		}
	}
	return pick;
}

static int64_t longest(const struct prepare_in *in)
{
	int64_t n = 0;

	for (size_t c = 0; c < in->n_capture; c++)
		if (in->info[c]->n_tok > n)
			n = in->info[c]->n_tok;
	return n;
}

static enum ar_status assign_captures(struct prepared *p, const struct prepare_in *in,
				      struct ar_err *err)
{
	const struct trace *t = in->trace;
	char why[160];

	p->capture_of = calloc(t->n + 1, sizeof *p->capture_of);
	if (!p->capture_of)
		return ar_nomem(err);
	for (size_t i = 0; i < t->n; i++) {
		int64_t n_tok = sched_positions(in->limits, &t->req[i]);
		int c;

		if (sched_rejects(in->limits, &t->req[i], why, sizeof why))
			continue;
		c = pick_capture(in, i, n_tok);
		if (c < 0)
			return ar_fail(err, AR_USAGE,
				       "%s:%" PRIu64 ": request runs %" PRId64 " tokens, the "
				       "longest capture has %" PRId64 "; clip it with "
				       "--max-prompt-tokens and --max-output-tokens, or repeat "
				       "captures with --extend tile",
				       t->name, t->req[i].line, n_tok, longest(in));
		p->capture_of[i] = (uint16_t)c;
	}
	return AR_OK;
}

enum ar_status prepare_run(struct prepared *p, const struct prepare_in *in, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	*p = (struct prepared){ 0 };
	if (!in->n_capture || in->n_capture > UINT16_MAX)
		return ar_fail(err, AR_USAGE, "%zu captures given; want 1 to %d", in->n_capture,
			       UINT16_MAX);
	for (size_t c = 1; c < in->n_capture && !st; c++)
		st = check_same(in->info[0], in->info[c], err);
	if (!st)
		st = prepare_check_model(in->info[0], in->model, in->whole_q_heads,
					 in->whole_kv_heads, err);
	if (!st)
		st = map_layers(p, in, err);
	if (!st)
		st = choose_layers(p, in, err);
	if (!st)
		st = assign_captures(p, in, err);
	if (st)
		prepared_release(p);
	return st;
}

enum ar_status prepare_all_layers(struct prepared *p, const struct model *m, struct ar_err *err)
{
	*p = (struct prepared){ 0 };
	return choose_layers(p, &(struct prepare_in){ .model = m }, err);
}

void prepared_release(struct prepared *p)
{
	free(p->capture_of);
	free(p->captured_layer);
	free(p->run_layer);
	*p = (struct prepared){ 0 };
}
