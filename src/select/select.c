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
	int n = select_query_blocks(r), tail = method_tail(r->method);

	return !tail || r->left ? n : n > tail ? n - tail : 0;
}

static int words(const struct select_result *r)
{
	return (select_blocks(r) + 31) / 32;
}

bool select_kept(const struct select_result *r, int head, int i, int j)
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
	return method_shape(r->method) & (TAKES_ALL | TAKES_MASK | TAKES_TABLE);
}

static struct select_density *put(struct select_density *to, const char *step, const char *scope,
				  const char *unit, int64_t selected, int64_t total)
{
	*to = (struct select_density){ step, scope, unit, selected, total };
	return to + 1;
}

/* open: the chunk's blocks of a KV head's. */
static struct select_density *put_union(const struct select_result *r, enum union_kind u,
					int64_t selected, int64_t total, int64_t open,
					struct select_density *to)
{
	const char *step = unions[u].name;

	open *= union_groups(union_heads(u, &r->shape), &r->shape) / r->shape.kv_heads;
	if (!in_blocks(r))
		return put(to, step, "past", "token", selected, total);
	to = put(to, step, "past", "block", selected, total);
	return put(to, step, "full", "block", selected + open, total + open);
}

int select_densities(const struct select_result *r, struct select_density out[SELECT_DENSITIES])
{
	struct selection_count c = total(r);
	struct select_density *to = out;

	if (in_blocks(r)) {
		to = put(to, "selected", "past", "block", c.tiles_sel, c.tiles_total);
		to = put(to, "selected", "causal", "block", c.tiles_sel + c.chunk_sel,
			 c.tiles_total + c.chunk_total);
		to = put(to, "selected", "full", "block", c.tiles_sel + c.chunk_sel,
			 c.tiles_total + c.chunk_full);
	} else {
		to = put(to, "selected", "past", "token", c.tiles_sel, c.tiles_total);
	}
	to = put_union(r, UNION_QBLOCK, c.qunion_sel, c.qunion_total, c.chunk_open, to);
	to = put_union(r, UNION_SUBGROUP, c.sub_sel, c.sub_total, c.chunk_open, to);
	to = put_union(r, UNION_GROUP, c.kv_sel, c.kv_total, c.chunk_open, to);
	to = put(to, "executed", "causal", "pair", c.exec_sel, c.exec_total);
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

int64_t select_blind(const struct select_result *r)
{
	return total(r).blind;
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
					bool x = select_kept(r, h, a, j);
					bool y = select_kept(r, h, b, j);

					both += x && y;
					any += x || y;
				}
				sum += any ? (double)both / any : 1;
			}
	return sum / r->shape.q_heads / (n * (n - 1) / 2);
}

/* Keys before the chunk in a row of runs and columns. */
static int64_t past_keys(const struct select_result *r, int head, int i)
{
	const struct column_lists *l = &r->sel->chosen.columns;
	size_t row = (size_t)(i * r->shape.q_heads + head);
	const int32_t *run = l->run + row * (size_t)l->max_run;
	const int32_t *col = l->col + row * (size_t)l->max_col;
	int64_t n = 0;

	for (int k = 0; k < l->n_run[row]; k++) {
		int before = r->ctx - run[k];

		n += before < 0 ? 0 : before < r->shape.page_tok ? before : r->shape.page_tok;
	}
	for (int k = 0; k < l->n_col[row]; k++)
		n += col[k] < r->ctx;
	return n;
}

double select_head_density(const struct select_result *r, int head)
{
	const struct attn_shape *s = &r->shape;
	int n_qblk = select_body(r), past = in_blocks(r) ? select_past(r) : r->ctx;
	int64_t sel = 0;

	if (!past || !n_qblk)
		return NAN;
	if (method_shape(r->method) == TAKES_TOKENS)
		return (double)r->sel->chosen.tokens.n[head / (s->q_heads / s->kv_heads)] / past;
	for (int i = 0; i < n_qblk; i++) {
		if (!in_blocks(r))
			sel += past_keys(r, head, i);
		else
			for (int j = 0; j < past; j++)
				sel += select_kept(r, head, i, j);
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

/* The keys [first, first + n), those before end, cover their blocks by so much more. */
static void cover_keys(const struct select_result *r, int first, int n, int end, float *out)
{
	int tok = r->shape.page_tok;

	for (int t = first; t < first + n && t < end; t++)
		out[t / tok] += 1 / (float)tok;
}

static void cover_tokens(const struct select_result *r, int head, int i, float *out)
{
	const struct attn_shape *s = &r->shape;
	const struct token_lists *l = &r->sel->chosen.tokens;
	int tok = s->page_tok, kv = head / (s->q_heads / s->kv_heads), n_blk = select_blocks(r);
	const int32_t *list = l->tok + attn_token_row(s, 0, n_blk, kv);

	for (int k = 0; k < l->n[kv]; k++)
		cover_keys(r, list[k], 1, r->ctx, out);
	cover_keys(r, r->ctx, (select_past(r) + i + 1) * tok - r->ctx, n_blk * tok, out);
}

static void cover_columns(const struct select_result *r, int head, int i, float *out)
{
	const struct column_lists *l = &r->sel->chosen.columns;
	size_t row = (size_t)(i * r->shape.q_heads + head);
	int tok = r->shape.page_tok, end = (select_past(r) + i + 1) * tok;

	for (int k = 0; k < l->n_run[row]; k++)
		cover_keys(r, l->run[row * (size_t)l->max_run + (size_t)k], tok, end, out);
	for (int k = 0; k < l->n_col[row]; k++)
		cover_keys(r, l->col[row * (size_t)l->max_col + (size_t)k], 1, end, out);
}

void select_cover(const struct select_result *r, int head, int i, float *out)
{
	int n = select_blocks(r);

	for (int j = 0; j < n; j++)
		out[j] = in_blocks(r) && select_kept(r, head, i, j);
	if (method_shape(r->method) == TAKES_TOKENS)
		cover_tokens(r, head, i, out);
	if (method_shape(r->method) == TAKES_COLUMNS)
		cover_columns(r, head, i, out);
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
