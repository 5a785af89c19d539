/* SPDX-License-Identifier: Apache-2.0 */
/*
 * QUOKA: single keys, chosen by their largest cosine with the queries of a chunk that are least
 * like the others.
 *
 *   m[h]        = mean over the chunk's rows of q[r][h]
 *   c[h][r]     = unit(q[r][h]) . unit(m[h])                   unit(x) = x (1 / max(|x|, 1e-6))
 *   R[h]        = the nq rows with the smallest c[h][r]        nq = floor(query-ratio * rows)
 *   qbar[g][i]  = mean over the heads h of KV head g of unit(q[R[h][i]][h])
 *   score[g][t] = max over i of qbar[g][i] . unit(k[t][g])     t < ctx
 *   list[g]     = the nb tokens with the largest score         nb = floor(kv-ratio * ctx)
 *
 * nq and nb are at least 1.  A chunk without context has nothing to select, and a chunk of one row
 * sees everything.
 *
 * Means, unit vectors and dot products are rounded to bfloat16, sums are floats.  Many scores are
 * therefore equal; of equal ones the lower index is taken.  The i-th row of every head goes into
 * one mean, so the order in R[h] matters: rows below the nq-th smallest value, then rows with just
 * that value, both ascending.
 *
 * Sums run in order of rows or channels, sums of m[h] over each query block first.  So the query
 * side has the same bits on the device; scores may differ by one rounding.
 */
#include "config.h"
#include "kernels/select/quoka/quoka.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/order.h"
#include "kernels/prim/multiply.h"
#include "kernels/select/work.h"

/* ---- vectors ---- */

/* out may be x. */
static void unit(const bf16_t *x, int n, bf16_t *out)
{
	float by = 1 / fmaxf(sqrtf(bf16_dot(x, x, n)), 1e-6f);

	for (int i = 0; i < n; i++)
		out[i] = bf16_from_f32(bf16_to_f32(x[i]) * by);
}

/* Write the k largest of n keys, of equal ones the first.  Keys above the smallest kept one come
 * first, then keys equal to it. */
static void largest(const uint16_t *key, int n, int k, int32_t *out)
{
	int least = 0, kept = 0;

	for (int bit = 1 << 15; bit; bit /= 2) {
		int count = 0;

		for (int i = 0; i < n; i++)
			count += key[i] >= (least | bit);
		least |= count >= k ? bit : 0;
	}
	for (int i = 0; i < n; i++)
		if (key[i] > least)
			out[kept++] = i;
	for (int i = 0; i < n && kept < k; i++)
		if (key[i] == least)
			out[kept++] = i;
}

/* ---- the query side ---- */

/* Of one request: vectors of a channel each, and one or one each per row of the chunk. */
struct scratch {
	bf16_t *mean, *own;
	float *qbar; /* [channel][row] */
	float *sum, *score;
	uint16_t *cosine;
	int32_t *row;
};

static bool quoka_scratch_init(struct scratch *x, size_t rows, size_t dim)
{
	x->mean = calloc(dim, sizeof *x->mean);
	x->own = calloc(dim, sizeof *x->own);
	x->qbar = calloc(rows * dim, sizeof *x->qbar);
	x->sum = calloc(rows * dim, sizeof *x->sum);
	x->score = calloc(rows, sizeof *x->score);
	x->cosine = calloc(rows, sizeof *x->cosine);
	x->row = calloc(rows, sizeof *x->row);
	return x->mean && x->own && x->qbar && x->sum && x->score && x->cosine && x->row;
}

static void quoka_scratch_release(struct scratch *x)
{
	free(x->mean);
	free(x->own);
	free(x->qbar);
	free(x->sum);
	free(x->score);
	free(x->cosine);
	free(x->row);
}

static const bf16_t *query_row(const struct attn_batch *b, const bf16_t *q, int r, int row, int h)
{
	return q + ((size_t)(b->rows.row0[r] + row) * (size_t)b->shape.q_heads + (size_t)h) *
			   (size_t)b->shape.head_dim;
}

/* unit(m[h]) */
static void mean_unit(const struct attn_batch *b, int r, int h, const bf16_t *q, bf16_t *out)
{
	int dim = b->shape.head_dim, tok = b->shape.page_tok;
	int rows = attn_n_row(&b->rows, r);

	for (int d = 0; d < dim; d++) {
		float sum = 0;

		for (int row = 0; row < rows;) {
			float part = 0;

			do
				part += bf16_to_f32(query_row(b, q, r, row++, h)[d]);
			while (row < rows && (b->rows.pos0[r] + row) % tok);
			sum += part;
		}
		out[d] = bf16_from_f32(sum / (float)rows);
	}
	unit(out, dim, out);
}

/* Add unit(q[R[h][i]][h]), i < nq, to x->sum. */
static void add_head(const struct attn_batch *b, int r, int h, int nq, const bf16_t *q,
		     struct scratch *x)
{
	int dim = b->shape.head_dim, rows = attn_n_row(&b->rows, r);

	mean_unit(b, r, h, q, x->mean);
	for (int row = 0; row < rows; row++) {
		unit(query_row(b, q, r, row, h), dim, x->own);
		x->cosine[row] =
			(uint16_t)~quoka_order(bf16_from_f32(bf16_dot(x->own, x->mean, dim)));
	}
	largest(x->cosine, rows, nq, x->row);
	for (int i = 0; i < nq; i++) {
		unit(query_row(b, q, r, x->row[i], h), dim, x->own);
		for (int d = 0; d < dim; d++)
			x->sum[i * dim + d] += bf16_to_f32(x->own[d]);
	}
}

