/* SPDX-License-Identifier: Apache-2.0 */
/* Settings run by the references on chunks of captures; settings of a chunk run in parallel. */
#include "config.h"
#include "src/calibrate/plan_measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/log.h"
#include "base/order.h"
#include "base/parallel.h"
#include "kernels/methods/accuracy.h"

/* ---- settings ---- */

/* Values of a threshold, as shares of its range.  Thresholds of probabilities act near 0,
 * thresholds of masses near 1. */
static const double grid[] = { 0.003, 0.01, 0.03, 0.06, 0.1, 0.15, 0.2,	 0.3,  0.4,  0.5,
			       0.6,   0.7,  0.8,  0.85, 0.9, 0.94, 0.97, 0.99, 0.997 };

enum ar_status plan_settings_add(struct plan_settings *s, const char *text, size_t *at,
				 struct ar_err *err)
{
	struct method *m;
	enum ar_status st;

	if (!GROW(s->method, s->cap, s->n + 1))
		return ar_nomem(err);
	st = method_parse(&m, text, err);
	if (st)
		return st;
	for (size_t i = 0; i < s->n; i++)
		if (!strcmp(s->method[i]->params, m->params)) {
			method_free(m);
			*at = i;
			return AR_OK;
		}
	if (!m->dense && !s->page_tok)
		s->page_tok = method_page_tok(m);
	*at = s->n;
	s->method[s->n++] = m;
	return AR_OK;
}

static enum ar_status add_setting(struct plan_settings *s, const char *text, struct ar_err *err)
{
	size_t unused;

	return plan_settings_add(s, text, &unused, err);
}

bool plan_setting_states(const char *text, const char *key)
{
	const size_t n = strlen(key);

	for (const char *c = strpbrk(text, ":,"); c; c = strpbrk(c + 1, ":,"))
		if (!strncmp(c + 1, key, n) && c[1 + n] == '=')
			return true;
	return false;
}

static enum ar_status add_values(struct plan_settings *s, const char *text, const struct opt *o,
				 struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < sizeof grid / sizeof *grid && !st; i++) {
		double value = o->min + grid[i] * (o->max - o->min);
		size_t n = method_spell_with(NULL, 0, text, o->name, value) + 1;
		char *with = malloc(n);

		if (!with)
			return ar_nomem(err);
		method_spell_with(with, n, text, o->name, value);
		st = add_setting(s, with, err);
		free(with);
	}
	return st;
}

static enum ar_status add_method(struct plan_settings *s, const char *text, struct ar_err *err)
{
	const struct opt *threshold;
	struct method *m;
	enum ar_status st = method_parse(&m, text, err);

	if (st)
		return st;
	threshold = method_threshold(m);
	method_free(m);
	if (!threshold || strchr(text, '@') || plan_setting_states(text, threshold->name))
		return add_setting(s, text, err);
	return add_values(s, text, threshold, err);
}

enum ar_status plan_settings_init(struct plan_settings *s, const char *list, struct ar_err *err)
{
	char **text = NULL;
	size_t n = 0;
	enum ar_status st;

	*s = (struct plan_settings){ 0 };
	st = add_setting(s, "dense", err);
	if (!st)
		st = method_split(list, &text, &n, err);
	for (size_t i = 0; i < n; i++) {
		if (!st)
			st = add_method(s, text[i], err);
		free(text[i]);
	}
	free(text);
	if (!s->page_tok)
		s->page_tok = 128;
	return st ? st : plan_check_pages(s->method, s->n, s->page_tok, err);
}

void plan_settings_release(struct plan_settings *s)
{
	for (size_t i = 0; i < s->n; i++)
		method_free(s->method[i]);
	free(s->method);
	*s = (struct plan_settings){ 0 };
}

/* ---- one chunk ---- */

struct tally { /* of a setting in a layer */
	struct selection_count count;
	double recall, rel_l2, heads; /* sums over heads of chunks, and their number */
};

