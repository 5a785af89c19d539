/* SPDX-License-Identifier: Apache-2.0 */
/* Settings measured on chunks of captures.  Methods with blocks of one size share a measure. */
#include "config.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "src/tune/tune.h"

/* Settings of one page size. */
struct group {
	struct plan_settings s; /* dense, then the settings of the group */
	size_t *at;		/* [n] where setting i is in s; 0 also if it is in another group */
	bool *in;		/* [n] whether setting i is in the group */
	bool any;
};

static enum ar_status add_capture(struct group *g, size_t i, const char *setting, int page_tok,
				  struct ar_err *err)
{
	struct method *m;
	enum ar_status st = method_parse(&m, setting, err);

	if (st)
		return st;
	g->in[i] = method_page_tok(m) == page_tok;
	g->any |= g->in[i];
	method_free(m);
	return g->in[i] ? plan_settings_add(&g->s, setting, &g->at[i], err) : AR_OK;
}

static enum ar_status group_init(struct group *g, char *const *setting, size_t n, int page_tok,
				 struct ar_err *err)
{
	enum ar_status st;

	*g = (struct group){ .at = calloc(n, sizeof *g->at), .in = calloc(n, sizeof *g->in) };
	st = g->at && g->in ? plan_settings_init(&g->s, "dense", err) : ar_nomem(err);
	g->s.page_tok = page_tok;
	for (size_t i = 0; i < n && !st; i++)
		st = add_capture(g, i, setting[i], page_tok, err);
	return st;
}

static void group_release(struct group *g)
{
	plan_settings_release(&g->s);
	free(g->at);
	free(g->in);
}

/* The least recall of a layer, or with sign -1 the most; NaN: there is one layer. */
static double recall_of_layers(const struct plan_table *t, size_t setting, int sign)
{
	double found = NAN;

	for (size_t l = 0; l < t->n_layer && t->n_layer > 1; l++)
		found = sign * fmin(sign * found, sign * plan_at(t, l, setting)->recall);
	return found;
}

static enum ar_status measure_captures(const struct group *g, const struct tune_captures *c,
				       struct plan_dense *dense, size_t n, struct tune_figures *out,
				       struct ar_err *err)
{
	struct plan_sample how = c->how;
	struct plan_table t;
	int *layer;
	enum ar_status st;

	how.dense = dense;
	st = plan_measure(&g->s, c->in, &how, &t, &layer, err);
	for (size_t i = 0; i < n && !st; i++) {
		struct plan_point p = plan_mean_uniform(&t, g->at[i]);

		if (g->in[i])
			out[i] = (struct tune_figures){ .recall = p.recall,
							.least = recall_of_layers(&t, g->at[i], 1),
							.most = recall_of_layers(&t, g->at[i], -1),
							.rel_l2 = p.rel_l2,
							.selected = p.selected,
							.executed = p.density,
							.logprob = NAN,
							.exact = NAN };
	}
	free(t.at);
	free(layer);
	return st;
}

enum ar_status tune_measure_captures(void *sample, char *const *setting, size_t n,
				     struct tune_figures *out, struct ar_err *err)
{
	struct tune_captures *c = sample;
	enum ar_status st = AR_OK;

	for (int i = 0; selector_blocks[i] && !st; i++) {
		struct group g;

		assert(i < TUNE_PAGE_SIZES);
		st = group_init(&g, setting, n, selector_block_tok(i), err);
		if (!st && g.any)
			st = measure_captures(&g, c, &c->dense[i], n, out, err);
		group_release(&g);
	}
	return st;
}

void tune_captures_release(struct tune_captures *c)
{
	for (int i = 0; i < TUNE_PAGE_SIZES; i++)
		plan_dense_release(&c->dense[i]);
}
