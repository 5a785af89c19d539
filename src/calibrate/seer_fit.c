/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/calibrate/seer_fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "kernels/prim/multiply.h"
#include "kernels/select/seer/seer.h"

#define PI 3.14159265358979323846

/* ---- prompts ---- */

static int blocks_of(const struct calib_layer *l)
{
	return l->b.keys.max_kv_blk;
}

static void pool_block(struct seer_fit_seq *s, const struct calib_layer *l, int head, int j,
		       const float *inv)
{
	const struct attn_shape *a = &l->b.shape;
	int dim = a->head_dim, tok = a->page_tok, pos = j * tok;
	int n = l->b.rows.n_row - pos < tok ? l->b.rows.n_row - pos : tok;
	size_t at = (size_t)j * (size_t)a->kv_heads + (size_t)(head / (a->q_heads / a->kv_heads));
	float *f = s->f + (size_t)j * (size_t)(SEER_POOLS * dim);
	float *u = s->u + (size_t)j * (size_t)dim;

	seer_pool(l->kv.k + at * (size_t)(tok * dim), (size_t)dim, n, pos, inv, dim, f, f + dim,
		  f + 2 * dim);
	seer_pool(l->q + ((size_t)pos * (size_t)a->q_heads + (size_t)head) * (size_t)dim,
		  (size_t)(a->q_heads * dim), n, pos, inv, dim, NULL, NULL, u);
	seer_turn(pos, inv, dim, u);
	for (int i = 0; i < dim / 2; i++) {
		float *cs = s->trig + (size_t)(j * dim + 2 * i);
		double angle = (double)((float)pos * inv[i]);

		cs[0] = bf16_round((float)cos(angle));
		cs[1] = bf16_round((float)sin(angle));
	}
}

/* Row i of the targets. */
static void target_row(struct seer_fit_seq *s, struct calib_attention *a, int i)
{
	int tok = a->l->b.shape.page_tok, rows = a->l->b.rows.n_row, lo = i * tok;
	int hi = lo + tok < rows ? lo + tok : rows;
	float *t = s->t + (size_t)i * (size_t)s->n;
	double sum = 0;

	calib_attention_rows(a, i);
	for (int row = lo; row < hi; row++) {
		const float *x = a->x + (size_t)(row - lo) * (size_t)rows;

		for (int k = 0; k <= row; k++)
			t[k / tok] = fmaxf(t[k / tok], x[k]);
	}
	for (int j = 0; j <= i; j++)
		sum += t[j];
	for (int j = 0; j <= i; j++)
		t[j] = (float)(t[j] / sum);
}

enum ar_status seer_fit_seq_init(struct seer_fit_seq *s, const struct calib_layer *l, int head,
				 const float *inv, struct ar_err *err)
{
	size_t n = (size_t)blocks_of(l), dim = (size_t)l->b.shape.head_dim;
	struct calib_attention a = { 0 };
	enum ar_status st;

	*s = (struct seer_fit_seq){ .n = (int)n, .dim = (int)dim };
	s->f = malloc(n * SEER_POOLS * dim * sizeof *s->f);
	s->u = malloc(n * dim * sizeof *s->u);
	s->t = calloc(n * n, sizeof *s->t);
	s->trig = malloc(n * dim * sizeof *s->trig);
	st = s->f && s->u && s->t && s->trig ? calib_attention_init(&a, l, head, err) :
					       ar_nomem(err);
	for (int j = 0; !st && j < s->n; j++) {
		pool_block(s, l, head, j, inv);
		target_row(s, &a, j);
		if (ar_interrupted())
			st = ar_fail(err, AR_INTERRUPTED, "interrupted");
	}
	calib_attention_release(&a);
	if (st)
		seer_fit_seq_release(s);
	return st;
}

void seer_fit_seq_release(struct seer_fit_seq *s)
{
	free(s->f);
	free(s->u);
	free(s->t);
	free(s->trig);
	*s = (struct seer_fit_seq){ 0 };
}

/* ---- loss and gradient ---- */

/* Rotate x by a block's angles; sign -1: rotate back. */
static void rotate_block(const float *trig, int dim, float sign, float *x)
{
	int half = dim / 2;

	for (int i = 0; i < half; i++) {
		float lo = x[i], hi = x[i + half], c = trig[2 * i], s = trig[2 * i + 1] * sign;

		x[i] = lo * c - hi * s;
		x[i + half] = hi * c + lo * s;
	}
}

/* y = x w, w: [in][out]. */
static void multiply_row(const float *restrict x, const float *restrict w, int in, int out,
			 float *restrict y)
{
	memset(y, 0, (size_t)out * sizeof *y);
	for (int i = 0; i < in; i++, w += out)
		multiply_add(y, x[i], w, out);
}

/* w += x y^T */
static void add_outer(const float *restrict x, const float *restrict y, int in, int out,
		      float *restrict w)
{
	for (int i = 0; i < in; i++, w += out)
		multiply_add(w, x[i], y, out);
}

/* Returns the divergence of row i, and adds its part to each key's gradient.  g: room
 * for i + 1. */
