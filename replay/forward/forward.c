/* SPDX-License-Identifier: Apache-2.0 */
/* Residuals are added by the norm that comes next, as engines do.  A row of the QKV product serves
 * the kernels of RoPE and of the cache as a capture of one token. */
#include "config.h"
#include "replay/forward/forward_state.h"

#include "base/parallel.h"
#include "kernels/attend/attend.h"
#include "kernels/layer/layer.h"
#include "model/layer_size.h"
#include "replay/forward/product.h"

enum { ROW_STEP = 32 }; /* rows of a job */

/* ---- rows ---- */

struct rows_job {
	struct forward *f;
	int layer;
	const bf16_t *post, *norm; /* for add_norm() */
	bool added;
	const int32_t *id;
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

/* Call work with all rows of the chunk, on all processors. */
static enum ar_status each_row(const struct rows_job *j, rows_fn *work, struct ar_err *err)
{
	struct each e = { j, work, j->f->n_row };

	return parallel_each((e.n_row + ROW_STEP - 1) / ROW_STEP, run_step, &e, err);
}

static void embed_rows(const struct rows_job *j, int row, int n)
{
	const struct forward *f = j->f;
	size_t hidden = (size_t)f->m->hidden;
	float scale = f->m->embed_scale > 0 ? (float)f->m->embed_scale : 1;

	for (int r = row; r < row + n; r++) {
		const bf16_t *from = f->w->embed + (size_t)j->id[r] * hidden;
		bf16_t *to = f->x + (size_t)r * hidden;

		for (size_t i = 0; i < hidden; i++)
			to[i] = bf16_from_f32(bf16_to_f32(from[i]) * scale);
	}
}

/* x += add, unless there is nothing yet; y = norm(x). */
static void add_norm_rows(const struct rows_job *j, int row, int n)
{
	struct forward *f = j->f;
	size_t at = (size_t)row * (size_t)f->m->hidden;

	layer_norm_ref(&(struct layer_norm_args){
		.x = f->x + at,
		.add = f->add + at,
		.n_add = j->added,
		.w = j->norm,
		.y = f->y + at,
		.n_row = n,
		.width = f->m->hidden,
		.eps = (float)f->m->norm_eps,
		.post = j->post,
		.plus = f->m->norm_plus_one ? 1 : 0,
	});
}

static struct attn_shape shape_of(const struct layer_spec *l)
{
	return (struct attn_shape){ l->q_heads, l->kv_heads, l->head_dim, FORWARD_PAGE };
}

/* Norms of heads, RoPE, and K and V into the cache. */
static void rotate_rows(const struct rows_job *j, int row, int n)
{
	struct forward *f = j->f;
	const struct layer_spec *l = &f->m->layer[j->layer];
	const bf16_t *norm = f->w->layer[j->layer][WEIGHT_Q_NORM];
	const struct attn_shape s = shape_of(l);
	const struct layer_angles a = {
		.trig = f->trig[l->mixer == MIX_WINDOW && f->trig[1]],
		.dim = l->rotary_dim,
		.q_scale = 1,
	};
	struct layer_qkv p = { .n_row = 1,
			       .q_heads = l->q_heads,
			       .kv_heads = l->kv_heads,
			       .head_dim = l->head_dim,
			       .plus = f->m->norm_plus_one ? 1 : 0 };

	for (int r = row; r < row + n; r++) {
		const struct layer_row what = { .rotation = f->n_past + r, .slot = f->n_past + r };
		bf16_t *q = f->q + (size_t)r * layer_o_width(l);
		bf16_t *k = f->k + (size_t)r * forward_kv_width(l);
		struct layer_seq seq;

		p.x = f->qkv + (size_t)r * layer_qkv_width(l);
		seq = (struct layer_seq){ p.x, 1 };
		if (norm)
			layer_qk_norm_ref(&p, norm, (float)f->m->norm_eps);
		layer_rope_ref(&s, &seq, 0, &what, 1, &a, q, k);
		layer_cache_ref(&s, &seq, 0, &what, 1, k, &f->kv[j->layer]);
	}
}

static void scale_rows(const struct rows_job *j, int row, int n)
{
	const struct layer_spec *l = &j->f->m->layer[j->layer];
	size_t width = layer_o_width(l), end = (size_t)(row + n) * width;
	float scale = (float)layer_q_scale(l);

	for (size_t i = (size_t)row * width; i < end; i++)
		j->f->q[i] = bf16_from_f32(bf16_to_f32(j->f->q[i]) * scale);
}

/* ---- layers ---- */

static enum ar_status product(const bf16_t *x, int rows, size_t in, size_t out, const bf16_t *w,
			      const bf16_t *bias, bf16_t *y, struct ar_err *err)
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

/* Dense attention over all keys or a window. */
static enum ar_status attend(struct forward *f, int layer, struct ar_err *err)
{
	const struct layer_spec *l = &f->m->layer[layer];
	int end = f->n_past + f->n_row, used = (end + FORWARD_PAGE - 1) / FORWARD_PAGE;
	const int32_t row0[2] = { 0, f->n_row }, pos0[1] = { f->n_past }, left[1] = { 0 };
	const int32_t qblk0[2] = { 0, used - f->n_past / FORWARD_PAGE };
	const int32_t len[1] = { end }, page0[2] = { 0, used };
	const struct attn_batch b = {
		.shape = shape_of(l),
		.rows = { .n_req = 1,
			  .n_row = f->n_row,
			  .n_qblk = qblk0[1],
			  .row0 = row0,
			  .pos = f->pos,
			  .pos0 = pos0,
			  .qblk0 = qblk0,
			  .left = left,
			  .first = l->mixer == MIX_WINDOW ? f->first : NULL },
		.keys = { .n_page = used,
			  .max_kv_blk = used,
			  .mask_words = (used + 31) / 32,
			  .len = len,
			  .page0 = page0,
			  .page = f->index },
	};

