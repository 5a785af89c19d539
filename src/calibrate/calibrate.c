/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the calibrations: layers of captures, and their attention. */
#include "config.h"
#include "src/calibrate/calibrate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/binfile.h"
#include "base/json.h"
#include "base/log.h"
#include "kernels/layer/layer.h"
#include "kernels/prim/multiply.h"
#include "model/rope.h"

/* ---- captures ---- */

/* All captures must come from one model, since the file written serves one model. */
static enum ar_status check_same(const struct capture_info *a, const struct capture_info *b,
				 struct ar_err *err)
{
	if (a->q_heads == b->q_heads && a->kv_heads == b->kv_heads && a->head_dim == b->head_dim)
		return AR_OK;
	return ar_fail(err, AR_DATA,
		       "%s has %d query heads over %d KV heads of size %d, %s has "
		       "%d over %d of size %d; give captures of one model",
		       b->name, b->q_heads, b->kv_heads, b->head_dim, a->name, a->q_heads,
		       a->kv_heads, a->head_dim);
}

enum ar_status calib_open(struct calib_input *in, const struct opt_list *path, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	in->capture = calloc(path->n, sizeof(struct capture *));
	if (!in->capture)
		return ar_nomem(err);
	for (; !st && in->n < path->n; in->n += !st) {
		st = capture_open(&in->capture[in->n], path->v[in->n], err);
		if (!st && in->n)
			st = check_same(capture_info(*in->capture),
					capture_info(in->capture[in->n]), err);
		if (st)
			capture_close(in->capture[in->n]);
	}
	return st;
}

void calib_close(struct calib_input *in)
{
	for (size_t i = 0; i < in->n; i++)
		capture_close(in->capture[i]);
	free(in->capture);
	*in = (struct calib_input){ 0 };
}

int64_t calib_tokens(const struct calib_input *in, const struct capture *c)
{
	int64_t n = capture_info(c)->n_tok;

	return in->tokens && in->tokens < n ? in->tokens : n;
}

/* ---- tables ---- */

static enum ar_status fit_all(const struct calib_table *t, const void *arg,
			      const struct calib_input *in, void **table, struct ar_err *err)
{
	unsigned long done = 0, total = 0;
	enum ar_status st = AR_OK;

	for (size_t c = 0; c < in->n; c++)
		total += (unsigned long)capture_info(in->capture[c])->n_layers;
	for (size_t c = 0; !st && c < in->n; c++) {
		const struct capture_info *info = capture_info(in->capture[c]);

		for (int i = 0; !st && i < info->n_layers; i++) {
			void **row = &table[info->layer[i]];

			progress("layers", done++, total);
			if (!*row)
				*row = calloc((size_t)info->q_heads, t->entry);
			st = *row ? t->fit(arg, in, in->capture[c], i, *row, err) : ar_nomem(err);
		}
	}
	progress_end();
	return st;
}

enum ar_status calib_table(const struct calib_table *t, const void *arg,
			   const struct calib_input *in, const char *out, struct ar_err *err)
{
	const struct capture_info *info = capture_info(*in->capture);
	void **table = calloc(CAPTURE_MAX_LAYER + 1, sizeof *table);
	struct outfile f;
	enum ar_status st = table ? fit_all(t, arg, in, table, err) : ar_nomem(err);

	if (!st)
		st = outfile_open(&f, out, err);
	if (!st) {
		st = t->put ? t->put(arg, table, info, f.f, err) :
			      json_put_lines(t->make(arg, table, info->q_heads), f.f, err);
		if (!st)
			st = outfile_commit(&f, err);
		outfile_release(&f);
	}
	for (int l = 0; table && l <= CAPTURE_MAX_LAYER; l++)
		free(table[l]);
	free(table);
	return st;
}

/* ---- layers ---- */

/* Q, K and V of a capture, and the angles of RoPE. */
struct raw {
	bf16_t *data; /* [q_heads + 2 kv_heads][n_tok][head_dim] */
	struct layer_row *row;
	float *inv, *trig;
	struct layer_angles angles;
	bf16_t *k; /* [n_tok][kv_heads][head_dim] after RoPE */
};

