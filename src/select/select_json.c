/* SPDX-License-Identifier: Apache-2.0 */
/* Selections for programs: JSON with every list, CSV with a line each. */
#include "config.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/text.h"
#include "src/select/select.h"

static cJSON *number(double x)
{
	return isfinite(x) ? cJSON_CreateNumber(x) : cJSON_CreateNull();
}

static cJSON *string(const char *s)
{
	return *s ? cJSON_CreateString(s) : cJSON_CreateNull();
}

/* ---- lists ---- */

/* Make element i of an array.  what: the list that it reads, or NULL. */
typedef cJSON *make_fn(const struct select_result *r, const struct shape_list *what, int head,
		       int i);

static cJSON *each(const struct select_result *r, const struct shape_list *what, int head, int n,
		   make_fn *make)
{
	cJSON *a = cJSON_CreateArray();
	bool done = a;

	for (int i = 0; done && i < n; i++)
		done = json_add(a, NULL, make(r, what, head, i));
	if (done)
		return a;
	cJSON_Delete(a);
	return NULL;
}

/* The entries of list what for query block i of a query head. */
static cJSON *entries(const struct select_result *r, const struct shape_list *what, int head, int i)
{
	struct shape_place at = select_place(r, head, i);
	cJSON *a = cJSON_CreateArray();

	for (int k = 0, entry; a && (entry = what->next(r->sel, &at, &k)) >= 0;)
		if (!json_add(a, NULL, cJSON_CreateNumber(entry))) {
			cJSON_Delete(a);
			return NULL;
		}
	return a;
}

static cJSON *kv_entries(const struct select_result *r, const struct shape_list *what, int head,
			 int kv)
{
	(void)head;
	return entries(r, what, kv * (r->shape.q_heads / r->shape.kv_heads), 0);
}

static cJSON *table(const struct select_result *r, const struct shape_list *what, int head, int g)
{
	const struct block_lists *l = &r->sel->lists.blocks;
	cJSON *a = cJSON_CreateArray();

	(void)what, (void)head;
	for (int k = 0; a && k < l->n[g]; k++)
		if (!json_add(a, NULL,
			      cJSON_CreateNumber(
				      l->block[(size_t)g * (size_t)l->stride + (size_t)k]))) {
			cJSON_Delete(a);
			return NULL;
		}
	return a;
}

static cJSON *numbers(const float *x, int n)
{
	cJSON *a = cJSON_CreateArray();

	for (int j = 0; a && j < n; j++)
		if (!json_add(a, NULL, number((double)x[j]))) {
			cJSON_Delete(a);
			return NULL;
		}
	return a;
}

/* Block scores of query block i of a query head, up to its own block. */
static cJSON *scores(const struct select_result *r, const struct shape_list *what, int head, int i)
{
	const float *x = r->sel->chosen.score +
			 (size_t)(i * r->shape.q_heads + head) * (size_t)select_blocks(r);

	(void)what;
	return numbers(x, select_past(r) + i + 1);
}

/* Token scores of a KV head, for the tokens before the chunk. */
static cJSON *token_scores(const struct select_result *r, const struct shape_list *what, int head,
			   int kv)
{
	const float *x = r->sel->chosen.score + attn_token_row(&r->shape, 0, select_blocks(r), kv);

	(void)what, (void)head;
	return numbers(x, r->ctx);
}

/* Add an array [query head][query block] of elements that make() makes. */
static bool add_heads(cJSON *o, const char *name, const struct select_result *r,
		      const struct shape_list *what, make_fn *make)
{
	cJSON *a = cJSON_AddArrayToObject(o, name);
	bool done = a;

	for (int h = 0; done && h < r->shape.q_heads; h++)
		done = json_add(a, NULL, each(r, what, h, select_query_blocks(r), make));
	return done;
}

static bool add_lists(cJSON *o, const struct select_result *r)
{
	const struct selection_shape *shape = shape_of(method_prefill(r->method));
	int kv_heads = r->shape.kv_heads;
	bool done = true;

	for (const struct shape_list *l = shape->list; done && l->name; l++)
		done = shape->per_kv ? json_add(o, l->name, each(r, l, 0, kv_heads, kv_entries)) :
				       add_heads(o, l->name, r, l, entries);
	if (done && r->sel->lists.heads)
		done = cJSON_AddNumberToObject(o, "table_heads", r->sel->lists.heads) &&
		       json_add(o, "tables", each(r, NULL, 0, select_groups(r), table));
	if (done && r->sel->chosen.score)
		done = shape->per_kv ?
			       json_add(o, "scores", each(r, NULL, 0, kv_heads, token_scores)) :
			       add_heads(o, "scores", r, NULL, scores);
	return done;
}

/* ---- the rest of an object ---- */

