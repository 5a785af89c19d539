/* SPDX-License-Identifier: Apache-2.0 */
/*
 * BFLA's selection: coarse blocks of keys that score high against the pooled queries of a coarse
 * query block.  All query heads of a KV head keep the same blocks.
 *
 * With b the block, i a query block, j a block of keys, p a query head:
 *
 *   flat     S[p][i][j] = max over u, v of  sum over s < g of q[i b + u g + s] . k[j b + v g + s]
 *   others   S[p][i][j] = Phi(q of i) . Phi(k of j)
 *
 * where u and v number the groups of g tokens in a block.  Phi is the mean over b tokens, rounded
 * to bf16; or the token b / 2; or in each channel the value of largest magnitude.  A block with
 * fewer than b tokens is filled up with zeros.  So a group without any token has the score 0;
 * padding=exclude leaves such groups out.  The block on the diagonal is scored whole, with keys in
 * the future of some rows; mask-future leaves out groups of keys that are later than their queries.
 * A block with no other group has no share.  Then
 *
 *   P = softmax over j of S / (sqrt(head_dim) score-div)   of the blocks not past the query block
 *
 * and a block is kept if any head of the KV head keeps it by one of three rules:
 *
 *   mass        the largest P that sum up to it, with the one that reaches it
 *   threshold   P above it
 *   ratio       that share of all blocks, with the largest S
 *
 * or if it is kept for its place:
 *
 *   sink        the first blocks
 *   local       the band of 'local' tokens before the query block, up to the query block's end.
 *               local-anchor=first ends it at the block of the first token, as BFLA's code does;
 *               rows of a chunk that begins inside a block may then not see themselves
 *   rescues     every stride-th of (131 i + 17 j + seed), and a random share
 *
 * Coarse query blocks are counted from the start of the chunk, or lie on the absolute grid.  A row
 * of the mask stands for page_tok rows on the absolute grid.  If it has rows of two coarse query
 * blocks, it keeps the blocks of both.  No row has two if the chunk begins at a multiple of
 * page_tok.
 */
#include "config.h"
#include "kernels/select/bfla/bfla.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/select/top.h"
#include "kernels/select/work.h"

static const char *const pools[] = { "flat", "mean", "center", "maxabs", NULL };
static const char *const anchors[] = { "last", "first", NULL };
static const char *const grids[] = { "chunk", "absolute", NULL };
static const char *const pads[] = { "keep", "exclude", NULL };

static enum ar_status bfla_check(const void *param, struct ar_err *err)
{
	const struct bfla *p = param;

	if (p->block % 128 || p->block & (p->block - 1))
		return ar_fail(err, AR_USAGE, "block=%lld: want 128, 256, 512 or 1024",
			       (long long)p->block);
	if (p->group != 64 && p->group != 128 && p->group != 256)
		return ar_fail(err, AR_USAGE, "group=%lld: want 64, 128 or 256",
			       (long long)p->group);
	if (p->pool == BFLA_FLAT && p->group > p->block)
		return ar_fail(err, AR_USAGE, "group=%lld: want no more than block, %lld",
			       (long long)p->group, (long long)p->block);
	return AR_OK;
}

/* ---- scores ---- */

/* Tokens of one head, for positions from lo up to hi. */
struct tokens {
	const bf16_t *x;     /* of queries: of row 0; of keys: of page 0 */
	const int32_t *page; /* NULL: queries */
	int page_tok, lo, hi;
	size_t step; /* between queries, between pages */
	int head_dim;
};

/* NULL: there is none at pos. */
static const bf16_t *token(const struct tokens *t, int pos)
{
	if (pos < t->lo || pos >= t->hi)
		return NULL;
	if (!t->page)
		return t->x + (size_t)(pos - t->lo) * t->step;
	return t->x + (size_t)t->page[pos / t->page_tok] * t->step +
	       (size_t)(pos % t->page_tok * t->head_dim);
}

static float flat_score(const struct bfla *p, const struct bfla_rows *rows, const struct tokens *q,
			int q0, const struct tokens *k, int k0)
{
	int b = (int)p->block, g = (int)p->group;
	float max = -INFINITY;

	for (int u = 0; u < b; u += g)
		for (int v = 0; v < b; v += g) {
			float sum = 0;

			if (!bfla_offers(p, rows, q0 + u, k0 + v))
				continue;
			for (int s = 0; s < g; s++) {
				const bf16_t *x = token(q, q0 + u + s), *y = token(k, k0 + v + s);

				for (int d = 0; x && y && d < q->head_dim; d++)
					sum += bf16_to_f32(x[d]) * bf16_to_f32(y[d]);
			}
			max = fmaxf(max, sum);
		}
	return max;
}