	for (int r = 0; r < f->n_row; r++) {
		f->pos[r] = f->n_past + r;
		f->first[r] = f->pos[r] < l->window ? 0 : f->pos[r] - l->window + 1;
	}
	return attend_ref(
		&(struct attn_call){
			.b = &b, .layer = layer, .q = f->q, .kv = f->kv[layer], .out = f->attn },
		attend_plan_rows, 0, &(struct block_lists){ 0 }, err);
}

static enum ar_status show(struct forward *f, int layer, struct ar_err *err)
{
	const struct layer_spec *l = &f->m->layer[layer];
	size_t before = layer_o_width(l) + forward_kv_width(l);

	if (!f->see)
		return AR_OK;
	return f->see(f->ctx,
		      &(struct forward_layer){ .layer = layer,
					       .n_row = f->n_row,
					       .pos0 = f->n_past,
					       .x = f->x,
					       .q = f->q,
					       .k = f->k,
					       .v = f->qkv + before,
					       .v_step = (int64_t)layer_qkv_width(l) },
		      err);
}

/* From y, the norm's output, to add. */
static enum ar_status run_attention(struct forward *f, int layer, struct ar_err *err)
{
	const struct layer_spec *l = &f->m->layer[layer];
	const bf16_t *const *w = f->w->layer[layer];
	const struct rows_job j = { .f = f, .layer = layer };
	size_t hidden = (size_t)f->m->hidden;
	enum ar_status st = product(f->y, f->n_row, hidden, layer_qkv_width(l), w[WEIGHT_Q],
				    w[WEIGHT_Q_BIAS], f->qkv, err);

