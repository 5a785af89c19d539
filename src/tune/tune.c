/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The searches of all methods go on side by side: each step measures one value of each threshold.
 * So a step reads a sample, and computes its dense attention, once for all methods.
 */
#include "config.h"
#include "src/tune/tune.h"

#include <stdlib.h>
#include <string.h>

#include "src/tune/threshold.h"

struct search {
	struct tuned *out;
	struct threshold t; /* if out->threshold is not NULL */
	char *setting;	    /* of this step; NULL: none */
	bool ended;
};

struct step {
	struct search *search; /* [n] */
	size_t n;
	/* [n_now] the searches that go on, their settings and the measured figures. */
	struct search **now;
	char **setting;
	struct tune_figures *figures;
	size_t n_now;
};

/* The text of a method with key=value at the end.  The caller frees it; NULL: no memory. */
static char *spell(const char *method, const char *key, double value)
{
	size_t n = method_spell_with(NULL, 0, method, key, value) + 1;
	char *text = malloc(n);

	if (text)
		method_spell_with(text, n, method, key, value);
	return text;
}

/* Of one method for all layers, without a dropper, else NULL.  Captures tell of such methods
 * alone. */
static enum ar_status find_threshold(const char *text, enum tune_sample sample, bool *whole,
				     const struct opt **threshold, struct ar_err *err)
{
	struct method *m = NULL;
	struct plan *p = NULL;
	enum ar_status st = sample == TUNE_CAPTURES ? method_parse(&m, text, err) :
						      plan_parse(&p, text, err);

	if (st)
		return st;
	*whole = !plan_is_text(text) && !(p && p->drop);
	*threshold = *whole ? method_threshold(p ? plan_single(p) : m) : NULL;
	plan_free(p);
	method_free(m);
	return AR_OK;
}

static enum ar_status tune_begin(struct search *s, const struct tune_goal *g, struct tuned *out,
				 const char *method, struct ar_err *err)
{
	const struct opt *threshold;
	bool whole;
	enum ar_status st = find_threshold(method, g->target->sample, &whole, &threshold, err);

	if (st)
		return st;
	*s = (struct search){ .out = out };
	*out = (struct tuned){ .method = method, .how = TUNE_FIXED };
	if (!whole || (threshold && plan_setting_states(method, threshold->name))) {
		out->how = TUNE_GIVEN;
	} else if (threshold) {
		out->threshold = threshold->name;
		threshold_init(&s->t, threshold->min, threshold->max, g->want, g->near);
		s->t.least = g->target->least;
	}
	return AR_OK;
}

/* Set the setting to measure next, if there is one. */
static enum ar_status propose(struct search *s, struct ar_err *err)
{
	const struct tuned *out = s->out;
	double value;

	if (s->ended || (out->threshold && !threshold_next(&s->t, &value))) {
		s->ended = true;
		return AR_OK;
	}
	s->setting = out->threshold ? spell(out->method, out->threshold, value) :
				      strdup(out->method);
	return s->setting ? AR_OK : ar_nomem(err);
}

/* Take the figures of the setting, and the setting too if it is the best so far. */
static void take_figures(struct search *s, const struct tune_goal *g, const struct tune_figures *f)
{
	struct tuned *out = s->out;
	bool best = true;

	if (out->threshold) {
		threshold_tell(&s->t, tune_figure(g, f), f->executed);
		best = s->t.best.value == s->t.asked;
	}
	out->steps++;
	s->ended = !out->threshold;
	if (!best)
		return;
	free(out->setting);
	out->setting = s->setting;
	s->setting = NULL;
	out->figures = *f;
}

static void tune_end(struct search *s)
{
	struct tuned *out = s->out;

	if (!out->threshold)
		return;
	out->value = s->t.best.value;
	out->bends = s->t.bends;
	out->how = threshold_reached(&s->t) ? TUNE_REACHED :
		   threshold_beyond(&s->t)  ? TUNE_BEYOND :
					      TUNE_JUMPED;
}

/* Measure a value of each search that goes on. */
static enum ar_status take_step(struct step *x, const struct tune_goal *g, void *sample,
				struct ar_err *err)
{
	enum ar_status st = AR_OK;

	x->n_now = 0;
	for (size_t i = 0; i < x->n && !st; i++) {
		struct search *s = &x->search[i];

		st = propose(s, err);
		if (s->setting) {
			x->now[x->n_now] = s;
			x->setting[x->n_now++] = s->setting;
		}
	}
	if (!st && x->n_now)
		st = g->target->measure(sample, x->setting, x->n_now, x->figures, err);
	for (size_t i = 0; i < x->n_now; i++) {
		if (!st)
			take_figures(x->now[i], g, &x->figures[i]);
		free(x->now[i]->setting);
		x->now[i]->setting = NULL;
	}
	return st;
}

static void step_release(struct step *x)
{
	free(x->search);
	free(x->now);
	free(x->setting);
	free(x->figures);
}

enum ar_status tune_methods(const struct tune_goal *g, void *sample, char *const *method, size_t n,
			    struct tuned *out, struct ar_err *err)
{
	struct step x = { .search = calloc(n, sizeof *x.search),
			  .n = n,
			  .now = calloc(n, sizeof *x.now),
			  .setting = calloc(n, sizeof *x.setting),
			  .figures = calloc(n, sizeof *x.figures),
			  .n_now = 1 };
	enum ar_status st = AR_OK;

	memset(out, 0, n * sizeof *out);
	if (!x.search || !x.now || !x.setting || !x.figures)
		st = ar_nomem(err);
	for (size_t i = 0; i < n && !st; i++)
		st = tune_begin(&x.search[i], g, &out[i], method[i], err);
	while (!st && x.n_now)
		st = take_step(&x, g, sample, err);
	for (size_t i = 0; i < n && !st; i++)
		tune_end(&x.search[i]);
	step_release(&x);
	return st;
}

void tuned_release(struct tuned *t, size_t n)
{
	for (size_t i = 0; t && i < n; i++)
		free(t[i].setting);
}
