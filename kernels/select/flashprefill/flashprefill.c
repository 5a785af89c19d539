/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FlashPrefill's selection: a block of keys is kept if the mean of its keys gets enough of the
 * query block's attention.
 *
 * The mean stands for a block of page_tok keys.  A row scores the mean of block j if the whole
 * block lies at or before the row:
 *
 *   x[r][j] = (q[r] . mean[j]) * log2(e) / sqrt(head_dim)      pos(r) >= j * B + B - 1
 *   w[j]    = sum over these rows r of 2^(x[r][j] - max x)
 *
 * max x is one maximum for all rows and blocks of a (query head, query block).  So a few rows with
 * large logits may decide alone.  Block j is kept if w[j] >= alpha * max w.  The first 'sink'
 * blocks and the last 'window' blocks up to the diagonal are kept, too.  No block past the diagonal
 * is kept.  Only the last row of a block scores that block's own mean.  So it is the window rule
 * that keeps the diagonal.
 *
 * The last 'last-n' query blocks of a prompt keep everything.  With last-n-rule=drop they keep no
 * block by weight, except for the first query block of a chunk: CompactAttention's code drops them
 * from its unions.
 *
 * Query blocks lie on the absolute grid of the key blocks.  Rows outside the chunk take no part,
 * and a block that is not complete has no score.  So a prompt may be cut anywhere, and no row sees
 * a later key.  A chunk of one row sees everything.
 *
 * The means are the state.  They are computed again for every block that a chunk touches: in token
 * order, in fp32, with one rounding to bf16.  So they are the same here and on the device.
 */
#include "config.h"
#include "kernels/select/flashprefill/flashprefill.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/select/means/means.h"
#include "kernels/select/work.h"

#define LOG2E 1.4426950408889634

static size_t flashprefill_state_bytes(const void *self, const struct attn_shape *s)
{
	(void)self;
	return (size_t)s->kv_heads * (size_t)s->head_dim * sizeof(bf16_t);
}

/* ---- scores and masks ---- */

struct scratch {
	float *mean; /* [head_dim][max_kv_blk] of one request and KV head */
	float *x;    /* [page_tok][max_kv_blk] */
	float *w;    /* [max_kv_blk] */
};

static void flashprefill_scratch_release(struct scratch *t)
{
	free(t->mean);
	free(t->x);
	free(t->w);
}

static enum ar_status flashprefill_scratch_init(struct scratch *t, const struct attn_batch *b,
						struct ar_err *err)
{
	size_t n = (size_t)b->keys.max_kv_blk;

	t->mean = malloc(n * (size_t)b->shape.head_dim * sizeof *t->mean);
	t->x = malloc(n * (size_t)b->shape.page_tok * sizeof *t->x);
	t->w = malloc(n * sizeof *t->w);
	return t->mean && t->x && t->w ? AR_OK : ar_nomem(err);
}

static void load_means(const struct attn_batch *b, int r, int kv_head, const bf16_t *mean,
		       float *out)
{
	const struct attn_shape *s = &b->shape;
	int end = b->keys.len[r];

	for (int j = 0; j * s->page_tok < end; j++) {
		size_t page = (size_t)b->keys.page[b->keys.page0[r] + j];
		size_t at = page * (size_t)s->kv_heads + (size_t)kv_head;
		const bf16_t *m = mean + at * (size_t)s->head_dim;

		for (int d = 0; d < s->head_dim; d++)
			out[(size_t)d * (size_t)b->keys.max_kv_blk + (size_t)j] = bf16_to_f32(m[d]);
	}
}

/* x[j], j < n, of one row; mean [head_dim][stride]. */
static void row_logits(const bf16_t *q, const float *mean, int n, int stride, int head_dim,
		       float *x)
{
	float scale = (float)(LOG2E / sqrt(head_dim));

	for (int j = 0; j < n; j++)
		x[j] = 0;
	for (int d = 0; d < head_dim; d++) {
		const float *m = mean + (size_t)d * (size_t)stride;
		float qd = bf16_to_f32(q[d]);

		for (int j = 0; j < n; j++)
			x[j] += qd * m[j];
	}
	for (int j = 0; j < n; j++)
		x[j] *= scale;
}

/* Rows [lo, hi) of request r that lie in one query block: w of the blocks up to qa, 0 where
 * no row sees the block.  Returns the largest. */
static float block_weights(const struct attn_batch *b, int r, int lo, int hi, int qa, int head,
			   const bf16_t *q, struct scratch *t)
{
	const struct attn_shape *s = &b->shape;
	float max = -INFINITY, top = 0;

	for (int i = lo; i < hi; i++) {
		size_t row = (size_t)(b->rows.row0[r] + i);
		int n = (b->rows.pos0[r] + i + 1) / s->page_tok;
		float *x = t->x + (size_t)(i - lo) * (size_t)b->keys.max_kv_blk;

		row_logits(q + (row * (size_t)s->q_heads + (size_t)head) * (size_t)s->head_dim,
			   t->mean, n, b->keys.max_kv_blk, s->head_dim, x);
		for (int j = 0; j < n; j++)
			max = x[j] > max ? x[j] : max;
	}
	for (int j = 0; j <= qa; j++)
		t->w[j] = 0;
	for (int i = lo; i < hi; i++) {
		const float *x = t->x + (size_t)(i - lo) * (size_t)b->keys.max_kv_blk;

		for (int j = 0; j < (b->rows.pos0[r] + i + 1) / s->page_tok; j++)
			t->w[j] += exp2f(x[j] - max);
	}
	for (int j = 0; j <= qa; j++)
		top = t->w[j] > top ? t->w[j] : top;
	return top;
}

/* Query block i of request r and one head: every word of its mask row, and where score is not NULL
 * the weights relative to the largest one. */
