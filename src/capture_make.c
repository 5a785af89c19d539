/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/capture_make.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "model/rope.h"
#include "replay/forward/forward.h"
#include "traces/capture/arc.h"
#include "traces/prompts.h"

struct making {
	struct capture_info info;
	struct arc_writer *w;
	bf16_t *frame;
	int next;     /* index of the next layer to write */
	int n_layers; /* of the model */
};

/* Write heads of a layer, frame after frame.  Row r has them at x + r * step. */
static enum ar_status put_tensor(struct making *m, const bf16_t *x, int64_t step, int heads,
				 struct ar_err *err)
{
	const struct capture_info *i = &m->info;
	size_t dim = (size_t)i->head_dim;
	enum ar_status st = AR_OK;

	for (int64_t at = 0; at < i->n_tok && !st; at += i->frame_tok) {
		int64_t n = i->n_tok - at < i->frame_tok ? i->n_tok - at : i->frame_tok;
		bf16_t *to = m->frame;

		for (int h = 0; h < heads; h++)
			for (int64_t r = at; r < at + n; r++, to += dim)
				memcpy(to, x + r * step + h * i->head_dim, dim * sizeof *to);
		st = arc_put(m->w, m->frame, (size_t)(to - m->frame), err);
	}
	return st;
}

static enum ar_status see_layer(void *ctx, const struct forward_layer *l, struct ar_err *err)
{
	struct making *m = ctx;
	const struct capture_info *i = &m->info;
	int64_t q = (int64_t)i->q_heads * i->head_dim, k = (int64_t)i->kv_heads * i->head_dim;
	enum ar_status st;

	progress("layers", (unsigned long)l->layer, (unsigned long)m->n_layers);
	if (m->next == i->n_layers || i->layer[m->next] != l->layer)
		return AR_OK;
	m->next++;
	st = put_tensor(m, l->q, q, i->q_heads, err);
	if (!st)
		st = put_tensor(m, l->k, k, i->kv_heads, err);
	return st ? st : put_tensor(m, l->v, l->v_step, i->kv_heads, err);
}

/* Set the numbers, heads and RoPE of the layers to capture. */
static enum ar_status describe_layers(struct making *m, const struct capture_make *a,
				      const struct model *model, struct ar_err *err)
{
	const struct layer_spec *l = model->layer;
	struct capture_info *i = &m->info;
	bool window = false;

	m->n_layers = model->n_layers;
	if (a->n_layers && a->layer[a->n_layers - 1] >= model->n_layers)
		return ar_fail(err, AR_USAGE, "layer %d: model %s has layers 0 to %d",
			       a->layer[a->n_layers - 1], model->name, model->n_layers - 1);
	i->n_layers = a->n_layers ? a->n_layers : model->n_layers;
	i->layer = malloc((size_t)i->n_layers * sizeof *i->layer);
	if (!i->layer)
		return ar_nomem(err);
	for (int k = 0; k < i->n_layers; k++) {
		i->layer[k] = a->n_layers ? a->layer[k] : k;
		window = window || model->layer[i->layer[k]].mixer == MIX_WINDOW;
	}
	i->model = (char *)(uintptr_t)model->name;
	i->q_heads = l->q_heads;
	i->kv_heads = l->kv_heads;
	i->head_dim = l->head_dim;
	i->rope_applied = true;
	i->frame_tok = a->frame_tok;
	/* The file has room for one RoPE. */
	if (!(window && model->rope_window.theta > 0))
		i->rope = model->rope;
	return AR_OK;
}

static enum ar_status write_file(struct making *m, const struct capture_make *a,
				 const struct weights *w, const int32_t *id, const char *path,
				 struct ar_err *err)
{
	const struct capture_info *i = &m->info;
	int64_t rows = i->frame_tok < i->n_tok ? i->frame_tok : i->n_tok;
	struct forward *f = NULL;
	enum ar_status st = forward_open(&f, w, (int)i->n_tok, see_layer, m, err);

	if (!st)
		st = arc_create(&m->w, path, i, a->level, err);
	if (!st) {
		m->frame = malloc((size_t)rows * (size_t)i->q_heads * (size_t)i->head_dim *
				  sizeof *m->frame);
		st = m->frame ? AR_OK : ar_nomem(err);
	}
	if (!st)
		st = forward_run(f, id, (int)i->n_tok, err);
	progress_end();
	if (!st)
		st = arc_finish(m->w, err);
	arc_destroy(m->w);
	free(m->frame);
	forward_close(f);
	return st;
}

static enum ar_status run_model(const struct capture_make *a, const int32_t *id, int n,
				const char *path, struct ar_err *err)
{
	struct making m = { .info.n_tok = n };
	struct weights w;
	enum ar_status st;

	if (a->tokens > n)
		return ar_fail(err, AR_USAGE, "%s: the prompt has %d tokens, not %" PRId64,
			       a->prompt, n, a->tokens);
	if (a->tokens)
		m.info.n_tok = a->tokens;
	m.info.n_prompt = m.info.n_tok;
	st = weights_open(&w, a->weights, err);
	if (!st)
		st = describe_layers(&m, a, &w.model, err);
	if (!st)
		st = write_file(&m, a, &w, id, path, err);
	free(m.info.layer);
	weights_release(&w);
	return st;
}

enum ar_status capture_make(const struct capture_make *a, const char *path, struct ar_err *err)
{
	struct prompts p;
	enum ar_status st = prompts_read(&p, a->prompt, err);

	if (!st && (size_t)a->index >= p.n)
		st = ar_fail(err, AR_DATA, "%s has %zu prompts; there is no number %" PRId64,
			     a->prompt, p.n, a->index);
	if (!st)
		st = run_model(a, p.v[a->index].prompt, (int)p.v[a->index].n_prompt, path, err);
	prompts_release(&p);
	return st;
}