struct work { /* a chunk of a layer */
	const struct plan_settings *s;
	const struct calib_layer *l;
	int layer, from, to;
	const struct plan_dense_chunk *dense;
	struct tally *tally; /* [n] */
};

static struct attn_call call_of(const struct work *w, const struct calib_rows *r, void *state)
{
	return (struct attn_call){
		.b = &r->b, .layer = w->layer, .q = r->q, .kv = w->l->kv, .state = state
	};
}

/* Make the selector's state of the tokens before the chunk. */
static enum ar_status make_state(const struct work *w, const struct method *m, void **state,
				 struct ar_err *err)
{
	const struct attn_batch *b = &w->l->b;
	size_t bytes = method_state_bytes(method_prefill(m), &b->shape);
	struct method_selection unused = { 0 };
	struct calib_rows before;
	struct attn_call call;
	enum ar_status st;

	if (!bytes)
		return AR_OK;
	*state = calloc((size_t)b->keys.n_page, bytes);
	if (!*state)
		return ar_nomem(err);
	if (!w->from)
		return AR_OK;
	calib_layer_rows(&before, w->l, 0, w->from);
	before.b.tail = method_tail(method_prefill(m));
	call = call_of(w, &before, *state);
	st = method_choose_ref(method_prefill(m), &call, &unused, err);
	method_selection_release(&unused);
	return st;
}

static void count_selection(struct tally *t, const struct attn_shape *s,
			    const struct selection_count *n, const struct accuracy *acc)
{
	for (int h = 0; h < s->kv_heads; h++)
		selection_add(&t->count, &n[h], 1);
	for (int h = 0; h < s->q_heads; h++) {
		t->recall += acc[h].mass_recall;
		t->rel_l2 += acc[h].rel_l2;
	}
	t->heads += s->q_heads;
}

/* Run a setting other than dense. */
static enum ar_status run_setting(void *ctx, int i, struct ar_err *err)
{
	const struct work *w = ctx;
	const struct method *m = w->s->method[i + 1];
	const struct attn_shape *s = &w->l->b.shape;
	size_t rows = (size_t)(w->to - w->from) * (size_t)s->q_heads;
	struct selection_count *n = calloc((size_t)s->kv_heads, sizeof *n);
	struct accuracy *acc = calloc((size_t)s->q_heads, sizeof *acc);
	bf16_t *out = malloc(rows * (size_t)s->head_dim * sizeof *out);
	float *lse = malloc(rows * sizeof *lse);
	void *state = NULL;
	struct calib_rows r;
	enum ar_status st = n && acc && out && lse ? make_state(w, m, &state, err) : ar_nomem(err);

	if (!st) {
		struct attn_call call;

		calib_layer_rows(&r, w->l, w->from, w->to);
		r.b.tail = method_tail(method_prefill(m));
		call = call_of(w, &r, state);
		call.out = out;
		call.lse = lse;
		st = method_ref(method_prefill(m), &call, n, err);
	}
	if (!st)
		st = accuracy_measure(s, w->to - w->from, out, w->dense->out, lse, w->dense->lse,
				      acc, err);
	if (!st)
		count_selection(&w->tally[i + 1], s, n, acc);
	free(n);
	free(acc);
	free(out);
	free(lse);
	free(state);
	return st;
}

/* Add the results of dense attention on the chunk to d. */
static enum ar_status add_dense(struct plan_dense *d, const struct work *w, struct ar_err *err)
{
	const struct attn_shape *s = &w->l->b.shape;
	size_t rows = (size_t)(w->to - w->from) * (size_t)s->q_heads;
	struct plan_dense_chunk *c;
	struct calib_rows r;
	struct attn_call call;

	if (!GROW(d->chunk, d->cap, d->n + 1))
		return ar_nomem(err);
	c = &d->chunk[d->n++];
	c->out = malloc(rows * (size_t)s->head_dim * sizeof *c->out);
	c->lse = malloc(rows * sizeof *c->lse);
	if (!c->out || !c->lse)
		return ar_nomem(err);
	calib_layer_rows(&r, w->l, w->from, w->to);
	call = call_of(w, &r, NULL);
	call.out = c->out;
	call.lse = c->lse;
	return method_ref(method_prefill(w->s->method[0]), &call, NULL, err);
}

