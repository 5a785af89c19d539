/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quest: a decode sees the pages with the largest bounds of its logits.  The score of page j under
 * query q is, summed over channels d,
 *
 *   max(q[d] least[j][d], q[d] most[j][d])
 *
 * which no key of the page exceeds.  Without a scale and a softmax.
 *
 *   share    the scores of a list
 *   head     of each query head; the list has the pages of any, and a mask says whose
 *   sum      sum over the query heads of a KV head
 *   mean     of their mean query
 *   request  the same, summed over all KV heads; their lists are equal
 *
 * The last pages are kept for their place, and count.  Of equal scores the first page is kept, and
 * a score that is no number counts as the least.  If pages get their bounds once they are complete,
 * the newest has no score before.
 */
#include "config.h"
#include "kernels/select/quest/quest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/select/top.h"

/* The most heads, up to a mask's 16, that divide a group. */
static int mask_heads(int group)
{
	int heads = group < 16 ? group : 16;

	while (group % heads)
		heads--;
	return heads;
}

static struct piece_form quest_pieces(const void *self, const struct attn_shape *s, int len)
{
	const struct quest *p = self;
	const int n = pieces_of(len, (int)p->page), group = s->q_heads / s->kv_heads;
	const bool mask = p->share == QUEST_HEAD;
	const int heads = mask ? mask_heads(group) : group;
	const int64_t most = quest_most(p, n) * (mask ? heads : 1);

	return (struct piece_form){ (int)p->page, heads, most < n ? (int)most : n, mask };
}

static size_t quest_state_bytes(const void *self, const struct attn_shape *s)
{
	const struct bounds x = quest_bounds(self);

	return bounds_state_bytes(&x, s);
}

static enum ar_status quest_append_ref(const struct attn_call *call, const void *self,
				       struct ar_err *err)
{
	const struct bounds x = quest_bounds(self);

	(void)err;
	bounds_append(&x, call->b, call->kv.k, call->state);
	return AR_OK;
}

/* ---- the reference ---- */

struct desk {
	struct top_cell *cell; /* of pages, as all below */
	float *score;
	uint16_t *head; /* bits of heads that keep the page */
	float *q;	/* [head_dim] */
};

/* Add the scores of query d->q to n pages of request r. */
static void add_scores(const struct attn_call *call, const struct quest *p, int r, int kv, int n,
		       struct desk *d)
{
	const struct bounds x = quest_bounds(p);
	const int dim = call->b->shape.head_dim;

	for (int j = 0; j < n; j++) {
		const size_t at = bounds_at(&x, call->b, r, kv, j);
		float sum = 0;

		for (int i = 0; i < dim; i++) {
			float low = d->q[i] * bounds_get(&x, call->state, at + (size_t)i);
			float high = d->q[i] * bounds_get(&x, call->state, at + (size_t)(i + dim));

			sum += low > high ? low : high;
		}
		d->score[j] += sum;
	}
}

/* Set d->q to the mean of n queries. */
static void mean_query(const struct attn_call *call, int r, int first, int n, struct desk *d)
{
	const struct attn_shape *s = &call->b->shape;
	const bf16_t *q = call->q + (size_t)((r * s->q_heads + first) * s->head_dim);

	for (int i = 0; i < s->head_dim; i++) {
		float sum = 0;

		for (int h = 0; h < n; h++)
			sum += bf16_to_f32(q[h * s->head_dim + i]);
		d->q[i] = sum / (float)n;
	}
}

/* Give `bits` to the pages that row r keeps by the scores. */
static void keep(const struct attn_call *call, const struct quest *p, const struct piece_lists *l,
		 int r, uint16_t bits, struct desk *d)
{
	const int len = call->b->keys.len[r], n = pieces_of(len, l->tok), last = quest_last(p, n);

	for (int j = 0; j < n; j++)
		if (isnan(d->score[j]) || j >= quest_known(p, len))
			d->score[j] = -INFINITY;
	top_of(d->cell, d->score, n - last);
	for (int i = 0; i < quest_kept(p, l, len) - last; i++)
		d->head[d->cell[i].at] |= bits;
	for (int j = n - last; j < n; j++)
		d->head[j] |= bits;
}

/* Queries in groups: each is the mean of `each` heads, from `first` on below `end`.  The scores of
 * `together` of them are added up, and keep pages. */
struct groups {
	int first, end, each, together;
};

static void choose(const struct attn_call *call, const struct quest *p, const struct piece_lists *l,
		   int r, const struct groups *g, struct desk *d)
{
	const struct attn_shape *s = &call->b->shape;
	const int n = pieces_of(call->b->keys.len[r], l->tok), group = s->q_heads / s->kv_heads;

	for (int h = g->first, bit = 0; h < g->end; bit++) {
		memset(d->score, 0, (size_t)n * sizeof *d->score);
		for (int i = 0; i < g->together; i++, h += g->each) {
			mean_query(call, r, h, g->each, d);
			add_scores(call, p, r, h / group, n, d);
		}
		keep(call, p, l, r, (uint16_t)(1 << bit), d);
	}
}