static void raw_release(struct raw *x)
{
	free(x->data);
	free(x->row);
	free(x->inv);
	free(x->trig);
	free(x->k);
}

static enum ar_status raw_read(struct raw *x, struct capture *c, int i, int64_t n_tok,
			       struct ar_err *err)
{
	const struct capture_info *info = capture_info(c);
	size_t n = (size_t)n_tok, dim = (size_t)info->head_dim;
	size_t q = (size_t)info->q_heads * n * dim, kv = (size_t)info->kv_heads * n * dim;
	int n_rotation = info->rope_applied ? 1 : (int)n_tok;
	float factor = 1;
	enum ar_status st;

	x->data = malloc((q + 2 * kv) * sizeof *x->data);
	x->row = calloc(n, sizeof *x->row);
	x->inv = calloc(dim, sizeof *x->inv);
	x->trig = malloc((size_t)n_rotation * dim * sizeof *x->trig);
	x->k = malloc(kv * sizeof *x->k);
	if (!x->data || !x->row || !x->inv || !x->trig || !x->k)
		return ar_nomem(err);
	st = capture_read_finite(c, i, CAPTURE_Q, 0, n_tok, x->data, err);
	if (!st)
		st = capture_read_finite(c, i, CAPTURE_K, 0, n_tok, x->data + q, err);
	if (!st)
		st = capture_read_finite(c, i, CAPTURE_V, 0, n_tok, x->data + q + kv, err);
	x->angles = (struct layer_angles){ x->trig, rope_dim(&info->rope, info->head_dim), 1 };
	if (!info->rope_applied) {
		rope_inv_freq(&info->rope, x->angles.dim, x->inv);
		factor = (float)rope_attention_factor(&info->rope);
	}
	layer_trig_ref(x->inv, x->angles.dim / 2, n_rotation, factor, x->trig);
	for (int t = 0; t < (int)n_tok; t++)
		x->row[t] = (struct layer_row){ t, t % n_rotation, t };
	return st;
}

void calib_layer_rows(struct calib_rows *r, const struct calib_layer *l, int from, int to)
{
	const struct attn_shape *s = &l->b.shape;
	int n_page = (to + s->page_tok - 1) / s->page_tok, n_qblk = n_page - from / s->page_tok;

	*r = (struct calib_rows){
		.q = l->q + (size_t)from * (size_t)(s->q_heads * s->head_dim),
		.row0 = { 0, to - from },
		.pos0 = { from },
		.qblk0 = { 0, n_qblk },
		.left = { l->b.rows.n_row - to },
		.len = { to },
		.page0 = { 0, n_page },
	};
	r->b.shape = *s;
	r->b.rows = (struct attn_rows){ 1,	 to - from, n_qblk,  r->row0, l->pos + from,
					r->pos0, r->qblk0,  r->left, NULL,    NULL };
	r->b.keys = (struct attn_keys){ n_page,	 n_page, (n_page + 31) / 32, r->len, r->page0,
					l->page, NULL };
}

/* One request in one chunk, at the end of its prompt; pages in order. */
static void set_batch(struct calib_layer *l, int n_tok, int n_page)
{
	for (int i = 0; i < n_page; i++)
		l->page[i] = i;
	for (int i = 0; i < n_tok; i++)
		l->pos[i] = i;
	l->b.rows.n_row = n_tok;
	calib_layer_rows(&l->all, l, 0, n_tok);
	l->b = l->all.b;
}