void plan_dense_release(struct plan_dense *d)
{
	for (size_t i = 0; i < d->n; i++) {
		free(d->chunk[i].out);
		free(d->chunk[i].lse);
	}
	free(d->chunk);
	*d = (struct plan_dense){ 0 };
}

/* number: of the chunk in d, from 0. */
static enum ar_status run_chunk(struct work *w, struct plan_dense *d, size_t number,
				struct ar_err *err)
{
	enum ar_status st = number < d->n ? AR_OK : add_dense(d, w, err);

	if (st)
		return st;
	w->dense = &d->chunk[number];
	return parallel_each((int)w->s->n - 1, run_setting, w, err);
}

/* ---- captures ---- */

struct plan_chunk *plan_chunks(const struct calib_input *in, const struct plan_sample *how,
			       size_t c, size_t *n)
{
	int64_t n_tok = calib_tokens(in, in->capture[c]);
	int64_t chunk = how->chunk < n_tok ? how->chunk : n_tok;
	int64_t n_chunk = chunk < n_tok ? how->n_chunk : 1;
	struct plan_chunk *v = calloc(how->at ? how->n_at + 1 : (size_t)n_chunk, sizeof *v);

	*n = 0;
	for (size_t i = 0; v && how->at && i < how->n_at; i++)
		if (how->at[i].capture == c)
			v[(*n)++] = how->at[i];
	for (int64_t k = 1; v && !how->at && k <= n_chunk; k++) {
		int64_t from = (n_tok - chunk) * k / n_chunk;

		v[(*n)++] = (struct plan_chunk){ c, from, from + chunk, n_tok };
	}
	return v;
}

/* Run chunks of the i-th layer of c.  *number: of the next chunk.  tally: of the layer. */
static enum ar_status run_layer(const struct plan_settings *s, const struct calib_input *in,
				const struct plan_sample *how, size_t c, int i,
				const struct plan_chunk *chunk, size_t n, size_t *number,
				struct tally *tally, struct ar_err *err)
{
	struct capture *from = in->capture[c];
	struct plan_dense own = { 0 };
	struct calib_layer l;
	struct work w = { .s = s, .l = &l, .layer = capture_info(from)->layer[i], .tally = tally };
	enum ar_status st = calib_layer_load(&l, from, i, calib_tokens(in, from), s->page_tok, err);

	if (st)
		return st;
	for (size_t k = 0; k < n && !st; k++) {
		l.b.rows.n_row = (int)chunk[k].prompt; /* its prompt ends there */
		w.from = (int)chunk[k].from;
		w.to = (int)chunk[k].to;
		st = how->dense ? run_chunk(&w, how->dense, (*number)++, err) :
				  run_chunk(&w, &own, 0, err);
		plan_dense_release(&own);
	}
	calib_layer_release(&l);
	return st;
}

/* The layers of all captures that how does not ignore, each once; NULL: no memory. */
static int *list_layers(const struct calib_input *in, const struct plan_sample *how, size_t *n)
{
	size_t all = 0, used = 0;
	int *layer;

	for (size_t c = 0; c < in->n; c++)
		all += (size_t)capture_info(in->capture[c])->n_layers;
	layer = malloc(all * sizeof *layer);
	if (!layer)
		return NULL;
	for (size_t c = 0, at = 0; c < in->n; c++) {
		const struct capture_info *info = capture_info(in->capture[c]);

		memcpy(layer + at, info->layer, (size_t)info->n_layers * sizeof *layer);
		at += (size_t)info->n_layers;
	}
	qsort(layer, all, sizeof *layer, order_i32);
	for (size_t i = 0; i < all; i++)
		if ((!used || layer[i] != layer[used - 1]) &&
		    !(how->ignore && how->ignore[layer[i]]))
			layer[used++] = layer[i];
	*n = used;
	return layer;
}

