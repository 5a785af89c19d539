/* SPDX-License-Identifier: Apache-2.0 */
/* A chunk of a capture: model, layers, place. */
#include "config.h"
#include "src/select/select_chunk.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "replay/engine/prepare.h"
#include "traces/capture/random.h"

void select_chunk_release(struct select_chunk *c)
{
	capture_close(c->capture);
	model_release(&c->model);
	free(c->layer);
	free(c->captured);
}

/* Without --model: a model with the layers, heads and RoPE that the capture states. */
static enum ar_status model_of_capture(struct model *m, const struct capture_info *info,
				       struct ar_err *err)
{
	const struct layer_spec l = { .mixer = MIX_FULL,
				      .q_heads = info->q_heads,
				      .kv_heads = info->kv_heads,
				      .head_dim = info->head_dim };

	*m = (struct model){ .tp = 1, .max_len = info->n_tok, .rope = info->rope };
	snprintf(m->name, sizeof m->name, "%s", info->model);
	return model_set_layers(m, info->layer[info->n_layers - 1] + 1, &l, err);
}

static enum ar_status load_model(struct select_chunk *c, const struct select_args *a,
				 struct ar_err *err)
{
	const struct capture_info *info = capture_info(c->capture);
	enum ar_status st = a->model ? model_load_as(&c->model, a->model, a->as_model, err) :
				       model_of_capture(&c->model, info, err);
	int q_heads, kv_heads;

	if (st)
		return st;
	q_heads = model_attention(&c->model)->q_heads;
	kv_heads = model_attention(&c->model)->kv_heads;
	st = model_split(&c->model, (int)a->tp, err);
	if (!st)
		st = prepare_check_model(info, &c->model, q_heads, kv_heads, err);
	if (!st && info->layer[info->n_layers - 1] >= c->model.n_layers)
		return ar_fail(err, AR_USAGE,
			       "%s holds layer %d, but model %s has %d layers; name the model that "
			       "it was captured from",
			       info->name, info->layer[info->n_layers - 1], c->model.name,
			       c->model.n_layers);
	return st;
}

static enum ar_status parse_layers(struct select_chunk *c, const char *list, struct ar_err *err)
{
	const struct capture_info *info = capture_info(c->capture);
	const char *s = list;

	for (;; s++) {
		size_t n = strcspn(s, ",");
		uint64_t from, to;

		if (!num_range(s, n, &from, &to))
			return ar_fail(err, AR_USAGE,
				       "layer '%s': want numbers and ranges such as 0,4,8-11",
				       list);
		for (; from <= to; from++) {
			if (capture_find_layer(info, from) < 0)
				return ar_fail(err, AR_USAGE,
					       "layer '%s': %s does not hold layer "
					       "%" PRIu64 "; 'attnreplay capture info' lists those "
					       "it holds",
					       list, info->name, from);
			if (c->model.layer[from].mixer != MIX_FULL)
				return ar_fail(err, AR_USAGE,
					       "layer '%s': layer %" PRIu64 " of model %s does not "
					       "see all keys, so methods do not select there",
					       list, from, c->model.name);
			if (c->n_layers == info->n_layers)
				return ar_fail(err, AR_USAGE, "layer '%s': a layer is listed twice",
					       list);
			c->layer[c->n_layers++] = (int)from;
		}
		s += n;
		if (!*s)
			return AR_OK;
	}
}

static enum ar_status load_layers(struct select_chunk *c, const char *list, struct ar_err *err)
{
	const struct capture_info *info = capture_info(c->capture);

	c->layer = calloc((size_t)info->n_layers, sizeof *c->layer);
	c->captured = calloc((size_t)c->model.n_layers, sizeof *c->captured);
	if (!c->layer || !c->captured)
		return ar_nomem(err);
	for (int i = 0; i < info->n_layers; i++)
		c->captured[info->layer[i]] = i;
	if (list)
		return parse_layers(c, list, err);
	for (int i = 0; i < info->n_layers && !(info->random && c->n_layers); i++)
		if (c->model.layer[info->layer[i]].mixer == MIX_FULL) /* random ones are alike */
			c->layer[c->n_layers++] = info->layer[i];
	if (!c->n_layers)
		return ar_fail(err, AR_USAGE,
			       "%s holds no layer of model %s that sees all keys, so there is "
			       "nothing to select from; name the model that it was captured from",
			       info->name, c->model.name);
	return AR_OK;
}

static enum ar_status place_chunk(struct select_chunk *c, const struct select_args *a,
				  struct ar_err *err)
{
	const struct capture_info *info = capture_info(c->capture);
	int64_t context = a->context >= 0	    ? a->context :
			  info->n_prompt > a->chunk ? info->n_prompt - a->chunk :
						      0;
	int64_t end = context + a->chunk, prompt = a->prompt ? a->prompt : info->n_prompt;

	if (end > info->n_tok)
		return ar_fail(err, AR_USAGE,
			       "%s has %" PRId64 " tokens, but a chunk of %" PRId64
			       " after a context of %" PRId64 " needs %" PRId64
			       "; lower --context or --chunk",
			       info->name, info->n_tok, a->chunk, context, end);
	if (a->prompt && prompt < end)
		return ar_fail(err, AR_USAGE,
			       "prompt-tokens %" PRId64 ": too few, the chunk ends at %" PRId64
			       "; raise it, or lower --context or --chunk",
			       prompt, end);
	c->ctx = (int)context;
	c->chunk = (int)a->chunk;
	c->known = (int)(prompt > end ? prompt : end);
	return AR_OK;
}

/* A random capture has the shape of the model, and the length that the options ask for. */
static enum ar_status draw_capture(struct select_chunk *c, const char *name,
				   const struct select_args *a, struct ar_err *err)
{
	struct capture_info shape = { .n_tok = a->context >= 0 ? a->context + a->chunk :
								 a->prompt };
	struct model m;
	enum ar_status st;

	if (!a->model)
		return ar_fail(err, AR_USAGE, "%s has the shape of a model; name one with --model",
			       name);
	if (!shape.n_tok)
		return ar_fail(err, AR_USAGE,
			       "%s has any length; give the place of the chunk with "
			       "--context",
			       name);
	st = model_load_as(&m, a->model, a->as_model, err);
	if (st)
		return st;
	st = model_split(&m, (int)a->tp, err);
	if (!st) {
		shape.n_layers = m.n_layers;
		shape.q_heads = model_attention(&m)->q_heads;
		shape.kv_heads = model_attention(&m)->kv_heads;
		shape.head_dim = model_attention(&m)->head_dim;
		st = capture_random(&c->capture, name, &shape, err);
	}
	model_release(&m);
	return st;
}

enum ar_status select_chunk_load(struct select_chunk *c, const char *path,
				 const struct select_args *a, struct ar_err *err)
{
	enum ar_status st = random_named(path) ? draw_capture(c, path, a, err) :
						 capture_open(&c->capture, path, err);

	if (!st)
		st = load_model(c, a, err);
	if (!st && a->head >= model_attention(&c->model)->q_heads)
		st = ar_fail(err, AR_USAGE, "head %" PRId64 ": want a query head from 0 to %d",
			     a->head, model_attention(&c->model)->q_heads - 1);
	if (!st)
		st = load_layers(c, a->layers, err);
	return st ? st : place_chunk(c, a, err);
}
