/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a forward pass: cache, angles and rows. */
#include "config.h"
#include "replay/forward/forward_state.h"

#include <stdlib.h>

#include "kernels/layer/layer.h"
#include "model/layer_size.h"
#include "model/rope.h"

static size_t largest(const struct model *m, size_t (*of)(const struct layer_spec *l))
{
	size_t n = 0;

	for (int i = 0; i < m->n_layers; i++)
		n = of(&m->layer[i]) > n ? of(&m->layer[i]) : n;
	return n;
}

static size_t ffn_width(const struct layer_spec *l)
{
	return (size_t)l->ffn;
}

static void free_rows(struct forward *f)
{
	bf16_t **all[] = { &f->x, &f->y,    &f->add,	 &f->qkv, &f->q,
			   &f->k, &f->attn, &f->gate_up, &f->act };

	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		free(*all[i]);
		*all[i] = NULL;
	}
	f->max_row = 0;
}

enum ar_status forward_room(struct forward *f, int n, struct ar_err *err)
{
	const struct model *m = f->m;
	size_t hidden = (size_t)m->hidden, ffn = largest(m, ffn_width);
	size_t rows = (size_t)n, mlp = (size_t)(n < FORWARD_MLP_ROWS ? n : FORWARD_MLP_ROWS);
	const struct {
		bf16_t **to;
		size_t rows, width;
	} all[] = {
		{ &f->x, rows, hidden },
		{ &f->y, rows, hidden },
		{ &f->add, rows, hidden },
		{ &f->qkv, rows, largest(m, layer_qkv_width) },
		{ &f->q, rows, largest(m, layer_o_width) },
		{ &f->k, rows, largest(m, forward_kv_width) },
		{ &f->attn, rows, largest(m, layer_o_width) },
		{ &f->gate_up, mlp, 2 * ffn },
		{ &f->act, mlp, ffn },
	};

	if (n <= f->max_row)
		return AR_OK;
	free_rows(f);
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (!(*all[i].to = malloc(all[i].rows * all[i].width * sizeof(bf16_t))))
			return ar_nomem(err);
	f->max_row = n;
	return AR_OK;
}

static enum ar_status make_trig(struct forward *f, int i, const struct rope *r, struct ar_err *err)
{
	const struct layer_spec *l = model_attention(f->m);
	int half = rope_dim(r, l->head_dim) / 2;
	float *inv = malloc((size_t)half * sizeof *inv);

	f->trig[i] = malloc((size_t)f->max_tok * (size_t)half * 2 * sizeof(float));
	if (inv && f->trig[i]) {
		rope_inv_freq(r, 2 * half, inv);
		layer_trig_ref(inv, half, f->max_tok, (float)rope_attention_factor(r), f->trig[i]);
	}
	free(inv);
	return inv && f->trig[i] ? AR_OK : ar_nomem(err);
}

static enum ar_status make_cache(struct forward *f, struct ar_err *err)
{
	const struct model *m = f->m;
	size_t tok = (size_t)f->n_page * FORWARD_PAGE, n = 0;

	for (int i = 0; i < m->n_layers; i++)
		n += 2 * tok * forward_kv_width(&m->layer[i]);
	f->kv = calloc((size_t)m->n_layers, sizeof *f->kv);
	f->pages = calloc(n, sizeof *f->pages);
	f->index = malloc((size_t)f->n_page * sizeof *f->index);
	f->pos = malloc((size_t)f->max_tok * sizeof *f->pos);
	f->first = malloc((size_t)f->max_tok * sizeof *f->first);
	if (!f->kv || !f->pages || !f->index || !f->pos || !f->first)
		return ar_nomem(err);
	n = 0;
	for (int i = 0; i < m->n_layers; i++) {
		f->kv[i].k = f->pages + n;
		n += tok * forward_kv_width(&m->layer[i]);
		f->kv[i].v = f->pages + n;
		n += tok * forward_kv_width(&m->layer[i]);
	}
	for (int i = 0; i < f->n_page; i++)
		f->index[i] = i;
	return AR_OK;
}

static enum ar_status check(const struct model *m, int max_tok, struct ar_err *err)
{
	if (!(m->rope.theta > 0))
		return ar_fail(err, AR_DATA, "%s: the angles of %s are not known", m->name,
			       m->rope_unknown);
	if (max_tok > m->max_len)
		return ar_fail(err, AR_USAGE,
			       "%d tokens are more than max_position_embeddings %lld of model %s",
			       max_tok, (long long)m->max_len, m->name);
	return AR_OK;
}

enum ar_status forward_open(struct forward **out, const struct weights *w, int max_tok,
			    forward_see *see, void *ctx, struct ar_err *err)
{
	const struct model *m = &w->model;
	struct forward *f;
	enum ar_status st = check(m, max_tok, err);

	*out = NULL;
	if (st)
		return st;
	f = calloc(1, sizeof *f);
	if (!f)
		return ar_nomem(err);
	*f = (struct forward){ .w = w, .m = m, .see = see, .ctx = ctx, .max_tok = max_tok };
	f->n_page = (max_tok + FORWARD_PAGE - 1) / FORWARD_PAGE;
	st = make_cache(f, err);
	if (!st)
		st = make_trig(f, 0, &m->rope, err);
	if (!st && m->rope_window.theta > 0)
		st = make_trig(f, 1, &m->rope_window, err);
	if (st)
		forward_close(f);
	else
		*out = f;
	return st;
}

void forward_close(struct forward *f)
{
	if (!f)
		return;
	free_rows(f);
	free(f->trig[0]);
	free(f->trig[1]);
	free(f->kv);
	free(f->pages);
	free(f->index);
	free(f->pos);
	free(f->first);
	free(f);
}
