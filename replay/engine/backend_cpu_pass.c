/* SPDX-License-Identifier: Apache-2.0 */
/* Backend "cpu": the layers. */
#include "config.h"
#include "replay/engine/backend_cpu.h"

#include <assert.h>
#include <string.h>
#include <time.h>

#include "replay/engine/overflow.h"
#include "replay/engine/tokens.h"
#include "replay/forward/decoder_ref.h"

/* ---- times ---- */

int64_t cpu_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void cpu_phase(void *ctx, int layer, enum phase phase)
{
	struct cpu *c = ctx;
	int64_t now = cpu_now_ns();

	(void)layer;
	c->ns[c->phase] += now - c->since;
	c->phase = phase;
	c->since = now;
}

/* ---- attention ---- */

struct attn_call cpu_call(const struct cpu *c, const struct rows *r, enum row_kind kind, int i)
{
	const struct cache_group *g = attn_engine_group(&c->engine, i);
	ptrdiff_t at = (ptrdiff_t)rows_before(r, kind) * g->shape.q_heads * g->shape.head_dim;

	return (struct attn_call){ .b = &r->part[kind],
				   .layer = c->env.run_layer[i],
				   .q = c->q + at,
				   .kv = c->kv[i],
				   .layout = g->layout,
				   .state = groups_state(g, c->state[i], (size_t)g->n_page, kind),
				   .prune_state = groups_state(g, c->state[i], (size_t)g->n_page,
							       STATE_PRUNE),
				   .lists = c->lists,
				   .sink = attn_engine_sink(&c->engine, c->engine.sink, i),
				   .out = c->out + at };
}

/* Run a part of a method.  An executor that copies blocks does so in ref(), in its phase. */
static enum ar_status run_part(struct cpu *c, const struct method_part *p,
			       const struct attn_call *call, struct ar_err *err)
{
	struct method_selection x = { 0 };
	enum ar_status st = AR_OK;

	if (!p->dense) {
		cpu_phase(c, call->layer, PHASE_SELECT);
		st = method_choose_ref(p, call, &x, err);
	}
	if (!st && x.chosen.mask) {
		cpu_phase(c, call->layer, PHASE_METADATA);
		method_lower_ref(call->b, &x);
	}
	cpu_phase(c, call->layer, p->executor->phase);
	if (!st)
		st = p->executor->ref(call, &x.lists, err);
	cpu_phase(c, call->layer, PHASE_NONE);
	method_selection_release(&x);
	return st;
}

static enum ar_status attend_layer(struct cpu *c, int i, const struct rows *r, struct ar_err *err)
{
	const struct method *m = attn_engine_method(&c->engine, i);
	enum ar_status st = AR_OK;

	for (int k = 0; k < ROW_KINDS && !st; k++) {
		struct attn_call call = cpu_call(c, r, k, i);

		if (rows_count(r, k))
			st = run_part(c, &m->part[k], &call, err);
	}
	return st;
}

/* ---- Q, K and V ---- */

/* The keys of the batch are in the cache of executed layer i: copy those that its requests share
 * and go on after, or the states that were made of them. */
static void copy_shared(struct cpu *c, int i, bool states)
{
	const struct cache_group *g = attn_engine_group(&c->engine, i);
	const struct blocks *b = c->env.blocks;
	const int n_kv = cache_layout(g->layout)->n_plane;
	struct share_plane plane[GROUP_PLANES];
	int n = groups_share_planes(g, &c->kv[i], c->state[i], (size_t)g->n_page, plane);

	cpu_phase(c, c->env.run_layer[i], PHASE_SHARE);
	for (size_t k = 0; k < b->n_copy; k++) {
		struct share_copy copy = groups_share_copy(&b->copy[k]);

		if (states)
			share_pages_ref(plane + n_kv, n - n_kv, &copy, 1);
		else
			share_pages_ref(plane, n_kv, &copy, 1);
	}
	cpu_phase(c, c->env.run_layer[i], PHASE_NONE);
}

/* The rows of executed layer i are in the cache: show them to the selector of decodes. */
static enum ar_status append_rows(struct cpu *c, int i, const struct rows *r, struct ar_err *err)
{
	const struct method_part *p = &attn_engine_method(&c->engine, i)->part[ROW_DECODE];
	const struct attn_call own = cpu_call(c, r, ROW_DECODE, i);
	bool states = own.state || own.prune_state;
	enum ar_status st = AR_OK;