/* Channel d of the pooled tokens from position from on. */
static float pooled(const struct bfla *p, const struct tokens *t, int from, int d)
{
	int b = (int)p->block;
	float x = 0;

	for (int i = p->pool == BFLA_CENTER ? b / 2 : 0; i < b; i++) {
		const bf16_t *at = token(t, from + i);
		float y = at ? bf16_to_f32(at[d]) : 0;

		if (p->pool == BFLA_CENTER)
			return y;
		if (p->pool == BFLA_MEAN)
			x += y;
		else if (fabsf(y) > fabsf(x))
			x = y;
	}
	return p->pool == BFLA_MEAN ? bf16_round(x / (float)b) : x;
}

static float score(const struct bfla *p, const struct bfla_rows *rows, const struct tokens *q,
		   int q0, const struct tokens *k, int k0)
{
	float sum = 0;

	if (p->pool == BFLA_FLAT)
		return flat_score(p, rows, q, q0, k, k0);
	for (int d = 0; d < q->head_dim; d++)
		sum += pooled(p, q, q0, d) * pooled(p, k, k0, d);
	return sum;
}

/* ---- rules ---- */

/* Pages that have queries of coarse query block i. */
struct page_range {
	int first, last;
};

static struct page_range pages_of(const struct bfla *p, const struct bfla_rows *rows, int i,
				  int tok)
{
	int from = rows->origin + i * (int)p->block, to = from + (int)p->block;

	from = from > rows->ctx ? from : rows->ctx;
	to = to < rows->end ? to : rows->end;
	return (struct page_range){ from / tok, (to - 1) / tok };
}

/* Of the blocks that a coarse query block sees. */
struct scratch {
	float *score, *share;  /* [n] */
	struct top_cell *cell; /* [n] */
	uint8_t *keep;	       /* [n] */
};

/* Blocks up to last that one head's scores keep; n: of the request. */
static void keep_scored(const struct bfla *p, const struct scratch *x, int last, int n, float scale)
{
	float max = -INFINITY, all = 0, sum = 0;

	for (int j = 0; j <= last; j++)
		max = fmaxf(max, x->score[j]);
	for (int j = 0; j <= last; j++)
		all += x->share[j] = expf((x->score[j] - max) * scale);
	for (int j = 0; j <= last; j++) {
		x->share[j] /= all;
		x->keep[j] |= x->share[j] > (float)p->threshold;
	}
	if (p->mass > 0) {
		top_of(x->cell, x->share, last + 1);
		for (int k = 0; k <= last && (!k || sum < (float)p->mass); k++) {
			x->keep[x->cell[k].at] = 1;
			sum += x->share[x->cell[k].at];
		}
	}
	if (p->ratio > 0 || p->least > 0) {
		top_of(x->cell, x->score, last + 1);
		for (int k = 0; k <= last && k < bfla_top(p, n); k++)
			x->keep[x->cell[k].at] = 1;
	}
}

/* Write share[0..last] of coarse query block i as scores of the pages in it.  A page in two
 * coarse query blocks gets the larger share. */
static void put_scores(const struct attn_batch *b, const struct bfla *p, int r,
		       const struct bfla_rows *rows, int i, int head, const float *share, int last,
		       const struct selection *out)
{
	int tok = b->shape.page_tok, per = (int)p->block / tok;
	struct page_range own = pages_of(p, rows, i, tok);

	for (int qa = own.first; qa <= own.last; qa++) {
		float *score = selection_score(out, b, b->rows.qblk0[r] + qa - rows->ctx / tok,
					       head);

		for (int k = 0; score && k <= last; k++)
			for (int j = k * per; j < (k + 1) * per && j <= qa; j++)
				score[j] = fmaxf(score[j], share[k]);
	}
}

