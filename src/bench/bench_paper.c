/* SPDX-License-Identifier: Apache-2.0 */
/* attnreplay bench paper: published measurements, and the same measured here. */
#include "config.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "src/bench/bench_paper.h"
#include "src/bench/bench_sample.h"

struct row {
	const char *table, *label, *method, *what, *unit, *note, *why, *source, *differs;
	const char *input, *goal, *sparsity_of;
	struct bench_shape s;
	int64_t layers, input_tok, repeats, chunks, samples, tp;
	double paper, ours, paper_x, ours_x, paper_total, ours_total, ratio, target;
	double paper_sparsity, ours_sparsity;
	struct bench_how how;
};

static const struct bench_col cols[] = {
#define COL(member) offsetof(struct row, member)
	{ "table", NULL, COL_TEXT, COL(table), 0, 0, 0 },
	{ "row", "row", COL_TEXT, COL(label), -23, 0, 0 },
	{ "method", NULL, COL_TEXT, COL(method), 0, 0, 0 },
	{ "what", "what", COL_TEXT, COL(what), -8, 0, 0 },
	{ "batch", "batch", COL_COUNT, COL(s.batch), 5, 0, 0 },
	{ "chunk", "chunk", COL_COUNT, COL(s.chunk), 6, 0, 0 },
	{ "context", "context", COL_COUNT, COL(s.context), 7, 0, 0 },
	{ "q_heads", NULL, COL_COUNT, COL(s.q_heads), 0, 0, 0 },
	{ "kv_heads", NULL, COL_COUNT, COL(s.kv_heads), 0, 0, 0 },
	{ "head_dim", NULL, COL_COUNT, COL(s.head_dim), 0, 0, 0 },
	{ "tp", NULL, COL_INT, COL(tp), 0, 0, 0 },
	{ "unit", "unit", COL_TEXT, COL(unit), 4, 0, 0 },
	{ "paper", "paper", COL_REAL, COL(paper), 9, 3, 1 },
	{ "ours", "ours", COL_REAL, COL(ours), 9, 3, 1 },
	{ "paper_speedup", "paper x", COL_REAL, COL(paper_x), 7, 2, 1 },
	{ "ours_speedup", "ours x", COL_REAL, COL(ours_x), 7, 2, 1 },
	{ "paper_total_ms", NULL, COL_REAL, COL(paper_total), 0, 0, 0 },
	{ "ours_total_ms", NULL, COL_REAL, COL(ours_total), 0, 0, 0 },
	{ "ratio", "ratio", COL_REAL, COL(ratio), 6, 2, 1 },
	{ "target", NULL, COL_REAL, COL(target), 0, 0, 0 },
	{ "goal", "goal", COL_TEXT, COL(goal), -6, 0, 0 },
	{ "paper_sparsity", "stated", COL_REAL, COL(paper_sparsity), 6, 2, 1 },
	{ "ours_sparsity", "sparse", COL_REAL, COL(ours_sparsity), 6, 2, 1 },
	{ "sparsity_of", NULL, COL_TEXT, COL(sparsity_of), 0, 0, 0 },
	{ "note", "note", COL_TEXT, COL(note), -7, 0, 0 },
	{ "why", NULL, COL_TEXT, COL(why), 0, 0, 0 },
	{ "source", NULL, COL_TEXT, COL(source), 0, 0, 0 },
	{ "differs", NULL, COL_TEXT, COL(differs), 0, 0, 0 },
	{ "input", NULL, COL_TEXT, COL(input), 0, 0, 0 },
	{ "input_tokens", NULL, COL_COUNT, COL(input_tok), 0, 0, 0 },
	{ "input_repeats", NULL, COL_COUNT, COL(repeats), 0, 0, 0 },
	{ "layers", NULL, COL_INT, COL(layers), 0, 0, 0 },
	{ "chunks", NULL, COL_INT, COL(chunks), 0, 0, 0 },
	{ "samples", NULL, COL_INT, COL(samples), 0, 0, 0 },
	BENCH_HOW_COLS(COL(how)),
#undef COL
	{ 0 }
};