	if (states)
		cpu_phase(c, c->env.run_layer[i], PHASE_META);
	for (int k = 0; states && k < ROW_REVIVED && !st; k++) {
		struct attn_call call = cpu_call(c, r, k, i);

		call.state = own.state;
		if (rows_count(r, k))
			st = method_append_ref(p, &call, err);
	}
	if (states)
		cpu_phase(c, c->env.run_layer[i], PHASE_NONE);
	return st;
}

/* The same, with tokens of shared pages.  States of keys of this batch are made before they are
 * copied.  Rows come again, as a piece may have copied keys and keys of theirs. */
static enum ar_status append_shared(struct cpu *c, int i, const struct rows *r, struct ar_err *err)
{
	const bool shares = c->env.blocks->n_copy;
	enum ar_status st;

	if (shares)
		copy_shared(c, i, false);
	st = append_rows(c, i, r, err);
	if (st || !shares)
		return st;
	copy_shared(c, i, true);
	return append_rows(c, i, r, err);
}

/* RoPE and the cache take one time.  Of a capture they take none: an engine reads no captures. */
enum ar_status cpu_qkv(struct cpu *c, int i, const struct rows *r, bool store, struct ar_err *err)
{
	const struct qkv out = { c->q, c->k, store ? &c->kv[i] : NULL };
	int layer = c->env.run_layer[i];
	struct layer_qkv product;
	enum ar_status st;

	if (c->decoder) {
		product = decoder_ref_product(c->decoder, layer);
		cpu_phase(c, layer, PHASE_ROPE);
	}
	st = c->engine.act->qkv_ref(c->engine.act_self, i, r->row, r->n_row,
				    c->decoder ? &product : NULL, &out, err);
	cpu_phase(c, layer, PHASE_NONE);
	return st || !store ? st : append_shared(c, i, r, err);
}

enum ar_status cpu_attend(struct cpu *c, int i, const struct rows *r, void *ctx, struct ar_err *err)
{
	enum ar_status st = cpu_qkv(c, i, r, true, err);

	if (!st)
		st = cpu_evict_see(c, i, r, ctx, err);
	return st ? st : attend_layer(c, i, r, err);
}

/* ---- passes ---- */

static enum ar_status build_rows(struct cpu *c, const struct batch *b,
				 const struct row_segment *segment, struct ar_err *err)
{
	size_t used;

	return rows_build(&c->set, &c->rows, b, segment, NULL, 0, &used, err);
}

/* Give the rows of b pages in segment s, and build them. */
static enum ar_status enter_segment(struct cpu *c, const struct batch *b, int s, struct ar_err *err)
{
	struct drops *d = &c->engine.drops;
	enum ar_status st = drops_grow(d, c->env.blocks, b, s, err);

	return st ? st : build_rows(c, b, drops_segments(d), err);
}

/* Run the dropper of executed layer i, and find the rows of the next segment. */
static enum ar_status drop_rows(struct cpu *c, int i, const struct batch *b, const struct rows *r,
				struct ar_err *err)
{
	const struct drop *drop = attn_engine_drop(&c->engine, i);
	struct drops *d = &c->engine.drops;
	struct attn_call at = cpu_call(c, r, ROW_PREFILL, i);
	struct attn_call decode = cpu_call(c, r, ROW_DECODE, i);
	const struct drop_link link = { c->env.world, cpu_phase, c, at.layer };
	const struct drop_ranks ranks = drops_ranks(&link);
	enum ar_status st = AR_OK;

	cpu_phase(c, at.layer, PHASE_NONE);
	if (drops_acts(d, r))
		cpu_phase(c, at.layer, PHASE_DROP);
	if (rows_count(r, ROW_PREFILL))
		st = drop_ref(drop, &(struct drop_call){ &at, d->chunk, r->n_row, ranks }, &d->kept,
			      err);
	d->chosen.gone = r->gone;
	if (!st && d->revives && rows_count(r, ROW_DECODE))
		st = drop_revive_ref(drop, &(struct drop_call){ &decode, NULL, r->n_row, ranks },
				     &d->chosen, err);
	cpu_phase(c, at.layer, PHASE_NONE);
	if (!st)
		drops_apply(d, b, attn_engine_drop_no(&c->engine, i), d->kept.keep);
	return st;
}

