/* SPDX-License-Identifier: Apache-2.0 */
/* Measurements for a published table, at the sparsity that it states. */
#include "config.h"
#include "src/bench/bench_paper.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum ar_status paper_shape(const struct paper *p, int col, struct bench_shape *s,
			   struct ar_err *err)
{
	const struct paper_table *t = p->t;
	const struct layer_spec *l = t->model ? model_attention(&p->model) : NULL;

	*s = (struct bench_shape){ .q_heads = t->q_heads,
				   .kv_heads = t->kv_heads,
				   .head_dim = t->head_dim,
				   .batch = t->column[col].batch,
				   .chunk = t->column[col].chunk,
				   .context = t->column[col].context };
	if (l) {
		s->q_heads = l->q_heads;
		s->kv_heads = l->kv_heads;
		s->head_dim = l->head_dim;
		return AR_OK;
	}
	return bench_session_heads(&p->session, p->tp, s, err);
}

static void add_note(struct paper_known *k, const char *text)
{
	size_t n = strlen(k->note);

	snprintf(k->note + n, sizeof k->note - n, "%s%s", n ? "; " : "", text);
}

/* Set k->text, the method to run: that of --use, else a stand-in, else the row's own. */
static enum ar_status choose_method(const struct paper *p, const struct paper_row *r,
				    struct paper_known *k, struct ar_err *err)
{
	const char *use = bench_session_method(&p->session, r->method);
	const struct paper_method *m = paper_method(r->method);

	if (use == r->method && m && m->instead) {
		use = m->instead;
		add_note(k, m->reason);
	}
	if ((size_t)snprintf(k->text, sizeof k->text, "%s", use) < sizeof k->text)
		return AR_OK;
	return ar_fail(err, AR_USAGE, "--use %.40s...: longer than %zu characters", use,
		       sizeof k->text - 1);
}

/* Replace copies and attention of sum by the ones of x, which attends to random blocks. */
static void replace_attention(struct bench_sum *sum, const struct bench_sum *x)
{
	static const enum bench_part part[] = { BENCH_PART_COPY, BENCH_PART_ATTEND };

	for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
		sum->core_us += x->us[part[i]] - sum->us[part[i]];
		sum->us[part[i]] = x->us[part[i]];
	}
	sum->count = x->count;
	sum->traced &= x->traced;
	sum->off |= x->off;
}

/* For a method that cannot be matched: measure attention over random blocks. */
static enum ar_status run_random(struct paper *p, const struct bench_shape *s,
				 struct bench_chunks chunks, struct bench_goal goal,
				 struct paper_known *k, struct ar_err *err)
{
	char text[BENCH_MATCH_TEXT], note[64];
	struct bench_sum x;
	enum ar_status st = bench_match_random(k->text, goal, text, err);

	if (st == AR_USAGE) {
		add_note(k, "not matched");
		return AR_OK;
	}
	if (!st)
		st = bench_session_run(&p->session, text, s, chunks, &x, err);
	if (st)
		return st;
	replace_attention(&k->sum, &x);
	snprintf(note, sizeof note, "attends to random blocks, %.4g %% left out", goal.sparsity);
	add_note(k, note);
	return AR_OK;
}

/* Tune k->text to the stated sparsity: over the whole prefill, or over its last chunk if the table
 * states one for all rows.  A prompt of one chunk has no blocks before it; there tune a prefill in
 * the chunks of the last column. */
static enum ar_status match_sparsity(struct paper *p, const struct bench_shape *s,
				     struct bench_goal goal, struct paper_known *k,
				     struct bench_match *m, struct ar_err *err)
{
	bool one = s->chunk == s->context;
	const struct bench_chunks chunks = { p->t->sparsity && !one,
					     (int)p->session.a->sample_chunks };
	struct bench_shape over = *s;
	char note[64];
	enum ar_status st;

	if (one)
		over.chunk = p->t->column[p->t->n_column - 1].chunk;
	st = bench_session_match(&p->session, k->text, &over, chunks, goal, m, err);
	if (st || m->how == BENCH_MATCH_NONE)
		return st;
	snprintf(k->text, sizeof k->text, "%s", m->method);
	k->sparsity = m->sparsity;
	if (m->how == BENCH_MATCH_STATED) {
		add_note(k, "matches as stated");
		return AR_OK;
	}
	snprintf(note, sizeof note, "matched by %s=%.4g", m->threshold, m->value);
	add_note(k, note);
	return AR_OK;
}

