/* SPDX-License-Identifier: Apache-2.0 */
/*
 * H2O, heavy hitters: the last tokens stay, and before them those that rows looked at most.
 *
 * The score of a key is the sum of its softmax probabilities, over all rows so far and the query
 * heads of its KV head.  A key that leaves loses its score.
 */
#include "config.h"
#include "kernels/evict/h2o/h2o.h"

#include <stdlib.h>

#include "kernels/select/scores.h"

static int64_t h2o_kept(const void *param, int64_t n_tok)
{
	const struct h2o *p = param;

	return n_tok < p->heavy + p->recent ? n_tok : p->heavy + p->recent;
}

/* One more product of rows and keys, and sums and rows of keys read and written; then these are
 * ranked. */
static void h2o_count(const void *param, const struct evict_rows *r, struct evict_work *w)
{
	const struct attn_shape *s = r->shape;
	double pairs = r->n_row * r->stored + r->n_row * (r->n_row + 1) / 2;
	double keys = (r->stored + r->n_row) * s->kv_heads, state = 2 * sizeof(float);

	(void)param;
	w->flops += 2 * pairs * s->q_heads * s->head_dim;
	w->bytes += r->n_row * s->q_heads * s->head_dim * sizeof(bf16_t) +
		    keys * (s->head_dim * sizeof(bf16_t) + 2 * state);
	w->kernels++;
	if (!r->n_gone)
		return;
	w->bytes += keys * state;
	w->kernels++;
}

static size_t h2o_state_bytes(const void *param)
{
	(void)param;
	return sizeof(struct h2o_state);
}

static struct h2o_state *state_of(void *state, const struct attn_shape *s, const int32_t *page,
				  int h, int t)
{
	return (struct h2o_state *)state +
	       (ptrdiff_t)(page[t / s->page_tok] * s->kv_heads + h) * s->page_tok + t % s->page_tok;
}

/* A key that is new has the state of an earlier tenant of its place. */
static void clear_new(const struct attn_batch *b, int r, void *state)
{
	for (int h = 0; h < b->shape.kv_heads; h++)
		for (int t = b->rows.pos0[r]; t < b->keys.len[r]; t++)
			*state_of(state, &b->shape, b->keys.page + b->keys.page0[r], h,
				  t) = (struct h2o_state){ 0 };
}

/* Add the attention of row `row` of request r, which sees n keys, under KV head h. */
static void add_row(struct scores *x, const struct attn_call *call, int r, int h, int row, int n)
{
	const struct attn_batch *b = call->b;
	const struct attn_shape *s = &b->shape;
	int group = s->q_heads / s->kv_heads;

	for (int p = h * group; p < (h + 1) * group; p++) {
		const float *prob;

		scores_rows(x, b, row, 1, p, call->q);
		scores_multiply(x, 1, n);
		prob = scores_soften(x, 0, n);
		for (int t = 0; t < n; t++)
			state_of(call->state, s, b->keys.page + b->keys.page0[r], h, t)->sum +=
				prob[t];
	}
	for (int t = 0; t < n; t++)
		state_of(call->state, s, b->keys.page + b->keys.page0[r], h, t)->rows += 1;
}

static enum ar_status h2o_add_ref(const void *param, const struct attn_call *call,
				  struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	struct scores x;
	enum ar_status st = scores_init(&x, b, 1, err);

	(void)param;
	for (int r = 0; r < b->rows.n_req && !st; r++) {
		clear_new(b, r, call->state);
		for (int h = 0; h < b->shape.kv_heads; h++) {
			scores_keys(&x, b, r, h, call->kv.k);
			for (int i = b->rows.row0[r]; i < b->rows.row0[r + 1]; i++)
				add_row(&x, call, r, h, i, b->rows.pos[i] + 1);
		}
	}
	if (!st)
		scores_release(&x);
	return st;
}

/* Choose for request r and KV head h. */
static enum ar_status choose(const struct h2o *p, const struct evict_call *call,
			     const struct evict_req *r, int h, float *score, struct ar_err *err)
{
	int32_t *keep = call->keep + r->keep0 + (ptrdiff_t)h * r->n_keep;
	int n = r->n_cand - (int)p->recent, heavy = r->n_keep - (int)p->recent;

	for (int t = 0; t < n; t++) {
		const struct h2o_state *x = state_of(call->state, &call->shape,
						     call->page + r->page0, h, t);

		score[t] = p->norm ? x->sum / x->rows : x->sum;
	}
	for (int i = 0; i < p->recent; i++)
		keep[heavy + i] = n + i;
	return evict_top(score, n, heavy, keep, err);
}

static enum ar_status h2o_ref(const void *param, const struct evict_call *call, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (int i = 0; i < call->n_req && !st; i++) {
		const struct evict_req *r = &call->req[i];
		float *score = malloc((size_t)r->n_cand * sizeof *score);

		st = score ? AR_OK : ar_nomem(err);
		for (int h = 0; h < call->shape.kv_heads && !st; h++)
			st = choose(param, call, r, h, score, err);
		free(score);
	}
	return st;
}

#define OFF(member) offsetof(struct h2o, member)
/* clang-format off */
static const struct opt params[] = {
	{ .name = "heavy", .type = OPT_INT, .off = OFF(heavy), .arg = "N", .def = "512",
	  .min = 1, .max = 1 << 24, .help = "tokens that stay for their scores" },
	{ .name = "recent", .type = OPT_INT, .off = OFF(recent), .arg = "N", .def = "512",
	  .min = 1, .max = 1 << 24, .help = "last tokens that stay" },
	{ .name = "norm", .type = OPT_FLAG, .off = OFF(norm),
	  .help = "divide a score by the number of rows that saw its key" },
	{ 0 }
};
/* clang-format on */

extern const struct evictor evictor_h2o;
const struct evictor evictor_h2o = {
	.name = "h2o",
	.params = params,
	.param_size = sizeof(struct h2o),
	.decodes = true,
	.kept = h2o_kept,
	.work = h2o_count,
	.state_bytes = h2o_state_bytes,
	.add_ref = h2o_add_ref,
	.add_bytes = HAVE_CUDA ? h2o_add_bytes : NULL,
	.add = HAVE_CUDA ? h2o_add : NULL,
	.commit = HAVE_CUDA ? h2o_commit : NULL,
	.ref = h2o_ref,
	.work_bytes = HAVE_CUDA ? h2o_work_bytes : NULL,
	.enqueue = HAVE_CUDA ? h2o_enqueue : NULL,
};
