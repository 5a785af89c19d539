/* SPDX-License-Identifier: Apache-2.0 */
/* Residuals are added by the norm that comes next, as engines do. */
#include "config.h"
#include "replay/forward/decoder_ref.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/parallel.h"
#include "model/layer_size.h"
#include "replay/forward/product.h"
#include "replay/ranks/world.h"

enum {
	ROW_STEP = 32,	/* rows of a job */
	MLP_ROWS = 512, /* rows whose MLP is computed at a time: it needs little memory */
};

struct decoder_ref {
	const struct weights *w;
	const struct model *m;
	struct world *world; /* NULL: no other rank runs */
	phase_fn *phase;
	void *phase_ctx;
	int n_row;
	bool added;	    /* the next norm adds add to x */
	const bf16_t *post; /* the norm of add; NULL: none */
	/* Each [max_row][...]. */
	int max_row;
	bf16_t *x, *y, *add;   /* [hidden]: residual stream, after a norm, to be added */
	bf16_t *qkv;	       /* the QKV product */
	bf16_t *gate_up, *act; /* [MLP_ROWS][...] */
};

static void ref_phase(const struct decoder_ref *d, int layer, enum phase what)
{
	if (d->phase)
		d->phase(d->phase_ctx, layer, what);
}

/* ---- rows ---- */

struct rows_job {
	struct decoder_ref *d;
	const struct layer_row *row; /* of embed_rows() */
	const bf16_t *norm;	     /* of add_norm_rows() */
	int layer;
};

typedef void rows_fn(const struct rows_job *j, int row, int n);

struct each {
	const struct rows_job *job;
	rows_fn *work;
	int n_row;
};

static enum ar_status run_step(void *ctx, int i, struct ar_err *err)
{
	const struct each *e = ctx;
	int row = i * ROW_STEP, left = e->n_row - row;

	(void)err;
	e->work(e->job, row, left < ROW_STEP ? left : ROW_STEP);
	return AR_OK;
}

/* Call work with all rows of the pass, on all processors. */
static enum ar_status each_row(const struct rows_job *j, rows_fn *work, struct ar_err *err)
{
	struct each e = { j, work, j->d->n_row };

	return parallel_each((e.n_row + ROW_STEP - 1) / ROW_STEP, run_step, &e, err);
}

static void embed_rows(const struct rows_job *j, int row, int n)
{
	const struct decoder_ref *d = j->d;
	int hidden = d->m->hidden;
	float scale = d->m->embed_scale > 0 ? (float)d->m->embed_scale : 1;

	layer_embed_ref(d->w->embed, j->row + row, n, hidden, scale,
			d->x + (size_t)row * (size_t)hidden);
}

/* x += add, unless there is nothing yet; y = norm(x). */
static void add_norm_rows(const struct rows_job *j, int row, int n)
{
	struct decoder_ref *d = j->d;
	size_t at = (size_t)row * (size_t)d->m->hidden;

	layer_norm_ref(&(struct layer_norm_args){
		.x = d->x + at,
		.add = d->add + at,
		.n_add = d->added,
		.w = j->norm,
		.y = d->y + at,
		.n_row = n,
		.width = d->m->hidden,
		.eps = (float)d->m->norm_eps,
		.post = d->post,
		.plus = d->m->norm_plus_one ? 1 : 0,
	});
}

static struct layer_qkv qkv_rows(const struct decoder_ref *d, int layer, int row, int n)
{
	const struct layer_spec *l = &d->m->layer[layer];

	return (struct layer_qkv){ .x = d->qkv + (size_t)row * layer_qkv_width(l),
				   .n_row = n,
				   .q_heads = l->q_heads,
				   .kv_heads = l->kv_heads,
				   .head_dim = l->head_dim,
				   .plus = d->m->norm_plus_one ? 1 : 0 };
}

static void qk_norm_rows(const struct rows_job *j, int row, int n)
{
	const struct layer_qkv p = qkv_rows(j->d, j->layer, row, n);

	layer_qk_norm_ref(&p, j->norm, (float)j->d->m->norm_eps);
}

/* ---- ranks ---- */

