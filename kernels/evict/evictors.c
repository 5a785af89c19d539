/* SPDX-License-Identifier: Apache-2.0 */
/* The list of evictors, and the code that all evictors share. */
#include "config.h"
#include "kernels/evict/evictor.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

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

static int64_t lesser(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* A decode adds a token before its event takes one. */
int64_t evict_most(const struct evict *e, int64_t prompt_tok, int64_t n_tok)
{
	int64_t n = evict_kept(e, prompt_tok) + n_tok - prompt_tok;

	return e->evictor->decodes ? lesser(n, evict_kept(e, INT64_MAX) + 1) : n;
}
