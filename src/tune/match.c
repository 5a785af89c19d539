/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/tune/match.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"

/* A run whose figure is farther from the wanted one is not at it. */
#define MATCH_OFF 0.01

/* ---- the sample ---- */

/* Layers of the captures that the run reads in layers with full attention, from 0 on.  Returns
 * their number. */
static int used_layers(const struct run *r, int *layer)
{
	const struct capture_info *info = capture_info(r->in.capture[0]);
	int n = 0;

	for (int i = 0; i < r->in.prep.n_run_layers; i++) {
		int l = r->in.prep.run_layer[i], at = r->in.prep.captured_layer[l];

		if (r->in.model.layer[l].mixer == MIX_FULL &&
		    (!n || layer[n - 1] != info->layer[at]))
			layer[n++] = info->layer[at];
	}
	return n;
}

static enum ar_status choose_layers(struct match *m, const struct run *r, struct ar_err *err)
{
	int *used = malloc((size_t)r->in.prep.n_run_layers * sizeof *used), n;

	if (!used)
		return ar_nomem(err);
	n = used_layers(r, used);
	memset(m->ignore, true, sizeof m->ignore);
	for (m->n_layer = 0; m->n_layer < MATCH_LAYERS && m->n_layer < n; m->n_layer++) {
		int layer = used[match_spaced((size_t)n, MATCH_LAYERS, (size_t)m->n_layer)];

		m->layer[m->n_layer] = layer;
		m->ignore[layer] = false;
	}
	free(used);
	return AR_OK;
}

static enum ar_status choose_sample(struct match *m, const struct run *r, struct ar_err *err)
{
	enum ar_status st;

	m->in.tokens = run_longest_request(&r->in);
	m->in.n = r->in.n_capture < MATCH_CAPTURES ? r->in.n_capture : MATCH_CAPTURES;
	m->in.capture = calloc(m->in.n, sizeof(struct capture *));
	if (!m->in.capture)
		return ar_nomem(err);
	for (size_t i = 0; i < m->in.n; i++)
		m->in.capture[i] = r->in.capture[match_spaced(r->in.n_capture, MATCH_CAPTURES, i)];
	st = match_sample(&m->chunks, r, &m->in, err);
	if (st)
		return st;
	m->c = (struct tune_captures){ .in = &m->in,
				       .how = { .at = m->chunks.v,
						.n_at = m->chunks.n,
						.layers = r->in.model.n_layers,
						.rope = &r->in.model.rope,
						.ignore = m->ignore } };
	return choose_layers(m, r, err);
}

/* ---- the methods ---- */

static bool can_tune(const struct plan *p)
{
	return !plan_is_text(p->name) && !p->drop;
}

static bool is_left(const struct run *r, size_t method)
{
	for (size_t i = method; i < r->in.n_runs; i += r->in.n_methods)
		if (run_is_left(&r->session.o, i))
			return true;
	return false;
}

static enum ar_status list_methods(struct match *m, const struct run *r, struct ar_err *err)
{
	m->method = calloc(r->in.n_methods, sizeof *m->method);
	if (!m->method)
		return ar_nomem(err);
	for (size_t i = 0; i < r->in.n_methods; i++)
		if (can_tune(r->in.plan[i]) && is_left(r, i))
			m->method[m->n_tuned++] = i;
	return AR_OK;
}

/* Give all runs of a method its setting. */
static enum ar_status set_plans(struct run *r, size_t method, const char *setting,
				struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (size_t i = method; i < r->in.n_runs && !st; i += r->in.n_methods)
		st = run_set_method(r, i, setting, err);
	return st;
}

/* Where there is no header to say it. */
static void warn(const struct tune_goal *g, const struct tuned *t)
{
	if (t->how == TUNE_BEYOND || t->how == TUNE_JUMPED)
		log_warn("method '%s': no %s has %s %g; the nearest, %.6g, has %.4f", t->method,
			 t->threshold, g->target->name, g->want, t->value,
			 tune_figure(g, &t->figures));
}

static enum ar_status tune_all(struct match *m, struct run *r, struct ar_err *err)
{
	char **method = calloc(m->n_tuned, sizeof *method);
	enum ar_status st;

