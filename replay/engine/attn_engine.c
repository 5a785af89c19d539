/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/engine/attn_engine.h"

#include <assert.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/rng.h"
#include "model/rope.h"

/* The shape of the layers with attention: the captures have one. */
static struct attn_shape attention_shape(const struct attn_engine *e)
{
	int layer = (int)(model_attention(e->model) - e->model->layer);

	return plan_shape(&e->plan, e->model, layer);
}

static enum ar_status open_methods(const struct attn_engine *e, const struct backend_env *env,
				   struct selector_env s, struct ar_err *err)
{
	const struct rope *rope = e->act->rope(e->act_self);
	const char *more = rope_besides_angles(rope);
	int dim = attention_shape(e).head_dim;
	float *inv = calloc((size_t)dim, sizeof *inv);
	enum ar_status st;

	if (!inv)
		return ar_nomem(err);
	rope_inv_freq(rope, dim, inv);
	s.rope_inv = rope->theta > 0 && !more ? inv : NULL;
	s.rope_unknown = *env->model->rope_unknown ? env->model->rope_unknown : more;
	st = plan_open(&e->plan, env->model, &s, err);
	free(inv);
	return st;
}

/* Sparse methods run in layers that see all keys. */
static void set_mixers(struct attn_engine *e)
{
	for (int l = 0; l < e->plan.n_layers; l++)
		if (e->model->layer[l].mixer == MIX_WINDOW)
			e->plan.method[l] = e->dense;
		else if (!mixer_attends(e->model->layer[l].mixer))
			e->plan.method[l] = NULL;
}

/* Sinks are weights, and so random, of the numbers of layer and head. */
static enum ar_status draw_sinks(struct attn_engine *e, uint64_t seed, struct ar_err *err)
{
	bool any = false;

	for (int i = 0; i < e->n_run_layers; i++)
		any = any || e->model->layer[e->run_layer[i]].sinks;
	if (!any)
		return AR_OK;
	e->n_sink = (size_t)attn_engine_widest(e).q_heads;
	e->sink = malloc((size_t)e->n_run_layers * e->n_sink * sizeof *e->sink);
	if (!e->sink)
		return ar_nomem(err);
	for (int i = 0; i < e->n_run_layers; i++) {
		struct rng r = { rng_mix(seed) + (uint64_t)e->run_layer[i] };

		for (size_t h = 0; h < e->n_sink; h++)
			e->sink[(size_t)i * e->n_sink + h] = rng_normal(&r);
	}
	return AR_OK;
}

const float *attn_engine_sink(const struct attn_engine *e, const float *sink, int i)
{
	return e->model->layer[e->run_layer[i]].sinks ? sink + (size_t)i * e->n_sink : NULL;
}

/* Layers that are not executed cannot choose for others. */
static enum ar_status check_sources(const struct layer_plan *l, const struct backend_env *env,
				    struct ar_err *err)
{
	for (int i = 0; i < l->n_layers && env->n_run_layers != env->model->n_layers; i++)
		if (plan_source(l, i) >= 0)
			return ar_fail(err, AR_USAGE,
				       "method '%s': layers take the lists of others, so it needs "
				       "all layers of model '%s'; leave out --sample-layers",
				       l->method[i]->name, env->model->name);
	return AR_OK;
}

/* Of captures with few layers, a layer and the one whose lists it takes may be the same. */
static void warn_sources(const struct attn_engine *e, const struct backend_env *env)
{
	int n = 0, same = 0;

	for (int i = 0; i < e->n_run_layers && !env->weights; i++) {
		int from = attn_engine_source(e, i);

		n += from >= 0;
		same += from >= 0 && env->captured_layer[e->run_layer[i]] ==
					     env->captured_layer[e->run_layer[from]];
	}
	if (same)
		log_warn("%d of %d layers that take lists replay the captured layer that made "
			 "them: their accuracy is that of lists of their own",
			 same, n);
}

size_t attn_engine_lists_bytes(const struct attn_engine *e, const struct attn_limits *decode)
{
	size_t most = 0;

	for (int i = 0; i < e->n_run_layers; i++) {
		const struct method *m = attn_engine_method(e, i);
		size_t n = !m ? 0 :
				method_lists_bytes(&m->part[ROW_DECODE], attn_engine_shape(e, i),
						   decode);

		most = n > most ? n : most;
	}
	return most;
}

