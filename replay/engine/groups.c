/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/engine/groups.h"

#include <stdlib.h>

static struct cache_group group_of_layer(const struct model *m, const struct layer_plan *p,
					 int layer)
{
	struct cache_group x = { .mixer = m->layer[layer].mixer, .shape = plan_shape(p, m, layer) };

	x.kv_bytes = pages_offset(&x.shape, 1, 0) * sizeof(bf16_t);
	x.state_bytes = method_state_bytes(plan_method(p, layer), &x.shape);
	return x;
}

static bool same_group(const struct cache_group *a, const struct cache_group *b)
{
	const struct attn_shape *s = &a->shape, *t = &b->shape;

	return a->mixer == b->mixer && s->q_heads == t->q_heads && s->kv_heads == t->kv_heads &&
	       s->head_dim == t->head_dim && a->state_bytes == b->state_bytes;
}

enum ar_status groups_init(struct cache_groups *g, const struct model *m,
			   const struct layer_plan *p, struct ar_err *err)
{
	size_t n = (size_t)m->n_layers;

	*g = (struct cache_groups){ .group = calloc(n, sizeof *g->group),
				    .of = calloc(n, sizeof *g->of) };
	if (!g->group || !g->of)
		return ar_nomem(err);
	for (int l = 0; l < m->n_layers; l++) {
		const struct cache_group x = group_of_layer(m, p, l);
		int at = 0;

		while (at < g->n && !same_group(&g->group[at], &x))
			at++;
		if (at == g->n)
			g->group[g->n++] = x;
		g->of[l] = at;
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

size_t groups_page_bytes(const struct cache_groups *g, const int *layer, int n)
{
	size_t sum = 0;

	for (int i = 0; i < n; i++) {
		const struct cache_group *x = groups_of(g, layer ? layer[i] : i);

		sum += 2 * x->kv_bytes + x->state_bytes;
	}
	return sum;
}

enum ar_status groups_open_pages(struct cache_groups *g, int64_t num_blocks, int64_t block_tok,
				 int64_t max_seqs, size_t n_req, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (int i = 0; i < g->n && !st; i++) {
		struct cache_group *x = &g->group[i];

		x->n_page = pages_needed(num_blocks, block_tok, max_seqs, x->shape.page_tok);
		st = pages_open(&x->pages, x->n_page, x->shape.page_tok, n_req, err);
	}
	return st;
}

enum ar_status groups_grow(const struct cache_groups *g, const struct batch_entry *e,
			   struct ar_err *err)
{
	int64_t end = (int64_t)e->start + e->n_tok;
	enum ar_status st = AR_OK;

	for (int i = 0; i < g->n && !st; i++) {
		st = pages_grow(g->group[i].pages, e->req, end, err);
		if (!st && !e->decode)
			pages_set_chunked(g->group[i].pages, e->req, end);
	}
	return st;
}

bool groups_hold(const struct cache_groups *g, const struct batch_entry *e)
{
	int64_t end = (int64_t)e->start + e->n_tok;

	for (int i = 0; i < g->n; i++)
		if (pages_len(g->group[i].pages, e->req) < end)
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
	int64_t have = e->start, n;

	for (int i = 0; i < g->n; i++) {
		const struct pages *p = g->group[i].pages;
		bool chunked = g->group[i].state_bytes && !e->decode;
		int64_t len = chunked ? pages_chunked(p, e->req) : pages_len(p, e->req);

		have = len < have ? len : have;
	}
	n = (int64_t)e->start - have;
	if (n <= 0)
		return false;
	*piece = (struct batch_entry){ .req = e->req,
				       .start = (uint32_t)have,
				       .n_tok = (uint32_t)(n < max_tok ? n : max_tok) };
	return true;
}
