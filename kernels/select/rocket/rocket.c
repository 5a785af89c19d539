/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The second stage of RocketKV.  The query heads p of a KV head share a list of pages:
 *
 *   w[d]    = sum over p of |q[p][d]|; R: the topr channels with the largest w
 *   k[j][d] = the largest value of channel d in page j if sum over p of q[p][d] > 0, else the least
 *   S[p][j] = alpha * sum over d in R of q[p][d] k[j][d]
 *
 * The pages with the largest mean over p of softmax over j of S[p] are kept, of equal ones the
 * first.  No page is kept for its place.  A score that is no number counts as the least.
 *
 * Bounds have 8 bits by default, as TensorRT-LLM has them.
 */
#include "config.h"
#include "kernels/select/rocket/rocket.h"

#include <float.h>
#include <stdlib.h>

#include "kernels/select/pieces.h"
#include "kernels/select/top.h"

static struct piece_form rocket_pieces(const void *self, const struct attn_shape *s, int len)
{
	const struct rocket *p = self;

	(void)len;
	return (struct piece_form){ .tok = (int)p->page,
				    .heads = s->q_heads / s->kv_heads,
				    .most = (int)rocket_kept(p) };
}

static size_t rocket_state_bytes(const void *self, const struct attn_shape *s)
{
	const struct bounds x = rocket_bounds(self);

	return bounds_state_bytes(&x, s);
}

static enum ar_status rocket_append_ref(const struct attn_call *call, const void *self,
					struct ar_err *err)
{
	const struct bounds x = rocket_bounds(self);

	(void)err;
	bounds_append(&x, call->b, call->kv.k, call->state);
	return AR_OK;
}

struct desk {
	struct top_cell *cell; /* of pages, or of channels */
	float *score, *mean;   /* of pages */
	float *weight;	       /* [head_dim] */
	bool *used, *large;    /* [head_dim]: in R; takes the largest value */
	uint16_t *kept;	       /* of pages: 1 */
};

/* Find R and the signs of the group whose query heads begin at q. */
static void find_channels(const struct rocket *p, const bf16_t *q, int heads, int dim,
			  struct desk *d)
{
	for (int i = 0; i < dim; i++) {
		float sum = 0;

		d->weight[i] = 0;
		for (int h = 0; h < heads; h++) {
			float x = bf16_to_f32(q[h * dim + i]);

			d->weight[i] += fabsf(x);
			sum += x;
		}
		d->large[i] = sum > 0;
	}
	top_of(d->cell, d->weight, dim);
	for (int i = 0; i < dim; i++)
		d->used[d->cell[i].at] = i < p->topr;
}

/* Add one head's share of the means of n pages of request r. */
static void add_head(const struct attn_call *call, const struct rocket *p, int r, int kv,
		     const bf16_t *q, int n, struct desk *d)
{
	const struct bounds x = rocket_bounds(p);
	int dim = call->b->shape.head_dim;
	float alpha = rocket_alpha(p, dim), max = -FLT_MAX, sum = 0;

	for (int j = 0; j < n; j++) {
		size_t at = bounds_at(&x, call->b, r, kv, j);
		float dot = 0;

		for (int i = 0; i < dim; i++)
			if (d->used[i])
				dot += bf16_to_f32(q[i]) *
				       bounds_get(&x, call->state,
						  at + (size_t)(i + (d->large[i] ? dim : 0)));
		d->score[j] = isnan(dot) ? -INFINITY : alpha * dot;
		max = fmaxf(max, d->score[j]);
	}
	for (int j = 0; j < n; j++)
		sum += d->score[j] = expf(d->score[j] - max);
	for (int j = 0; j < n; j++)
		d->mean[j] += d->score[j] / fmaxf(sum, FLT_MIN);
}

static void rocket_list(const struct attn_call *call, const struct rocket *p, int i, struct desk *d,
			const struct piece_lists *l)
{
	const struct attn_shape *s = &call->b->shape;
	int r = i / s->kv_heads, kv = i % s->kv_heads, len = call->b->keys.len[r];
	int n = pieces_of(len, l->tok);
	const bf16_t *q = call->q + (size_t)(r * s->q_heads + kv * l->heads) * (size_t)s->head_dim;

	for (int j = 0; j < n; j++)
		d->kept[j] = 0, d->mean[j] = 0;
	find_channels(p, q, l->heads, s->head_dim, d);
	for (int h = 0; h < l->heads; h++)
		add_head(call, p, r, kv, q + h * s->head_dim, n, d);
	top_of(d->cell, d->mean, n);
	for (int j = 0; j < pieces_kept(l, len, rocket_kept(p)); j++)
		d->kept[d->cell[j].at] = 1;
	pieces_write(l, i, d->kept, n);
}

