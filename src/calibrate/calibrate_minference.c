/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MInference's patterns, one for each layer and head.
 *
 * Each prompt is one chunk.  A candidate's score is the mean attention mass of its keys.  The mean
 * is over the captures and over the rows from position 'from' on.  The best candidate is written,
 * of equal ones the first.  The candidates and the default of 'from' come from the published
 * search.  Its released configurations replace every other pattern by vertical_and_slash; so does
 * 'as-published' here.
 */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "kernels/select/lastq/lastq.h"
#include "base/parallel.h"
#include "kernels/select/means/means.h"
#include "kernels/select/minference/minference.h"
#include "src/calibrate/calibrate.h"

enum { TOK = 64 };

static const struct minference rule = {
	.last = 64, .sink = 30, .local = 100, .blocks = 100, .force_diag = true
};

static const struct minference_head candidate[] = {
	{ PATTERN_SHAPE, 100, 800 }, { PATTERN_SLASH, 30, 800 },   { PATTERN_SLASH, 100, 750 },
	{ PATTERN_SLASH, 500, 700 }, { PATTERN_SLASH, 3500, 100 }, { PATTERN_BLOCK, 8, 1 },
};
enum { N_CANDIDATE = sizeof candidate / sizeof *candidate };

struct args {
	int64_t from, layers;
	bool as_published;
};

/* ---- one head ---- */

struct score {
	double mass[N_CANDIDATE];
	int64_t rows;
};

struct job { /* a layer */
	const struct args *a;
	const struct calib_layer *l;
	const float *mean;   /* of blocks of keys */
	struct score *score; /* [q_heads] */
};

struct scratch {
	struct calib_attention truth;
	float *column, *slash; /* [n] attention of the last rows, by column and by distance */
	struct top_cell *cell; /* [n] */
	int32_t *list;	       /* [N_CANDIDATE][2][n] columns and distances */
	int n_list[N_CANDIDATE][2];
	struct minference_row row;
	struct attn_band band; /* of its runs */
	float *mean;	       /* [head_dim] */
	int n;		       /* positions */
};

static enum ar_status scratch_init(struct scratch *t, const struct calib_layer *l, int h,
				   struct ar_err *err)
{
	size_t n = (size_t)l->b.rows.n_row;

	t->n = l->b.rows.n_row;
	t->column = malloc(n * sizeof *t->column);
	t->slash = malloc(n * sizeof *t->slash);
	t->cell = malloc(n * sizeof *t->cell);
	t->list = malloc(2 * N_CANDIDATE * n * sizeof *t->list);
	t->row.run = malloc((size_t)l->b.rows.n_qblk * sizeof *t->row.run);
	t->row.col = malloc(n * sizeof *t->row.col);
	t->mean = malloc((size_t)l->b.shape.head_dim * sizeof *t->mean);
	if (!t->column || !t->slash || !t->cell || !t->list || !t->row.run || !t->row.col ||
	    !t->mean)
		return ar_nomem(err);
	return calib_attention_init(&t->truth, l, h, err);
}

static void scratch_release(struct scratch *t)
{
	calib_attention_release(&t->truth);
	free(t->column);
	free(t->slash);
	free(t->cell);
	free(t->list);
	free(t->row.run);
	free(t->row.col);
	free(t->mean);
}

static int32_t *list_at(const struct scratch *t, int k, int slash)
{
	return t->list + (size_t)(2 * k + slash) * (size_t)t->n;
}

/* Pick columns and distances for each candidate from the attention of the last rows. */
static enum ar_status pick_lists(const struct job *j, int h, struct scratch *t, struct ar_err *err)
{
	enum ar_status st = lastq_ref(&j->l->b, 0, h, (int)rule.last, j->l->q, j->l->kv.k,
				      t->column, t->slash, err);

