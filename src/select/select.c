/* SPDX-License-Identifier: Apache-2.0 */
/* Counts and pictures of a selection. */
#include "config.h"
#include "src/select/select.h"

#include <math.h>
#include <string.h>

int select_past(const struct select_result *r)
{
	return r->ctx / r->shape.page_tok;
}

int select_blocks(const struct select_result *r)
{
	return (r->ctx + r->chunk + r->shape.page_tok - 1) / r->shape.page_tok;
}

int select_query_blocks(const struct select_result *r)
{
	return select_blocks(r) - select_past(r);
}

int select_body(const struct select_result *r)
{
	int n = select_query_blocks(r), tail = method_tail(method_prefill(r->method));

	return !tail || r->left ? n : n > tail ? n - tail : 0;
}

static int words(const struct select_result *r)
{
	return (select_blocks(r) + 31) / 32;
}

struct shape_place select_place(const struct select_result *r, int head, int i)
{
	return (struct shape_place){ &r->shape, select_past(r), select_blocks(r), head, i };
}

/* True if query block i of a query head keeps block j.  Only for selections in blocks. */
static bool is_kept(const struct select_result *r, int head, int i, int j)
{
	const uint32_t *row = r->sel->chosen.mask;

	if (!row)
		return j <= select_past(r) + i;
	row += (size_t)(i * r->shape.q_heads + head) * (size_t)words(r);
	return row[j / 32] >> j % 32 & 1;
}

/* ---- densities ---- */

static struct selection_count total(const struct select_result *r)
{
	struct selection_count sum = { 0 };

	for (int kv = 0; kv < r->shape.kv_heads; kv++)
		selection_add(&sum, &r->count[kv], 1);
	return sum;
}

static bool in_blocks(const struct select_result *r)
{
	return shape_of(method_prefill(r->method))->list->entry == ENTRY_BLOCK;
}

static struct select_density *put_density(struct select_density *to, const char *step,
					  const char *scope, const char *unit, int64_t selected,
					  int64_t total)
{
	*to = (struct select_density){ step, scope, unit, selected, total };
	return to + 1;
}

/* open: blocks of the chunk, once for each KV head; a union keeps them for each of its groups. */
static struct select_density *put_union(const struct select_result *r, enum union_kind u,
					int64_t selected, int64_t total, int64_t open,
					struct select_density *to)
{
	const char *step = unions[u].name;

	open *= union_groups(union_heads(u, &r->shape), &r->shape) / r->shape.kv_heads;
	if (!in_blocks(r))
		return put_density(to, step, "past", "token", selected, total);
	to = put_density(to, step, "past", "block", selected, total);
	return put_density(to, step, "full", "block", selected + open, total + open);
}

int select_densities(const struct select_result *r, struct select_density out[SELECT_DENSITIES])
{
	struct selection_count c = total(r);
	struct select_density *to = out;

	if (in_blocks(r)) {
		to = put_density(to, "selected", "past", "block", c.tiles_sel, c.tiles_total);
		to = put_density(to, "selected", "causal", "block", c.tiles_sel + c.chunk_sel,
				 c.tiles_total + c.chunk_total);
		to = put_density(to, "selected", "full", "block", c.tiles_sel + c.chunk_sel,
				 c.tiles_total + c.chunk_full);
	} else {
		to = put_density(to, "selected", "past", "token", c.tiles_sel, c.tiles_total);
	}
	to = put_union(r, UNION_QBLOCK, c.qunion_sel, c.qunion_total, c.chunk_open, to);
	to = put_union(r, UNION_SUBGROUP, c.sub_sel, c.sub_total, c.chunk_open, to);
	to = put_union(r, UNION_GROUP, c.kv_sel, c.kv_total, c.chunk_open, to);
	to = put_density(to, "executed", "causal", "pair", c.exec_sel, c.exec_total);
	return (int)(to - out);
}

double select_density(const struct select_result *r, const char *step, const char *scope)
{
	struct select_density d[SELECT_DENSITIES];
	int n = select_densities(r, d);

	for (int i = 0; i < n; i++)
		if (!strcmp(d[i].step, step) && !strcmp(d[i].scope, scope))
			return d[i].total ? (double)d[i].selected / (double)d[i].total : NAN;
	return NAN;
}