static enum ar_status rocket_ref(const struct attn_call *call, const void *self,
				 const struct selection *out, struct ar_err *err)
{
	const struct attn_shape *s = &call->b->shape;
	int keys = call->b->keys.max_kv_blk * s->page_tok;
	size_t n = (size_t)pieces_of(keys, out->pieces.tok), dim = (size_t)s->head_dim;
	struct desk d = { .cell = malloc((n + dim) * sizeof *d.cell),
			  .score = malloc((2 * n + dim) * sizeof *d.score),
			  .used = malloc(2 * dim * sizeof *d.used),
			  .kept = malloc(n * sizeof *d.kept) };
	bool room = d.cell && d.score && d.used && d.kept;

	if (room) {
		d.mean = d.score + n;
		d.weight = d.mean + n;
		d.large = d.used + dim;
		for (int i = 0; i < call->b->rows.n_req * s->kv_heads; i++)
			rocket_list(call, self, i, &d, &out->pieces);
	}
	free(d.cell);
	free(d.score);
	free(d.used);
	free(d.kept);
	return room ? AR_OK : ar_nomem(err);
}

static struct selector_work rocket_work(const void *param, const struct attn_shape *s,
					const struct selector_chunk *c)
{
	const struct bounds x = rocket_bounds(param);

	return bounds_work(&x, s, c);
}

#define OFF(member) offsetof(struct rocket, member)
/* clang-format off */
static const struct opt params[] = {
	{ .name = "budget", .type = OPT_INT, .off = OFF(budget), .arg = "N", .def = "256",
	  .min = 1, .max = 1 << 24, .help = "keep the best pages, N tokens together" },
	{ .name = "page", .type = OPT_INT, .off = OFF(page), .arg = "N", .def = "4", .min = 1,
	  .max = 128, .help = "tokens of a page" },
	{ .name = "topr", .type = OPT_INT, .off = OFF(topr), .arg = "N", .def = "128", .min = 1,
	  .max = 1 << 16, .help = "compare pages in the N heaviest channels of the queries" },
	{ .name = "alpha", .type = OPT_REAL, .off = OFF(alpha), .arg = "X", .def = "0",
	  .max = 1000, .help = "factor of scores before the softmax; 0: 1/sqrt(head size)" },
	{ .name = "meta-dtype", .type = OPT_ENUM, .off = OFF(type), .arg = "TYPE",
	  .def = "e5m2", .choice = bounds_types, .help = "type of a page's bounds" },
	{ .name = "round", .type = OPT_ENUM, .off = OFF(round), .arg = "WHERE", .def = "nearest",
	  .choice = bounds_rounds, .help = "how bounds are rounded to e5m2" },
	{ 0 }
};

static const struct selector_band bands[] = {
	{ "dense/decode=rocket,budget=%", "128", "124", "132", 0.001 },
	{ "dense/decode=rocket,topr=20,page=16,meta-dtype=bf16,budget=%", "160", "144", "176",
	  0.001 },
	{ "dense/decode=rocket,round=outward,alpha=0.3,budget=%", "100", "96", "104", 0.001 },
	{ 0 }
};

static const struct selector_order orders[] = {
	{ "dense/decode=rocket,budget=%", { "4", "40", "256", "5000" }, false, false },
	{ 0 }
};
/* clang-format on */

extern const struct selector selector_rocket;
const struct selector selector_rocket = {
	.version = AR_SELECTOR_VERSION,
	.name = "rocket",
	.title = "pages of a decode by bounds of their keys, in the heaviest channels",
	.origin = "RocketKV (2025), second stage, as in TensorRT-LLM",
	.params = params,
	.param_size = sizeof(struct rocket),
	.gives = SHAPE_PIECES,
	.pieces = rocket_pieces,
	.state_bytes = rocket_state_bytes,
	.append_ref = rocket_append_ref,
	.work = rocket_work,
	.ref = rocket_ref,
	.band = bands,
	.order = orders,
	.append = HAVE_CUDA ? rocket_append : NULL,
	.work_bytes = HAVE_CUDA ? rocket_work_bytes : NULL,
	.enqueue = HAVE_CUDA ? rocket_enqueue : NULL,
};