static double add_row(const struct seer_fit_seq *s, int i, const float *key, float *g,
		      float *key_grad)
{
	const float *u = s->u + (size_t)i * (size_t)s->dim, *t = s->t + (size_t)i * (size_t)s->n;
	float scale = 1 / sqrtf((float)s->dim), max = -INFINITY;
	double sum = 0, loss = 0;

	for (int j = 0; j <= i; j++) {
		float dot = 0;

		for (int d = 0; d < s->dim; d++)
			dot += u[d] * key[j * s->dim + d];
		g[j] = dot * scale;
		max = fmaxf(max, g[j]);
	}
	for (int j = 0; j <= i; j++)
		sum += exp((double)(g[j] - max));
	for (int j = 0; j <= i; j++) {
		double log_a = g[j] - max - log(sum);

		if (t[j] > 0)
			loss += t[j] * (log((double)t[j]) - log_a);
		g[j] = ((float)exp(log_a) - t[j]) * scale;
	}
	for (int j = 0; key_grad && j <= i; j++)
		multiply_add(key_grad + j * s->dim, g[j], u, s->dim);
	return loss;
}

enum ar_status seer_fit_loss(const struct seer_fit_seq *s, const float *w, double *loss,
			     float *grad, struct ar_err *err)
{
	size_t n = (size_t)s->n, dim = (size_t)s->dim;
	int in = SEER_POOLS * s->dim, first = s->n / 4, rows = s->n - first;
	float *key = malloc(n * dim * sizeof *key), *key_grad = calloc(n * dim, sizeof *key_grad);
	float *g = malloc(n * sizeof *g);
	enum ar_status st = key && key_grad && g ? AR_OK : ar_nomem(err);
	double sum = 0;

	if (st)
		goto out;
	for (size_t j = 0; j < n; j++) {
		multiply_row(s->f + j * (size_t)in, w, in, s->dim, key + j * dim);
		rotate_block(s->trig + j * dim, s->dim, 1, key + j * dim);
	}
	for (int i = first; i < s->n; i++)
		sum += add_row(s, i, key, g, grad ? key_grad : NULL);
	*loss = sum / rows;
	if (!grad)
		goto out;
	memset(grad, 0, (size_t)in * dim * sizeof *grad);
	for (size_t j = 0; j < n; j++) {
		float *x = key_grad + j * dim;

		rotate_block(s->trig + j * dim, s->dim, -1, x);
		for (size_t d = 0; d < dim; d++)
			x[d] /= (float)rows;
		add_outer(s->f + j * (size_t)in, x, in, s->dim, grad);
	}
out:
	free(key);
	free(key_grad);
	free(g);
	return st;
}

/* ---- steps ---- */

enum { WARM_UP = 20 };

struct adam {
	float *grad, *mean, *square; /* [n] */
	size_t n;
};

/* Share of the full rate at step k of n, counted from 0. */
static double rate_at(int k, int n)
{
	double rise = k < WARM_UP ? (k + 1.0) / WARM_UP : 1;

	return rise * 0.5 * (1 + cos(PI * k / n));
}

static void adam_step(struct adam *a, int k, double rate, float *w)
{
	const float keep1 = 0.9f, keep2 = 0.999f;
	float bias1 = (float)(1 - pow(0.9, k + 1)), bias2 = (float)(1 - pow(0.999, k + 1));

	for (size_t i = 0; i < a->n; i++) {
		float g = a->grad[i];

		a->mean[i] = keep1 * a->mean[i] + (1 - keep1) * g;
		a->square[i] = keep2 * a->square[i] + (1 - keep2) * g * g;
		w[i] -= (float)rate * (a->mean[i] / bias1) / (sqrtf(a->square[i] / bias2) + 1e-8f);
	}
}

static enum ar_status mean_loss(const struct seer_fit *fit, const float *w, double *loss,
				struct ar_err *err)
{
	enum ar_status st = AR_OK;
	double sum = 0, one = 0;

	for (size_t i = 0; !st && i < fit->n_seq; i++) {
		st = seer_fit_loss(&fit->seq[i], w, &one, NULL, err);
		sum += one;
	}
	*loss = sum / (double)fit->n_seq;
	return st;
}

static enum ar_status descend(const struct seer_fit *fit, struct adam *a, float *w,
			      struct ar_err *err)
{
	enum ar_status st = AR_OK;
	double loss;

	for (int k = 0; !st && k < fit->steps; k++) {
		st = seer_fit_loss(&fit->seq[(size_t)k % fit->n_seq], w, &loss, a->grad, err);
		if (!st)
			adam_step(a, k, fit->rate * rate_at(k, fit->steps), w);
		if (!st && ar_interrupted())
			st = ar_fail(err, AR_INTERRUPTED, "interrupted");
	}
	return st;
}

enum ar_status seer_fit_run(const struct seer_fit *fit, float *w, double *before, double *after,
			    struct ar_err *err)
{
	size_t dim = (size_t)fit->seq->dim, n = SEER_POOLS * dim * dim;
	struct adam a = { malloc(n * sizeof(float)), calloc(n, sizeof(float)),
			  calloc(n, sizeof(float)), n };
	struct rng rng = { fit->seed };
	enum ar_status st = a.grad && a.mean && a.square ? AR_OK : ar_nomem(err);

	for (size_t i = 0; i < n; i++)
		w[i] = 0.02f * rng_normal(&rng);
	if (!st)
		st = mean_loss(fit, w, before, err);
	if (!st)
		st = descend(fit, &a, w, err);
	if (!st)
		st = mean_loss(fit, w, after, err);
	free(a.grad);
	free(a.mean);
	free(a.square);
	return st;
}
