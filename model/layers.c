/* SPDX-License-Identifier: Apache-2.0 */
/* The layers of a model: made, compared and split. */
#include "config.h"
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/cache_layout.h"
#include "model/quant.h"
#include "model/rope.h"

enum ar_status model_set_layers(struct model *m, int n, const struct layer_spec *spec,
				struct ar_err *err)
{
	m->layer = malloc((size_t)n * sizeof *m->layer);
	if (!m->layer)
		return ar_nomem(err);
	m->n_layers = n;
	for (int i = 0; i < n; i++)
		m->layer[i] = *spec;
	return AR_OK;
}

static bool formats_alike(const struct layer_spec *a, const struct layer_spec *b)
{
	bool alike = true;

	for (int i = 0; i < LINEARS && alike; i++)
		alike = format_equal(&a->format[i], &b->format[i]);
	return alike;
}

static bool router_alike(const struct router *a, const struct router *b)
{
	return a->scoring == b->scoring && a->groups == b->groups &&
	       a->groups_kept == b->groups_kept && a->bias == b->bias && a->scaling == b->scaling;
}

static bool latent_alike(const struct layer_spec *a, const struct layer_spec *b)
{
	const struct mla_spec *m = &a->mla, *n = &b->mla;
	const struct index_spec *x = &a->index, *y = &b->index;

	return m->q_lora == n->q_lora && m->kv_lora == n->kv_lora &&
	       m->interleave == n->interleave && x->heads == y->heads && x->dim == y->dim &&
	       x->topk == y->topk && x->interleave == y->interleave && x->own == y->own;
}

static bool ssm_alike(const struct ssm_spec *a, const struct ssm_spec *b)
{
	return a->heads == b->heads && a->head_dim == b->head_dim && a->groups == b->groups &&
	       a->state == b->state && a->conv == b->conv && a->conv_bias == b->conv_bias &&
	       a->norm == b->norm && a->chunk == b->chunk && a->elem == b->elem &&
	       a->dt_min == b->dt_min && a->dt_max == b->dt_max;
}

/* Members, not bytes: a struct has padding. */
bool layer_alike(const struct layer_spec *a, const struct layer_spec *b)
{
	const struct delta_spec *d = &a->delta, *e = &b->delta;

	return a->mixer == b->mixer && a->q_heads == b->q_heads && a->kv_heads == b->kv_heads &&
	       a->head_dim == b->head_dim && a->v_dim == b->v_dim && a->k_is_v == b->k_is_v &&
	       a->window == b->window && cache_layout(a->cache) == cache_layout(b->cache) &&
	       a->rotary_dim == b->rotary_dim && a->score_scale == b->score_scale &&
	       a->qkv_bias == b->qkv_bias && a->o_bias == b->o_bias && a->mlp_bias == b->mlp_bias &&
	       a->qk_norm == b->qk_norm && a->qk_norm_all == b->qk_norm_all &&
	       a->out_gate == b->out_gate && a->sinks == b->sinks &&
	       a->post_norms == b->post_norms && d->k_heads == e->k_heads &&
	       d->v_heads == e->v_heads && d->k_dim == e->k_dim && d->v_dim == e->v_dim &&
	       d->conv == e->conv && a->state_f32 == b->state_f32 && ssm_alike(&a->ssm, &b->ssm) &&
	       a->beside == b->beside && a->act == b->act && a->ffn == b->ffn &&
	       a->n_experts == b->n_experts && a->experts_per_tok == b->experts_per_tok &&
	       a->held_experts == b->held_experts && a->expert_hidden == b->expert_hidden &&
	       a->shared_ffn == b->shared_ffn && a->shared_gate == b->shared_gate &&
	       a->expert_norms == b->expert_norms && router_alike(&a->router, &b->router) &&
	       latent_alike(a, b) && formats_alike(a, b);
}

bool model_alike(const struct model *a, const struct model *b)
{
	bool alike = a->n_layers == b->n_layers && a->hidden == b->hidden && a->vocab == b->vocab &&
		     rope_equal(&a->rope, &b->rope) &&
		     rope_equal(&a->rope_window, &b->rope_window) &&
		     a->embed_scale == b->embed_scale && a->norm_eps == b->norm_eps &&
		     a->norm_plus_one == b->norm_plus_one && a->tied == b->tied &&
		     format_equal(&a->head, &b->head) && a->tp == b->tp;

	for (int i = 0; i < a->n_layers && alike; i++)
		alike = layer_alike(&a->layer[i], &b->layer[i]);
	return alike;
}

int model_odd_layer(const struct model *m)
{
	for (int i = 1; i < m->n_layers; i++)
		if (!layer_alike(&m->layer[i], &m->layer[0]))
			return i;
	return 0;
}

const struct layer_spec *model_attention(const struct model *m)
{
	for (int i = 0; i < m->n_layers; i++)
		if (mixer_attends(m->layer[i].mixer))
			return &m->layer[i];
	return m->layer;
}

