/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scores of KV heads for DuoAttention, by what a head loses where it sees the first and the last
 * tokens alone.  They are no trained gates.
 *
 * The score of a KV head is the relative L2 error of its query heads' outputs, the mean over rows
 * and captures, cut to [0, 1]: heads that lose the most are to see everything.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/parallel.h"
#include "kernels/select/pieces.h"
#include "src/calibrate/calibrate.h"

struct args {
	int64_t sink, recent, rows, layers;
};

/* Of a query head in a layer: the sum of errors, and of how many rows. */
struct loss {
	double sum;
	int64_t n;
};

/* ---- a row ---- */

struct desk {
	float *logit; /* [n_row] */
	double *out;  /* [2][head_dim]: over all keys, over those that a streaming head sees */
};

/* Add the value at v, weighted. */
static void add(double *out, const bf16_t *v, int dim, double weight)
{
	for (int d = 0; d < dim; d++)
		out[d] += weight * (double)bf16_to_f32(v[d]);
}

/* The relative L2 error of query head h in row t. */
static double row_loss(const struct args *a, const struct calib_layer *l, int h, int t,
		       struct desk *x)
{
	const struct attn_shape *s = &l->b.shape;
	const bf16_t *q = l->q + ((size_t)t * (size_t)s->q_heads + (size_t)h) * (size_t)s->head_dim;
	int kv = h / (s->q_heads / s->kv_heads), dim = s->head_dim;
	double sum = 0, near = 0, off = 0, size = 0;
	float max = -INFINITY;

	for (int i = 0; i <= t; i++) {
		x->logit[i] = bf16_dot(q, l->kv.k + pieces_key(&l->b, 0, kv, i), dim) /
			      sqrtf((float)dim);
		max = fmaxf(max, x->logit[i]);
	}
	memset(x->out, 0, 2 * (size_t)dim * sizeof *x->out);
	for (int i = 0; i <= t; i++) {
		const bf16_t *v = l->kv.v + pieces_key(&l->b, 0, kv, i);
		double w = exp((double)(x->logit[i] - max));
		bool streams = i < a->sink || i > t - a->recent;

		sum += w;
		add(x->out, v, dim, w);
		near += streams ? w : 0;
		add(x->out + dim, v, dim, streams ? w : 0);
	}
	for (int d = 0; d < dim; d++) {
		double all = x->out[d] / sum, own = near > 0 ? x->out[dim + d] / near : 0;

		off += (own - all) * (own - all);
		size += all * all;
	}
	return size > 0 ? sqrt(off / size) : 0;
}

/* ---- layers and captures ---- */

struct job { /* a layer */
	const struct args *a;
	const struct calib_layer *l;
	struct loss *row; /* [q_heads] */
};

/* Rows are evenly spaced; the last is the last one.  The first have nothing to lose. */
static enum ar_status fit_head(void *ctx, int h, struct ar_err *err)
{
	const struct job *j = ctx;
	int64_t n = j->l->b.rows.n_row, first = j->a->sink + j->a->recent;
	int64_t rows = j->a->rows < n - first ? j->a->rows : n - first;
	struct desk x = { malloc((size_t)n * sizeof *x.logit),
			  malloc(2 * (size_t)j->l->b.shape.head_dim * sizeof *x.out) };
	enum ar_status st = x.logit && x.out ? AR_OK : ar_nomem(err);

	for (int64_t i = 1; i <= rows && !st; i++) {
		int t = (int)(first + (n - first) * i / rows - 1);

		j->row[h].sum += row_loss(j->a, j->l, h, t, &x);
		j->row[h].n++;
		if (ar_interrupted())
			st = ar_fail(err, AR_INTERRUPTED, "interrupted");
	}
	free(x.logit);
	free(x.out);
	return st;
}

static enum ar_status fit_layer(const void *arg, const struct calib_input *in, struct capture *c,
				int i, void *row, struct ar_err *err)
{
	struct calib_layer l;
	struct job j = { .a = arg, .l = &l, .row = row };
	enum ar_status st = calib_layer_load(&l, c, i, calib_tokens(in, c), 128, err);

	if (!st)
		st = parallel_each(capture_info(c)->q_heads, fit_head, &j, err);
	calib_layer_release(&l);
	return st;
}