	for (int k = 0; k < N_CANDIDATE && !st; k++) {
		if (candidate[k].pattern != PATTERN_SLASH)
			continue;
		t->n_list[k][0] = minference_pick(t->column, t->n, (int)rule.sink,
						  candidate[k].vertical, t->cell, list_at(t, k, 0));
		t->n_list[k][1] = minference_pick(t->slash, t->n, (int)rule.local,
						  candidate[k].slash, t->cell, list_at(t, k, 1));
	}
	return st;
}

static void choose_pattern(const struct job *j, int h, int k, int qa, struct scratch *t)
{
	const struct minference_head *c = &candidate[k];

	t->band = minference_band(c, t->n);
	switch (c->pattern) {
	case PATTERN_SLASH:
		minference_merge(TOK, list_at(t, k, 0), t->n_list[k][0], list_at(t, k, 1),
				 t->n_list[k][1], (qa + 1) * TOK, &t->row);
		break;
	case PATTERN_SHAPE:
		t->row.n_run = ashape_runs(&t->band, &j->l->b, 0, qa, t->row.run);
		t->row.n_col = 0;
		break;
	default:
		minference_best(&j->l->b, &rule, 0, qa, h, j->l->q, j->mean, t->mean, t->cell,
				&t->row);
	}
}

/* Attention mass of the chosen keys: a sum over the probabilities x of the row at pos. */
static double held(const struct scratch *s, const float *x, int pos)
{
	const struct minference_row *row = &s->row;
	double sum = 0;

	for (int i = 0; i < row->n_run; i++)
		for (int t = row->run[i]; t < row->run[i] + TOK && t <= pos; t++)
			sum += attn_band_hides(&s->band, s->n, pos, t) ? 0 : x[t];
	for (int i = 0; i < row->n_col; i++)
		sum += x[row->col[i]];
	return sum;
}

static enum ar_status fit_head(void *ctx, int h, struct ar_err *err)
{
	const struct job *j = ctx;
	struct score *s = &j->score[h];
	struct scratch t = { 0 };
	int from = (int)j->a->from;
	enum ar_status st = scratch_init(&t, j->l, h, err);

	if (!st)
		st = pick_lists(j, h, &t, err);
	for (int qa = from / TOK; !st && qa < j->l->b.rows.n_qblk; qa++) {
		int lo = qa * TOK, hi = lo + TOK < t.n ? lo + TOK : t.n;

		calib_attention_rows(&t.truth, qa);
		for (int k = 0; k < N_CANDIDATE; k++) {
			choose_pattern(j, h, k, qa, &t);
			for (int row = lo > from ? lo : from; row < hi; row++)
				s->mass[k] += held(&t, t.truth.x + (size_t)(row - lo) * (size_t)t.n,
						   row);
		}
		if (ar_interrupted())
			st = ar_fail(err, AR_INTERRUPTED, "interrupted");
	}
	s->rows += t.n - from;
	scratch_release(&t);
	return st;
}

/* ---- layers and captures ---- */

static enum ar_status fit_layer(const void *arg, const struct calib_input *in, struct capture *c,
				int i, void *row, struct ar_err *err)
{
	struct calib_layer l = { 0 };
	struct job j = { .a = arg, .l = &l, .score = row };
	float *mean = NULL;
	enum ar_status st = calib_layer_load(&l, c, i, calib_tokens(in, c), TOK, err);

	if (st)
		return st;
	mean = malloc((size_t)l.b.rows.n_qblk * means_state_bytes(&l.b.shape));
	if (mean) {
		means_update(&l.b, l.kv.k, mean);
		j.mean = mean;
		st = parallel_each(capture_info(c)->q_heads, fit_head, &j, err);
	} else {
		st = ar_nomem(err);
	}
	free(mean);
	calib_layer_release(&l);
	return st;
}

