/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/forward/forward_state.h"

#include <stdlib.h>

#include "kernels/attend/attend.h"
#include "model/layer_size.h"
#include "replay/forward/rotate.h"

/* ---- layers ---- */

static struct attn_shape shape_of(const struct layer_spec *l)
{
	return (struct attn_shape){ l->q_heads, l->kv_heads, l->head_dim, FORWARD_PAGE };
}

/* RoPE, and K and V into the cache. */
static enum ar_status forward_rotate(struct forward *f, int layer, struct ar_err *err)
{
	const struct layer_spec *l = &f->m->layer[layer];

	return rotate_ref(
		&(struct rotate){ .shape = shape_of(l),
				  .angles = { .trig = f->trig[l->mixer == MIX_WINDOW && f->trig[1]],
					      .dim = l->rotary_dim,
					      .q_scale = 1 },
				  .product = decoder_ref_product(f->decoder, layer),
				  .row = f->row,
				  .q = f->q,
				  .k = f->k,
				  .kv = &f->kv[layer] },
		err);
}

/* Kernels scale by 1 / sqrt(head_dim). */
static void scale_q(struct forward *f, const struct layer_spec *l)
{
	size_t n = (size_t)f->n_row * layer_o_width(l);
	float scale = (float)layer_q_scale(l);

	for (size_t i = 0; i < n && l->score_scale > 0; i++)
		f->q[i] = bf16_from_f32(bf16_to_f32(f->q[i]) * scale);
}

/* Dense attention over all keys or a window. */
static enum ar_status forward_attend(struct forward *f, int layer, struct ar_err *err)
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

static enum ar_status forward_show(struct forward *f, int layer, struct ar_err *err)
{
	const struct layer_spec *l = &f->m->layer[layer];
	struct layer_qkv p = decoder_ref_product(f->decoder, layer);

	if (!f->see)
		return AR_OK;
	return f->see(f->ctx,
		      &(struct forward_layer){ .layer = layer,
					       .n_row = f->n_row,
					       .pos0 = f->n_past,
					       .x = decoder_ref_hidden(f->decoder),
					       .q = f->q,
					       .k = f->k,
					       .v = p.x +
						    layer_qkv_head(&p, l->q_heads + l->kv_heads),
					       .v_step = layer_qkv_row(&p) },
		      err);
}

static enum ar_status run_layer(struct forward *f, int layer, struct ar_err *err)
{
	enum ar_status st = decoder_ref_before(f->decoder, layer, err);

	if (!st)
		st = forward_rotate(f, layer, err);
	if (!st)
		st = forward_show(f, layer, err);
	if (st)
		return st;
	scale_q(f, &f->m->layer[layer]);
	st = forward_attend(f, layer, err);
	if (!st)
		st = decoder_ref_project(f->decoder, layer, f->attn, err);
	return st ? st : decoder_ref_mlp(f->decoder, layer, err);
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
	enum ar_status st = check_ids(f, id, n, err);

	if (!st)
		st = forward_room(f, n, err);
	if (st)
		return st;
	f->n_past += f->n_row;
	f->n_row = n;
	for (int i = 0; i < n; i++)
		f->row[i] = (struct layer_row){ id[i], f->n_past + i, f->n_past + i };
	st = decoder_ref_begin(f->decoder, f->row, n, err);
	for (int i = 0; i < m->n_layers && !st; i++)
		st = run_layer(f, i, err);
	return st ? st : decoder_ref_end(f->decoder, err);
}

const bf16_t *forward_hidden(const struct forward *f)
{
	return decoder_ref_hidden(f->decoder);
}

enum ar_status forward_logits(const struct forward *f, int row, int n, float *out,
			      struct ar_err *err)
{
	int32_t *index = malloc((size_t)n * sizeof *index);
	enum ar_status st;

	if (!index)
		return ar_nomem(err);
	for (int i = 0; i < n; i++)
		index[i] = row + i;
	st = decoder_ref_logits(f->decoder, index, n, out, err);
	free(index);
	return st;
}