/* Add up the rows x of all ranks in place. */
static enum ar_status add_ranks(const struct decoder_ref *d, int layer, bf16_t *x,
				struct ar_err *err)
{
	if (!d->world)
		return AR_OK;
	ref_phase(d, layer, PHASE_COMM);
	return world_reduce(d->world, x, (size_t)d->n_row * (size_t)d->m->hidden, NULL, err);
}

/* mine: [n][vocab] of this rank.  out: [n][ranks * vocab]. */
static enum ar_status gather_logits(const struct decoder_ref *d, const float *mine, int n,
				    float *out, struct ar_err *err)
{
	const size_t vocab = (size_t)d->m->vocab, one = (size_t)n * vocab;
	const int ranks = world_size(d->world);
	float *all = malloc((size_t)ranks * one * sizeof *all);
	enum ar_status st;

	if (!all)
		return ar_nomem(err);
	ref_phase(d, PHASE_NO_LAYER, PHASE_COMM);
	st = world_gather_on(d->world, mine, all, one * sizeof *mine, NULL, err);
	for (int k = 0; k < ranks && !st; k++)
		for (size_t i = 0; i < (size_t)n; i++)
			memcpy(out + (i * (size_t)ranks + (size_t)k) * vocab,
			       all + (size_t)k * one + i * vocab, vocab * sizeof *out);
	free(all);
	return st;
}

void decoder_ref_join(struct decoder_ref *d, struct world *world)
{
	d->world = world;
}

/* ---- steps ---- */

static enum ar_status multiply_ref(const bf16_t *x, int rows, size_t in, size_t out,
				   const bf16_t *w, const bf16_t *bias, bf16_t *y,
				   struct ar_err *err)
{
	return product_run(&(struct product){ .x = x,
					      .rows = rows,
					      .in = (int)in,
					      .out = (int)out,
					      .w = w,
					      .bias = bias,
					      .y = y },
			   err);
}

enum ar_status decoder_ref_begin(struct decoder_ref *d, const struct layer_row *row, int n_row,
				 struct ar_err *err)
{
	const struct rows_job j = { .d = d, .row = row };
	enum ar_status st = AR_OK;

	assert(n_row <= d->max_row);
	d->n_row = n_row;
	d->added = false;
	d->post = NULL;
	if (d->world && world_rank(d->world)) /* the first has the embeddings */
		memset(d->x, 0, (size_t)n_row * (size_t)d->m->hidden * sizeof *d->x);
	else
		st = each_row(&j, embed_rows, err);
	return st ? st : add_ranks(d, PHASE_NO_LAYER, d->x, err);
}

enum ar_status decoder_ref_before(struct decoder_ref *d, int layer, struct ar_err *err)
{
	const struct layer_spec *l = &d->m->layer[layer];
	const bf16_t *const *w = d->w->layer[layer];
	struct rows_job j = { .d = d, .norm = w[WEIGHT_ATTN_NORM], .layer = layer };
	enum ar_status st;

	ref_phase(d, layer, PHASE_NORM);
	st = each_row(&j, add_norm_rows, err);
	if (st)
		return st;
	ref_phase(d, layer, PHASE_LINEAR);
	st = multiply_ref(d->y, d->n_row, (size_t)d->m->hidden, layer_qkv_width(l), w[WEIGHT_Q],
			  w[WEIGHT_Q_BIAS], d->qkv, err);
	if (st || !w[WEIGHT_Q_NORM])
		return st;
	ref_phase(d, layer, PHASE_NORM);
	j.norm = w[WEIGHT_Q_NORM];
	return each_row(&j, qk_norm_rows, err);
}

struct layer_qkv decoder_ref_product(const struct decoder_ref *d, int layer)
{
	return qkv_rows(d, layer, 0, d->n_row);
}

enum ar_status decoder_ref_project(struct decoder_ref *d, int layer, const bf16_t *attn,
				   struct ar_err *err)
{
	const struct layer_spec *l = &d->m->layer[layer];
	const bf16_t *const *w = d->w->layer[layer];
	enum ar_status st;

