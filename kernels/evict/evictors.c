/* SPDX-License-Identifier: Apache-2.0 */
/* The list of evictors, and the code that all evictors share. */
#include "config.h"
#include "kernels/evict/evictor.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "base/order.h"
#include "kernels/select/top.h"

#define EVICTORS(X) \
	X(snapkv) \
	X(h2o) \
	X(streaming)

#define X(name) extern const struct evictor evictor_##name;
EVICTORS(X)
#undef X

#define X(name) &evictor_##name,
const struct evictor *const evictors[] = { EVICTORS(X) NULL };
#undef X

const struct evictor *evictor_find(const char *name)
{
	for (int i = 0; evictors[i]; i++)
		if (!strcmp(evictors[i]->name, name))
			return evictors[i];
	return NULL;
}

/* ---- spellings ---- */

static void params_of(const struct evict *e, struct opt_group g[static 2])
{
	g[0] = (struct opt_group){ .opts = e->evictor->params, .base = e->param };
	g[1] = (struct opt_group){ 0 };
}

static enum ar_status parse_evict(struct evict *e, const char *text, struct ar_err *err)
{
	size_t n = strcspn(text, ":,");
	char *name = strndup(text, n);
	struct opt_group g[2];
	enum ar_status st;

	if (!name)
		return ar_nomem(err);
	e->evictor = evictor_find(name);
	free(name);
	if (!e->evictor)
		return ar_fail(err, AR_USAGE,
			       "unknown name: want one that 'attnreplay methods' lists");
	e->param = calloc(1, e->evictor->param_size);
	if (!e->param)
		return ar_nomem(err);
	params_of(e, g);
	st = opt_init(g, err);
	if (!st && text[n])
		st = opt_set_all(g, text + n + 1, err);
	if (!st && e->evictor->settle)
		st = e->evictor->settle(g, err);
	return st;
}

enum ar_status evict_parse(struct evict **out, const char *text, struct ar_err *err)
{
	struct evict *e = calloc(1, sizeof *e);
	enum ar_status st = e ? parse_evict(e, text, err) : ar_nomem(err);

	*out = NULL;
	if (st) {
		ar_err_prefix(err, "evictor '%s'", text);
		evict_free(e);
		return st;
	}
	*out = e;
	return AR_OK;
}

void evict_free(struct evict *e)
{
	struct opt_group g[2];

	if (!e)
		return;
	if (e->param) {
		params_of(e, g);
		opt_release(g);
		free(e->param);
	}
	free(e);
}

cJSON *evict_json(const struct evict *e)
{
	cJSON *o = cJSON_CreateObject();
	struct opt_group g[2];

	params_of(e, g);
	if (o && cJSON_AddStringToObject(o, "name", e->evictor->name) && opt_json(g, o))
		return o;
	cJSON_Delete(o);
	return NULL;
}

/* ---- numbers ---- */

/* A decode adds a token before its event takes one. */
int64_t evict_bound(const struct evict *e)
{
	return e->evictor->decodes ? evict_kept(e, INT64_MAX) + 1 : INT64_MAX;
}

size_t evict_token_bytes(const struct evict *e)
{
	return e->evictor->state_bytes ? e->evictor->state_bytes(e->param) : 0;
}

/* Keys, values and state of what stays are read and written. */
void evict_count(const struct evict *e, const struct evict_rows *r, struct evict_work *w)
{
	const struct attn_shape *s = r->shape;
	double stays = r->stored + r->n_row - r->n_gone;

	if (e->evictor->work)
		e->evictor->work(e->param, r, w);
	if (!r->n_gone)
		return;
	w->bytes += stays * s->kv_heads *
		    (4. * s->head_dim * sizeof(bf16_t) + 2. * (double)evict_token_bytes(e));
	w->kernels++;
}

/* ---- references ---- */

int evict_window(const struct evict *e, bool *whole)
{
	return e->evictor->window ? e->evictor->window(e->param, whole) : 0;
}

size_t evict_state_bytes(const struct evict *e, const struct attn_shape *s)
{
	return evict_token_bytes(e) * (size_t)s->kv_heads * (size_t)s->page_tok;
}

