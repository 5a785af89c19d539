/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/cost/roofline_select.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"

enum keys {
	KEYS_NONE,  /* no products */
	KEYS_ALL,   /* every key of the request, once a pass */
	KEYS_MEANS, /* a mean for each block and KV head, and the chunk's keys to make them */
	KEYS_GATE   /* the same, a vector for each block and query head */
};

/* last: rows that are multiplied, from the chunk's end; 0: all.  row, key: how many stand behind
 * one product; 0: a block.  share: parameter that divides the products, or with times multiplies
 * them.  heads: parameter with the number of heads, NULL: the query heads, or with per_kv the KV
 * heads.  own: rows at the end that each query head multiplies besides. */
static const struct rule {
	const char *name;
	enum keys keys;
	int kernels, passes, last, row, key;
	const char *share, *heads;
	bool times, per_kv;
	int own;
} rules[] = {
	{ "flashprefill", KEYS_MEANS, 3, 1, 0, 1, 0, NULL, NULL, false, false, 0 },
	{ "flexprefill", KEYS_ALL, 10, 2, 128, 1, 1, NULL, NULL, false, false, 0 },
	{ "minference", KEYS_ALL, 5, 2, 64, 1, 1, NULL, NULL, false, false, 0 },
	{ "oracle", KEYS_ALL, 2, 2, 0, 1, 1, NULL, NULL, false, false, 0 },
	{ "quoka", KEYS_ALL, 8, 1, 0, 1, 1, "query-ratio", NULL, true, true, 0 },
	{ "seer", KEYS_GATE, 4, 1, 0, 64, 64, NULL, NULL, false, false, 0 },
	{ "xattention", KEYS_ALL, 3, 1, 0, 1, 1, "stride", NULL, false, false, 0 },
	{ "bfla", KEYS_ALL, 3, 1, 0, 1, 1, "group", NULL, false, false, 0 },
	{ "proxyattn", KEYS_ALL, 6, 1, 0, 1, 1, "q-stride", "groups", false, false, 128 },
};
/* Selectors that only look at places. */
static const struct rule by_place = { NULL, KEYS_NONE, 1, 0, 0, 1, 1, NULL, NULL, false, false, 0 };

static const struct rule *rule_of(const struct method *m)
{
	for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
		if (!strcmp(rules[i].name, m->selector->name))
			return &rules[i];
	return &by_place;
}

/* A choice is a string, as "8". */
static double parameter(const cJSON *params, const char *name)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(params, name);
	double x = cJSON_IsString(v) ? strtod(v->valuestring, NULL) : cJSON_GetNumberValue(v);

	return x > 0 ? x : 1;
}

enum ar_status roofline_subject(struct roofline_subject *s, const struct model *model,
				const struct method *method, bool attention_only,
				struct ar_err *err)
{
	const struct rule *r = rule_of(method);
	cJSON *params = json_parse_all(method->params, NULL);
	double share;

	*s = (struct roofline_subject){ model, method, attention_only, 1, 0 };
	if (!params)
		return ar_nomem(err);
	share = r->share ? parameter(params, r->share) : 1;
	s->select_share = r->times ? share : 1 / share;
	if (r->heads)
		s->select_heads = parameter(params, r->heads);
	cJSON_Delete(params);
	return AR_OK;
}

static double blocks(const struct roofline_subject *s, int64_t tok)
{
	int64_t page = method_page_tok(s->method);

	return (double)((tok + page - 1) / page);
}

double roofline_mask_bytes(const struct roofline_subject *s, const struct layer_spec *l,
			   const struct batch_entry *e)
{
	return l->q_heads * blocks(s, e->n_tok) * blocks(s, (int64_t)e->start + e->n_tok) / 8;
}

void roofline_select(const struct roofline_subject *s, const struct layer_spec *l,
		     const struct batch_entry *e, struct roofline_work *w)
{
	const struct rule *r = rule_of(s->method);
	double heads = s->select_heads > 0 ? s->select_heads : r->per_kv ? l->kv_heads : l->q_heads;
	double n = e->n_tok, len = (double)e->start + n, page = method_page_tok(s->method);
	double token = 2.0 * l->head_dim, products, keys = len * l->kv_heads * r->passes;
	double own = n < r->own ? n : r->own;

	w->kernels = r->kernels;
	w->bytes += roofline_mask_bytes(s, l, e);
	if (r->keys == KEYS_NONE)
		return;
	products = r->last ? (n < r->last ? n : r->last) * len : n * e->start + n * (n + 1) / 2;
	products *= heads / (r->row * (r->key ? r->key : page));
	products += own * len * l->q_heads;
	w->flops += token * r->passes * products * s->select_share;
	if (r->keys == KEYS_MEANS)
		keys = (n + len / page) * l->kv_heads;
	else if (r->keys == KEYS_GATE)
		keys = n * l->kv_heads + len / r->key * l->q_heads;
	w->bytes += token * (n * l->q_heads + keys);
}