	ref_phase(d, layer, PHASE_LINEAR);
	d->added = true;
	d->post = w[WEIGHT_ATTN_POST];
	st = multiply_ref(attn, d->n_row, layer_o_width(l), (size_t)d->m->hidden, w[WEIGHT_O],
			  w[WEIGHT_O_BIAS], d->add, err);
	return st ? st : add_ranks(d, layer, d->add, err);
}

/* The MLP of n rows, from y to add. */
static enum ar_status run_gated(struct decoder_ref *d, int layer, int row, int n,
				struct ar_err *err)
{
	const struct layer_spec *l = &d->m->layer[layer];
	const bf16_t *const *w = d->w->layer[layer];
	size_t hidden = (size_t)d->m->hidden, ffn = (size_t)l->ffn, at = (size_t)row * hidden;
	enum ar_status st;

	ref_phase(d, layer, PHASE_LINEAR);
	st = multiply_ref(d->y + at, n, hidden, 2 * ffn, w[WEIGHT_GATE], w[WEIGHT_GATE_BIAS],
			  d->gate_up, err);
	if (st)
		return st;
	ref_phase(d, layer, PHASE_NORM);
	layer_act_ref(l->act, d->gate_up, n, l->ffn, d->act);
	ref_phase(d, layer, PHASE_LINEAR);
	return multiply_ref(d->act, n, ffn, hidden, w[WEIGHT_DOWN], w[WEIGHT_DOWN_BIAS],
			    d->add + at, err);
}

enum ar_status decoder_ref_mlp(struct decoder_ref *d, int layer, struct ar_err *err)
{
	const bf16_t *const *w = d->w->layer[layer];
	const struct rows_job j = { .d = d, .norm = w[WEIGHT_MLP_NORM] };
	enum ar_status st;

	ref_phase(d, layer, PHASE_NORM);
	st = each_row(&j, add_norm_rows, err);
	for (int row = 0; row < d->n_row && !st; row += MLP_ROWS)
		st = run_gated(d, layer, row, d->n_row - row < MLP_ROWS ? d->n_row - row : MLP_ROWS,
			       err);
	d->added = true;
	d->post = w[WEIGHT_MLP_POST];
	return st ? st : add_ranks(d, layer, d->add, err);
}

enum ar_status decoder_ref_end(struct decoder_ref *d, struct ar_err *err)
{
	const struct rows_job j = { .d = d, .norm = d->w->norm };

	ref_phase(d, PHASE_NO_LAYER, PHASE_HEAD);
	return each_row(&j, add_norm_rows, err);
}

const bf16_t *decoder_ref_hidden(const struct decoder_ref *d)
{
	return d->x;
}

/* ---- rows that go on, and the head ---- */

/* The rows come closer together in place: row i is not before its old place. */
static void keep_rows(bf16_t *x, size_t width, const int32_t *index, int n)
{
	for (int i = 0; i < n; i++)
		memmove(x + (size_t)i * width, x + (size_t)index[i] * width, width * sizeof *x);
}

void decoder_ref_keep(struct decoder_ref *d, int layer, const int32_t *index, int n)
{
	size_t hidden = (size_t)d->m->hidden;

	ref_phase(d, layer, PHASE_DROP);
	keep_rows(d->x, hidden, index, n);
	keep_rows(d->add, hidden, index, n);
	d->n_row = n;
}

/* The norm's own result is not used. */
enum ar_status decoder_ref_settle(struct decoder_ref *d, int layer, struct ar_err *err)
{
	const struct rows_job j = { .d = d, .norm = d->w->norm };
	enum ar_status st;

	ref_phase(d, layer, PHASE_DROP);
	st = d->added ? each_row(&j, add_norm_rows, err) : AR_OK;
	d->added = false;
	return st;
}

void decoder_ref_add(struct decoder_ref *d, int layer, const bf16_t *x, const int32_t *slot, int n)
{
	size_t hidden = (size_t)d->m->hidden;

	assert(!d->added && d->n_row + n <= d->max_row);
	ref_phase(d, layer, PHASE_DROP);
	layer_gather_ref(x, 0, slot, n, d->m->hidden, d->x + (size_t)d->n_row * hidden);
	d->n_row += n;
}