	m->tuned = calloc(m->n_tuned, sizeof *m->tuned);
	st = method && m->tuned ? AR_OK : ar_nomem(err);
	for (size_t i = 0; i < m->n_tuned && !st; i++)
		method[i] = r->in.method[m->method[i]];
	if (!st)
		st = tune_methods(&m->goal, &m->c, method, m->n_tuned, m->tuned, err);
	free(method);
	for (size_t i = 0; i < m->n_tuned && !st; i++) {
		st = set_plans(r, m->method[i], m->tuned[i].setting, err);
		if (!(r->session.print & RUN_PRINT_HEADER))
			warn(&m->goal, &m->tuned[i]);
	}
	tune_captures_release(&m->c);
	return st;
}

/* ---- the hook ---- */

enum ar_status match_check(const char *text, struct ar_err *err)
{
	struct tune_goal unused;

	return tune_goal_parse(&unused, text, TUNE_CAPTURES, 0, err);
}

static enum ar_status open_match(void **self, const char *text, struct ar_err *err)
{
	struct match *m = *self = calloc(1, sizeof *m);

	return m ? tune_goal_parse(&m->goal, text, TUNE_CAPTURES, 0, err) : ar_nomem(err);
}

static enum ar_status match_tune(void *self, struct run *r, struct ar_err *err)
{
	struct match *m = self;
	enum ar_status st = list_methods(m, r, err);

	if (!st)
		st = choose_sample(m, r, err);
	return !st && m->n_tuned ? tune_all(m, r, err) : st;
}

static void print(const void *self, const struct run *r)
{
	const struct match *m = self;
	const struct tune_goal *g = &m->goal;
	const struct match_chunks *c = &m->chunks;

	printf("match     %s %g within %g, on %zu of the %zu chunks of the prompts, of up to "
	       "%" PRId64 " tokens after contexts of %" PRId64 " to %" PRId64
	       ", of %zu capture%s, layers",
	       g->target->name, g->want, g->near, c->n, c->of, c->longest, c->v[0].from,
	       c->v[c->n - 1].from, m->in.n, m->in.n > 1 ? "s" : "");
	for (int i = 0; i < m->n_layer; i++)
		printf("%c%d", i ? ',' : ' ', m->layer[i]);
	putchar('\n');
	if (m->n_tuned)
		tune_print(g, m->tuned, m->n_tuned, stdout);
	for (size_t i = 0; i < r->in.n_methods; i++)
		if (!can_tune(r->in.plan[i])) {
			text_put(r->in.plan[i]->name, stdout);
			fputs(": not tuned, as it is a plan of layers or has a dropper\n", stdout);
		}
}

/* The tuned method; NULL: it was not. */
static const struct tuned *tuned_of(const struct match *m, size_t method)
{
	for (size_t k = 0; k < m->n_tuned; k++)
		if (m->method[k] == method)
			return &m->tuned[k];
	return NULL;
}

/* The figure in the samples of a run; NaN: it has none. */
static double run_figure(const struct tune_goal *g, const struct replay_result *res)
{
	const struct sample_sums *s = &res->sample[ROW_PREFILL];
	const double n = (double)s->n_heads;
	const struct tune_figures f = {
		.recall = n > 0 ? s->recall_sum / n : NAN,
		.rel_l2 = n > 0 ? s->rel_l2_sum / n : NAN,
		.executed = s->exec_total ? (double)s->exec_sel / (double)s->exec_total : NAN
	};

	return tune_figure(g, &f);
}

static void print_reached(const void *self, size_t method, const struct replay_result *res)
{
	const struct match *m = self;
	const struct tune_goal *g = &m->goal;
	const double x = run_figure(g, res);

	if (isnan(x) || !tuned_of(m, method))
		return;
	printf("match: %s %.4f in %" PRId64 " samples of the run, %g was asked for%s\n",
	       g->target->name, x, res->sample[ROW_PREFILL].n, g->want,
	       fabs(x - g->want) > MATCH_OFF ? ": it is off by more than 1 %" : "");
}

static cJSON *match_json(const void *self, size_t method, const struct replay_result *res)
{
	const struct match *m = self;
	const struct tuned *t = tuned_of(m, method);
	cJSON *o = t ? tuned_json(t) : cJSON_CreateNull();

	if (!o || !t || json_add_real(o, "reached", run_figure(&m->goal, res)))
		return o;
	cJSON_Delete(o);
	return NULL;
}

static void close_match(void *self)
{
	struct match *m = self;

	tuned_release(m->tuned, m->n_tuned);
	free(m->tuned);
	free(m->method);
	free(m->chunks.v);
	free(m->in.capture);
	free(m);
}

const struct run_tuner match_tuner = { .open = open_match,
				       .tune = match_tune,
				       .print = print,
				       .reached = print_reached,
				       .json = match_json,
				       .close = close_match };