/* Go on with the rows of the pass that the dropper of executed layer i has kept. */
static void keep_rows(struct cpu *c, int i)
{
	const struct drops *d = &c->engine.drops;
	int s = attn_engine_drop_no(&c->engine, i);

	decoder_ref_keep(c->decoder, c->env.run_layer[i], d->index + (ptrdiff_t)s * d->max_row,
			 d->n_index[s]);
	cpu_phase(c, PHASE_NO_LAYER, PHASE_NONE);
}

/* The same, and with the rows that decodes revive.  The others of rows r go to the aux cache. */
static enum ar_status revive_rows(struct cpu *c, int i, const struct rows *r, struct ar_err *err)
{
	const struct drops *d = &c->engine.drops;
	int s = attn_engine_drop_no(&c->engine, i), layer = c->env.run_layer[i];
	int n = drops_slots(d, c->env.blocks, attn_engine_group(&c->engine, i), s + 1, c->slot);
	enum ar_status st = decoder_ref_settle(c->decoder, layer, err);

	if (st)
		return st;
	layer_put_ref(decoder_ref_hidden(c->decoder), r->row, d->left + (ptrdiff_t)s * d->max_row,
		      d->n_left[s], c->env.model->hidden, c->aux[i]);
	keep_rows(c, i);
	decoder_ref_add(c->decoder, layer, c->aux[i], c->slot, n);
	cpu_phase(c, PHASE_NO_LAYER, PHASE_NONE);
	return AR_OK;
}

/* The steps of executed layer i after its attention: projection and MLP of the decoder, if whole,
 * and the dropper between or behind them. */
static enum ar_status finish_layer(struct cpu *c, int i, const struct batch *b,
				   const struct rows *r, bool whole, struct ar_err *err)
{
	const struct drop *drop = attn_engine_drop(&c->engine, i);
	bool before_mlp = drop && drop->dropper->place == DROP_BEFORE_MLP;
	int layer = c->env.run_layer[i];
	enum ar_status st = whole ? decoder_ref_project(c->decoder, layer, c->out, err) : AR_OK;

	if (!st && whole && !before_mlp)
		st = decoder_ref_mlp(c->decoder, layer, err);
	if (!st && drop)
		st = drop_rows(c, i, b, r, err);
	if (!st && drop && whole && c->engine.drops.revives)
		st = revive_rows(c, i, r, err);
	else if (!st && drop && whole && rows_count(r, ROW_PREFILL))
		keep_rows(c, i);
	if (!st && whole && before_mlp)
		st = decoder_ref_mlp(c->decoder, layer, err);
	cpu_phase(c, layer, PHASE_NONE);
	return st;
}

enum ar_status cpu_pass(struct cpu *c, const struct batch *b, bool whole, cpu_mix_fn *mix,
			void *ctx, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	int in = -1; /* segment */

	whole = whole && c->decoder;
	c->sample.layer = -1;
	drops_begin(&c->engine.drops, b);
	for (int i = 0; i < c->env.n_run_layers && !st; i++) {
		const struct rows *r = row_set_of(&c->set, i);
		int segment = attn_engine_group(&c->engine, i)->segment;

		if (segment != in)
			st = enter_segment(c, b, segment, err);
		in = segment;
		if (!st && !i && whole)
			st = decoder_ref_begin(c->decoder, r->row, r->n_row, err);
		if (cpu_skips(c, i))
			continue;
		if (!st && whole)
			st = decoder_ref_before(c->decoder, c->env.run_layer[i], err);
		if (!st && whole)
			st = overflow_check(&c->env, b, r, i, decoder_ref_hidden(c->decoder), err);
		cpu_phase(c, PHASE_NO_LAYER, PHASE_NONE);
		if (!st)
			st = mix(c, i, r, ctx, err);
		if (!st)
			st = finish_layer(c, i, b, r, whole, err);
	}
	return st;
}

/* ---- logits ---- */

/* Rows that output a token: their numbers after the last layer, requests and positions. */
struct emitted {
	int32_t row[CPU_LOGIT_ROWS];
	uint32_t req[CPU_LOGIT_ROWS];
	int64_t pos[CPU_LOGIT_ROWS];
	int n;
};

static enum ar_status put_logits(struct cpu *c, struct emitted *x, struct ar_err *err)
{
	size_t vocab = cpu_vocab(c);
	enum ar_status st = AR_OK;