enum ar_status calib_layer_load(struct calib_layer *l, struct capture *c, int i, int64_t n_tok,
				int page_tok, struct ar_err *err)
{
	const struct capture_info *info = capture_info(c);
	struct attn_shape *s = &l->b.shape;
	size_t n_page = ((size_t)n_tok + (size_t)page_tok - 1) / (size_t)page_tok, kv;
	struct layer_seq seq = { .n_tok = n_tok };
	struct raw x = { 0 };
	enum ar_status st;

	*l = (struct calib_layer){ .b.shape = { info->q_heads, info->kv_heads, info->head_dim,
						page_tok } };
	kv = n_page * (size_t)(s->kv_heads * page_tok * s->head_dim);
	l->page = calloc(n_page, sizeof *l->page);
	l->pos = calloc((size_t)n_tok, sizeof *l->pos);
	l->q = malloc((size_t)n_tok * (size_t)(s->q_heads * s->head_dim) * sizeof *l->q);
	l->kv.k = calloc(kv, sizeof *l->kv.k);
	l->kv.v = calloc(kv, sizeof *l->kv.v);
	st = l->page && l->pos && l->q && l->kv.k && l->kv.v ? raw_read(&x, c, i, n_tok, err) :
							       ar_nomem(err);
	if (!st) {
		set_batch(l, (int)n_tok, (int)n_page);
		seq.data = x.data;
		layer_rope_ref(s, &seq, 0, x.row, (int)n_tok, &x.angles, l->q, x.k);
		layer_cache_ref(s, &seq, 0, x.row, (int)n_tok, x.k, &l->kv);
	}
	raw_release(&x);
	if (st)
		calib_layer_release(l);
	return st;
}

void calib_layer_release(struct calib_layer *l)
{
	free(l->page);
	free(l->pos);
	free(l->q);
	free(l->kv.k);
	free(l->kv.v);
	*l = (struct calib_layer){ 0 };
}

/* ---- attention ---- */

enum { TILE = 1024 }; /* keys of a tile: 512 KiB with a head of 128 */

enum ar_status calib_attention_init(struct calib_attention *t, const struct calib_layer *l,
				    int head, struct ar_err *err)
{
	const struct attn_shape *s = &l->b.shape;
	size_t n = (size_t)l->b.rows.n_row, dim = (size_t)s->head_dim;

	*t = (struct calib_attention){ .l = l, .head = head };
	t->k = malloc(dim * n * sizeof *t->k);
	t->x = malloc((size_t)s->page_tok * n * sizeof *t->x);
	if (!t->k || !t->x)
		return ar_nomem(err);
	for (int i = 0; i < l->b.rows.n_row; i++) {
		size_t at = (size_t)(i / s->page_tok) * (size_t)s->kv_heads +
			    (size_t)(head / (s->q_heads / s->kv_heads));
		const bf16_t *k = l->kv.k +
				  (at * (size_t)s->page_tok + (size_t)(i % s->page_tok)) * dim;

		for (size_t d = 0; d < dim; d++)
			t->k[d * n + (size_t)i] = bf16_to_f32(k[d]);
	}
	return AR_OK;
}

void calib_attention_release(struct calib_attention *t)
{
	free(t->k);
	free(t->x);
}

/* Logits of the rows [lo, hi) against the keys up to the last row's own. */
static void logits(const struct calib_attention *t, int lo, int hi)
{
	const struct attn_shape *s = &t->l->b.shape;
	size_t n = (size_t)t->l->b.rows.n_row;
	float scale = 1 / sqrtf((float)s->head_dim);

	for (int first = 0; first < hi; first += TILE)
		for (int row = lo; row < hi; row++) {
			const bf16_t *q = t->l->q +
					  ((size_t)row * (size_t)s->q_heads + (size_t)t->head) *
						  (size_t)s->head_dim;
			float *x = t->x + (size_t)(row - lo) * n;
			int end = first + TILE < hi ? first + TILE : hi;

			memset(x + first, 0, (size_t)(end - first) * sizeof *x);
			for (int d = 0; d < s->head_dim; d++)
				multiply_add(x + first, bf16_to_f32(q[d]) * scale,
					     t->k + (size_t)d * n + first, end - first);
		}
}

void calib_attention_rows(struct calib_attention *t, int qa)
{
	int tok = t->l->b.shape.page_tok, n = t->l->b.rows.n_row, lo = qa * tok;
	int hi = lo + tok < n ? lo + tok : n;

	logits(t, lo, hi);
	for (int row = lo; row < hi; row++) {
		float *x = t->x + (size_t)(row - lo) * (size_t)n, max = -INFINITY;
		double sum = 0;

		for (int i = 0; i <= row; i++)
			max = fmaxf(max, x[i]);
		for (int i = 0; i <= row; i++)
			sum += x[i] = expf(x[i] - max);
		for (int i = 0; i <= row; i++)
			x[i] = (float)(x[i] / sum);
	}
}
