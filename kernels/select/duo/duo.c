/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DuoAttention for decodes.  A file has a score for each layer and KV head.  Of all of them the
 * share `sparsity` with the lowest scores streams: these heads see the first `sink` and the last
 * `recent` tokens, as selector streaming has them.  Of equal scores the first ones stream.  The
 * other heads see everything.
 *
 * Nothing is freed: the cache of all heads has the same pages.
 *
 * The file is that of the authors: a line a layer, in it a number for each KV head.  Numbers are
 * clipped to [0, 1].
 */
#include "config.h"
#include "kernels/select/duo/duo.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "kernels/select/top.h"

static struct piece_form duo_pieces(const void *self, const struct attn_shape *s, int len)
{
	const struct duo_self *x = self;

	return (struct piece_form){ .tok = (int)x->near.page,
				    .heads = s->q_heads / s->kv_heads,
				    .most = pieces_of(len, (int)x->near.page) };
}

/* ---- the file ---- */

enum { FILE_MAX = 16 << 20 };

/* The scores of a file, negative: top.h has the largest first, and the lowest scores stream. */
struct table {
	const char *path;
	struct top_cell *cell;
	int n, n_row, n_col;
};

/* Read the numbers of a line, which ends at `end`. */
static enum ar_status read_line(struct table *t, char *at, const char *end, struct ar_err *err)
{
	char *next;
	int n = 0;

	for (;; at = next) {
		double x = strtod(at, &next);

		if (next == at || next > end)
			break;
		if (isnan(x))
			return ar_fail(err, AR_DATA, "%s:%d: want numbers", t->path, t->n_row + 1);
		x = x < 0 ? 0 : x > 1 ? 1 : x;
		t->cell[t->n] = (struct top_cell){ -x, t->n };
		t->n++, n++;
	}
	if (at + strspn(at, " \t\r") != end)
		return ar_fail(err, AR_DATA, "%s:%d: want numbers", t->path, t->n_row + 1);
	if (t->n_row && n && n != t->n_col)
		return ar_fail(err, AR_DATA, "%s:%d: %d numbers; the lines before have %d", t->path,
			       t->n_row + 1, n, t->n_col);
	t->n_col = n ? n : t->n_col;
	t->n_row += n > 0;
	return AR_OK;
}

static enum ar_status read_table(struct table *t, const struct selector_env *env, char *text,
				 struct ar_err *err)
{
	int heads = selector_file_heads(env, env->shape.kv_heads);
	enum ar_status st = AR_OK;

	t->cell = malloc((strlen(text) + 1) * sizeof *t->cell);
	if (!t->cell)
		return ar_nomem(err);
	for (char *line = text, *end; *line && !st; line = *end ? end + 1 : end) {
		end = line + strcspn(line, "\n");
		st = read_line(t, line, end, err);
	}
	if (!st && (t->n_row != env->n_layers || t->n_col < heads))
		st = ar_fail(err, AR_DATA,
			     "%s: %d lines of %d numbers; want one for each of %d layers and %d "
			     "KV heads; 'calibrate duo --layers %d' writes one",
			     t->path, t->n_row, t->n_col, env->n_layers, heads, env->n_layers);
	return st;
}

/* Set the bits of the heads that are not among the lowest scores. */
static void set_heads(struct duo_self *x, const struct table *t, double sparsity,
		      const struct selector_env *env)
{
	int heads = selector_file_heads(env, env->shape.kv_heads);

	top_sort(t->cell, t->n);
	for (int i = (int)(t->n * sparsity); i < t->n; i++) {
		struct duo_layer *l = &x->layer[t->cell[i].at / t->n_col];
		int column = (int)(t->cell[i].at % t->n_col);

		for (int h = column; column < heads && h < env->shape.kv_heads; h += heads)
			l->full[h / 32] |= 1u << h % 32;
	}
}

static enum ar_status duo_open(void **self, const void *param, const struct selector_env *env,
			       struct ar_err *err)
{
	const struct duo *p = param;
	struct table t = { .path = p->file };
	size_t n = (size_t)env->n_layers;
	struct duo_self *x;
	char *text;
	enum ar_status st;