int64_t select_empty_rows(const struct select_result *r)
{
	return total(r).empty_rows;
}

double select_jaccard(const struct select_result *r)
{
	int n = select_body(r), past = select_past(r);
	double sum = 0;

	if (n < 2 || !past || !in_blocks(r))
		return NAN;
	for (int h = 0; h < r->shape.q_heads; h++)
		for (int a = 0; a < n; a++)
			for (int b = a + 1; b < n; b++) {
				int both = 0, any = 0;

				for (int j = 0; j < past; j++) {
					bool x = is_kept(r, h, a, j);
					bool y = is_kept(r, h, b, j);

					both += x && y;
					any += x || y;
				}
				sum += any ? (double)both / any : 1;
			}
	return sum / r->shape.q_heads / (n * (n - 1) / 2);
}

/* Blocks, or keys, before the chunk that a list entry covers. */
static int past_of(const struct select_result *r, enum shape_entry what, int entry)
{
	int n = what == ENTRY_RUN ? r->shape.page_tok : 1;
	int before = (what == ENTRY_BLOCK ? select_past(r) : r->ctx) - entry;

	return before < 0 ? 0 : before < n ? before : n;
}

double select_head_density(const struct select_result *r, int head)
{
	int n_qblk = select_body(r), past = in_blocks(r) ? select_past(r) : r->ctx;
	int64_t sel = 0;

	if (!past || !n_qblk)
		return NAN;
	for (int i = 0; i < n_qblk; i++) {
		struct shape_place at = select_place(r, head, i);

		for (const struct shape_list *l = shape_of(method_prefill(r->method))->list;
		     l->name; l++)
			for (int k = 0, entry; (entry = l->next(r->sel, &at, &k)) >= 0;)
				sel += past_of(r, l->entry, entry);
	}
	return (double)sel / ((double)n_qblk * past);
}

struct select_accuracy select_accuracy(const struct select_result *r)
{
	struct select_accuracy a = { 0, 0, r->acc->cosine, 0, r->acc->mass_recall };

	for (int h = 0; h < r->shape.q_heads; h++) {
		const struct accuracy *x = &r->acc[h];

		a.rel_l2_mean += x->rel_l2 / r->shape.q_heads;
		a.rel_l2_max = fmax(a.rel_l2_max, x->rel_l2);
		a.cosine_min = fmin(a.cosine_min, x->cosine);
		a.recall_mean += x->mass_recall / r->shape.q_heads;
		a.recall_min = fmin(a.recall_min, x->mass_recall);
	}
	return a;
}

/* ---- pictures ---- */

/* Keys [first, first + n) below end are selected: add the share that they cover to out[block]. */
static void cover_keys(const struct select_result *r, int first, int n, int end, float *out)
{
	int tok = r->shape.page_tok;

	for (int t = first; t < first + n && t < end; t++)
		out[t / tok] += 1 / (float)tok;
}

static void cover_list(const struct select_result *r, const struct shape_list *l, int head, int i,
		       float *out)
{
	struct shape_place at = select_place(r, head, i);
	int tok = r->shape.page_tok, n = l->entry == ENTRY_RUN ? tok : 1;

	for (int k = 0, entry; (entry = l->next(r->sel, &at, &k)) >= 0;)
		if (l->entry == ENTRY_BLOCK)
			out[entry] = 1;
		else
			cover_keys(r, entry, n, (select_past(r) + i + 1) * tok, out);
}

void select_cover(const struct select_result *r, int head, int i, float *out)
{
	const struct selection_shape *shape = shape_of(method_prefill(r->method));
	int n = select_blocks(r), tok = r->shape.page_tok;

	for (int j = 0; j < n; j++)
		out[j] = 0;
	for (const struct shape_list *l = shape->list; l->name; l++)
		cover_list(r, l, head, i, out);
	if (shape->per_kv)
		cover_keys(r, r->ctx, (select_past(r) + i + 1) * tok - r->ctx, n * tok, out);
}

int select_groups(const struct select_result *r)
{
	return union_groups(r->sel->lists.heads, &r->shape);
}

void select_table(const struct select_result *r, int g, float *out)
{
	const uint32_t *row = r->sel->table + (size_t)g * (size_t)words(r);

	for (int j = 0; j < select_blocks(r); j++)
		out[j] = row[j / 32] >> j % 32 & 1;
}