/* ---- rows ---- */

/* How many times as fast as dense attention. */
static double speedup(const struct paper_known *k, const struct paper_known *dense,
		      enum paper_quantity what)
{
	if (what == PAPER_PREFILL)
		return dense->whole.seconds / k->whole.seconds;
	if (what == PAPER_KERNEL)
		return dense->sum.us[BENCH_PART_ATTEND] / k->sum.us[BENCH_PART_ATTEND];
	return dense->sum.core_us / k->sum.core_us;
}

/* In the quantity's unit. */
static double ours(const struct paper_known *k, const struct paper_known *dense,
		   enum paper_quantity what)
{
	const struct bench_sum *x = &k->sum;
	const struct selection_count *c = &x->count;
	double calls = 1e3 * x->n_chunk;

	switch (what) {
	case PAPER_CALL: return x->core_us / calls;
	case PAPER_SPEEDUP:
	case PAPER_PREFILL:
	case PAPER_KERNEL: return speedup(k, dense, what);
	case PAPER_SELECT: return x->us[BENCH_PART_SELECT] * 1e-3;
	case PAPER_METADATA: return x->us[BENCH_PART_METADATA] / calls;
	case PAPER_COPY: return x->us[BENCH_PART_COPY] / calls;
	case PAPER_ATTEND: return x->us[BENCH_PART_ATTEND] / calls;
	case PAPER_SPARSITY: return bench_sparsity(c, true);
	case PAPER_QUNION: return 100 * (1 - bench_ratio(c->qunion_sel, c->qunion_total));
	case PAPER_GROUP: return bench_sparsity(c, false);
	case PAPER_KEPT: return 100 * k->whole.kept;
	case PAPER_DENSITY: return 100 * bench_ratio(c->exec_sel, c->exec_total);
	default: return NAN;
	}
}

static bool compares_dense(enum paper_quantity what)
{
	return what == PAPER_CALL || what == PAPER_SPEEDUP || what == PAPER_KERNEL ||
	       what == PAPER_PREFILL;
}

static bool is_time(enum paper_quantity what)
{
	return !strcmp(paper_quantities[what].unit, "ms");
}

static struct row row_of(const struct paper *p, const struct paper_row *r, int col)
{
	const struct bench_session *s = &p->session;
	/* clang-format off */
	struct row row = {
		.table = p->t->name, .label = r->label,
		.what = paper_quantities[r->what].name, .unit = paper_quantities[r->what].unit,
		.source = p->t->source, .differs = p->t->differs,
		.input = bench_session_input(s),
		.input_tok = bench_session_tok(s), .layers = s->n_layer, .tp = p->tp,
		.how = { .repeat = s->a->repeat, .seed = s->a->seed,
			 .gpu = s->device ? bench_gpu(s->device) : NULL },
		.paper = paper_figure(p->t, r, col), .paper_x = paper_speedup(p->t, r, col),
		.paper_total = r->what == PAPER_CALL ? paper_printed(p->t, r, col) : NAN,
		.ours = NAN, .ours_x = NAN, .ours_total = NAN, .ratio = NAN,
		.target = p->t->goal ? p->t->goal : NAN,
		.paper_sparsity = NAN, .ours_sparsity = NAN,
	};
	/* clang-format on */
	bool selected;

	if (!paper_is_share(r->what))
		row.paper_sparsity = paper_sparsity(p->t, r, col, &selected);
	if (isfinite(row.paper_sparsity))
		row.sparsity_of = paper_quantities[selected ? PAPER_SPARSITY : PAPER_GROUP].name;
	return row;
}

/* Fill the measured members of a row. */
static void fill_row(const struct paper *p, const struct paper_row *r, const struct paper_known *k,
		     const struct paper_known *dense, struct row *row)
{
	row->how.clock = p->t->model ? "replay" : k->sum.traced ? "cupti" : "events";
	row->ours = ours(k, dense, r->what);
	row->ours_sparsity = paper_is_share(r->what) ? NAN : k->sparsity;
	if (dense)
		row->ours_x = speedup(k, dense, r->what);
	if (r->what == PAPER_CALL)
		row->ours_total = k->sum.core_us * 1e-3 * p->t->n_layers;
	if (r->what == PAPER_PREFILL)
		row->ours_total = 1e3 * k->whole.seconds;
	if (is_time(r->what))
		row->ratio = row->paper / row->ours;
	if (p->t->goal)
		row->goal = row->ratio >= p->t->goal ? "met" : "missed";
}

