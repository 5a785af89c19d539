/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of a run's rows: how many each layer ran, and how good the kept ones were chosen. */
#include "config.h"
#include "replay/engine/attn_engine.h"

#include <stdlib.h>
#include <string.h>

/* ---- counts ---- */

void attn_engine_tally(struct attn_engine *e, const struct batch *b)
{
	const struct row_segment *segment = drops_segments(&e->drops);

	for (int g = 0; g < e->groups.n; g++) {
		struct cache_group *group = &e->groups.group[g];
		const struct row_segment *s = segment ? &segment[group->segment] : NULL;

		if (group->segment < e->drops.n - 1)
			group->n_on += e->drops.n_index[group->segment];
		for (size_t i = 0; i < b->n; i++) {
			group->n_row += s ? s->n[i] : (int64_t)b->entry[i].n_tok;
			group->n_pair += rows_pairs(s, b, i, group->window);
		}
	}
}

void attn_engine_forget(struct attn_engine *e)
{
	for (int g = 0; g < e->groups.n; g++)
		e->groups.group[g].n_row = e->groups.group[g].n_on = e->groups.group[g].n_pair = 0;
}

void attn_engine_work(const struct attn_engine *e, int i, struct layer_work *out)
{
	const struct cache_group *g = attn_engine_group(e, i);
	const struct drop *d = attn_engine_drop(e, i);

	*out = (struct layer_work){
		.n_row = g->n_row,
		.n_mlp = d && d->dropper->place == DROP_BEFORE_MLP ? g->n_on : g->n_row,
		.n_pair = g->n_pair,
	};
}

/* ---- the share that is kept ---- */

/* Make K of all tokens of the entry's request so far, to k.  Make Q of its last x->queries tokens,
 * to q. */
static enum ar_status make_rows(const struct attn_engine *e, const struct batch_entry *entry, int i,
				int max_row, engine_rows_fn *rows, void *ctx,
				const struct kept_share *x, bf16_t *q, bf16_t *k,
				struct ar_err *err)
{
	const struct attn_shape *s = attn_engine_shape(e, i);
	size_t q_row = (size_t)(s->q_heads * s->head_dim);
	size_t k_row = (size_t)(s->kv_heads * s->head_dim);
	int first = x->n_tok - x->queries; /* with Q that counts */
	struct layer_row *row = calloc((size_t)max_row, sizeof *row);
	bf16_t *piece = malloc((size_t)max_row * q_row * sizeof *piece);
	enum ar_status st = row && piece ? AR_OK : ar_nomem(err);

	for (int at = 0, n; at < x->n_tok && !st; at += n) {
		n = x->n_tok - at < max_row ? x->n_tok - at : max_row;
		st = e->act->begin(e->act_self, entry->req, at, (uint32_t)n, row, err);
		if (!st)
			st = rows(ctx, i, row, n, piece, k + (size_t)at * k_row, err);
		for (int t = at > first ? at : first; t < at + n && !st; t++)
			memcpy(q + (size_t)(t - first) * q_row, piece + (size_t)(t - at) * q_row,
			       q_row * sizeof *q);
	}
	free(row);
	free(piece);
	return st;
}

enum ar_status attn_engine_kept(const struct attn_engine *e, const struct batch_entry *entry, int i,
				int max_row, engine_rows_fn *rows, void *ctx,
				struct kept_share *out, struct ar_err *err)
{
	const struct attn_shape *s = attn_engine_shape(e, i);
	int segment = attn_engine_drop(e, i) ? attn_engine_drop_no(e, i) + 1 :
					       attn_engine_group(e, i)->segment;
	const struct drop_list *l = segment ? drops_tokens(&e->drops, segment, entry->req) : NULL;
	struct kept_share x = { .n_tok = (int)(entry->start + entry->n_tok) };
	size_t n = (size_t)x.n_tok, k_row = (size_t)(s->kv_heads * s->head_dim);
	uint8_t *keep;
	bf16_t *q, *k;
	enum ar_status st;

	*out = (struct kept_share){ 0 };
	if (!segment)
		return AR_OK;
	x.queries = entry->n_tok < KEPT_QUERIES ? (int)entry->n_tok : KEPT_QUERIES;
	keep = calloc(n, 1);
	q = malloc((size_t)(x.queries * s->q_heads * s->head_dim) * sizeof *q);
	k = malloc(n * k_row * sizeof *k);
	st = keep && q && k ? make_rows(e, entry, i, max_row, rows, ctx, &x, q, k, err) :
			      ar_nomem(err);
	for (int32_t t = 0; !st && t < l->n; t++)
		keep[l->pos[t]] = 1;
	if (!st)
		st = kept_share(s, q, k, keep, &x, err);
	if (!st)
		*out = x;
	free(keep);
	free(q);
	free(k);
	return st;
}
