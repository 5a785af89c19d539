/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ProxyAttn's selection: heads of a group rank keys alike, and each keeps as many as it needs.  The
 * paper leaves settings open; its authors have not confirmed how they are set here.
 *
 * A group g is a run of query heads.  Its proxy is the mean of their queries and of their KV heads'
 * keys, token by token, rounded to bf16.
 *
 *   A[g][t][x]  = softmax over x <= t of (q[g][t] . k[g][x]) / sqrt(head_dim)
 *   s[g][i][j]  = max over the rows t of query block i and the keys x of block j of A[g][t][x]
 *
 * How many blocks a head h needs is probed with its own queries, the last page_tok of the chunk:
 * k[h] is the fewest blocks that hold the share 'mass' of these queries' attention.  Query block i,
 * of n blocks of the request, then has a budget of ceil(k[h] (i + 1) / n) blocks.  These are the
 * first and its own, which are kept even past the budget, and the blocks of largest s; of equal s
 * the lower.
 *
 * With q-stride N only every N-th row is used.  Rows count back from a query block's last row in
 * the chunk, in the probe from the chunk's last row.
 */
#include "config.h"
#include "kernels/select/proxyattn/proxyattn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/select/scores.h"
#include "kernels/select/top.h"
#include "kernels/select/work.h"

static int proxyattn_block_tok(const void *param)
{
	return selector_block_tok(((const struct proxyattn *)param)->block);
}

static int at_most(int a, int b)
{
	return a < b ? a : b;
}

static int at_least(int a, int b)
{
	return a > b ? a : b;
}

/* ---- attention ---- */

struct scratch {
	struct scores a;	/* of a proxy or head, over the keys of one request */
	float *s;		/* [max_kv_blk] */
	struct top_cell *order; /* [max_kv_blk] */
	int *need;		/* [q_heads] */
};

static void proxyattn_scratch_release(struct scratch *t)
{
	scores_release(&t->a);
	free(t->s);
	free(t->order);
	free(t->need);
}

static enum ar_status proxyattn_scratch_init(struct scratch *t, const struct attn_batch *b,
					     struct ar_err *err)
{
	size_t n = (size_t)b->keys.max_kv_blk;
	enum ar_status st = scores_init(&t->a, b, b->shape.page_tok, err);

	t->s = malloc(n * sizeof *t->s);
	t->order = malloc(n * sizeof *t->order);
	t->need = malloc((size_t)b->shape.q_heads * sizeof *t->need);
	return st || (t->s && t->order && t->need) ? st : ar_nomem(err);
}

/* The mean of n heads' vectors, rounded to bf16; of one head, its vector.  step: between elements
 * of out. */
static void mean_head(const bf16_t *x, int n, size_t pitch, int head_dim, float *out, int step)
{
	for (int d = 0; d < head_dim; d++) {
		float sum = 0;

		for (int h = 0; h < n; h++)
			sum += bf16_to_f32(x[(size_t)h * pitch + (size_t)d]);
		out[d * step] = bf16_round(sum / (float)n);
	}
}

static void load_keys(const struct attn_batch *b, int r, const struct proxy_heads *h,
		      const bf16_t *k, struct scores *a)
{
	const struct attn_shape *s = &b->shape;
	size_t dim = (size_t)s->head_dim, tok = (size_t)s->page_tok;
	int end = b->keys.len[r];

	for (int t = 0; t < end; t++) {
		size_t page = (size_t)b->keys.page[b->keys.page0[r] + t / s->page_tok];
		size_t at = page * (size_t)s->kv_heads + (size_t)h->kv;

		mean_head(k + (at * tok + (size_t)(t % s->page_tok)) * dim, h->kv_end - h->kv,
			  tok * dim, s->head_dim, scores_key(a, t), a->ld_key);
	}
}

/* The scores of n rows, from the one at pos on backwards, stride apart. */
static void multiply_rows(const struct attn_batch *b, int r, int pos, int n, int stride,
			  const struct proxy_heads *h, const bf16_t *q, struct scores *a)
{
	const struct attn_shape *s = &b->shape;
	size_t dim = (size_t)s->head_dim;

	for (int i = 0; i < n; i++) {
		size_t row = (size_t)(b->rows.row0[r] + pos - i * stride - b->rows.pos0[r]);

		mean_head(q + (row * (size_t)s->q_heads + (size_t)h->q) * dim, h->q_end - h->q, dim,
			  s->head_dim, a->q + (size_t)i * dim, 1);
	}
	scores_multiply(a, n, pos + 1);
}