/* The row that others are compared with.  A table need not have it. */
static const struct paper_row dense_row = { .label = "Dense", .method = "dense" };

static enum ar_status run_cell(struct paper *p, const struct paper_row *r, int col,
			       struct ar_err *err)
{
	const struct paper_known *k, *dense = NULL;
	struct row row = row_of(p, r, col);
	enum ar_status st = paper_shape(p, col, &row.s, err);

	if (!st && compares_dense(r->what))
		st = paper_measured(p, &dense_row, col, &dense, err);
	if (!st)
		st = paper_measured(p, r, col, &k, err);
	if (st)
		return st;
	row.repeats = p->t->model ? 0 : bench_session_repeats(&p->session, &row.s);
	row.method = k->text;
	row.chunks = k->sum.n_chunk;
	row.samples = k->sum.n_sample;
	row.note = *k->note ? k->note : NULL;
	if (*k->why) {
		row.note = "skipped";
		row.why = k->why;
	}
	if (!p->session.a->dry_run && !*k->why)
		fill_row(p, r, k, dense, &row);
	return bench_table_put(&p->table, &row, err);
}

static enum ar_status run_table(struct paper *p, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	int n_row = 0;

	while (p->t->row[n_row].label)
		n_row++;
	/* Room for the methods of all rows, and dense, in every column. */
	p->known = calloc((size_t)(n_row + 1) * (size_t)p->t->n_column, sizeof *p->known);
	if (!p->known)
		return ar_nomem(err);
	for (int i = 0; i < n_row; i++)
		for (int c = 0; c < p->t->n_column && !st; c++)
			st = run_cell(p, &p->t->row[i], c, err);
	return st;
}

static void print_quantities(const struct paper_table *t)
{
	unsigned seen = 0;

	for (const struct paper_row *r = t->row; r->label; r++) {
		if (!(seen >> r->what & 1))
			printf("%s: %s\n", paper_quantities[r->what].name,
			       paper_quantities[r->what].text);
		seen |= 1U << r->what;
	}
}

static void print_whole(const struct paper *p)
{
	const struct paper_table *t = p->t;

	printf("%s: %s\nfigures: %s\n", t->name, t->title, t->source);
	if (t->differs)
		printf("differs: %s\n", t->differs);
	if (p->tp != t->tp)
		printf("differs: --tp %lld, the paper's is %d\n", (long long)p->tp, t->tp);
	if (p->session.capture)
		printf("input: %s, repeated where the context is longer, in every layer\n",
		       bench_session_input(&p->session));
	else
		puts("input: random, to which all tokens matter alike; use --capture");
	printf("runs: %s, every layer of one rank, by the replay of 'attnreplay run'\n",
	       p->model_name);
	print_quantities(t);
}

static void print_head(const struct paper *p, const struct bench_shape *s)
{
	const struct paper_table *t = p->t;
	int64_t n = p->session.a->sample_chunks;

	printf("%s: %s\nfigures: %s\n", t->name, t->title, t->source);
	if (t->differs)
		printf("differs: %s\n", t->differs);
	if (!p->session.capture)
		puts("differs: random inputs, whose sparsity is no model's; use --capture");
	if (p->tp != t->tp)
		printf("differs: --tp %lld, the paper's is %d\n", (long long)p->tp, t->tp);
	if (s->q_heads * p->tp != t->q_heads || s->kv_heads * p->tp != t->kv_heads ||
	    s->head_dim != t->head_dim)
		printf("differs: %lld query heads over %lld KV heads of size %lld, the paper's "
		       "model has %d over %d of %d\n",
		       (long long)(s->q_heads * p->tp), (long long)(s->kv_heads * p->tp),
		       (long long)s->head_dim, t->q_heads, t->kv_heads, t->head_dim);
	bench_session_print(&p->session, s);
	if (t->last)
		puts("chunks: the last of the prefill");
	else if (n)
		printf("chunks: at most %lld of each prefill are measured and stand for all\n",
		       (long long)n);
	else
		puts("chunks: all of each prefill");
	if (p->session.a->match)
		printf("matched: sparsity is within %.0f percentage points of the stated one\n",
		       bench_match_near);
	print_quantities(t);
	puts("ratio: the paper's time over ours; stated, sparse: blocks before the chunks that are "
	     "left out, in percent, in the paper and here");
	if (t->goal)
		printf("goal: a ratio of at least %.3g\n", t->goal);
}