/* [pattern, size, size, score] */
static bool add_head(cJSON *layer, int h, const struct args *a, const struct score *s)
{
	static const struct minference_head widened = { PATTERN_SLASH, 1000, 6096 };
	struct minference_head out;
	cJSON *v = cJSON_CreateArray();
	char key[16], score[32];
	int best = 0;

	for (int k = 1; k < N_CANDIDATE; k++)
		if (s->mass[k] > s->mass[best] * (1 + 1e-9)) /* no choice by rounding */
			best = k;
	out = candidate[best];
	if (a->as_published && out.pattern == PATTERN_BLOCK)
		out = widened;
	else if (a->as_published)
		out.pattern = PATTERN_SLASH;
	snprintf(key, sizeof key, "%d", h);
	snprintf(score, sizeof score, "%.4f", s->mass[best] / (double)s->rows);
	return json_add(layer, key, v) &&
	       json_add(v, NULL, cJSON_CreateString(minference_patterns[out.pattern])) &&
	       json_add_real(v, NULL, out.vertical) && json_add_real(v, NULL, out.slash) &&
	       json_add(v, NULL, cJSON_CreateRaw(score));
}

/* The captured layer nearest to l; of two as near, the lower. */
static const struct score *nearest(void *const *table, int l)
{
	for (int far = 0; far <= CAPTURE_MAX_LAYER; far++) {
		if (l - far >= 0 && l - far <= CAPTURE_MAX_LAYER && table[l - far])
			return table[l - far];
		if (l + far <= CAPTURE_MAX_LAYER && table[l + far])
			return table[l + far];
	}
	return NULL;
}

static cJSON *make_table(const void *arg, void *const *table, int q_heads)
{
	const struct args *a = arg;
	cJSON *all = cJSON_CreateArray();
	int layers = (int)a->layers;
	bool done = all;

	for (int l = 0; !a->layers && l <= CAPTURE_MAX_LAYER; l++)
		layers = table[l] ? l + 1 : layers;
	for (int l = 0; l < layers && done; l++) {
		const struct score *row = nearest(table, l);
		cJSON *layer = cJSON_CreateObject();

		done = json_add(all, NULL, layer);
		for (int h = 0; h < q_heads && done; h++)
			done = add_head(layer, h, a, &row[h]);
	}
	if (done)
		return all;
	cJSON_Delete(all);
	return NULL;
}

static enum ar_status check_minference(const struct args *a, const struct calib_input *in,
				       struct ar_err *err)
{
	for (size_t i = 0; i < in->n; i++) {
		int64_t n = calib_tokens(in, in->capture[i]);

		if (n <= a->from)
			return ar_fail(err, AR_USAGE,
				       "%s: no row to score: of %" PRId64 " tokens "
				       "none is at %" PRId64 " or later; lower --from",
				       capture_info(in->capture[i])->name, n, a->from);
	}
	return AR_OK;
}

static enum ar_status run_minference(const void *arg, const struct calib_input *in, const char *out,
				     struct ar_err *err)
{
	static const struct calib_table table = { .entry = sizeof(struct score),
						  .fit = fit_layer,
						  .make = make_table };
	enum ar_status st = check_minference(arg, in, err);

	return st ? st : calib_table(&table, arg, in, out, err);
}

#define OFF(member) offsetof(struct args, member)
/* clang-format off */
static const struct opt opts[] = {
	{ .name = "from", .type = OPT_INT, .off = OFF(from), .arg = "N", .def = "2500",
	  .max = CAPTURE_MAX_TOK, .help = "score the candidates on the rows from position N on" },
	{ .name = "layers", .type = OPT_INT, .off = OFF(layers), .arg = "N", .def = "0",
	  .max = CAPTURE_MAX_LAYER + 1,
	  .help = "write N layers; those not captured get the nearest captured layer's patterns; "
		  "0: up to the last captured" },
	{ .name = "as-published", .type = OPT_FLAG, .off = OFF(as_published), .def = "0",
	  .help = "replace every other pattern by vertical_and_slash, as the published files do" },
	{ 0 }
};
/* clang-format on */

const struct calibrator calibrate_minference = {
	.name = "minference",
	.title = "a pattern for each layer and head, for the parameter pattern",
	.opts = opts,
	.arg_size = sizeof(struct args),
	.run = run_minference,
};