static enum ar_status open_methods(const struct plan_settings *s, const struct calib_input *in,
				   const struct rope *rope, int n_layers, struct ar_err *err)
{
	const struct capture_info *info = capture_info(in->capture[0]);
	float *inv = calloc((size_t)info->head_dim, sizeof *inv);
	struct selector_env env = {
		.shape = { info->q_heads, info->kv_heads, info->head_dim, s->page_tok },
		.n_layers = n_layers,
	};
	enum ar_status st = inv ? AR_OK : ar_nomem(err);

	if (info->rope.theta > 0 || !rope)
		rope = &info->rope;
	if (inv && rope->theta > 0) {
		rope_inv_freq(rope, info->head_dim, inv);
		env.rope_inv = inv;
	}
	for (size_t i = 0; i < s->n && !st; i++)
		st = method_open(s->method[i], &env, err);
	free(inv);
	return st;
}

static enum ar_status run_captures(const struct plan_settings *s, const struct calib_input *in,
				   const struct plan_sample *how, const int *layer, size_t n_layer,
				   struct tally *tally, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	size_t number = 0;

	for (size_t c = 0; c < in->n && !st; c++) {
		const struct capture_info *info = capture_info(in->capture[c]);
		size_t n_chunk;
		struct plan_chunk *chunk = plan_chunks(in, how, c, &n_chunk);

		if (!chunk)
			st = ar_nomem(err);
		for (int i = 0; i < info->n_layers && !st; i++) {
			const int *at = bsearch(&info->layer[i], layer, n_layer, sizeof *layer,
						order_i32);

			progress("layers",
				 (unsigned long)(c * (size_t)info->n_layers) + (unsigned long)i,
				 (unsigned long)(in->n * (size_t)info->n_layers));
			if (at)
				st = run_layer(s, in, how, c, i, chunk, n_chunk, &number,
					       tally + (size_t)(at - layer) * s->n, err);
		}
		free(chunk);
	}
	progress_end();
	return st;
}

static struct plan_point point_of(const struct tally *t)
{
	const struct selection_count *n = &t->count;

	return (struct plan_point){ .density = (double)n->exec_sel / (double)n->exec_total,
				    .recall = t->recall / t->heads,
				    .selected = (double)n->tiles_sel / (double)n->tiles_total,
				    .rel_l2 = t->rel_l2 / t->heads };
}

enum ar_status plan_measure(const struct plan_settings *s, const struct calib_input *in,
			    const struct plan_sample *how, struct plan_table *t, int **layer,
			    struct ar_err *err)
{
	struct tally *tally = NULL;
	enum ar_status st = AR_OK;
	int n_layers = (int)how->layers;

	*t = (struct plan_table){ .n_setting = s->n };
	*layer = list_layers(in, how, &t->n_layer);
	if (*layer && !t->n_layer)
		return ar_fail(err, AR_USAGE, "the captures hold no layer to measure methods in");
	if (*layer) {
		tally = calloc(t->n_layer * s->n, sizeof *tally);
		t->at = malloc(t->n_layer * s->n * sizeof *t->at);
	}
	if (!tally || !t->at)
		st = ar_nomem(err);
	else if (n_layers && n_layers <= (*layer)[t->n_layer - 1])
		st = ar_fail(err, AR_USAGE,
			     "layers %d: layer %d is captured; give the model's layers", n_layers,
			     (*layer)[t->n_layer - 1]);
	else
		st = open_methods(s, in, how->rope,
				  n_layers ? n_layers : (*layer)[t->n_layer - 1] + 1, err);
	if (!st)
		st = run_captures(s, in, how, *layer, t->n_layer, tally, err);
	for (size_t i = 0; i < t->n_layer * s->n && !st; i++)
		t->at[i] = i % s->n ? point_of(&tally[i]) : (struct plan_point){ 1, 1, 1, 0 };
	free(tally);
	return st;
}