/* Give each layer its method, not open yet. */
static enum ar_status take_plan(struct attn_engine *e, const struct backend_env *env,
				struct ar_err *err)
{
	enum ar_status st = plan_init(&e->plan, env->plan, env->model, err);

	if (st)
		return st;
	set_mixers(e);
	st = check_sources(&e->plan, env, err);
	if (st)
		return st;
	if (e->plan.drop && env->n_run_layers != env->model->n_layers)
		return ar_fail(err, AR_USAGE,
			       "dropper '%s': needs all layers of model '%s'; leave out "
			       "--sample-layers",
			       e->plan.drop->name, env->model->name);
	if (env->page_tok)
		e->plan.page_tok = env->page_tok;
	return AR_OK;
}

static enum ar_status open_as(struct attn_engine *e, const struct backend_env *env,
			      struct selector_env s, struct ar_err *err)
{
	struct attn_shape shape;
	enum ar_status st;

	assert(env->n_run_layers);
	*e = (struct attn_engine){ .model = env->model,
				   .run_layer = env->run_layer,
				   .n_run_layers = env->n_run_layers,
				   .act = activations_of(env) };
	st = method_parse(&e->dense, "dense", err);
	if (!st)
		st = take_plan(e, env, err);
	if (st)
		return st;
	if (!s.trial)
		warn_sources(e, env);
	shape = attention_shape(e);
	st = e->act->open(&e->act_self, env, &shape, err);
	return st ? st : open_methods(e, env, s, err);
}

static struct selector_env selectors_of(const struct backend_env *env, bool device)
{
	return (struct selector_env){ .device = device, .repeats = env->repeats };
}

enum ar_status attn_engine_use(struct attn_engine *e, const struct backend_env *env, bool device,
			       struct ar_err *err)
{
	struct layer_plan before = e->plan;
	enum ar_status st = take_plan(e, env, err);

	if (!st)
		st = open_methods(e, env, selectors_of(env, device), err);
	plan_release(st ? &e->plan : &before);
	if (st)
		e->plan = before;
	return st;
}