/* Choose the pages of list i. */
static void choose_list(const struct attn_call *call, const struct quest *p,
			const struct piece_lists *l, int i, struct desk *d)
{
	const struct attn_shape *s = &call->b->shape;
	const int lists = pieces_groups(s, l), first = i % lists * l->heads;
	const int end = first + l->heads;
	const struct groups by[] = { [QUEST_HEAD] = { first, end, 1, 1 },
				     [QUEST_SUM] = { first, end, 1, l->heads },
				     [QUEST_MEAN] = { first, end, l->heads, 1 },
				     [QUEST_REQUEST] = { 0, s->q_heads, l->heads, s->kv_heads } };

	choose(call, p, l, i / lists, &by[p->share], d);
}

static enum ar_status quest_ref(const struct attn_call *call, const void *self,
				const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const struct quest *p = self;
	const struct piece_lists *l = &out->pieces;
	const int groups = pieces_groups(&b->shape, l);
	const size_t most = (size_t)(b->keys.max_kv_blk * (b->shape.page_tok / l->tok));
	struct desk d = { malloc(most * sizeof *d.cell), malloc(most * sizeof *d.score),
			  malloc(most * sizeof *d.head),
			  malloc((size_t)b->shape.head_dim * sizeof *d.q) };
	const bool room = d.cell && d.score && d.head && d.q;

	for (int i = 0; room && i < b->rows.n_req * groups; i++) {
		const int len = b->keys.len[i / groups], n = pieces_of(len, l->tok);
		const bool all = quest_kept(p, l, len) == n;

		memset(d.head, all ? 0xff : 0, (size_t)n * sizeof *d.head);
		if (!all)
			choose_list(call, p, l, i, &d);
		pieces_write(l, i, d.head, n);
	}
	free(d.cell);
	free(d.score);
	free(d.head);
	free(d.q);
	return room ? AR_OK : ar_nomem(err);
}

/* Two products a channel, of each query head or of each KV head. */
static struct selector_work quest_work(const void *param, const struct attn_shape *s,
				       const struct selector_chunk *c)
{
	const struct quest *p = param;
	const struct bounds x = quest_bounds(p);
	struct selector_work w = bounds_work(&x, s, c);

	w.flops *= 2.0 * quest_rows(p, s) / s->q_heads;
	w.launches = 3;
	return w;
}

/* ---- the descriptor ---- */

static const char *const shares[] = { "head", "sum", "mean", "request", NULL };
static const char *const updates[] = { "token", "page", NULL };

#define OFF(member) offsetof(struct quest, member)
/* clang-format off */
static const struct opt params[] = {
	{ .name = "budget", .type = OPT_INT, .off = OFF(budget), .arg = "N", .def = "2048",
	  .min = 1, .max = 1 << 24, .help = "keep the best pages, N tokens together" },
	{ .name = "page", .type = OPT_INT, .off = OFF(page), .arg = "N", .def = "16", .min = 1,
	  .max = 128, .help = "tokens of a page" },
	{ .name = "share", .type = OPT_ENUM, .off = OFF(share), .arg = "BY", .def = "head",
	  .choice = shares,
	  .help = "pages of a query head, or of a KV head or request" },
	{ .name = "newest", .type = OPT_INT, .off = OFF(newest), .arg = "0|1", .def = "1",
	  .max = 1, .help = "1: always keep the last pages" },
	{ .name = "recent", .type = OPT_INT, .off = OFF(recent), .arg = "N", .def = "1",
	  .min = 1, .max = 1 << 24, .help = "these are N pages, and part of the budget" },
	{ .name = "ratio", .type = OPT_REAL, .off = OFF(ratio), .arg = "X", .def = "0",
	  .max = 1, .help = "keep this share of the other pages instead of a budget; 0: do not" },
	{ .name = "min-pages", .type = OPT_INT, .off = OFF(min_pages), .arg = "N", .def = "1",
	  .min = 1, .max = 1 << 24, .help = "keep at least N pages" },
	{ .name = "update", .type = OPT_ENUM, .off = OFF(update), .arg = "WHEN", .def = "token",
	  .choice = updates,
	  .help = "bound a page with each token, or once it is complete" },
	{ 0 }
};

static const struct selector_band bands[] = {
	{ "dense/decode=quest,page=4,budget=%", "128", "124", "132", 0.002 },
	{ "dense/decode=quest,share=sum,budget=%", "160", "144", "176", 0.002 },
	{ "dense/decode=quest,share=mean,newest=0,budget=%", "160", "144", "176",
	  0.002 },
	{ "dense/decode=quest,share=request,update=page,recent=4,ratio=%", "0.3",
	  "0.25", "0.35", 0.002 },
	{ 0 }
};

static const struct selector_order orders[] = {
	{ "dense/decode=quest,budget=%", { "16", "64", "256", "5000" }, false,
	  true },
	{ 0 }
};
/* clang-format on */

extern const struct selector selector_quest;
const struct selector selector_quest = {
	.version = AR_SELECTOR_VERSION,
	.name = "quest",
	.title = "pages of a decode by upper bounds of their logits",
	.origin = "Quest (2024); readings for groups of heads as in sparse-frontier and SGLang",
	.params = params,
	.param_size = sizeof(struct quest),
	.gives = SHAPE_PIECES,
	.pieces = quest_pieces,
	.state_bytes = quest_state_bytes,
	.append_ref = quest_append_ref,
	.work = quest_work,
	.ref = quest_ref,
	.band = bands,
	.order = orders,
	.work_bytes = HAVE_CUDA ? quest_work_bytes : NULL,
	.append = HAVE_CUDA ? quest_append : NULL,
	.enqueue = HAVE_CUDA ? quest_enqueue : NULL,
};
