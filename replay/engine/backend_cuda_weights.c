/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backend "cuda": real weights.  What a layer works on is known only when all layers below have run.
 * So whoever needs Q of a layer outside of an iteration, as droppers and compare() do, runs those
 * first.
 */
#include "config.h"
#include "replay/engine/backend_cuda.h"

#include <assert.h>

#include "replay/engine/tokens.h"

/* ---- segments ---- */

/* Whole executed layers [from, to), in which no dropper acts. */
static enum ar_status run_layers(struct cuda *c, int from, int to, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (int i = from; i < to && !st; i++) {
		const struct rows *r = row_set_of(&c->dev, i);

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
	enum ar_status st = s ? cuda_after_drop(c, last, cuda_kept(c, last), err) :
				cuda_begin(c, err);

	if (!st)
		st = run_layers(c, last + 1, i, err);
	if (!st)
		st = cuda_mix(c, i, row_set_of(&c->dev, i), true, err);
	return st ? st : cuda_until_drop(c, i, row_set_of(&c->dev, i), err);
}

/* ---- one entry ---- */

/* Number i of an entry's rows in a segment, among all its rows. */
static int32_t row_at(const struct row_segment *s, int32_t i)
{
	return s->keep[0] ? s->keep[0][i] : i;
}

/* Go on with the rows of the entry that stay after executed layer i.  segment: of the entry. */
static enum ar_status keep_entry(struct cuda *c, int i, const struct row_segment *segment,
				 struct ar_err *err)
{
	const struct row_segment *s = &segment[attn_engine_group(&c->engine, i)->segment];
	int32_t *index = c->engine.drops.kept.index;
	enum ar_status st;
	int n = 0;

	for (int32_t k = 0; k < s->n[0] && n < s[1].n[0]; k++)
		if (row_at(s, k) == row_at(s + 1, n))
			index[n++] = k;
	assert(n == s[1].n[0]);
	st = cuda_put_index(c, i, index, n, err);
	return st ? st : cuda_after_drop(c, i, n, err);
}

/* What follows the mixer of executed layer i. */
static enum ar_status finish_entry(struct cuda *c, int i, const struct row_segment *segment,
				   struct ar_err *err)
{
	const struct rows *r = row_set_of(&c->dev, i);
	enum ar_status st = cuda_until_drop(c, i, r, err);

	return st || !cuda_drop_at(c, i, r) ? st : keep_entry(c, i, segment, err);
}

/* Layers are asked for in order: go on from the last one.  K and V stay as the iteration stored them,
 * because products of other numbers of rows may be rounded differently. */
enum ar_status cuda_reach(struct cuda *c, const struct batch_entry *e,
			  const struct row_segment *segment, int i, struct ar_err *err)
{
	struct dense_out *d = &c->compared;
	bool goes_on = d->at >= 0 && d->at < i && d->req == e->req && d->start == e->start;
	int from = goes_on ? d->at : 0;
	enum ar_status st = goes_on ? AR_OK : cuda_begin(c, err);

	*d = (struct dense_out){ d->out, d->lse, d->work, -1, e->req, e->start };
	for (int k = from; k < i && !st; k++) {
		if (k > from || !goes_on)
			st = cuda_mix(c, k, row_set_of(&c->dev, k), false, err);
		if (!st)
			st = finish_entry(c, k, segment, err);
	}
	if (!st)
		st = decoder_before(c->decoder, i, c->env.run_layer[i], err);
	if (!st)
		st = cuda_make_qkv(c, i, row_set_of(&c->dev, i), false, err);
	d->at = st ? -1 : i;
	return st;
}

/* ---- logits ---- */

/* Rows that output a token are in the order of rows: entries of prefill, then decodes.  A graph has
 * the logits of all rows. */
enum ar_status cuda_put_logits(struct cuda *c, const struct batch *b, bool graph,
			       struct ar_err *err)
{
	enum ar_status st = AR_OK;
	int n = 0;

	for (int decode = 0; decode < 2; decode++)
		for (size_t i = 0; i < b->n && !st; i++) {
			const struct batch_entry *e = &b->entry[i];

			if (e->decode != decode || !e->emit)
				continue;
			st = decoder_logits(c->decoder, graph ? (int)i : n, c->logits, err);
			if (!st)
				st = tokens_put(c->env.tokens, e->req,
						(int64_t)e->start + e->n_tok - 1, c->logits, err);
			n++;
		}
	return st;
}