	if (!st)
		st = each_row(&j, rotate_rows, err);
	if (!st)
		st = show(f, layer, err);
	if (!st && l->score_scale > 0)
		st = each_row(&j, scale_rows, err);
	if (!st)
		st = attend(f, layer, err);
	return st ? st :
		    product(f->attn, f->n_row, layer_o_width(l), hidden, w[WEIGHT_O],
			    w[WEIGHT_O_BIAS], f->add, err);
}

static enum ar_status run_mlp(struct forward *f, int layer, struct ar_err *err)
{
	const struct layer_spec *l = &f->m->layer[layer];
	const bf16_t *const *w = f->w->layer[layer];
	size_t hidden = (size_t)f->m->hidden, ffn = (size_t)l->ffn;
	enum ar_status st = AR_OK;

	for (int row = 0; row < f->n_row && !st; row += FORWARD_MLP_ROWS) {
		int n = f->n_row - row < FORWARD_MLP_ROWS ? f->n_row - row : FORWARD_MLP_ROWS;
		size_t at = (size_t)row * hidden;

		st = product(f->y + at, n, hidden, 2 * ffn, w[WEIGHT_GATE], w[WEIGHT_GATE_BIAS],
			     f->gate_up, err);
		if (st)
			break;
		layer_act_ref(l->act, f->gate_up, n, l->ffn, f->act);
		st = product(f->act, n, ffn, hidden, w[WEIGHT_DOWN], w[WEIGHT_DOWN_BIAS],
			     f->add + at, err);
	}
	return st;
}

static enum ar_status run_layer(struct forward *f, int layer, struct ar_err *err)
{
	const bf16_t *const *w = f->w->layer[layer];
	struct rows_job j = { .f = f, .norm = w[WEIGHT_ATTN_NORM], .added = layer > 0 };
	enum ar_status st;

	j.post = layer ? f->w->layer[layer - 1][WEIGHT_MLP_POST] : NULL;
	st = each_row(&j, add_norm_rows, err);
	if (!st)
		st = run_attention(f, layer, err);
	j = (struct rows_job){
		.f = f, .norm = w[WEIGHT_MLP_NORM], .added = true, .post = w[WEIGHT_ATTN_POST]
	};
	if (!st)
		st = each_row(&j, add_norm_rows, err);
	return st ? st : run_mlp(f, layer, err);
}

/* ---- the whole ---- */

static enum ar_status check_ids(const struct forward *f, const int32_t *id, int n,
				struct ar_err *err)
{
	int past = f->n_past + f->n_row;

	if (n > f->max_tok - past)
		return ar_fail(err, AR_USAGE, "%d tokens after %d are more than %d", n, past,
			       f->max_tok);
	for (int i = 0; i < n; i++)
		if (id[i] < 0 || id[i] >= f->m->vocab)
			return ar_fail(err, AR_DATA,
				       "token %d of the prompt is %d, but the vocabulary of model "
				       "%s has %d",
				       past + i, id[i], f->m->name, f->m->vocab);
	return AR_OK;
}

enum ar_status forward_run(struct forward *f, const int32_t *id, int n, struct ar_err *err)
{
	const struct model *m = f->m;
	const struct rows_job embed = { .f = f, .id = id };
	const struct rows_job last = { .f = f,
				       .norm = f->w->norm,
				       .added = true,
				       .post = f->w->layer[m->n_layers - 1][WEIGHT_MLP_POST] };
	enum ar_status st = check_ids(f, id, n, err);

	if (!st)
		st = forward_room(f, n, err);
	if (st)
		return st;
	f->n_past += f->n_row;
	f->n_row = n;
	st = each_row(&embed, embed_rows, err);
	for (int i = 0; i < m->n_layers && !st; i++)
		st = run_layer(f, i, err);
	return st ? st : each_row(&last, add_norm_rows, err);
}

const bf16_t *forward_hidden(const struct forward *f)
{
	return f->x;
}

enum ar_status forward_logits(const struct forward *f, int row, int n, float *out,
			      struct ar_err *err)
{
	return product_run(&(struct product){ .x = f->y + (size_t)row * (size_t)f->m->hidden,
					      .rows = n,
					      .in = f->m->hidden,
					      .out = f->m->vocab,
					      .w = f->w->head,
					      .real = out },
			   err);
}
