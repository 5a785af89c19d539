/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/engine/evictions.h"

#include <stdlib.h>

enum ar_status evictions_check(const struct evict *e, const struct model *m, struct ar_err *err)
{
	for (int i = 0; e && i < m->n_layers; i++) {
		if (m->layer[i].mixer != MIX_FULL)
			return ar_fail(err, AR_USAGE,
				       "evictor '%s': layer %d of model '%s' is not of full "
				       "attention; take a model whose layers all are",
				       e->evictor->name, i, m->name);
		if (!cache_is_bf16(m->layer[i].cache))
			return ar_fail(err, AR_USAGE,
				       "evictor '%s': layer %d of model '%s' has a KV cache in "
				       "another format than bf16; leave out --kv-cache-dtype",
				       e->evictor->name, i, m->name);
	}
	return AR_OK;
}

enum ar_status evictions_open(struct evictions *x, const struct backend_env *env,
			      struct ar_err *err)
{
	enum ar_status st;

	*x = (struct evictions){ .evict = env->evict, .trace = env->trace };
	if (!x->evict)
		return AR_OK;
	st = evictions_check(x->evict, env->model, err);
	if (st)
		return st;
	x->window = evict_window(x->evict, &x->whole);
	x->gone = calloc(env->trace->n + 1, sizeof *x->gone);
	x->seen = calloc(env->trace->n + 1, sizeof *x->seen);
	x->id = calloc((size_t)env->max_seqs, sizeof *x->id);
	x->req = calloc((size_t)env->max_seqs, sizeof *x->req);
	return x->gone && x->seen && x->id && x->req ? AR_OK : ar_nomem(err);
}

void evictions_close(struct evictions *x)
{
	free(x->gone);
	free(x->seen);
	free(x->id);
	free(x->req);
}

/* An event of n_key stored tokens, of which n_gone leave from the first n_cand. */
static void add(struct evictions *x, uint32_t id, int64_t n_key, int64_t n_cand, int64_t n_gone)
{
	const struct evict_req *last = x->n ? &x->req[x->n - 1] : NULL;

	x->id[x->n] = id;
	x->req[x->n++] = (struct evict_req){ .n_key = (int32_t)n_key,
					     .n_cand = (int32_t)n_cand,
					     .n_keep = (int32_t)(n_cand - n_gone),
					     .keep0 = last ? last->keep0 + last->n_keep : 0 };
}

void evictions_before(struct evictions *x, const struct batch *b)
{
	x->n = 0;
	for (size_t i = 0; x->evict && i < b->n; i++) {
		const struct batch_entry *e = &b->entry[i];
		int64_t n = (int64_t)e->start - x->gone[e->req];

		if (e->gone > x->gone[e->req])
			add(x, e->req, n, n, (int64_t)e->gone - x->gone[e->req]);
	}
}

static int64_t greater(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

void evictions_window(const struct evictions *x, const struct batch_entry *e, int64_t *first,
		      int64_t *from, int64_t *to)
{
	int64_t prompt = x->trace->req[e->req].prompt_tok, end = (int64_t)e->start + e->n_tok;
	bool leaves = x->window && evict_kept(x->evict, prompt) < prompt;

	*first = prompt - x->window;
	*from = greater(e->start, *first);
	*to = end < prompt ? end : prompt;
	if (!leaves || (!x->whole && end < prompt) || *to < *from)
		*to = *from;
}

void evictions_after(struct evictions *x, const struct batch *b)
{
	x->n = 0;
	for (size_t i = 0; x->evict && i < b->n; i++) {
		const struct batch_entry *e = &b->entry[i];
		uint32_t prompt = x->trace->req[e->req].prompt_tok, n = batch_stores(e);
		bool decodes = x->evict->evictor->decodes;
		int64_t first, from, to;

		evictions_window(x, e, &first, &from, &to);
		if (from < to && !x->seen[e->req])
			x->seen[e->req] = (uint32_t)from;
		if (!e->evict || (decodes ? e->start >= prompt : x->gone[e->req] > 0))
			continue;
		add(x, e->req, n, decodes ? n : prompt, e->evict);
		if (x->seen[e->req])
			x->req[x->n - 1].n_row = (int32_t)(prompt - x->seen[e->req]);
	}
}

/* Tokens that event k leaves. */
static int64_t left(const struct evictions *x, int k)
{
	return x->req[k].n_key - x->req[k].n_cand + x->req[k].n_keep;
}

enum ar_status evictions_begin(const struct evictions *x, int k, struct blocks *blocks,
			       struct ar_err *err)
{
	return blocks_fork(blocks, x->id[k], left(x, k), err);
}

void evictions_end(struct evictions *x, int k, struct blocks *blocks)
{
	x->gone[x->id[k]] += (uint32_t)(x->req[k].n_cand - x->req[k].n_keep);
	blocks_cut(blocks, x->id[k], left(x, k));
}

void evictions_drop(struct evictions *x, uint32_t req)
{
	if (!x->evict)
		return;
	x->gone[req] = 0;
	x->seen[req] = 0;
}