/* ---- choice ---- */

/* The fewest blocks that hold the mass of head h. */
static int fewest_blocks(const struct attn_batch *b, const struct proxyattn *p, int r, int h,
			 const bf16_t *q, struct scratch *t)
{
	const struct attn_shape *s = &b->shape;
	int kv = h / (s->q_heads / s->kv_heads), tok = s->page_tok;
	struct proxy_heads own = { h, h + 1, kv, kv + 1 };
	int n_row = attn_n_row(&b->rows, r), end = b->keys.len[r];
	int n_blk = (end + tok - 1) / tok, stride = (int)p->stride, k = 0;
	int n = (at_most(tok, n_row) + stride - 1) / stride;
	float all = 0, sum = 0;

	memset(t->s, 0, (size_t)n_blk * sizeof *t->s);
	multiply_rows(b, r, end - 1, n, stride, &own, q, &t->a);
	for (int i = 0; i < n; i++) {
		const float *a = scores_soften(&t->a, i, end - i * stride);

		for (int x = 0; x < end - i * stride; x++)
			t->s[x / tok] += a[x];
	}
	for (int j = 0; j < n_blk; j++)
		all += t->s[j];
	top_of(t->order, t->s, n_blk);
	while (k < n_blk && (!k || sum < (float)p->mass * all))
		sum += t->s[t->order[k++].at];
	return k;
}

/* s of one group and query block qa. */
static void block_scores(const struct attn_batch *b, const struct proxyattn *p, int r, int qa,
			 const struct proxy_heads *h, const bf16_t *q, struct scratch *t)
{
	int tok = b->shape.page_tok, ctx = b->rows.pos0[r], end = b->keys.len[r];
	int stride = (int)p->stride, last = at_most((qa + 1) * tok, end) - 1;
	int n = (last - at_least(qa * tok, ctx)) / stride + 1;

	memset(t->s, 0, (size_t)(qa + 1) * sizeof *t->s);
	multiply_rows(b, r, last, n, stride, h, q, &t->a);
	for (int i = 0; i < n; i++) {
		const float *a = scores_soften(&t->a, i, last - i * stride + 1);

		for (int x = 0; x <= last - i * stride; x++)
			t->s[x / tok] = fmaxf(t->s[x / tok], a[x]);
	}
}

static void proxyattn_keep(uint32_t *row, int j)
{
	row[j / 32] |= 1u << j % 32;
}

static void group(const struct attn_batch *b, const struct proxyattn *p, int r,
		  const struct proxy_heads *h, const bf16_t *q, struct scratch *t,
		  const struct selection *out)
{
	const struct attn_shape *s = &b->shape;
	int tok = s->page_tok, ctx = b->rows.pos0[r], end = b->keys.len[r];

	for (int i = b->rows.qblk0[r]; i < b->rows.qblk0[r + 1]; i++) {
		int qa = ctx / tok + i - b->rows.qblk0[r];

		block_scores(b, p, r, qa, h, q, t);
		top_of(t->order, t->s + 1, qa - 1);
		for (int head = h->q; head < h->q_end; head++) {
			size_t at = (size_t)i * (size_t)s->q_heads + (size_t)head;
			uint32_t *row = out->mask + at * (size_t)b->keys.mask_words;
			float *score = selection_score(out, b, i, head);
			int n = proxyattn_budget(t->need[head], qa, (end + tok - 1) / tok);

			if (score)
				memcpy(score, t->s, ((size_t)qa + 1) * sizeof *score);
			proxyattn_keep(row, 0);
			proxyattn_keep(row, qa);
			for (int j = 0; j < n - 2 && j < qa - 1; j++)
				proxyattn_keep(row, (int)t->order[j].at + 1);
		}
	}
}