static bool add_densities(cJSON *o, const struct select_result *r)
{
	struct select_density d[SELECT_DENSITIES];
	int n = select_densities(r, d);
	cJSON *a = cJSON_AddArrayToObject(o, "densities");
	bool done = a;

	for (int i = 0; done && i < n; i++) {
		cJSON *x = cJSON_CreateObject();
		double share = d[i].total ? (double)d[i].selected / (double)d[i].total : NAN;

		done = json_add(a, NULL, x) && cJSON_AddStringToObject(x, "step", d[i].step) &&
		       cJSON_AddStringToObject(x, "scope", d[i].scope) &&
		       cJSON_AddStringToObject(x, "unit", d[i].unit) &&
		       cJSON_AddNumberToObject(x, "selected", (double)d[i].selected) &&
		       cJSON_AddNumberToObject(x, "total", (double)d[i].total) &&
		       json_add(x, "density", number(share));
	}
	return done && json_add(o, "jaccard", number(select_jaccard(r))) &&
	       cJSON_AddNumberToObject(o, "empty_rows", (double)select_empty_rows(r));
}

static bool add_accuracy(cJSON *o, const struct select_result *r)
{
	cJSON *a = cJSON_AddArrayToObject(o, "accuracy");
	bool done = a;

	for (int h = 0; done && h < r->shape.q_heads; h++) {
		cJSON *x = cJSON_CreateObject();

		done = json_add(a, NULL, x) &&
		       cJSON_AddNumberToObject(x, "rel_l2", r->acc[h].rel_l2) &&
		       cJSON_AddNumberToObject(x, "cosine", r->acc[h].cosine) &&
		       cJSON_AddNumberToObject(x, "max_abs", r->acc[h].max_abs) &&
		       cJSON_AddNumberToObject(x, "recall", r->acc[h].mass_recall);
	}
	return done;
}

static bool add_head(cJSON *o, const struct select_result *r)
{
	return json_add(o, "capture", string(r->capture)) &&
	       json_add(o, "model", string(r->model)) &&
	       cJSON_AddStringToObject(o, "backend", r->backend) &&
	       cJSON_AddStringToObject(o, "method", r->method->name) &&
	       json_add(o, "parameters", cJSON_Parse(r->method->params)) &&
	       cJSON_AddNumberToObject(o, "layer", r->layer) &&
	       cJSON_AddNumberToObject(o, "context", r->ctx) &&
	       cJSON_AddNumberToObject(o, "chunk", r->chunk) &&
	       cJSON_AddNumberToObject(o, "left", r->left) &&
	       cJSON_AddNumberToObject(o, "q_heads", r->shape.q_heads) &&
	       cJSON_AddNumberToObject(o, "kv_heads", r->shape.kv_heads) &&
	       cJSON_AddNumberToObject(o, "head_dim", r->shape.head_dim) &&
	       cJSON_AddNumberToObject(o, "block_tokens", r->shape.page_tok) &&
	       cJSON_AddNumberToObject(o, "past_blocks", select_past(r)) &&
	       cJSON_AddNumberToObject(o, "query_blocks", select_query_blocks(r));
}

enum ar_status select_put_json(const struct select_result *r, FILE *f, struct ar_err *err)
{
	cJSON *o = cJSON_CreateObject();

	if (o && add_head(o, r) && add_densities(o, r) && add_accuracy(o, r) && add_lists(o, r))
		return json_put(o, f, err);
	cJSON_Delete(o);
	return ar_nomem(err);
}

/* ---- CSV ---- */

void select_csv_head(FILE *f)
{
	fputs("capture,layer,context,chunk,backend,method,parameters,density_selected,"
	      "density_q_block,density_group,density_executed,jaccard,rel_l2_mean,rel_l2_max,"
	      "cosine_min,recall_mean,recall_min,block_tokens\n",
	      f);
}

static void put_number(double x, FILE *f)
{
	if (isfinite(x))
		fprintf(f, ",%.9g", x);
	else
		fputc(',', f);
}

void select_put_csv(const struct select_result *r, FILE *f)
{
	struct select_accuracy a = select_accuracy(r);

	text_put_csv(r->capture, f);
	fprintf(f, ",%d,%d,%d,%s,", r->layer, r->ctx, r->chunk, r->backend);
	text_put_csv(r->method->name, f);
	fputc(',', f);
	text_put_csv(r->method->params, f);
	put_number(select_density(r, "selected", "past"), f);
	put_number(select_density(r, "q-block", "past"), f);
	put_number(select_density(r, "group", "past"), f);
	put_number(select_density(r, "executed", "causal"), f);
	put_number(select_jaccard(r), f);
	put_number(a.rel_l2_mean, f);
	put_number(a.rel_l2_max, f);
	put_number(a.cosine_min, f);
	put_number(a.recall_mean, f);
	put_number(a.recall_min, f);
	fprintf(f, ",%d\n", r->shape.page_tok);
}