bool paper_is_share(enum paper_quantity what)
{
	return !strcmp(paper_quantities[what].unit, "%");
}

/* Only times are measured at a matched sparsity.  Shares are not: the table compares them. */
static bool is_matched(const struct paper *p, const struct paper_row *r)
{
	return p->session.a->match && p->session.device && !paper_is_share(r->what);
}

/* The token budget of an iteration: prompts share it, unless they are cut into chunks. */
static int64_t budget_of(const struct paper_column *c)
{
	const int64_t most = 128 << 10;
	int64_t all = c->batch * c->context;

	if (c->chunk < c->context)
		return c->chunk;
	return all < most ? all : c->context > most ? c->context : most;
}

/* Run whole prefills.  In a dry run nothing. */
static enum ar_status measure_whole(struct paper *p, const struct paper_row *r,
				    struct paper_known *k, struct ar_err *err)
{
	const struct paper_column *c = &p->t->column[k->col];
	const struct bench_args *a = p->session.a;
	const struct bench_whole w = { .model = p->model_name,
				       .tp = p->tp,
				       .batch = c->batch,
				       .context = c->context,
				       .budget = budget_of(c),
				       .capture = a->capture,
				       .seed = a->seed,
				       .device = a->device };
	enum ar_status st = choose_method(p, r, k, err);

	if (!st && !a->dry_run)
		st = bench_whole_run(&w, k->text, &k->whole, err);
	k->sum.n_chunk = (int)((c->context + c->chunk - 1) / c->chunk);
	k->sum.refused = st == AR_USAGE || st == AR_DATA;
	return st;
}

static enum ar_status measure_method(struct paper *p, const struct paper_row *r,
				     struct paper_known *k, struct ar_err *err)
{
	const struct bench_chunks chunks = { p->t->last, (int)p->session.a->sample_chunks };
	struct bench_match m = { .how = BENCH_MATCH_STATED };
	struct bench_goal goal;
	struct bench_shape s;
	enum ar_status st = p->t->model ? AR_OK : paper_shape(p, k->col, &s, err);

	if (p->t->model)
		return measure_whole(p, r, k, err);
	if (st)
		return st;
	goal.sparsity = paper_sparsity(p->t, r, k->col, &goal.selected);
	goal.selected = goal.selected && isfinite(goal.sparsity);
	st = choose_method(p, r, k, err);
	if (!st && is_matched(p, r) && isfinite(goal.sparsity))
		st = match_sparsity(p, &s, goal, k, &m, err);
	if (st) {
		k->sum.refused = st == AR_USAGE || st == AR_DATA;
		return st;
	}
	st = bench_session_run(&p->session, k->text, &s, chunks, &k->sum, err);
	if (!st && m.how == BENCH_MATCH_NONE)
		st = run_random(p, &s, chunks, goal, k, err);
	if (!st && isnan(k->sparsity))
		k->sparsity = bench_sparsity(&k->sum.count, goal.selected);
	return st;
}

enum ar_status paper_measured(struct paper *p, const struct paper_row *r, int col,
			      const struct paper_known **out, struct ar_err *err)
{
	struct paper_known *k = p->known, *end = k + p->n_known;
	struct ar_err own = { 0 };
	enum ar_status st;

	while (k < end && (strcmp(k->method, r->method) || k->col != col))
		k++;
	*out = k;
	if (k < end)
		return AR_OK;
	*k = (struct paper_known){ .method = r->method, .col = col, .sparsity = NAN };
	st = measure_method(p, r, k, &own);
	if (st && !k->sum.refused)
		return ar_fail(err, st, "%s, context %lld: %s", r->method,
			       (long long)p->t->column[col].context, own.msg);
	p->n_off += !st && k->sum.off;
	if (st)
		snprintf(k->why, sizeof k->why, "%.255s", own.msg);
	p->n_known++;
	return AR_OK;
}
