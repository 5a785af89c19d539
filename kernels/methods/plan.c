/* SPDX-License-Identifier: Apache-2.0 */
/* Plans on the layers of a model. */
#include "config.h"
#include "kernels/methods/plan.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/gpu.h"
#include "kernels/support.h"

/* ---- the method of each layer ---- */

static bool covers(const struct plan_range *r, int layer)
{
	return r->first <= layer && (r->last == PLAN_TO_LAST || layer <= r->last);
}

static enum ar_status check_range(const struct plan *p, const struct plan_range *r,
				  const struct model *m, struct ar_err *err)
{
	char layers[32];

	if (r->first < m->n_layers && r->last < m->n_layers)
		return AR_OK;
	return ar_fail(err, AR_USAGE,
		       "method '%s': layers %s, but model %s has the layers 0 to %d; name those",
		       p->name, plan_layers(r, layers, sizeof layers), m->name, m->n_layers - 1);
}

/* Layer takes the lists of the last layer before it that chose for x. */
static enum ar_status check_source(const struct layer_plan *l, const struct method *x,
				   const struct model *m, int layer, struct ar_err *err)
{
	const struct layer_spec *s, *own = &m->layer[layer];
	int from = layer;

	while (from >= 0 && l->method[from] != x)
		from--;
	if (from < 0)
		return ar_fail(err, AR_USAGE,
			       "method '%s': layer %d takes lists, but no layer before it chooses: "
			       "add %d to reselect, or dense-layers=%d",
			       x->name, layer, layer, layer + 1);
	s = &m->layer[from];
	if (s->q_heads == own->q_heads && s->kv_heads == own->kv_heads)
		return AR_OK;
	return ar_fail(err, AR_USAGE,
		       "method '%s': layer %d has other heads than layer %d, whose lists it takes: "
		       "add %d to reselect",
		       x->name, layer, from, layer);
}

/* Set the method of a layer that runs x: x, or x with other decodes. */
static enum ar_status set_variant(struct layer_plan *l, struct method *x, const struct model *m,
				  int layer, struct ar_err *err)
{
	const struct method_part *p = &x->part[ROW_DECODE];
	int n = 0;

	for (int i = 0; i < layer; i++)
		n += l->method[i] == x || (x->later && l->method[i] == x->later);
	if (layer < p->dense_layers)
		l->method[layer] = x->first;
	else if (!x->later || reuse_chooses(&p->reuse, layer, n))
		l->method[layer] = x;
	else
		l->method[layer] = x->later;
	return l->method[layer] == x->later ? check_source(l, x, m, layer, err) : AR_OK;
}

static enum ar_status set_method(struct layer_plan *l, const struct plan *p, const struct model *m,
				 int layer, struct ar_err *err)
{
	enum mixer mixer = m->layer[layer].mixer;
	struct method *x;

	l->method[layer] = NULL;
	if (mixer != MIX_FULL && mixer != MIX_LATENT)
		return AR_OK;
	for (size_t i = 0; i < p->n_range; i++) {
		if (!covers(&p->range[i], layer))
			continue;
		x = p->method[p->range[i].method];
		if (mixer == MIX_FULL)
			return set_variant(l, x, m, layer, err);
		if (!x->dense)
			return ar_fail(err, AR_USAGE,
				       "method '%s': layer %d of model %s has latent attention, "
				       "for which there are no sparse methods; take dense",
				       x->name, layer, m->name);
		return AR_OK;
	}
	return ar_fail(err, AR_USAGE,
		       "method '%s': no method for layer %d of model %s; add one, such as %d:dense",
		       p->name, layer, m->name, layer);
}

/* Tokens that a dropper takes away are in the lists of the layers before. */
static enum ar_status check_drop(const struct plan *p, struct ar_err *err)
{
	for (size_t i = 0; p->drop && i < p->n_method; i++)
		if (p->method[i]->later)
			return ar_fail(err, AR_USAGE,
				       "method '%s': dropper '%s' leaves other tokens in each "
				       "layer, so no layer can take the lists of another: leave "
				       "out reuse and reselect, or the dropper",
				       p->name, p->drop->dropper->name);
	return AR_OK;
}

static int page_of_first(const struct layer_plan *l)
{
	for (int i = 0; i < l->n_layers; i++)
		if (l->method[i] && !method_prefill(l->method[i])->dense)
			return method_page_tok(l->method[i]);
	return 128;
}

enum ar_status plan_init(struct layer_plan *l, const struct plan *p, const struct model *m,
			 struct ar_err *err)
{
	enum ar_status st = check_drop(p, err);