/* Say once for each skipped method why. */
static void print_skipped(const struct paper *p)
{
	for (const struct paper_known *k = p->known; k < p->known + p->n_known; k++) {
		const struct paper_known *first = p->known;

		while (strcmp(first->method, k->method))
			first++;
		if (first == k && *k->why) {
			printf("skipped: ");
			text_put(k->why, stdout);
			putchar('\n');
		}
	}
}

static void list_tables(void)
{
	for (const struct paper_table *t = paper_tables; t->name; t++)
		printf("%-10s %s\n           %s\n", t->name, t->title, t->source);
}

/* Load one rank of the model, if whole models run. */
static enum ar_status load_model(struct paper *p, struct ar_err *err)
{
	const struct bench_args *a = p->session.a;
	enum ar_status st;

	if (!p->t->model)
		return a->model ? ar_fail(err, AR_USAGE,
					  "model: table %s measures one layer; leave it out",
					  p->t->name) :
				  AR_OK;
	p->model_name = a->model ? a->model : p->t->model;
	if (!*p->model_name)
		return ar_fail(err, AR_USAGE,
			       "table %s: the configuration of its model is not part of this "
			       "program; give one with --model CONFIG",
			       p->t->name);
	if (a->match)
		return ar_fail(err, AR_USAGE, "match: table %s states no sparsity; leave it out",
			       p->t->name);
	st = model_load(&p->model, p->model_name, err);
	return st ? st : model_split(&p->model, (int)p->tp, err);
}

enum ar_status bench_paper(const struct bench_args *a, struct ar_err *err)
{
	struct bench_shape s;
	struct paper p = {
		.table = { .cols = cols, .lines = a->format == FORMAT_JSON, .path = a->json }
	};
	enum ar_status st;

	if (!a->table)
		return ar_fail(err, AR_USAGE,
			       "no table given; name one with --table NAME; "
			       "'--table list' lists the tables");
	if (!strcmp(a->table, "list")) {
		list_tables();
		return AR_OK;
	}
	p.t = paper_find(a->table);
	if (!p.t)
		return ar_fail(err, AR_USAGE,
			       "unknown table '%s'; '--table list' lists the "
			       "tables",
			       a->table);
	p.tp = a->tp ? a->tp : p.t->tp;
	st = bench_session_open(&p.session, a, err);
	if (!st)
		st = load_model(&p, err);
	if (!st)
		st = paper_shape(&p, 0, &s, err);
	if (!st && !p.t->model) /* the processes of whole prefills open their own */
		st = bench_session_device(&p.session, err);
	if (!st)
		st = bench_table_open(&p.table, err);
	if (st)
		goto out;
	if (!p.table.lines && p.t->model)
		print_whole(&p);
	else if (!p.table.lines)
		print_head(&p, &s);
	bench_table_heads(&p.table);
	st = run_table(&p, err);
	if (!st && !p.table.lines)
		print_skipped(&p);
	if (!st && p.n_off)
		st = ar_fail(err, AR_CUDA,
			     "%d outputs differ from double precision: do not trust "
			     "these rows",
			     p.n_off);
out:
	st = bench_table_close(&p.table, st, err);
	bench_session_close(&p.session);
	model_release(&p.model);
	free(p.known);
	return st;
}
