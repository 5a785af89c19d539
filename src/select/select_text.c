/* SPDX-License-Identifier: Apache-2.0 */
/* A selection for people: its densities, its heads and a picture of the mask. */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/text.h"
#include "src/select/select.h"

enum { WIDTH = 96, HEIGHT = 32 }; /* cells of a picture at most */

static void put_share(FILE *f, double x)
{
	if (isnan(x))
		fprintf(f, "  %9s", "-");
	else
		fprintf(f, "  %9.4f", x);
}

static void put_densities(const struct select_result *r, FILE *f)
{
	struct select_density d[SELECT_DENSITIES];
	int n = select_densities(r, d);
	int64_t empty = select_empty_rows(r);
	double jaccard = select_jaccard(r);

	fprintf(f, "  %-10s %-7s %-6s %14s %14s    density\n", "step", "scope", "unit", "selected",
		"total");
	for (int i = 0; i < n; i++) {
		fprintf(f, "  %-10s %-7s %-6s %14" PRId64 " %14" PRId64, d[i].step, d[i].scope,
			d[i].unit, d[i].selected, d[i].total);
		put_share(f, d[i].total ? (double)d[i].selected / (double)d[i].total : NAN);
		fputc('\n', f);
	}
	if (!isnan(jaccard))
		fprintf(f, "  query blocks' past sets are alike by %.4f (Jaccard)\n", jaccard);
	if (empty)
		fprintf(f,
			"  %" PRId64 " of %d rows (query head, query block) are empty: their "
			"output is 0\n",
			empty, select_query_blocks(r) * r->shape.q_heads);
}

static void put_accuracy(const struct select_result *r, FILE *f)
{
	struct select_accuracy a = select_accuracy(r);

	fprintf(f,
		"  against dense%s: relative L2 mean %.4g max %.4g, cosine min %.6f, recall mean "
		"%.4f min %.4f\n",
		r->random ? " on values of no model" : "", a.rel_l2_mean, a.rel_l2_max,
		a.cosine_min, a.recall_mean, a.recall_min);
}

static void put_heads(const struct select_result *r, int only, FILE *f)
{
	int group = r->shape.q_heads / r->shape.kv_heads;

	fprintf(f, "  head  kv    density     rel L2     cosine     recall\n");
	for (int h = 0; h < r->shape.q_heads; h++) {
		if (only >= 0 && h != only)
			continue;
		fprintf(f, "  %4d %3d", h, h / group);
		put_share(f, select_head_density(r, h));
		fprintf(f, "  %9.3g  %9.6f  %9.4f\n", r->acc[h].rel_l2, r->acc[h].cosine,
			r->acc[h].mass_recall);
	}
}

/* ---- lists ---- */

/* Writes ascending numbers, and consecutive ones as a range. */
struct ranges {
	FILE *f;
	int from, to; /* the open run; from -1: none */
};

static void flush_range(struct ranges *x)
{
	if (x->from >= 0)
		fprintf(x->f, x->from < x->to ? " %d-%d" : " %d", x->from, x->to);
	x->from = -1;
}

static void add_range(struct ranges *x, int v)
{
	if (x->from < 0 || v != x->to + 1) {
		flush_range(x);
		x->from = v;
	}
	x->to = v;
}

static void put_entries(const struct select_result *r, const struct shape_list *l, int head, int i,
			FILE *f)
{
	struct shape_place at = select_place(r, head, i);
	struct ranges x = { f, -1, -1 };

	for (int k = 0, entry; (entry = l->next(r->sel, &at, &k)) >= 0;)
		add_range(&x, entry);
	flush_range(&x);
}

static void put_query_block(const struct select_result *r, int head, int i, FILE *f)
{
	const char *sep = "";

	fprintf(f, "  query block %d:", select_past(r) + i);
	for (const struct shape_list *l = shape_of(method_prefill(r->method))->list; l->name; l++) {
		fprintf(f, "%s%s%s", sep, *l->text ? " " : "", l->text);
		put_entries(r, l, head, i, f);
		sep = ";";
	}
	fputc('\n', f);
}

static void put_table(const struct select_result *r, int head, FILE *f)
{
	const struct block_lists *l = &r->sel->lists.blocks;
	int group = r->shape.q_heads / r->shape.kv_heads, heads = r->sel->lists.heads;
	int g = head / group * ((group + heads - 1) / heads) + head % group / heads;
	struct ranges x = { f, -1, -1 };

	fprintf(f, "  its table %d:", g);
	for (int k = 0; k < l->n[g]; k++)
		add_range(&x, l->block[(size_t)g * (size_t)l->stride + (size_t)k]);
	flush_range(&x);
	fputc('\n', f);
}

static void put_lists(const struct select_result *r, int head, FILE *f)
{
	const struct selection_shape *shape = shape_of(method_prefill(r->method));
	int kv = head / (r->shape.q_heads / r->shape.kv_heads);

	for (const struct shape_list *l = shape->list; shape->per_kv && l->name; l++) {
		fprintf(f, "  %s of KV head %d:", l->name, kv);
		put_entries(r, l, head, 0, f);
		fputc('\n', f);
	}
	for (int i = 0; !shape->per_kv && i < select_query_blocks(r); i++)
		put_query_block(r, head, i, f);
	if (r->sel->lists.heads)
		put_table(r, head, f);
}