	*l = (struct layer_plan){ .n_layers = m->n_layers, .drop = p->drop };
	l->method = malloc((size_t)m->n_layers * sizeof *l->method);
	if (!l->method)
		return ar_nomem(err);
	for (size_t i = 0; i < p->n_range && !st; i++)
		st = check_range(p, &p->range[i], m, err);
	for (int i = 0; i < m->n_layers && !st; i++)
		st = set_method(l, p, m, i, err);
	if (!st)
		l->page_tok = page_of_first(l);
	return st;
}

void plan_release(struct layer_plan *l)
{
	free(l->method);
	*l = (struct layer_plan){ 0 };
}

bool plan_first(const struct layer_plan *l, int layer)
{
	for (int i = 0; i < layer; i++)
		if (l->method[i] == l->method[layer])
			return false;
	return l->method[layer];
}

int plan_source(const struct layer_plan *l, int layer)
{
	const struct method *m = l->method[layer];

	if (!m || !m->part[ROW_DECODE].reuse.takes)
		return -1;
	while (!l->method[layer] || l->method[layer]->later != m)
		layer--;
	return layer;
}

int plan_segment(const struct layer_plan *l, int layer)
{
	int n = 0;

	if (layer < l->n_layers && drop_brings_back(l->drop) && drop_acts_after(l->drop, layer))
		return 0;
	for (int i = 0; i < layer; i++)
		n += drop_acts_after(l->drop, i);
	return n;
}

struct attn_shape plan_shape(const struct layer_plan *l, const struct model *m, int layer)
{
	const struct layer_spec *s = &m->layer[layer];

	return (struct attn_shape){ s->q_heads, s->kv_heads, s->head_dim, l->page_tok };
}

/* ---- pages ---- */

static bool sets_block(const struct method *m)
{
	const struct opt *o = method_prefill(m)->selector->params;

	while (o->name && o->choice != selector_blocks)
		o++;
	return o->name;
}

/* Method m wants other pages than its neighbour, which has set the page size. */
static enum ar_status refuse_mix(const struct method *m, const struct method *neighbour,
				 struct ar_err *err)
{
	int tok = method_page_tok(m), other = method_page_tok(neighbour);
	char fix[64] = "take methods with blocks of one size";

	if (sets_block(m))
		snprintf(fix, sizeof fix, "give the former block=%d", other);
	else if (sets_block(neighbour))
		snprintf(fix, sizeof fix, "give the latter block=%d", tok);
	return ar_fail(err, AR_USAGE,
		       "method '%.100s' has blocks of %d tokens and method '%.100s' has blocks of "
		       "%d, but all layers share one page size; %s",
		       m->name, tok, neighbour->name, other, fix);
}

/* A block must be whole pages.  The kernels take blocks of one page only. */
enum ar_status plan_check_pages(struct method *const *method, size_t n, int page_tok,
				struct ar_err *err)
{
	const struct method *fits = NULL, *odd = NULL;

	for (size_t i = n; i-- > 0;) {
		if (!method[i] || method_prefill(method[i])->dense)
			continue;
		*(method_page_tok(method[i]) == page_tok ? &fits : &odd) = method[i];
	}
	if (odd && fits)
		return refuse_mix(odd, fits, err);
	if (odd)
		return ar_fail(err, AR_USAGE,
			       "method '%s': blocks of %d tokens on pages of %d; a block "
			       "must be one page",
			       odd->name, method_page_tok(odd), page_tok);
	return AR_OK;
}

static enum ar_status open_dropper(const struct layer_plan *l, const struct model *m, bool device,
				   struct ar_err *err)
{
	int layer = (int)(model_attention(m) - m->layer);
	const struct attn_shape s = plan_shape(l, m, layer);
	const struct gpu *gpu;
	enum ar_status st = device ? gpu_current(&gpu, err) : AR_OK;

	if (!st && device)
		st = support_check(l->drop->dropper->name, &s, m->layer[layer].cache, gpu->cc, err);
	if (!st)
		st = drop_open(l->drop, m, err);
	if (!st && drop_acts_after(l->drop, m->n_layers - 1))
		st = ar_fail(err, AR_USAGE,
			     "dropper '%s': layer %d is the last one of model '%s'; no layer "
			     "would have fewer rows",
			     l->drop->name, m->n_layers - 1, m->name);
	return st;
}

enum ar_status plan_open(const struct layer_plan *l, const struct model *m,
			 const struct selector_env *env, struct ar_err *err)
{
	struct selector_env e = *env;
	enum ar_status st = plan_check_pages(l->method, (size_t)l->n_layers, l->page_tok, err);

	e.n_layers = l->n_layers;
	for (int i = 0; i < l->n_layers && !st; i++) {
		if (!plan_first(l, i))
			continue;
		e.shape = plan_shape(l, m, i);
		e.layout = m->layer[i].cache;
		st = method_open(l->method[i], &e, err);
	}
	return st || !l->drop ? st : open_dropper(l, m, env->device, err);
}