/* A chunk of one row sees everything. */
static void open_row(const struct attn_batch *b, int r, uint32_t *mask)
{
	size_t heads = (size_t)b->shape.q_heads, words = (size_t)b->keys.mask_words;

	for (size_t h = 0; h < heads; h++)
		for (int j = 0; j <= b->rows.pos0[r] / b->shape.page_tok; j++)
			proxyattn_keep(mask + ((size_t)b->rows.qblk0[r] * heads + h) * words, j);
}

static enum ar_status proxyattn_ref(const struct attn_call *call, const void *self,
				    const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const struct proxyattn *p = self;
	const struct attn_shape *s = &b->shape;
	struct scratch t = { 0 };
	enum ar_status st = proxyattn_scratch_init(&t, b, err);

	memset(out->mask, 0,
	       (size_t)b->rows.n_qblk * (size_t)s->q_heads * (size_t)b->keys.mask_words *
		       sizeof *out->mask);
	for (int r = 0; !st && r < b->rows.n_req; r++) {
		int n_row = attn_n_row(&b->rows, r);

		if (n_row == 1)
			open_row(b, r, out->mask);
		for (int h = 0; n_row > 1 && h < s->q_heads; h++) {
			int kv_head = h / (s->q_heads / s->kv_heads);

			load_keys(b, r, &(struct proxy_heads){ h, h + 1, kv_head, kv_head + 1 },
				  call->kv.k, &t.a);
			t.need[h] = fewest_blocks(b, p, r, h, call->q, &t);
		}
		for (int g = 0; n_row > 1 && g < proxyattn_groups(p, s); g++) {
			struct proxy_heads h = proxyattn_heads(p, s, g);

			load_keys(b, r, &h, call->kv.k, &t.a);
			group(b, p, r, &h, call->q, &t, out);
		}
	}
	proxyattn_scratch_release(&t);
	return st;
}

/* ---- descriptor ---- */

#define OFF(member) offsetof(struct proxyattn, member)
/* clang-format off */
static const struct opt params[] = {
	{ .name = "groups", .type = OPT_INT, .off = OFF(groups), .arg = "N", .def = "4", .min = 1,
	  .max = 1024, .help = "groups of query heads, a mean head scores for each" },
	{ .name = "mass", .type = OPT_REAL, .off = OFF(mass), .arg = "X", .def = "0.95", .max = 1,
	  .help = "a head's budget is the fewest blocks with X of its attention" },
	{ .name = "q-stride", .type = OPT_INT, .off = OFF(stride), .arg = "N", .def = "1",
	  .min = 1, .max = 128, .help = "score with every N-th query; the cost falls as 1/N" },
	{ .name = "block", .type = OPT_ENUM, .off = OFF(block), .arg = "N", .def = "128",
	  .choice = selector_blocks, .help = "tokens of a block" },
	{ 0 }
};

static const struct selector_band bands[] = {
	{ "proxyattn:groups=2,mass=%", "0.8", "0.7995", "0.8005", 0.01 },
	{ 0 }
};

static const struct selector_order orders[] = {
	{ "proxyattn:groups=2,mass=%", { "0", "0.4", "0.8", "0.99" }, true, true },
	{ 0 }
};
/* clang-format on */

static struct selector_work proxyattn_work(const void *param, const struct attn_shape *s,
					   const struct selector_chunk *c)
{
	const struct proxyattn *p = param;

	return selector_products(&(struct selector_form){ .launches = 6,
							  .share = 1.0 / (double)p->stride,
							  .heads = p->groups,
							  .own = 128 },
				 s, c);
}

extern const struct selector selector_proxyattn;
const struct selector selector_proxyattn = {
	.version = AR_SELECTOR_VERSION,
	.name = "proxyattn",
	.title = "token scores of a mean head, a budget for each head (unverified)",
	.origin = "ProxyAttn (2025), settings that the paper leaves open are ours",
	.params = params,
	.threshold = "mass",
	.param_size = sizeof(struct proxyattn),
	.scores = true,
	.block_tok = proxyattn_block_tok,
	.work = proxyattn_work,
	.ref = proxyattn_ref,
	.band = bands,
	.order = orders,
	.work_bytes = HAVE_CUDA ? proxyattn_work_bytes : NULL,
	.enqueue = HAVE_CUDA ? proxyattn_enqueue : NULL,
};
