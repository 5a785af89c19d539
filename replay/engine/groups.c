/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/engine/groups.h"

#include <stdio.h>
#include <stdlib.h>

#include "kernels/delta/delta.h"

static int64_t lesser(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Pages that a request of a window layer holds at most.  The first and the last may be partial. */
static int64_t window_pages(const struct cache_group *x, int64_t max_tok)
{
	int tok = x->shape.page_tok;

	return (x->window - 1 + max_tok + tok - 1) / tok + 1;
}

static struct cache_group group_of_layer(const struct model *m, const struct layer_plan *p,
					 int layer, int64_t max_seqs, int64_t max_tok)
{
	const struct layer_spec *l = &m->layer[layer];
	struct cache_group x = { .mixer = l->mixer,
				 .window = l->window,
				 .max_page = INT64_MAX,
				 .segment = plan_segment(p, layer) };

	if (l->mixer == MIX_LINEAR) {
		x.shape.page_tok = 1;
		x.state_bytes = delta_state_len(&l->delta) * sizeof(float) +
				delta_tail_len(&l->delta) * sizeof(bf16_t);
		x.max_page = max_seqs;
		return x;
	}
	x.shape = plan_shape(p, m, layer);
	x.kv_bytes = pages_offset(&x.shape, 1, 0) * sizeof(bf16_t);
	x.state_bytes = method_state_bytes(plan_method(p, layer), &x.shape);
	if (l->mixer == MIX_WINDOW)
		x.max_page = max_seqs * window_pages(&x, max_tok);
	return x;
}

static bool same_group(const struct cache_group *a, const struct cache_group *b)
{
	const struct attn_shape *s = &a->shape, *t = &b->shape;

	return a->mixer == b->mixer && a->window == b->window && a->segment == b->segment &&
	       s->q_heads == t->q_heads && s->kv_heads == t->kv_heads &&
	       s->head_dim == t->head_dim && a->state_bytes == b->state_bytes;
}

enum ar_status groups_init(struct cache_groups *g, const struct model *m,
			   const struct layer_plan *p, int64_t max_seqs, int64_t max_tok,
			   struct ar_err *err)
{
	size_t n = (size_t)m->n_layers;

	*g = (struct cache_groups){ .group = calloc(n, sizeof *g->group),
				    .of = calloc(n, sizeof *g->of),
				    .max_seqs = max_seqs };
	if (!g->group || !g->of)
		return ar_nomem(err);
	for (int l = 0; l < m->n_layers; l++) {
		const struct cache_group x = group_of_layer(m, p, l, max_seqs, max_tok);
		int at = 0;

		while (at < g->n && !same_group(&g->group[at], &x))
			at++;
		if (at == g->n)
			g->group[g->n++] = x;
		g->of[l] = at;
		if (drop_revives(p->drop) && drop_acts_after(p->drop, l)) {
			g->group[at].aux_layer = l;
			g->group[at].aux_bytes = (size_t)x.shape.page_tok * (size_t)m->hidden *
						 sizeof(bf16_t);
		}
	}
	return AR_OK;
}

void groups_release(struct cache_groups *g)
{
	for (int i = 0; i < g->n; i++)
		pages_close(g->group[i].pages);
	free(g->group);
	free(g->of);
	*g = (struct cache_groups){ 0 };
}

double groups_bytes(const struct cache_groups *g, const int *layer, int n, int64_t n_page)
{
	double sum = 0;

	for (int i = 0; i < n; i++) {
		int l = layer ? layer[i] : i;
		const struct cache_group *x = groups_of(g, l);
		size_t aux = l == x->aux_layer ? x->aux_bytes : 0;

		sum += (double)(2 * x->kv_bytes + x->state_bytes + aux) *
		       (double)lesser(n_page, x->max_page);
	}
	return sum;
}

double groups_aux_bytes(const struct cache_groups *g)
{
	double sum = 0;

	for (int i = 0; i < g->n; i++)
		sum += (double)g->group[i].aux_bytes * (double)g->group[i].n_page;
	return sum;
}

char *groups_describe(const struct cache_groups *g, int group, const int *layer, int n, char *buf,
		      size_t size)
{
	static const char *const kind[] = { "full", "window", "linear" }; /* by mixer */
	const struct cache_group *x = &g->group[group];
	char window[32] = "";
	int count = 0;

	for (int i = 0; i < n; i++)
		count += g->of[layer[i]] == group;
	if (x->window)
		snprintf(window, sizeof window, " of %d tokens", x->window);
	*buf = '\0';
	if (count)
		snprintf(buf, size, "%d %s layer%s%s, %.2f GiB", count, kind[x->mixer],
			 count > 1 ? "s" : "", window,
			 (double)count * (double)(2 * x->kv_bytes + x->state_bytes) *
				 (double)x->n_page / 0x1p30);
	return buf;
}

enum ar_status groups_open_pages(struct cache_groups *g, int64_t num_blocks, int64_t block_tok,
				 size_t n_req, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (int i = 0; i < g->n && !st; i++) {
		struct cache_group *x = &g->group[i];
		int tok = x->shape.page_tok;

		x->n_page = lesser(pages_needed(num_blocks, block_tok, g->max_seqs, tok),
				   x->max_page);
		st = pages_open(&x->pages, x->n_page, tok, n_req, err);
	}
	return st;
}

enum ar_status groups_grow(const struct cache_groups *g, const struct batch_entry *e,
			   struct ar_err *err)
{
	return groups_grow_segment(g, 0, e, e->start, (int64_t)e->start + e->n_tok, err);
}

enum ar_status groups_grow_segment(const struct cache_groups *g, int segment,
				   const struct batch_entry *e, int64_t start, int64_t end,
				   struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (int i = 0; i < g->n && !st; i++) {
		const struct cache_group *x = &g->group[i];

		if (x->segment != segment)
			continue;
		if (x->window)
			pages_trim(x->pages, e->req, start - x->window + 1);
		st = pages_grow(x->pages, e->req, x->mixer == MIX_LINEAR ? 1 : end, err);
		if (!st && e->kind != ROW_DECODE)
			pages_set_chunked(x->pages, e->req, end);
	}
	return st;
}

bool groups_hold(const struct cache_groups *g, const struct batch_entry *e)
{
	int64_t end = (int64_t)e->start + e->n_tok;

	for (int i = 0; i < g->n; i++)
		if (!g->group[i].segment && g->group[i].mixer != MIX_LINEAR &&
		    pages_len(g->group[i].pages, e->req) < end)
			return false;
	return true;
}

void groups_drop(const struct cache_groups *g, uint32_t req)
{
	for (int i = 0; i < g->n; i++)
		pages_drop(g->group[i].pages, req);
}

bool groups_missing(const struct cache_groups *g, const struct batch_entry *e, int64_t max_tok,
		    struct batch_entry *piece)
{
	int64_t have = e->start, held = e->start;

	for (int i = 0; i < g->n; i++) {
		const struct cache_group *x = &g->group[i];
		bool chunked = x->state_bytes && e->kind != ROW_DECODE;

		if (x->segment || x->mixer == MIX_LINEAR)
			continue;
		held = lesser(held, pages_len(x->pages, e->req));
		have = lesser(have, chunked ? pages_chunked(x->pages, e->req) : held);
	}
	if (have >= e->start)
		return false;
	held = held > have ? held : e->start; /* where the piece must end */
	*piece = (struct batch_entry){ .req = e->req,
				       .start = (uint32_t)have,
				       .n_tok = (uint32_t)lesser(held - have, max_tok) };
	return true;
}