int model_layer_kind(const struct model *m, int i)
{
	int kind = 0;

	while (!layer_alike(&m->layer[kind], &m->layer[i]))
		kind++;
	return kind;
}

double layer_q_scale(const struct layer_spec *l)
{
	return l->score_scale > 0 ? l->score_scale * sqrt(l->head_dim) : 1;
}

static enum ar_status check_split(const struct model *m, const struct layer_spec *l, int tp,
				  struct ar_err *err)
{
	const struct {
		const char *what;
		int n;
	} part[] = {
		{ "query heads", l->q_heads },
		{ "key heads of linear layers", l->delta.k_heads },
		{ "value heads of linear layers", l->delta.v_heads },
		{ "heads of state-space layers", l->ssm.heads },
		/* one group is whole on each rank */
		{ "groups of state-space layers", l->ssm.groups == 1 ? 0 : l->ssm.groups },
		{ l->n_experts ? "expert FFN width" : "FFN width", l->held_experts ? 0 : l->ffn },
		{ "shared expert FFN width", l->shared_ffn },
		{ "vocabulary", m->vocab },
	};

	for (size_t i = 0; i < sizeof part / sizeof *part; i++)
		if (part[i].n % tp)
			return ar_fail(err, AR_USAGE,
				       "cannot split model '%s' into %d parts: %s %d "
				       "is no multiple of it; change --tp",
				       m->name, tp, part[i].what, part[i].n);
	if (l->kv_heads % tp && tp % l->kv_heads)
		return ar_fail(err, AR_USAGE,
			       "cannot split model '%s' into %d parts: %d KV heads "
			       "neither divide nor are divided by it; change --tp",
			       m->name, tp, l->kv_heads);
	return AR_OK;
}

static void split_layer(struct layer_spec *l, int tp)
{
	l->q_heads /= tp;
	if (l->kv_heads)
		l->kv_heads = l->kv_heads > tp ? l->kv_heads / tp : 1;
	l->delta.k_heads /= tp;
	l->delta.v_heads /= tp;
	l->ssm.heads /= tp;
	if (l->ssm.groups > 1)
		l->ssm.groups /= tp;
	if (!l->held_experts)
		l->ffn /= tp;
	l->shared_ffn /= tp;
}

/* Whether ranks have whole blocks and groups of scales. */
static enum ar_status check_scales(const struct model *m, const struct layer_spec *l, int tp,
				   struct ar_err *err)
{
	struct layer_spec part = *l;

	split_layer(&part, tp);
	return quant_check_split(m, l, &part, err);
}

static bool can_split(const struct model *m, int tp)
{
	enum ar_status st = AR_OK;

	for (int i = 0; i < m->n_layers && !st; i++) {
		st = check_split(m, &m->layer[i], tp, NULL);
		if (!st)
			st = check_scales(m, &m->layer[i], tp, NULL);
	}
	return !st;
}

/* Name the numbers of ranks that do in place of tp. */
static enum ar_status refuse_scales(const struct model *m, int tp, struct ar_err *err)
{
	char can[96] = "";
	size_t n = 0;

	for (int i = 1; i <= 64 && n < sizeof can; i++)
		if (can_split(m, i))
			n += (size_t)snprintf(can + n, sizeof can - n, "%s%d", n ? ", " : "", i);
	ar_err_prefix(err, "cannot split model '%s' into %d parts; take --tp %s", m->name, tp, can);
	return AR_USAGE;
}

enum ar_status model_split(struct model *m, int tp, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	if (tp < 1 || m->tp != 1)
		return ar_fail(err, AR_USAGE, "cannot split model '%s' into %d parts", m->name, tp);
	for (int i = 0; i < m->n_layers && !st; i++)
		st = check_split(m, &m->layer[i], tp, err);
	for (int i = 0; i < m->n_layers && !st; i++)
		if (check_scales(m, &m->layer[i], tp, err))
			st = refuse_scales(m, tp, err);
	if (st)
		return st;
	for (int i = 0; i < m->n_layers; i++)
		split_layer(&m->layer[i], tp);
	m->vocab /= tp;
	m->tp = tp;
	return AR_OK;
}

enum ar_status model_spread(struct model *m, int ep, struct ar_err *err)
{
	bool any = false;

	for (int i = 0; i < m->n_layers; i++) {
		const int n = m->layer[i].n_experts;

		any = any || n;
		if (n % ep)
			return ar_fail(err, AR_USAGE,
				       "cannot spread model '%s' over %d ranks: the %d experts of "
				       "layer %d are no multiple of it; change --ep",
				       m->name, ep, n, i);
	}
	if (!any)
		return ar_fail(err, AR_USAGE, "ep has no effect: %s has no experts; leave it out",
			       m->name);
	for (int i = 0; i < m->n_layers; i++)
		m->layer[i].held_experts = m->layer[i].n_experts / ep;
	return AR_OK;
}