static int64_t lesser(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Revived tokens follow others of later positions in the caches: windows and the states of linear
 * layers take tokens in order only. */
static enum ar_status check_revived(const struct attn_engine *e, struct ar_err *err)
{
	for (int l = 0; l < e->model->n_layers && drop_revives(e->plan.drop); l++)
		if (plan_segment(&e->plan, l) && e->model->layer[l].mixer != MIX_FULL)
			return ar_fail(err, AR_USAGE,
				       "dropper '%s': layer %d of model '%s' is not of full "
				       "attention, where tokens cannot be revived; leave out its "
				       "parameter that revives tokens",
				       e->plan.drop->name, l, e->model->name);
	return AR_OK;
}

/* Set where the dropper that ends segment s acts, for results and for messages. */
static void name_drop(struct attn_engine *e, int s)
{
	const int layer = e->run_layer[attn_engine_drop_layer(e, s)];

	e->drops.stat[s].layer = e->drops.messages[s].layer = layer;
	e->drops.messages[s].before_mlp = e->plan.drop->dropper->place == DROP_BEFORE_MLP;
}

enum ar_status attn_engine_open(struct attn_engine *e, const struct backend_env *env, bool device,
				struct ar_err *err)
{
	enum ar_status st = open_as(e, env, selectors_of(env, device), err);
	int64_t seqs = env->max_seqs, tok = env->max_batched_tok, revives;

	if (!st)
		st = check_revived(e, err);
	revives = st ? 0 : drop_revives(e->plan.drop);
	if (!st)
		st = groups_init(&e->groups, env->model, &e->plan, seqs, lesser(tok, env->max_len),
				 err);
	if (!st)
		groups_add_evictor(&e->groups, env->evict);
	if (!st)
		st = drops_open(&e->drops, plan_segment(&e->plan, e->plan.n_layers) + 1,
				env->trace->n, (int)(seqs + lesser(seqs, tok)),
				(int)(tok + seqs * (1 + revives)), (int)revives, err);
	e->drops.back = !st && drop_brings_back(e->plan.drop);
	e->drops.windows = !st && drop_counts_positions(e->plan.drop);
	if (!st && e->drops.back && env->weights)
		st = ar_fail(
			err, AR_USAGE,
			"dropper '%s': with real weights dropped tokens do not come back; leave "
			"out its parameter that brings them back, or --weights",
			e->plan.drop->name);
	for (int s = 0; !st && s < e->drops.n - 1; s++)
		name_drop(e, s);
	return st ? st : draw_sinks(e, env->seed, err);
}

void attn_engine_release(struct attn_engine *e)
{
	if (e->act)
		e->act->close(e->act_self);
	groups_release(&e->groups);
	drops_close(&e->drops);
	plan_release(&e->plan);
	method_free(e->dense);
	free(e->sink);
}

int attn_engine_drop_layer(const struct attn_engine *e, int s)
{
	int i = 0;

	while (!attn_engine_drop(e, i) || s--)
		i++;
	return i;
}

int attn_engine_drop_no(const struct attn_engine *e, int i)
{
	int n = 0;

	while (i--)
		n += attn_engine_drop(e, i) != NULL;
	return n;
}

void attn_engine_count_scores(struct attn_engine *e, const struct row_set *set)
{
	const struct drops *d = &e->drops;

	for (int s = 0; s < d->n - 1; s++) {
		const struct rows *r = row_set_of(set, attn_engine_drop_layer(e, s));
		const bool decodes = d->revives && rows_count(r, ROW_DECODE);
		int64_t *score = d->messages[s].score;

		score[0] = rows_count(r, ROW_PREFILL) ?
				   drop_scores(e->plan.drop, &r->part[ROW_PREFILL], r->n_row) :
				   0;
		score[1] = decodes ? drop_scores(e->plan.drop, &r->part[ROW_DECODE], r->n_row) : 0;
	}
}

enum ar_status attn_engine_check(const struct attn_engine *e, const struct batch *b,
				 struct ar_err *err)
{
	struct batch_entry piece;

	for (size_t i = 0; i < b->n && e->drops.n > 1; i++)
		if (blocks_missing(b->blocks, &b->entry[i], 1, &piece))
			return ar_fail(err, AR_USAGE,
				       "request %u has tokens from the prefix cache, which dropper "
				       "'%s' has not seen; turn the prefix cache off",
				       (unsigned)b->entry[i].req, e->plan.drop->name);
	return AR_OK;
}

void attn_engine_log_aux(const struct attn_engine *e)
{
	if (e->drops.revives)
		log_info("aux cache of %d layer%s, %.3f GiB beside the KV cache", e->drops.n - 1,
			 e->drops.n > 2 ? "s" : "", groups_aux_bytes(&e->groups) / 0x1p30);
}

struct attn_shape attn_engine_widest(const struct attn_engine *e)
{
	struct attn_shape w = { .page_tok = e->plan.page_tok };

	for (int i = 0; i < e->n_run_layers; i++) {
		const struct attn_shape *s = attn_engine_shape(e, i);

		w.q_heads = s->q_heads > w.q_heads ? s->q_heads : w.q_heads;
		w.kv_heads = s->kv_heads > w.kv_heads ? s->kv_heads : w.kv_heads;
		w.head_dim = s->head_dim > w.head_dim ? s->head_dim : w.head_dim;
	}
	return w;
}

int attn_engine_n_sm(const struct attn_engine *e, const struct gpu *gpu)
{
	int least = gpu->n_sm;

	for (int i = 0; i < e->n_run_layers; i++) {
		const struct method *m[] = { attn_engine_method(e, i), e->dense };

		for (int k = 0; k < 2 && mixer_attends(attn_engine_mixer(e, i)); k++) {
			int n = executor_n_sm(method_prefill(m[k])->executor,
					      attn_engine_shape(e, i), gpu);

			least = n < least ? n : least;
		}
	}
	return least;
}

enum ar_status attn_engine_rows(const struct attn_engine *e, const struct backend_env *env,
				struct rows_env *r, struct ar_err *err)
{
	enum ar_status st = rows_env_init(r, e->n_run_layers, err);

	for (int i = 0; i < e->n_run_layers && !st; i++)
		rows_env_add(r, i,
			     &(struct row_view){ .segment = attn_engine_group(e, i)->segment,
						 .group = attn_engine_group(e, i),
						 .method = attn_engine_method(e, i) });
	r->act = e->act;
	r->act_self = e->act_self;
	r->revives = drop_revives(e->plan.drop);
	rows_limits(r, env, e->plan.page_tok);
	return st;
}

enum ar_status attn_engine_try(const struct backend_env *env, struct ar_err *err)
{
	struct attn_engine e;
	enum ar_status st = open_as(&e, env, (struct selector_env){ .trial = true }, err);

	attn_engine_release(&e);
	return st;
}