static void flashprefill_mask_row(const struct attn_batch *b, const struct flashprefill *p, int r,
				  int i, int head, const bf16_t *q, struct scratch *t,
				  uint32_t *row, float *score)
{
	int ctx = b->rows.pos0[r], end = b->keys.len[r], tok = b->shape.page_tok;
	int qa = ctx / tok + i, first = qa * tok;
	int lo = first > ctx ? first - ctx : 0;
	int hi = (first + tok < end ? first + tok : end) - ctx;
	int n_blk = (end + tok - 1) / tok;
	bool last = !b->rows.left[r] && qa >= n_blk - p->last_n, drop = p->last_rule;
	bool open = end - ctx == 1 || (p->dense_first && !ctx) || (last && !drop);
	float top = 0, least = 0;

	if (!open)
		top = block_weights(b, r, lo, hi, qa, head, q, t);
	least = last && drop && i ? INFINITY : (float)p->alpha * top;
	for (int j = 0; score && !open && j <= qa; j++)
		score[j] = top > 0 ? t->w[j] / top : 0;
	for (int w = 0; w < b->keys.mask_words; w++)
		row[w] = 0;
	for (int j = 0; j <= qa; j++)
		if (open || t->w[j] >= least || j < p->sink || qa - j < p->window)
			row[j / 32] |= 1u << j % 32;
}

static enum ar_status flashprefill_ref(const struct attn_call *call, const void *self,
				       const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const struct attn_shape *s = &b->shape;
	int group = s->q_heads / s->kv_heads;
	struct scratch t = { 0 };
	enum ar_status st = flashprefill_scratch_init(&t, b, err);

	if (st)
		goto out;
	means_update_bf16(b, call->kv.k, call->state);
	for (int r = 0; r < b->rows.n_req; r++)
		for (int h = 0; h < s->q_heads; h++) {
			if (h % group == 0)
				load_means(b, r, h / group, call->state, t.mean);
			for (int i = 0; i < b->rows.qblk0[r + 1] - b->rows.qblk0[r]; i++) {
				size_t row = (size_t)(b->rows.qblk0[r] + i) * (size_t)s->q_heads +
					     (size_t)h;

				flashprefill_mask_row(b, self, r, i, h, call->q, &t,
						      out->mask + row * (size_t)b->keys.mask_words,
						      selection_score(out, b, b->rows.qblk0[r] + i,
								      h));
			}
		}
out:
	flashprefill_scratch_release(&t);
	return st;
}

/* ---- descriptor ---- */

static int flashprefill_tail(const void *param)
{
	const struct flashprefill *p = param;

	return p->last_rule == FLASHPREFILL_OPEN ? (int)p->last_n : 0;
}

static const char *const last_rules[] = { "open", "drop", NULL };

#define OFF(member) offsetof(struct flashprefill, member)
/* clang-format off */
static const struct opt params[] = {
	{ .name = "alpha", .type = OPT_REAL, .off = OFF(alpha), .arg = "X", .def = "0.01", .max = 1,
	  .help = "keep blocks of at least X times the query block's largest weight" },
	{ .name = "sink", .type = OPT_INT, .off = OFF(sink), .arg = "N", .def = "2", .max = 65536,
	  .help = "always keep the first N blocks" },
	{ .name = "window", .type = OPT_INT, .off = OFF(window), .arg = "N", .def = "4",
	  .min = 1, .max = 65536,
	  .help = "always keep the last N blocks, the query block's own included" },
	{ .name = "last-n", .type = OPT_INT, .off = OFF(last_n), .arg = "N", .def = "0",
	  .max = 65536, .help = "keep everything for the last N query blocks of a prompt" },
	{ .name = "last-n-rule", .type = OPT_ENUM, .off = OFF(last_rule), .arg = "R",
	  .def = "open", .choice = last_rules,
	  .help = "drop: these keep no block by weight, so add nothing to a union" },
	{ .name = "dense-first", .type = OPT_FLAG, .off = OFF(dense_first), .def = "1",
	  .help = "keep everything for a chunk without context" },
	{ 0 }
};

static const struct selector_band bands[] = {
	{ "flashprefill:sink=1,window=1,dense-first=0,alpha=%", "0.05", "0.050025", "0.049975", 0 },
	{ "compact-fp:sink=0,window=2,alpha=%", "0.3", "0.30015", "0.29985", 0 },
	{ 0 }
};

static const struct selector_order orders[] = {
	{ "flashprefill:dense-first=0,sink=1,window=1,alpha=%",
	  { "1", "0.5", "0.1", "0.001" }, true, true },
	{ 0 }
};
/* clang-format on */

static struct selector_work flashprefill_work(const void *param, const struct attn_shape *s,
					      const struct selector_chunk *c)
{
	(void)param;
	return selector_products(&(struct selector_form){ .keys = SELECTOR_MEANS,
							  .launches = 3,
							  .key = s->page_tok },
				 s, c);
}

extern const struct selector selector_flashprefill;
const struct selector selector_flashprefill = {
	.version = AR_SELECTOR_VERSION,
	.name = "flashprefill",
	.title = "blocks whose mean key attracts the query block",
	.origin = "FlashPrefill (2026), block scores and max-relative threshold",
	.params = params,
	.threshold = "alpha",
	.param_size = sizeof(struct flashprefill),
	.scores = true,
	.tail = flashprefill_tail,
	.state_bytes = flashprefill_state_bytes,
	.work = flashprefill_work,
	.ref = flashprefill_ref,
	.band = bands,
	.order = orders,
	.work_bytes = HAVE_CUDA ? flashprefill_work_bytes : NULL,
	.enqueue = HAVE_CUDA ? flashprefill_enqueue : NULL,
};