	if (x->n)
		st = decoder_ref_logits(c->decoder, x->row, x->n, c->logits, err);
	cpu_phase(c, PHASE_NO_LAYER, PHASE_NONE);
	for (int i = 0; i < x->n && !st; i++)
		st = tokens_put(c->env.tokens, x->req[i], x->pos[i], c->logits + (size_t)i * vocab,
				err);
	x->n = 0;
	return st;
}

/* Put the logits of the last n_emit rows of e.  *row: their numbers; it goes on. */
static enum ar_status emit_entry(struct cpu *c, const struct batch_entry *e, const int32_t **row,
				 struct emitted *x, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (uint32_t left = e->n_emit; left && !st; left--) {
		x->row[x->n] = *(*row)++;
		x->req[x->n] = e->req;
		x->pos[x->n++] = (int64_t)e->start + e->n_tok - left;
		if (x->n == CPU_LOGIT_ROWS)
			st = put_logits(c, x, err);
	}
	return st;
}

/* After the last layer the decoder has the rows of that layer. */
enum ar_status cpu_emit(struct cpu *c, const struct batch *b, struct ar_err *err)
{
	const struct rows *r = row_set_of(&c->set, c->env.n_run_layers - 1);
	const int32_t *row = r->emit;
	struct emitted x = { .n = 0 };
	enum ar_status st = decoder_ref_end(c->decoder, err);

	if (!st)
		st = overflow_check(&c->env, b, r, c->env.n_run_layers,
				    decoder_ref_hidden(c->decoder), err);
	for (int kind = 0; kind < ROW_KINDS; kind++)
		for (size_t i = 0; i < b->n && !st; i++)
			if ((int)b->entry[i].kind == kind)
				st = emit_entry(c, &b->entry[i], &row, &x, err);
	return st ? st : put_logits(c, &x, err);
}

/* ---- samples ---- */

/* Run executed layer i, whose Q and K are made, to its end.  Which rows go on is known. */
static enum ar_status leave_layer(struct cpu *c, int i, uint32_t req, struct ar_err *err)
{
	struct drops *d = &c->engine.drops;
	const struct drop *drop = attn_engine_drop(&c->engine, i);
	bool before_mlp = drop && drop->dropper->place == DROP_BEFORE_MLP;
	int layer = c->env.run_layer[i], n = 0;
	enum ar_status st = decoder_ref_project(c->decoder, layer, c->out, err);

	if (drop)
		n = drops_entry_index(d, req, attn_engine_drop_no(&c->engine, i), d->kept.index);
	if (!st && before_mlp)
		decoder_ref_keep(c->decoder, layer, d->kept.index, n);
	if (!st)
		st = decoder_ref_mlp(c->decoder, layer, err);
	if (!st && drop && !before_mlp)
		decoder_ref_keep(c->decoder, layer, d->kept.index, n);
	return st;
}

/* Run the layers before executed layer i, from the one after the last sample of the same entry on.
 * The cache holds their keys. */
static enum ar_status replay_layers(struct cpu *c, const struct batch_entry *e, int i,
				    struct ar_err *err)
{
	struct cpu_sample *at = &c->sample;
	const struct rows *first = row_set_of(&c->set, 0);
	bool on = at->layer >= 0 && at->layer < i && at->req == e->req && at->start == e->start;
	enum ar_status st = on ? leave_layer(c, at->layer, e->req, err) :
				 decoder_ref_begin(c->decoder, first->row, first->n_row, err);

	for (int l = on ? at->layer + 1 : 0; l <= i && !st; l++) {
		const struct rows *r = row_set_of(&c->set, l);

		st = decoder_ref_before(c->decoder, c->env.run_layer[l], err);
		if (!st)
			st = cpu_qkv(c, l, r, false, err);
		if (!st && l < i)
			st = attend_layer(c, l, r, err);
		if (!st && l < i)
			st = leave_layer(c, l, e->req, err);
	}
	*at = (struct cpu_sample){ e->req, e->start, st ? -1 : i };
	return st;
}

enum ar_status cpu_sample(struct cpu *c, const struct batch_entry *e, int i, struct ar_err *err)
{
	struct batch_entry one = *e;
	enum ar_status st =
		build_rows(c, &(struct batch){ .entry = &one, .n = 1, .blocks = c->env.blocks },
			   drops_entry(&c->engine.drops, e->req), err);

	if (st)
		return st;
	return c->decoder ? replay_layers(c, e, i, err) :
			    cpu_qkv(c, i, row_set_of(&c->set, i), false, err);
}