/* ---- pictures ---- */

/* The mask scaled down: each cell is a mean over blocks and query blocks.  n_row <= HEIGHT, n_col
 * <= WIDTH. */
struct raster {
	int n_row, n_col;
	float cell[HEIGHT][WIDTH];
};

static int cell_of(int at, int n, int cells)
{
	return (int)((int64_t)at * cells / n);
}

static enum ar_status draw_raster(const struct select_result *r, int head, struct raster *x,
				  struct ar_err *err)
{
	int n = select_blocks(r), n_qblk = select_query_blocks(r);
	int first = head < 0 ? 0 : head, end = head < 0 ? r->shape.q_heads : head + 1;
	float *row = malloc((size_t)n * sizeof *row);
	int in[HEIGHT][WIDTH] = { 0 };

	if (!row)
		return ar_nomem(err);
	x->n_row = n_qblk < HEIGHT ? n_qblk : HEIGHT;
	x->n_col = n < WIDTH ? n : WIDTH;
	for (int h = first; h < end; h++)
		for (int i = 0; i < n_qblk; i++) {
			int a = cell_of(i, n_qblk, x->n_row);

			select_cover(r, h, i, row);
			for (int j = 0; j < n; j++) {
				int b = cell_of(j, n, x->n_col);

				x->cell[a][b] += row[j];
				in[a][b]++;
			}
		}
	for (int a = 0; a < x->n_row; a++)
		for (int b = 0; b < x->n_col; b++)
			x->cell[a][b] /= (float)in[a][b];
	free(row);
	return AR_OK;
}

static bool is_binary(const struct raster *x)
{
	for (int a = 0; a < x->n_row; a++)
		for (int b = 0; b < x->n_col; b++)
			if (x->cell[a][b] != 0 && x->cell[a][b] != 1)
				return false;
	return true;
}

/* Print two rows of cells in one line of half blocks. */
static void put_halves(const struct raster *x, FILE *f)
{
	static const char *const half[] = { " ", "\u2580", "\u2584", "\u2588" };

	for (int a = 0; a < x->n_row; a += 2) {
		fputs("  |", f);
		for (int b = 0; b < x->n_col; b++) {
			bool low = a + 1 < x->n_row && x->cell[a + 1][b] > 0;

			fputs(half[(x->cell[a][b] > 0) + 2 * low], f);
		}
		fputs("|\n", f);
	}
}

/* Shades of cells: the first for 0, the last for 1, the others for values between. */
static void put_shades(const struct raster *x, bool unicode, FILE *f)
{
	static const char *const ascii[] = { " ", ".", ":", "+", "#" };
	static const char *const shade[] = { " ", "\u2591", "\u2592", "\u2593", "\u2588" };

	for (int a = 0; a < x->n_row; a++) {
		fputs("  |", f);
		for (int b = 0; b < x->n_col; b++) {
			float v = x->cell[a][b];
			int at = v <= 0 ? 0 : v >= 0.9999f ? 4 : 1 + (int)(v * 3);

			fputs((unicode ? shade : ascii)[at], f);
		}
		fputs("|\n", f);
	}
}

static enum ar_status put_picture(const struct select_result *r, int head, bool unicode, FILE *f,
				  struct ar_err *err)
{
	struct raster x = { 0 };
	enum ar_status st = draw_raster(r, head, &x, err);

	if (st)
		return st;
	if (head < 0)
		fputs("  mean over heads; ", f);
	else
		fprintf(f, "  head %d; ", head);
	fprintf(f, "rows: query blocks %d to %d, columns: blocks 0 to %d\n", select_past(r),
		select_blocks(r) - 1, select_blocks(r) - 1);
	if (unicode && is_binary(&x))
		put_halves(&x, f);
	else
		put_shades(&x, unicode, f);
	return AR_OK;
}

enum ar_status select_put_text(const struct select_result *r, int head, enum select_picture how,
			       FILE *f, struct ar_err *err)
{
	text_put(r->capture, f);
	fprintf(f, ", layer %d, context %d, chunk %d: ", r->layer, r->ctx, r->chunk);
	text_put(r->method->name, f);
	putc('\n', f);
	fprintf(f,
		"  select %s, union %s, exec %s; %d query heads, %d KV heads; blocks of %d: %d "
		"before the chunk, %d of it\n",
		method_prefill(r->method)->selector->name,
		unions[method_prefill(r->method)->u].name,
		method_prefill(r->method)->executor->name, r->shape.q_heads, r->shape.kv_heads,
		r->shape.page_tok, select_past(r), select_query_blocks(r));
	put_densities(r, f);
	put_accuracy(r, f);
	put_heads(r, head, f);
	if (head >= 0)
		put_lists(r, head, f);
	return how == SELECT_NO_PICTURE ? AR_OK :
					  put_picture(r, head, how == SELECT_UNICODE, f, err);
}