/* Query block i of request r and one KV head: x->keep[j] for all j up to the last it sees. */
static void keep_row(const struct attn_batch *b, const struct bfla *p, int r,
		     const struct bfla_rows *rows, int i, int kv_head, const bf16_t *q,
		     const bf16_t *k, const struct scratch *x, const struct selection *out)
{
	const struct attn_shape *s = &b->shape;
	int tok = (int)p->block, last = bfla_last(p, rows, i), group = s->q_heads / s->kv_heads;
	size_t dim = (size_t)s->head_dim, head = (size_t)s->page_tok * dim;
	struct tokens keys = { k + (size_t)kv_head * head,
			       b->keys.page + b->keys.page0[r],
			       s->page_tok,
			       0,
			       rows->end,
			       (size_t)s->kv_heads * head,
			       s->head_dim };

	memset(x->keep, 0, (size_t)last + 1);
	for (int h = kv_head * group; h < (kv_head + 1) * group; h++) {
		struct tokens own = {
			q + ((size_t)b->rows.row0[r] * (size_t)s->q_heads + (size_t)h) * dim,
			NULL,
			0,
			rows->ctx,
			rows->end,
			(size_t)s->q_heads * dim,
			s->head_dim
		};

		for (int j = 0; j <= last; j++)
			x->score[j] = score(p, rows, &own, rows->origin + i * tok, &keys, j * tok);
		keep_scored(p, x, last, (rows->end + tok - 1) / tok,
			    (float)bfla_scale(p, s->head_dim));
		put_scores(b, p, r, rows, i, h, x->share, last, out);
	}
	for (int j = 0; j <= last; j++)
		x->keep[j] |= bfla_placed(p, rows, i, j, kv_head);
}

/* ---- masks ---- */

/* For all heads of the KV head: add the coarse row to the mask rows that have rows of query block
 * i.  keep NULL: everything. */
static void add_row(const struct attn_batch *b, const struct bfla *p, int r,
		    const struct bfla_rows *rows, int i, int kv_head, const uint8_t *keep,
		    uint32_t *mask)
{
	const struct attn_shape *s = &b->shape;
	int tok = s->page_tok, group = s->q_heads / s->kv_heads, past = rows->ctx / tok;
	struct page_range own = pages_of(p, rows, i, tok);

	for (int qa = own.first; qa <= own.last; qa++)
		for (int h = kv_head * group; h < (kv_head + 1) * group; h++) {
			size_t at = (size_t)(b->rows.qblk0[r] + qa - past) * (size_t)s->q_heads +
				    (size_t)h;
			uint32_t *row = mask + at * (size_t)b->keys.mask_words;

			for (int j = 0; j <= qa; j++)
				if (!keep || keep[j * tok / (int)p->block])
					row[j / 32] |= 1u << j % 32;
		}
}

static enum ar_status bfla_ref(const struct attn_call *call, const void *self,
			       const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	size_t n = (size_t)b->keys.max_kv_blk + 1;
	struct scratch x = { malloc(n * sizeof *x.score), malloc(n * sizeof *x.share),
			     malloc(n * sizeof *x.cell), malloc(n) };
	bool good = x.score && x.share && x.cell && x.keep;
	const struct bfla *p = self;

	memset(out->mask, 0,
	       (size_t)b->rows.n_qblk * (size_t)b->shape.q_heads * (size_t)b->keys.mask_words *
		       sizeof *out->mask);
	for (int r = 0; good && r < b->rows.n_req; r++) {
		int n_row = attn_n_row(&b->rows, r);
		struct bfla_rows rows = bfla_rows(p, b->rows.pos0[r], n_row);
		bool dense = bfla_dense(p, n_row, b->rows.n_row);

		for (int i = 0; n_row && i < rows.n; i++)
			for (int h = 0; h < b->shape.kv_heads; h++) {
				if (!dense)
					keep_row(b, p, r, &rows, i, h, call->q, call->kv.k, &x,
						 out);
				add_row(b, p, r, &rows, i, h, dense ? NULL : x.keep, out->mask);
			}
	}
	free(x.score);
	free(x.share);
	free(x.cell);
	free(x.keep);
	return good ? AR_OK : ar_nomem(err);
}

/* ---- descriptor ---- */

