/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backend "cuda": real weights.  A layer's input exists only after all layers below have run.
 * Droppers and compare() need Q of a layer outside of an iteration, so they run the layers below
 * first.
 */
#include "config.h"
#include "replay/engine/backend_cuda.h"

#include <assert.h>
#include <stdlib.h>

#include "replay/engine/overflow.h"
#include "replay/engine/tokens.h"

/* ---- segments ---- */

/* Whole executed layers [from, to), in which no dropper acts. */
static enum ar_status run_layers(struct cuda *c, int from, int to, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (int i = from; i < to && !st; i++) {
		const struct rows *r = row_set_of(&c->pass.dev, i);

		st = cuda_mix(c, i, r, true, err);
		if (!st)
			st = cuda_until_drop(c, i, r, err);
	}
	return st;
}

enum ar_status cuda_reach_drop(struct cuda *c, int s, struct ar_err *err)
{
	int last = s ? attn_engine_drop_layer(&c->engine, s - 1) : -1;
	int i = attn_engine_drop_layer(&c->engine, s);
	enum ar_status st = s ? cuda_pass_drop(c, last, row_set_of(&c->pass.dev, last), err) :
				cuda_enter(c, err);

	if (!st)
		st = run_layers(c, last + 1, i, err);
	if (!st)
		st = cuda_mix(c, i, row_set_of(&c->pass.dev, i), true, err);
	return st ? st : cuda_until_drop(c, i, row_set_of(&c->pass.dev, i), err);
}

/* ---- one entry ---- */

/* Enqueue the steps after the mixer of executed layer i.  It is known which rows of req's entry go
 * on. */
static enum ar_status finish_entry(struct cuda *c, int i, uint32_t req, struct ar_err *err)
{
	const struct rows *r = row_set_of(&c->pass.dev, i);
	struct drops *d = &c->engine.drops;
	enum ar_status st = cuda_until_drop(c, i, r, err);
	int n;

	if (st || !cuda_drop_at(c, i, r))
		return st;
	n = drops_entry_index(d, req, attn_engine_drop_no(&c->engine, i), d->kept.index);
	st = cuda_put_index(c, i, d->kept.index, n, err);
	return st ? st : cuda_after_drop(c, i, n, err);
}

/* Layers are asked for in order: go on from the last one.  K and V stay as the iteration stored
 * them, because products of other numbers of rows may be rounded differently. */
enum ar_status cuda_reach(struct cuda *c, const struct batch_entry *e, int i, struct ar_err *err)
{
	struct dense_out *d = &c->pass.compared;
	bool goes_on = d->at >= 0 && d->at < i && d->req == e->req && d->start == e->start;
	int from = goes_on ? d->at : 0;
	enum ar_status st = goes_on ? AR_OK : cuda_enter(c, err);

	d->at = -1;
	d->req = e->req;
	d->start = e->start;
	for (int k = from; k < i && !st; k++) {
		if (k > from || !goes_on)
			st = cuda_mix(c, k, row_set_of(&c->pass.dev, k), false, err);
		if (!st)
			st = finish_entry(c, k, e->req, err);
	}
	if (!st)
		st = decoder_before(c->decoder, i, c->env.run_layer[i], err);
	if (!st)
		st = cuda_make_qkv(c, i, row_set_of(&c->pass.dev, i), false, err);
	d->at = st ? -1 : i;
	return st;
}

/* ---- logits ---- */

/* Put the logits of the last n_emit rows of e.  n: the number of the first of them. */
static enum ar_status put_entry(struct cuda *c, const struct batch_entry *e, int n,
				struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (uint32_t left = e->n_emit; left && !st; left--) {
		st = decoder_logits(c->decoder, n++, c->pass.logits, err);
		if (!st)
			st = tokens_put(c->env.tokens, e->req, (int64_t)e->start + e->n_tok - left,
					c->pass.logits, err);
	}
	return st;
}

/* Run the layers of b once more, and refuse the first whose output is not finite.  AR_OK: none is
 * seen, as a state that went on can hide it.  x: room for the hidden states. */
static enum ar_status run_checked(struct cuda *c, const struct batch *b, bf16_t *x,
				  struct ar_err *err)
{
	enum ar_status st = cuda_begin(c, err);

	for (int i = 0; i <= c->env.n_run_layers && !st; i++) {
		int rows_of = i < c->env.n_run_layers ? i : i - 1;

		if (i)
			st = cuda_enqueue(c, &c->pass.dev, i - 1, i, cudaEventRecordDefault, err);
		if (!st)
			st = decoder_hidden(c->decoder, x, err);
		if (!st)
			st = overflow_check(&c->env, b, row_set_of(&c->pass.host, rows_of), i, x,
					    err);
	}
	return st;
}

/* A logit of b is not finite: let the message name the layer, if one is found. */
static void name_layer(struct cuda *c, const struct batch *b, struct ar_err *err)
{
	bf16_t *x = malloc((size_t)row_set_of(&c->pass.host, 0)->n_row *
			   (size_t)c->env.model->hidden * sizeof *x);
	struct ar_err named;

	if (x && run_checked(c, b, x, &named) == AR_DATA && err)
		*err = named;
	free(x);
}

/* Rows that output a token are in the order of kinds.  A graph, of decodes, has the logits of all
 * rows. */
static enum ar_status put_logits(struct cuda *c, const struct batch *b, bool graph,
				 struct ar_err *err)
{
	enum ar_status st = AR_OK;
	int n = 0;

	for (int kind = 0; kind < ROW_KINDS; kind++)
		for (size_t i = 0; i < b->n && !st; i++) {
			const struct batch_entry *e = &b->entry[i];

			if ((int)e->kind != kind)
				continue;
			st = put_entry(c, e, graph ? (int)i : n, err);
			n += (int)e->n_emit;
		}
	return st;
}

enum ar_status cuda_put_logits(struct cuda *c, const struct batch *b, bool graph,
			       struct ar_err *err)
{
	enum ar_status st = put_logits(c, b, graph, err);

	if (st == AR_DATA && c->engine.drops.n == 1) /* all layers have the same rows */
		name_layer(c, b, err);
	return st;
}