/* ---- the file ---- */

/* The captured layer that is nearest to a layer, the lower of two. */
static const struct loss *nearest(void *const *table, int layer)
{
	for (int far = 0;; far++) {
		if (layer - far >= 0 && table[layer - far])
			return table[layer - far];
		if (layer + far <= CAPTURE_MAX_LAYER && table[layer + far])
			return table[layer + far];
	}
}

static int last_layer(void *const *table)
{
	int last = CAPTURE_MAX_LAYER;

	while (!table[last])
		last--;
	return last;
}

static double score(const struct loss *row, int group)
{
	double sum = 0;

	for (int i = 0; i < group; i++)
		sum += row[i].sum / (double)row[i].n / group;
	return fmin(sum, 1);
}

static enum ar_status put_scores(const void *arg, void *const *table,
				 const struct capture_info *info, FILE *f, struct ar_err *err)
{
	const struct args *a = arg;
	int last = last_layer(table), group = info->q_heads / info->kv_heads;

	if (a->layers && a->layers <= last)
		return ar_fail(err, AR_USAGE,
			       "layers '%lld': a capture has layer %d; give the number of layers "
			       "of its model",
			       (long long)a->layers, last);
	for (int l = 0; l < (a->layers ? (int)a->layers : last + 1); l++)
		for (int h = 0; h < info->kv_heads; h++)
			fprintf(f, "%.6f%c", score(nearest(table, l) + h * group, group),
				h + 1 < info->kv_heads ? '\t' : '\n');
	return AR_OK;
}

/* Each capture needs a row that loses keys. */
static enum ar_status check_length(const struct args *a, const struct calib_input *in,
				   struct ar_err *err)
{
	for (size_t c = 0; c < in->n; c++)
		if (calib_tokens(in, in->capture[c]) <= a->sink + a->recent)
			return ar_fail(err, AR_DATA,
				       "%s: %lld tokens, all of which heads with %lld first and "
				       "%lld last ones see; take longer captures, or lower --sink "
				       "and --recent",
				       capture_info(in->capture[c])->name,
				       (long long)calib_tokens(in, in->capture[c]),
				       (long long)a->sink, (long long)a->recent);
	return AR_OK;
}

static enum ar_status run_duo(const void *arg, const struct calib_input *in, const char *out,
			      struct ar_err *err)
{
	static const struct calib_table table = { .entry = sizeof(struct loss),
						  .fit = fit_layer,
						  .put = put_scores };
	enum ar_status st = check_length(arg, in, err);

	return st ? st : calib_table(&table, arg, in, out, err);
}

#define OFF(member) offsetof(struct args, member)
/* clang-format off */
static const struct opt opts[] = {
	{ .name = "sink", .type = OPT_INT, .off = OFF(sink), .arg = "N", .def = "128",
	  .max = 1 << 29, .help = "heads that stream see the first N tokens" },
	{ .name = "recent", .type = OPT_INT, .off = OFF(recent), .arg = "N", .def = "256",
	  .min = 1, .max = 1 << 29,
	  .help = "heads that stream see the last N tokens up to the row's own" },
	{ .name = "rows", .type = OPT_INT, .off = OFF(rows), .arg = "N", .def = "64", .min = 1,
	  .max = 1 << 24, .help = "compare N rows of each capture, evenly spaced" },
	{ .name = "layers", .type = OPT_INT, .off = OFF(layers), .arg = "N", .def = "0",
	  .max = CAPTURE_MAX_LAYER + 1,
	  .help = "layers of the model, 0: up to the last that a capture has" },
	{ 0 }
};
/* clang-format on */

const struct calibrator calibrate_duo = {
	.name = "duo",
	.title = "scores of KV heads, for the parameter file",
	.opts = opts,
	.arg_size = sizeof(struct args),
	.run = run_duo,
};
