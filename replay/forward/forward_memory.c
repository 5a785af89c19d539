/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a forward pass: cache, angles and rows. */
#include "config.h"
#include "replay/forward/forward_state.h"

#include <stdlib.h>

#include "model/layer_size.h"
#include "model/rope.h"
#include "replay/forward/rotate.h"

static size_t largest(const struct model *m, size_t (*of)(const struct layer_spec *l))
{
	size_t n = 0;

	for (int i = 0; i < m->n_layers; i++)
		n = of(&m->layer[i]) > n ? of(&m->layer[i]) : n;
	return n;
}

static void free_rows(struct forward *f)
{
	free(f->row);
	free(f->q);
	free(f->k);
	free(f->attn);
	f->row = NULL;
	f->q = f->k = f->attn = NULL;
	f->max_row = 0;
}

enum ar_status forward_room(struct forward *f, int n, struct ar_err *err)
{
	size_t rows = (size_t)n, o = rows * largest(f->m, layer_o_width);
	enum ar_status st = decoder_ref_room(f->decoder, n, err);

	if (st || n <= f->max_row)
		return st;
	free_rows(f);
	f->row = malloc(rows * sizeof *f->row);
	f->q = malloc(o * sizeof *f->q);
	f->k = malloc(rows * largest(f->m, forward_kv_width) * sizeof *f->k);
	f->attn = malloc(o * sizeof *f->attn);
	if (!f->row || !f->q || !f->k || !f->attn)
		return ar_nomem(err);
	f->max_row = n;
	return AR_OK;
}

static enum ar_status make_trig(struct forward *f, int i, const struct rope *r, struct ar_err *err)
{
	int dim = rope_dim(r, model_attention(f->m)->head_dim);

	f->trig[i] = rotate_trig(r, dim, f->max_tok, (float)rope_attention_factor(r));
	return f->trig[i] ? AR_OK : ar_nomem(err);
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

static enum ar_status check_model(const struct model *m, int max_tok, struct ar_err *err)
{
	if (!(m->rope.theta > 0))
		return ar_fail(err, AR_DATA, "%s: the angles of %s are not known", m->name,
			       m->rope_unknown);
	if (m->max_len && max_tok > m->max_len)
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
	enum ar_status st = check_model(m, max_tok, err);

	*out = NULL;
	if (st)
		return st;
	f = calloc(1, sizeof *f);
	if (!f)
		return ar_nomem(err);
	*f = (struct forward){ .w = w, .m = m, .see = see, .ctx = ctx, .max_tok = max_tok };
	f->n_page = (max_tok + FORWARD_PAGE - 1) / FORWARD_PAGE;
	st = decoder_ref_open(&f->decoder, w, NULL, NULL, err);
	if (!st)
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
	decoder_ref_close(f->decoder);
	free(f->trig[0]);
	free(f->trig[1]);
	free(f->kv);
	free(f->pages);
	free(f->index);
	free(f->pos);
	free(f->first);
	free(f);
}