	if (!p->file)
		return ar_fail(err, AR_USAGE,
			       "duo has no scores: add file=FILE, a line a layer with a number "
			       "for each KV head");
	if (env->shape.kv_heads > DUO_HEADS)
		return ar_fail(err, AR_USAGE, "duo: %d KV heads; it takes up to %d",
			       env->shape.kv_heads, DUO_HEADS);
	st = text_read(&text, p->file, FILE_MAX, err);
	if (st)
		return st;
	x = calloc(1, sizeof *x + n * sizeof *x->layer);
	st = x ? read_table(&t, env, text, err) : ar_nomem(err);
	if (!st) {
		x->near = p->near;
		set_heads(x, &t, p->sparsity, env);
		*self = x;
		x = NULL;
	}
	free(t.cell);
	free(text);
	free(x);
	return st;
}

/* ---- lists ---- */

static enum ar_status duo_ref(const struct attn_call *call, const void *self,
			      const struct selection *out, struct ar_err *err)
{
	const struct duo_self *x = self;
	const struct attn_batch *b = call->b;
	const struct piece_lists *l = &out->pieces;
	int heads = b->shape.kv_heads;

	(void)err;
	for (int i = 0; i < b->rows.n_req * heads; i++) {
		struct streaming_list own = duo_list(&x->near, &x->layer[call->layer], i % heads, l,
						     b->keys.len[i / heads]);

		streaming_write(&own, l, i, 0, 1);
	}
	return AR_OK;
}

static struct selector_work duo_work(const void *param, const struct attn_shape *s,
				     const struct selector_chunk *c)
{
	const struct duo *p = param;
	double len = (double)(c->start + c->n_tok);
	double near = fmin(len, (double)(p->near.page * streaming_most(&p->near)));

	(void)s;
	return (struct selector_work){ .keys = (1 - p->sparsity) * len + p->sparsity * near,
				       .launches = 1 };
}

#define OFF(member) offsetof(struct duo, member)
/* clang-format off */
static const struct opt params[] = {
	{ .name = "file", .type = OPT_STR, .off = OFF(file), .arg = "FILE",
	  .help = "read the scores of heads from FILE, a line a layer" },
	{ .name = "sparsity", .type = OPT_REAL, .off = OFF(sparsity), .arg = "X", .def = "0.5",
	  .max = 1, .help = "the share X of all heads streams, those with the lowest scores" },
	{ .name = "sink", .type = OPT_INT, .off = OFF(near.sink), .arg = "N", .def = "128",
	  .max = 1 << 29, .help = "heads that stream see the first N tokens" },
	{ .name = "recent", .type = OPT_INT, .off = OFF(near.recent), .arg = "N", .def = "256",
	  .min = 1, .max = 1 << 29,
	  .help = "heads that stream see the last N tokens up to the row's own" },
	{ .name = "page", .type = OPT_INT, .off = OFF(near.page), .arg = "N", .def = "16",
	  .min = 1, .max = 128, .help = "round both up to whole pages of N tokens" },
	{ 0 }
};

static const struct selector_band bands[] = {
	{ "dense/decode=duo,file=agree.duo", NULL, NULL, NULL, 0 },
	{ "dense/decode=duo,file=agree.duo,sparsity=0.8,sink=7,recent=90,page=1", NULL, NULL,
	  NULL, 0 },
	{ 0 }
};

static const struct selector_order orders[] = {
	{ "dense/decode=duo,file=agree.duo,sparsity=%", { "1", "0.8", "0.3", "0" }, true, true },
	{ 0 }
};
/* clang-format on */

extern const struct selector selector_duo;
const struct selector selector_duo = {
	.version = AR_SELECTOR_VERSION,
	.name = "duo",
	.title = "everything for some KV heads of a decode, the first and last tokens for others",
	.origin = "DuoAttention (2024)",
	.params = params,
	.param_size = sizeof(struct duo),
	.gives = SHAPE_PIECES,
	.pieces = duo_pieces,
	.open = duo_open,
	.close = free,
	.work = duo_work,
	.ref = duo_ref,
	.band = bands,
	.order = orders,
	.enqueue = HAVE_CUDA ? duo_enqueue : NULL,
};
