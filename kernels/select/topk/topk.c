/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The upper bound for selectors of decodes: each query head sees the `budget` tokens with its
 * largest logits, of equal ones the first.  No token is kept for its place.
 *
 * So no other list of as many tokens has more of a head's attention mass.
 *
 * The logits are fp32 sums of exact products, in order of channels.  A NaN counts as the least.
 */
#include "config.h"
#include "kernels/select/topk/topk.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/select/pieces.h"
#include "kernels/select/top.h"
#include "kernels/select/work.h"

static struct piece_form topk_pieces(const void *self, const struct attn_shape *s, int len)
{
	int group = s->q_heads / s->kv_heads;
	int most = group * (int)((const struct topk *)self)->budget;

	(void)len;
	return (struct piece_form){ .tok = 1, .heads = group, .most = most, .mask = true };
}

struct desk {
	struct top_cell *cell; /* [len] */
	float *score;	       /* [len] */
	uint16_t *head;	       /* [len] */
};

/* Give bit `bit` to the tokens that query head h of request r keeps. */
static void keep_tokens(const struct attn_call *call, const struct topk *p,
			const struct piece_lists *l, int r, int h, struct desk *d)
{
	const struct attn_batch *b = call->b;
	const struct attn_shape *s = &b->shape;
	const bf16_t *q = call->q + (size_t)(r * s->q_heads + h) * (size_t)s->head_dim;
	int kv = h / (s->q_heads / s->kv_heads), n = b->keys.len[r];

	for (int t = 0; t < n; t++) {
		float x = bf16_dot(q, call->kv.k + pieces_key(b, r, kv, t), s->head_dim);

		d->score[t] = isnan(x) ? -INFINITY : x;
	}
	top_of(d->cell, d->score, n);
	for (int i = 0; i < pieces_kept(l, n, p->budget); i++)
		d->head[d->cell[i].at] |= (uint16_t)(1 << h % l->heads);
}

static enum ar_status topk_ref(const struct attn_call *call, const void *self,
			       const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const struct piece_lists *l = &out->pieces;
	int groups = pieces_groups(&b->shape, l);
	size_t len = (size_t)b->keys.max_kv_blk * (size_t)b->shape.page_tok;
	struct desk d = { malloc(len * sizeof *d.cell), malloc(len * sizeof *d.score),
			  malloc(len * sizeof *d.head) };
	bool room = d.cell && d.score && d.head;

	for (int i = 0; room && i < b->rows.n_req * groups; i++) {
		int r = i / groups, n = b->keys.len[r];

		memset(d.head, 0, (size_t)n * sizeof *d.head);
		for (int k = 0; k < l->heads; k++)
			keep_tokens(call, self, l, r, i % groups * l->heads + k, &d);
		pieces_write(l, i, d.head, n);
	}
	free(d.cell);
	free(d.score);
	free(d.head);
	return room ? AR_OK : ar_nomem(err);
}

/* Logits of all keys, which are sorted. */
static struct selector_work topk_work(const void *param, const struct attn_shape *s,
				      const struct selector_chunk *c)
{
	(void)param;
	return selector_products(&(struct selector_form){ .launches = 2 }, s, c);
}

/* clang-format off */
static const struct opt params[] = {
	{ .name = "budget", .type = OPT_INT, .off = offsetof(struct topk, budget), .arg = "N",
	  .def = "2048", .min = 1, .max = 1 << 24,
	  .help = "each query head sees the N tokens with its largest logits" },
	{ 0 }
};

static const struct selector_band bands[] = {
	{ "dense/decode=oracle,budget=40", NULL, NULL, NULL, 0 },
	{ 0 }
};

static const struct selector_order orders[] = {
	{ "dense/decode=oracle,budget=%", { "1", "20", "100", "5000" }, false, false },
	{ 0 }
};
/* clang-format on */

extern const struct selector selector_topk;
const struct selector selector_topk = {
	.version = AR_SELECTOR_VERSION,
	.name = "topk",
	.title = "the tokens with the largest logits, for each query head of a decode",
	.origin = "upper bound, from the attention itself",
	.params = params,
	.param_size = sizeof(struct topk),
	.gives = SHAPE_PIECES,
	.pieces = topk_pieces,
	.work = topk_work,
	.ref = topk_ref,
	.band = bands,
	.order = orders,
	.work_bytes = HAVE_CUDA ? topk_work_bytes : NULL,
	.enqueue = HAVE_CUDA ? topk_enqueue : NULL,
};