enum ar_status evict_add_ref(const struct evict *e, const struct attn_call *call,
			     struct ar_err *err)
{
	return e->evictor->add_ref ? e->evictor->add_ref(e->param, call, err) : AR_OK;
}

enum ar_status evict_top(const float *score, int n, int k, int32_t *keep, struct ar_err *err)
{
	struct top_cell *cell = malloc((size_t)(n ? n : 1) * sizeof *cell);

	if (!cell)
		return ar_nomem(err);
	top_of(cell, score, n);
	for (int i = 0; i < k; i++)
		keep[i] = (int32_t)cell[i].at;
	qsort(keep, (size_t)k, sizeof *keep, order_i32);
	free(cell);
	return AR_OK;
}

struct attn_batch evict_batch(const struct evict_call *call, const struct evict_req *r)
{
	const int tok = call->shape.page_tok, n = (r->n_key + tok - 1) / tok;

	return (struct attn_batch){ .shape = call->shape,
				    .keys = { .n_page = n,
					      .max_kv_blk = n,
					      .mask_words = (n + 31) / 32,
					      .len = &r->n_key,
					      .page0 = &r->page0,
					      .page = call->page } };
}

/* Move what KV head h of request r has in a plane with size bytes for a token. */
static void compact(const struct evict_call *call, const struct evict_req *r, int h, void *plane,
		    size_t size)
{
	const int32_t *keep = call->keep + r->keep0 + (ptrdiff_t)h * r->n_keep;
	const int32_t *page = call->page + r->page0;
	const int32_t *to = call->to ? call->to + r->page0 : page;
	const int tok = call->shape.page_tok, n = r->n_keep + r->n_key - r->n_cand;

	for (int i = 0; i < n; i++) {
		int from = i < r->n_keep ? keep[i] : r->n_cand + i - r->n_keep;
		size_t to_row = (size_t)(to[i / tok] * call->shape.kv_heads + h) * (size_t)tok;
		size_t from_row = (size_t)(page[from / tok] * call->shape.kv_heads + h) *
				  (size_t)tok;

		memmove((char *)plane + (to_row + (size_t)(i % tok)) * size,
			(char *)plane + (from_row + (size_t)(from % tok)) * size, size);
	}
}

/* In place, as no key moves back. */
enum ar_status evict_ref(const struct evict *e, const struct evict_call *call, struct ar_err *err)
{
	size_t size = (size_t)call->shape.head_dim * sizeof(bf16_t), own = evict_token_bytes(e);
	enum ar_status st = e->evictor->ref(e->param, call, err);

	for (int r = 0; r < call->n_req && !st; r++)
		for (int h = 0; h < call->shape.kv_heads; h++) {
			compact(call, &call->req[r], h, call->kv.k, size);
			compact(call, &call->req[r], h, call->kv.v, size);
			if (own)
				compact(call, &call->req[r], h, call->state, own);
		}
	return st;
}

#if HAVE_CUDA
size_t evict_work_bytes(const struct evict *e, const struct attn_shape *s, int n_key)
{
	return e->evictor->work_bytes ? e->evictor->work_bytes(e->param, s, n_key) : 0;
}

enum ar_status evict_enqueue(const struct evict *e, const struct evict_call *call,
			     struct ar_err *err)
{
	enum ar_status st = e->evictor->enqueue(e->param, call, err);

	return st ? st : evict_compact_enqueue(e, call, err);
}

size_t evict_add_bytes(const struct evict *e, const struct attn_shape *s,
		       const struct attn_limits *l)
{
	return e->evictor->add_bytes ? e->evictor->add_bytes(s, l) : 0;
}

enum ar_status evict_add(const struct evict *e, const struct attn_call *call, struct ar_err *err)
{
	return e->evictor->add ? e->evictor->add(e->param, call, err) : AR_OK;
}

enum ar_status evict_commit(const struct evict *e, const struct attn_call *call, struct ar_err *err)
{
	return e->evictor->commit ? e->evictor->commit(e->param, call, err) : AR_OK;
}
#endif
