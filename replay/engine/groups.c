/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/engine/groups.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/layer_size.h"

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
	const struct method_part *part;
	struct cache_group x = { .mixer = l->mixer,
				 .window = l->window,
				 .max_page = INT64_MAX,
				 .segment = plan_segment(p, layer) };

	if (!mixer_attends(l->mixer)) {
		x.shape.page_tok = 1;
		x.state_bytes = layer_state_bytes(l);
		x.max_page = max_seqs;
		return x;
	}
	x.shape = plan_shape(p, m, layer);
	x.layout = l->cache;
	x.kv_bytes = (size_t)x.shape.page_tok * (size_t)layer_cache_bytes(l);
	part = plan_method(p, layer)->part;
	for (int k = 0; k < ROW_KINDS; k++)
		x.part_bytes[k] = method_state_bytes(&part[k], &x.shape);
	if (part[ROW_DECODE].prune)
		x.part_bytes[STATE_PRUNE] = method_state_bytes(part[ROW_DECODE].prune, &x.shape);
	for (int k = 0; k < STATES; k++)
		x.state_bytes += x.part_bytes[k];
	if (l->mixer == MIX_WINDOW)
		x.max_page = max_seqs * window_pages(&x, max_tok);
	return x;
}

static bool same_group(const struct cache_group *a, const struct cache_group *b)
{
	const struct attn_shape *s = &a->shape, *t = &b->shape;

	return a->mixer == b->mixer && a->window == b->window && a->segment == b->segment &&
	       s->q_heads == t->q_heads && s->kv_heads == t->kv_heads &&
	       s->head_dim == t->head_dim && a->state_bytes == b->state_bytes &&
	       !memcmp(a->part_bytes, b->part_bytes, sizeof a->part_bytes) &&
	       cache_layout(a->layout) == cache_layout(b->layout);
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
		if (at == g->n) {
			g->group[g->n++] = x;
			g->group[at].no = at;
		}
		g->of[l] = at;
		if (drop_revives(p->drop) && drop_acts_after(p->drop, l)) {
			g->group[at].aux_layer = l;
			g->group[at].aux_bytes = (size_t)x.shape.page_tok * (size_t)m->hidden *
						 sizeof(bf16_t);
		}
	}
	return AR_OK;
}

void groups_add_evictor(struct cache_groups *g, const struct evict *e)
{
	for (int i = 0; e && i < g->n; i++) {
		struct cache_group *x = &g->group[i];

		x->part_bytes[STATE_EVICT] = evict_state_bytes(e, &x->shape);
		x->state_bytes += x->part_bytes[STATE_EVICT];
	}
}

void groups_release(struct cache_groups *g)
{
	free(g->group);
	free(g->of);
	*g = (struct cache_groups){ 0 };
}

int groups_share_planes(const struct cache_group *x, const struct kv_cache *kv, void *state,
			size_t n_page, struct share_plane *out)
{
	int n = 0;

	for (int i = 0; i < cache_layout(x->layout)->n_plane; i++) {
		int heads = cache_plane_heads(x->layout, i, x->shape.kv_heads);
		size_t page = groups_plane_bytes(x, i);

		out[n++] = (struct share_plane){ kv->plane[i], page,
						 page / (size_t)(heads * x->shape.page_tok), heads,
						 x->no };
	}
	for (int k = 0; k < STATES; k++)
		if (x->part_bytes[k])
			out[n++] = (struct share_plane){ groups_state(x, state, n_page, k),
							 x->part_bytes[k], 0, 1, x->no };
	return n;
}

double groups_bytes(const struct cache_groups *g, const int *layer, int n, int64_t n_page)
{
	double sum = 0;

	for (int i = 0; i < n; i++) {
		int l = layer ? layer[i] : i;
		const struct cache_group *x = groups_of(g, l);
		size_t aux = l == x->aux_layer ? x->aux_bytes : 0;

		sum += (double)(x->kv_bytes + x->state_bytes + aux) *
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
	static const char *const kind[] = { [MIX_FULL] = "full",
					    [MIX_WINDOW] = "window",
					    [MIX_LINEAR] = "linear",
					    [MIX_SSM] = "ssm",
					    [MIX_NONE] = "none" };
	const struct cache_group *x = &g->group[group];
	char window[32] = "";
	int count = 0;

	for (int i = 0; i < n; i++)
		count += g->of[layer[i]] == group;
	if (x->window)
		snprintf(window, sizeof window, " of %d tokens", x->window);
	*buf = '\0';
	if (count && x->mixer != MIX_NONE)
		snprintf(buf, size, "%d %s layer%s%s, %.2f GiB", count, kind[x->mixer],
			 count > 1 ? "s" : "", window,
			 (double)count * (double)(x->kv_bytes + x->state_bytes) *
				 (double)x->n_page / 0x1p30);
	return buf;
}

enum ar_status groups_open_blocks(struct cache_groups *g, struct blocks *b, int64_t num_blocks,
				  int64_t block_tok, size_t n_req, struct ar_err *err)
{
	struct block_group *to = calloc((size_t)g->n, sizeof *to);
	enum ar_status st;

	if (!to)
		return ar_nomem(err);
	for (int i = 0; i < g->n; i++) {
		struct cache_group *x = &g->group[i];
		int tok = x->shape.page_tok;

		x->n_page = lesser(blocks_pages(num_blocks, block_tok, g->max_seqs, tok),
				   x->max_page);
		to[i] = (struct block_group){ .page_tok = tok,
					      .window = x->window,
					      .segment = x->segment,
					      .linear = !mixer_attends(x->mixer),
					      .selects = x->part_bytes[ROW_PREFILL] > 0,
					      .n_page = x->n_page };
	}
	st = blocks_open(b, to, g->n, n_req, err);
	free(to);
	return st;
}