/* ---- the key side ---- */

enum ar_status quoka_scores(const struct attn_batch *b, const struct quoka *p, int r, int kv_head,
			    const bf16_t *q, const bf16_t *k, uint16_t *score, struct ar_err *err)
{
	const struct attn_shape *s = &b->shape;
	int rows = attn_n_row(&b->rows, r), group = s->q_heads / s->kv_heads;
	int nq = quoka_queries(p, rows), dim = s->head_dim;
	struct scratch x;
	bool good = quoka_scratch_init(&x, (size_t)rows, (size_t)dim);

	for (int h = kv_head * group; good && h < (kv_head + 1) * group; h++)
		add_head(b, r, h, nq, q, &x);
	for (int i = 0; good && i < nq * dim; i++)
		x.qbar[i % dim * nq + i / dim] = bf16_round(x.sum[i] * (1 / (float)group));
	for (int t = 0; good && t < b->rows.pos0[r]; t++) {
		size_t page = (size_t)b->keys.page[b->keys.page0[r] + t / s->page_tok];
		size_t at = (page * (size_t)s->kv_heads + (size_t)kv_head) * (size_t)s->page_tok +
			    (size_t)(t % s->page_tok);
		float max = -INFINITY;

		unit(k + at * (size_t)dim, dim, x.own);
		memset(x.score, 0, (size_t)nq * sizeof *x.score);
		for (int d = 0; d < dim; d++)
			multiply_add(x.score, bf16_to_f32(x.own[d]), x.qbar + d * nq, nq);
		for (int i = 0; i < nq; i++)
			max = fmaxf(max, x.score[i]);
		score[t] = quoka_order(bf16_from_f32(max));
	}
	quoka_scratch_release(&x);
	return good ? AR_OK : ar_nomem(err);
}

static enum ar_status quoka_ref(const struct attn_call *call, const void *self,
				const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const struct attn_shape *s = &b->shape;
	uint16_t *score =
		malloc(((size_t)b->keys.max_kv_blk * (size_t)s->page_tok + 1) * sizeof *score);
	enum ar_status st = score ? AR_OK : ar_nomem(err);

	for (int r = 0; r < b->rows.n_req; r++)
		for (int h = 0; h < s->kv_heads && !st; h++) {
			size_t row = attn_token_row(s, b->keys.page0[r],
						    b->keys.page0[r + 1] - b->keys.page0[r], h);
			int32_t *tok = out->tokens.tok + row;
			int keep = quoka_keep(self, b->rows.pos0[r], attn_n_row(&b->rows, r));

			out->tokens.n[r * s->kv_heads + h] = keep;
			if (!keep)
				continue;
			st = quoka_scores(b, self, r, h, call->q, call->kv.k, score, err);
			if (st)
				break;
			for (int t = 0; out->score && t < b->rows.pos0[r]; t++)
				out->score[row + (size_t)t] = bf16_to_f32(quoka_unorder(score[t]));
			largest(score, b->rows.pos0[r], keep, tok);
			qsort(tok, (size_t)keep, sizeof *tok, order_i32);
		}
	free(score);
	return st;
}

#define OFF(member) offsetof(struct quoka, member)
/* clang-format off */
static const struct opt params[] = {
	{ .name = "query-ratio", .type = OPT_REAL, .off = OFF(query_ratio), .arg = "X",
	  .def = "0.25", .max = 1,
	  .help = "share of the rows of a chunk that score for it" },
	{ .name = "queries", .type = OPT_INT, .off = OFF(queries), .arg = "N", .def = "0",
	  .max = 1 << 20, .help = "number of these rows instead; 0: by query-ratio" },
	{ .name = "kv-ratio", .type = OPT_REAL, .off = OFF(kv_ratio), .arg = "X", .def = "0.25",
	  .max = 1, .help = "keep a share X of the tokens before the chunk" },
	{ .name = "tokens", .type = OPT_INT, .off = OFF(tokens), .arg = "N", .def = "0",
	  .max = 1 << 20, .help = "number of tokens to keep instead; 0: by kv-ratio" },
	{ 0 }
};

static const struct selector_band bands[] = {
	{ "quoka:kv-ratio=%", "0.25", "0.22", "0.28", 0.03 },
	{ 0 }
};

static const struct selector_order orders[] = {
	{ "quoka:kv-ratio=%", { "0.05", "0.2", "0.5", "0.9" }, false, false },
	{ 0 }
};
/* clang-format on */

static struct selector_work quoka_work(const void *param, const struct attn_shape *s,
				       const struct selector_chunk *c)
{
	const struct quoka *p = param;

	return selector_products(&(struct selector_form){ .launches = 8,
							  .share = p->query_ratio,
							  .heads = s->kv_heads },
				 s, c);
}

extern const struct selector selector_quoka;
const struct selector selector_quoka = {
	.version = AR_SELECTOR_VERSION,
	.name = "quoka",
	.title = "tokens like the queries that are least like the others",
	.origin = "QUOKA (2026), as the baseline of CompactAttention (2026) runs it",
	.params = params,
	.threshold = "kv-ratio",
	.param_size = sizeof(struct quoka),
	.gives = SHAPE_TOKENS,
	.scores = true,
	.work = quoka_work,
	.ref = quoka_ref,
	.band = bands,
	.order = orders,
	.work_bytes = HAVE_CUDA ? quoka_work_bytes : NULL,
	.enqueue = HAVE_CUDA ? quoka_enqueue : NULL,
};