#define OFF(member) offsetof(struct bfla, member)
/* clang-format off */
static const struct opt params[] = {
	{ .name = "block", .type = OPT_INT, .off = OFF(block), .arg = "N", .def = "256", .min = 128,
	  .max = 1024, .help = "tokens of a coarse block: 128, 256, 512 or 1024" },
	{ .name = "pool", .type = OPT_ENUM, .off = OFF(pool), .arg = "HOW", .def = "flat",
	  .choice = pools,
	  .help = "what stands for a block: groups, mean, middle, extremes" },
	{ .name = "group", .type = OPT_INT, .off = OFF(group), .arg = "N", .def = "64", .min = 64,
	  .max = 256, .help = "pool=flat: tokens of a group, 64, 128 or 256" },
	{ .name = "padding", .type = OPT_ENUM, .off = OFF(pad), .arg = "HOW",
	  .def = "keep", .choice = pads,
	  .help = "pool=flat: keep or exclude the score 0 of groups without tokens" },
	{ .name = "mask-future", .type = OPT_FLAG, .off = OFF(mask_future), .def = "0",
	  .help = "pool=flat: no scores for groups of keys later than the queries" },
	{ .name = "score-div", .type = OPT_REAL, .off = OFF(score_div), .arg = "X", .def = "1",
	  .min = 1, .max = 1e4, .help = "divide the scores by X" },
	{ .name = "mass", .type = OPT_REAL, .off = OFF(mass), .arg = "X", .def = "0.99", .max = 1,
	  .help = "keep the largest blocks until they hold a share X; 1: all, 0: off" },
	{ .name = "threshold", .type = OPT_REAL, .off = OFF(threshold), .arg = "X", .def = "1",
	  .max = 1, .help = "keep blocks with a share above X; 1: off" },
	{ .name = "ratio", .type = OPT_REAL, .off = OFF(ratio), .arg = "X", .def = "0", .max = 1,
	  .help = "keep a share X of all blocks, the largest scores; 0: off" },
	{ .name = "min-blocks", .type = OPT_INT, .off = OFF(least), .arg = "N", .def = "0",
	  .max = 65536, .help = "keep at least N blocks, the largest scores" },
	{ .name = "local", .type = OPT_INT, .off = OFF(local), .arg = "N", .def = "256",
	  .max = 1 << 30, .help = "keep the N tokens before a query block, at least one block" },
	{ .name = "local-anchor", .type = OPT_ENUM, .off = OFF(anchor), .arg = "T",
	  .def = "last", .choice = anchors,
	  .help = "end the band at the block of a query block's last or first token" },
	{ .name = "sink", .type = OPT_INT, .off = OFF(sink), .arg = "N", .def = "1", .max = 65536,
	  .help = "keep the first N blocks" },
	{ .name = "stride", .type = OPT_INT, .off = OFF(stride), .arg = "N", .def = "0",
	  .max = 65536, .help = "also keep every N-th block; 0: none" },
	{ .name = "random", .type = OPT_REAL, .off = OFF(random), .arg = "X", .def = "0", .max = 1,
	  .help = "also keep a random share X of the blocks" },
	{ .name = "seed", .type = OPT_INT, .off = OFF(seed), .arg = "N", .def = "1", .max = 1e15,
	  .help = "seed of the random blocks" },
	{ .name = "query-grid", .type = OPT_ENUM, .off = OFF(grid), .arg = "FROM", .def = "chunk",
	  .choice = grids, .help = "count query blocks from the chunk's or the prompt's start" },
	{ .name = "min-tokens", .type = OPT_INT, .off = OFF(min_tokens), .arg = "N", .def = "256",
	  .max = 1 << 30,
	  .help = "keep everything while a batch has fewer than N prompt tokens" },
	{ 0 }
};

static const struct selector_band bands[] = {
	{ "bfla:block=128,local=0,min-tokens=1,mass=%", "0.9", "0.8995", "0.9005", 0.01 },
	{ "bfla:pool=mean,min-tokens=1,stride=7,mass=%", "0.8", "0.7995", "0.8005", 0.01 },
	{ 0 }
};

static const struct selector_order orders[] = {
	{ "bfla:block=128,local=128,min-tokens=0,mass=%",
	  { "0", "0.3", "0.7", "0.95" }, true, true },
	{ "bfla:block=128,pool=mean,mass=0,local=0,min-tokens=0,threshold=%",
	  { "0.9", "0.3", "0.1", "0.01" }, true, true },
	{ "bfla:block=128,pool=maxabs,mass=0,local=0,stride=5,min-tokens=0,ratio=%",
	  { "0.1", "0.3", "0.5", "1" }, true, true },
	{ 0 }
};
/* clang-format on */

static struct selector_work bfla_work(const void *param, const struct attn_shape *s,
				      const struct selector_chunk *c)
{
	const struct bfla *p = param;

	return selector_products(
		&(struct selector_form){ .launches = 3, .share = 1.0 / (double)p->group }, s, c);
}

extern const struct selector selector_bfla;
const struct selector selector_bfla = {
	.version = AR_SELECTOR_VERSION,
	.name = "bfla",
	.title = "coarse blocks whose pooled keys match the pooled queries, per KV head",
	.origin = "BFLA (2026), block filter on flattened token groups",
	.params = params,
	.threshold = "mass",
	.param_size = sizeof(struct bfla),
	.check = bfla_check,
	.scores = true,
	.work = bfla_work,
	.ref = bfla_ref,
	.band = bands,
	.order = orders,
	.work_bytes = HAVE_CUDA ? bfla_work_bytes : NULL,
	.enqueue = HAVE_CUDA ? bfla_enqueue : NULL,
};
