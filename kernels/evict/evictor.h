/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Evictors: they take keys and values out of the KV cache for good.
 *
 * The event comes when a request has computed its prompt.  Some evictors act after each decode as
 * well.  How many tokens stay is a function of numbers, the same for all KV heads and layers.  So a
 * schedule needs no kernels.  Which ones stay is a matter of each KV head.
 *
 * A request keeps its length: positions count all of its tokens.  Only what it stores changes.
 */
#ifndef AR_EVICTOR_H
#define AR_EVICTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/opt.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cJSON;

struct evictor {
	const char *name;   /* "snapkv" */
	const char *title;  /* one line */
	const char *origin; /* paper or code that it follows */
	const struct opt *params;
	size_t param_size;
	bool decodes; /* it acts after each decode, too */

	/* Set parameters, g->base, that were not given and depend on others.  AR_USAGE: they do not
	 * go together.  NULL: there is nothing to do. */
	enum ar_status (*settle)(struct opt_group *g, struct ar_err *err);
	/* How many of n_tok stored tokens stay; it never falls as n_tok rises. */
	int64_t (*kept)(const void *param, int64_t n_tok);
};

extern const struct evictor *const evictors[]; /* ends with NULL */
const struct evictor *evictor_find(const char *name);

/* An evictor with parameters, as "NAME[:KEY=VALUE,...]" or "NAME[,KEY=VALUE...]". */
struct evict {
	const struct evictor *evictor;
	void *param; /* the evictor's struct */
};

/* AR_USAGE: unknown name or parameter, a value out of range, or values that do not go together. */
enum ar_status evict_parse(struct evict **out, const char *text, struct ar_err *err);
void evict_free(struct evict *e); /* NULL is fine */
/* Its name and parameters, owned by the caller.  NULL: there is no memory. */
struct cJSON *evict_json(const struct evict *e);

static inline int64_t evict_kept(const struct evict *e, int64_t n_tok)
{
	return e->evictor->kept(e->param, n_tok);
}

/* The most tokens that a request with a prompt of prompt_tok tokens stores from the event on, until
 * it has n_tok tokens. */
int64_t evict_most(const struct evict *e, int64_t prompt_tok, int64_t n_tok);

#ifdef __cplusplus
}
#endif
#endif