/* Those of the rank's share of the vocabulary. */
static enum ar_status own_logits(struct decoder_ref *d, const int32_t *index, int n, float *out,
				 struct ar_err *err)
{
	size_t hidden = (size_t)d->m->hidden;
	bf16_t *x = malloc((size_t)n * hidden * sizeof *x);
	enum ar_status st;

	if (!x)
		return ar_nomem(err);
	ref_phase(d, PHASE_NO_LAYER, PHASE_HEAD);
	layer_gather_ref(d->y, d->n_row, index, n, d->m->hidden, x);
	st = product_run(&(struct product){ .x = x,
					    .rows = n,
					    .in = d->m->hidden,
					    .out = d->m->vocab,
					    .w = d->w->head,
					    .real = out },
			 err);
	free(x);
	return st;
}

enum ar_status decoder_ref_logits(struct decoder_ref *d, const int32_t *index, int n, float *out,
				  struct ar_err *err)
{
	float *mine;
	enum ar_status st;

	if (!d->world)
		return own_logits(d, index, n, out, err);
	mine = malloc((size_t)n * (size_t)d->m->vocab * sizeof *mine);
	if (!mine)
		return ar_nomem(err);
	st = own_logits(d, index, n, mine, err);
	if (!st)
		st = gather_logits(d, mine, n, out, err);
	free(mine);
	return st;
}

/* ---- memory ---- */

struct widths {
	size_t qkv, ffn;
};

static struct widths widths_of(const struct model *m)
{
	struct widths w = { 0 };

	for (int i = 0; i < m->n_layers; i++) {
		size_t qkv = layer_qkv_width(&m->layer[i]), ffn = (size_t)m->layer[i].ffn;

		w.qkv = qkv > w.qkv ? qkv : w.qkv;
		w.ffn = ffn > w.ffn ? ffn : w.ffn;
	}
	return w;
}

/* The values of each array: x, y, add, qkv, gate_up, act. */
enum { ARRAYS = 6 };

static void sizes_of(const struct model *m, int n_row, size_t size[ARRAYS])
{
	const struct widths w = widths_of(m);
	size_t rows = (size_t)n_row, mlp = (size_t)(n_row < MLP_ROWS ? n_row : MLP_ROWS);
	size_t hidden = rows * (size_t)m->hidden;
	const size_t all[ARRAYS] = { hidden,	   hidden,	    hidden,
				     rows * w.qkv, mlp * 2 * w.ffn, mlp * w.ffn };

	memcpy(size, all, sizeof all);
}

double decoder_ref_bytes(const struct model *m, int n_row)
{
	size_t size[ARRAYS];
	double sum = 0;

	sizes_of(m, n_row, size);
	for (int i = 0; i < ARRAYS; i++)
		sum += (double)size[i] * sizeof(bf16_t);
	return sum;
}

enum ar_status decoder_ref_room(struct decoder_ref *d, int n_row, struct ar_err *err)
{
	bf16_t **const all[ARRAYS] = { &d->x, &d->y, &d->add, &d->qkv, &d->gate_up, &d->act };
	size_t size[ARRAYS];

	if (n_row <= d->max_row)
		return AR_OK;
	sizes_of(d->m, n_row, size);
	d->max_row = 0;
	for (int i = 0; i < ARRAYS; i++) {
		free(*all[i]);
		*all[i] = malloc(size[i] * sizeof **all[i]);
	}
	for (int i = 0; i < ARRAYS; i++)
		if (!*all[i])
			return ar_nomem(err);
	d->max_row = n_row;
	return AR_OK;
}

enum ar_status decoder_ref_open(struct decoder_ref **out, const struct weights *w, phase_fn *note,
				void *ctx, struct ar_err *err)
{
	struct decoder_ref *d = calloc(1, sizeof *d);

	*out = d;
	if (!d)
		return ar_nomem(err);
	*d = (struct decoder_ref){ .w = w, .m = &w->model, .phase = note, .phase_ctx = ctx };
	return AR_OK;
}

void decoder_ref_close(struct decoder_ref *d)
{
	if (!d)
		return;
	free(d->x);
	free(d->y);
	free(d->add);
	free(d->qkv);
	free(d->gate_up);
	free(d->act);
	free(d);
}
