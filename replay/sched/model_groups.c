/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/sched/model_groups.h"

#include <inttypes.h>
#include <stdlib.h>

#include "model/layer_size.h"

enum { ELEMENT = 2, ROUND = 16 /* tokens that an attention kernel's blocks are a multiple of */ };

static int64_t larger(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* Layers that can share a group. */
struct type {
	enum mixer mixer;
	int64_t window, block_tok;
	int kv_heads, head_dim;
	int64_t bytes; /* of a block in a layer */
	int first, n;  /* layers */
};

static int64_t state_bytes(const struct layer_spec *l)
{
	const struct delta_spec *d = &l->delta;
	int64_t channels = (int64_t)2 * d->k_heads * d->k_dim + (int64_t)d->v_heads * d->v_dim;

	if (l->mixer == MIX_SSM)
		return (int64_t)ssm_tail_len(&l->ssm) * ELEMENT +
		       (int64_t)ssm_state_len(&l->ssm) * l->ssm.elem;
	return (d->conv - 1) * channels * ELEMENT +
	       (int64_t)d->v_heads * d->v_dim * d->k_dim * (l->state_f32 ? 4 : ELEMENT);
}

/* The first layer with a state, or with attention. */
static int first_of(const struct model *m, bool state)
{
	int l = 0;

	while (l < m->n_layers &&
	       (m->layer[l].mixer == MIX_NONE || mixer_attends(m->layer[l].mixer) == state))
		l++;
	return l;
}

/* The number of tokens, at least block_tok, with which a block of attention can hold a state. */
static int64_t raise(const struct model *m, int64_t block_tok, int64_t multiple)
{
	int linear = first_of(m, true), attention = first_of(m, false);
	int64_t unit;

	if (linear == m->n_layers || attention == m->n_layers)
		return block_tok;
	unit = multiple * layer_cache_bytes(&m->layer[attention]);
	return larger(block_tok, (state_bytes(&m->layer[linear]) + unit - 1) / unit * multiple);
}

static struct type type_of(const struct model *m, int layer, int64_t block_tok)
{
	const struct layer_spec *l = &m->layer[layer];
	int attention = first_of(m, false);
	struct type t = { .mixer = l->mixer == MIX_LATENT ? MIX_FULL : l->mixer,
			  .window = l->window,
			  .kv_heads = l->kv_heads,
			  .head_dim = l->head_dim,
			  .first = layer };

	if (mixer_attends(l->mixer)) {
		t.block_tok = block_tok;
		t.bytes = block_tok * layer_cache_bytes(l);
	} else if (attention == m->n_layers) {
		t.bytes = state_bytes(l);
	} else { /* padded */
		t.bytes = block_tok * layer_cache_bytes(&m->layer[attention]);
	}
	return t;
}

static bool same_type(const struct type *a, const struct type *b)
{
	return a->mixer == b->mixer && a->window == b->window && a->kv_heads == b->kv_heads &&
	       a->head_dim == b->head_dim && a->bytes == b->bytes;
}

/* type[*n] are the types, in the order of their first layers.  of[]: -2 - the type of a layer; -1:
 * it keeps nothing of a request. */
static void list_types(const struct model *m, int64_t block_tok, struct type *type, int *n, int *of)
{
	*n = 0;
	for (int l = 0; l < m->n_layers; l++) {
		const struct type t = type_of(m, l, block_tok);
		int at = 0;

		of[l] = -1;
		if (t.mixer == MIX_NONE)
			continue;
		while (at < *n && !same_type(&type[at], &t))
			at++;
		if (at == *n)
			type[(*n)++] = t;
		type[at].n++;
		of[l] = -2 - at;
	}
}

/* Types that keep the same tokens share one group, though their bytes differ. */
static bool keep_alike(const struct type *type, int n)
{
	for (int i = 1; i < n; i++)
		if (type[i].mixer != type[0].mixer || type[i].window != type[0].window)
			return false;
	return true;
}

/* Blocks of all types get the bytes of the largest: of attention by more tokens, or padded. */
static enum ar_status level(struct type *type, int n, const struct kv_rules *rules,
			    struct ar_err *err)
{
	const struct type *most = type;

	for (int i = 1; i < n; i++)
		if (type[i].bytes > most->bytes)
			most = &type[i];
	for (int i = 0; i < n; i++) {
		bool state = !mixer_attends(type[i].mixer);
		int64_t times = most->bytes / type[i].bytes;

		if (state && type[i].bytes != most->bytes)
			times = 0;
		if ((state ? rules->pads_states : rules->pads) &&
		    times * type[i].bytes != most->bytes)
			times = 1;
		else if (times * type[i].bytes != most->bytes)
			return ar_fail(err, AR_USAGE,
				       "no KV block fits all layers: one of layer %d has %" PRId64
				       " bytes, one of layer %d %" PRId64
				       ", and vLLM has no rule for it",
				       type[i].first, type[i].bytes, most->first, most->bytes);
		type[i].block_tok *= times;
		type[i].bytes = most->bytes;
	}
	return AR_OK;
}

static int layers_of_group(const struct type *type, int n, double spread)
{
	int least = type[0].n, most = least;

	for (int i = 1; i < n; i++) {
		least = type[i].n < least ? type[i].n : least;
		most = type[i].n > most ? type[i].n : most;
	}
	return most < least * spread ? most : least;
}

static struct kv_group group_of_type(const struct type *t, int no)
{
	return (struct kv_group){
		.mixer = t->mixer, .type = no, .window = t->window, .block_tok = t->block_tok
	};
}

/* Tokens of which a block has a multiple. */
static int64_t multiple(const struct model *m, int64_t block_tok, const struct kv_rules *rules,
			bool cache)
{
	int64_t least = rules->states ? larger(ROUND, block_tok) : ROUND, times = least;
	int linear = first_of(m, true);
	bool delta = linear < m->n_layers && m->layer[linear].delta.v_heads;

	while (cache && delta && rules->delta_tok && times % rules->delta_tok)
		times += least;
	return times;
}

/* Deal the layers of each type out to its groups, in turn.  of[] is that of list_types(), and
 * gets groups. */
static void deal(struct model_groups *g, const struct model *m, struct type *type, int n,
		 double spread)
{
	int size = layers_of_group(type, n, spread);

	for (int i = 0; i < n; i++) {
		int from = (int)g->n, n_group = (type[i].n + size - 1) / size, at = 0;

		for (int k = 0; k < n_group; k++)
			g->group[g->n++] = group_of_type(&type[i], i);
		for (int l = type[i].first; l < m->n_layers; l++)
			if (g->of[l] == -2 - i)
				g->of[l] = from + at++ % n_group;
	}
	for (int l = 0; l < m->n_layers; l++)
		if (g->of[l] >= 0)
			g->group[g->of[l]].n_layers++;
	g->block_bytes = size * type[0].bytes;
}

static void one_group(struct model_groups *g, const struct model *m, const struct type *type, int n)
{
	g->group[g->n++] = group_of_type(type, 0);
	for (int l = 0; l < m->n_layers; l++)
		g->of[l] = g->of[l] == -1 ? -1 : 0;
	for (int i = 0; i < n; i++) {
		g->group[0].n_layers += type[i].n;
		g->block_bytes += type[i].n * type[i].bytes;
	}
}

enum ar_status model_groups_init(struct model_groups *g, const struct model *m, int64_t block_tok,
				 const struct kv_rules *rules, bool cache, struct ar_err *err)
{
	size_t n_layers = (size_t)m->n_layers;
	struct type *type = calloc(n_layers, sizeof *type);
	enum ar_status st = AR_OK;
	int n;

	*g = (struct model_groups){ .group = calloc(n_layers, sizeof *g->group),
				    .of = calloc(n_layers, sizeof *g->of),
				    .block_tok = raise(m, block_tok,
						       multiple(m, block_tok, rules, cache)) };
	if (!type || !g->group || !g->of) {
		free(type);
		return ar_nomem(err);
	}
	list_types(m, g->block_tok, type, &n, g->of);
	for (int i = 0; cache && rules->states && i < n; i++)
		if (!mixer_attends(type[i].mixer))
			type[i].block_tok = g->block_tok;
	if (keep_alike(type, n)) {
		one_group(g, m, type, n);
	} else {
		st = level(type, n, rules, err);
		if (!st)
			deal(g, m, type, n, rules->spread);
	}
	free(type);
	return st;
}

void model_groups_release(struct model_groups *g)
{
	free(g->group);
	free(g->of);
	*g = (struct model_groups){ 0 };
}

bool model_groups_plain(const struct model_groups *g)
{
	return g->n == 1 && g->group[0].mixer == MIX_FULL;
}
