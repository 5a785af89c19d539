/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "tests/batch_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tap.h"

static void *need(size_t n, size_t size)
{
	void *p = calloc(n ? n : 1, size);

	if (!p)
		bail_out("out of memory");
	return p;
}

int case_draw_len(struct rng *rng, int max)
{
	return (int)exp(rng_unit(rng) * log(max + 1));
}

size_t case_page_elements(const struct batch_case *c)
{
	const struct attn_shape *s = &c->b.shape;

	return (size_t)s->kv_heads * (size_t)s->page_tok * (size_t)s->head_dim;
}

size_t case_mask_words(const struct batch_case *c)
{
	return (size_t)c->b.rows.n_qblk * (size_t)c->b.shape.q_heads * (size_t)c->b.keys.mask_words;
}

bool case_kept(const struct batch_case *c, int qblk, int head, int j)
{
	const uint32_t *row = c->mask + (size_t)(qblk * c->b.shape.q_heads + head) *
						(size_t)c->b.keys.mask_words;

	return row[j / 32] >> j % 32 & 1;
}

/* Nearly normal, variance 1, from one draw: the sum of four uniforms. */
static float noise(struct rng *rng)
{
	uint64_t x = rng_u64(rng);
	uint32_t sum = (uint32_t)(x & 0xffff) + (x >> 16 & 0xffff) + (x >> 32 & 0xffff) +
		       (uint32_t)(x >> 48);

	return ((float)sum - 131070.0f) * (1.7320508f / 65536.0f);
}

static void shuffle_pages(struct batch_case *c, struct rng *rng)
{
	c->n_page = c->page0[c->n_seq] + 3;
	c->page = need((size_t)c->n_page, sizeof *c->page);
	for (int i = 0; i < c->n_page; i++) {
		int k = (int)rng_below(rng, (uint64_t)i + 1);

		c->page[i] = c->page[k];
		c->page[k] = i;
	}
}

/* Fill one page of one KV head with keys and values of the tokens from first on, up to len. */
static void fill_page(struct batch_case *c, struct rng *rng, enum case_fill fill, size_t at,
		      int first, int len)
{
	const struct attn_shape *s = &c->b.shape;
	int n_tok = len - first < s->page_tok ? len - first : s->page_tok;
	bf16_t *k = c->kv.k + at * (size_t)(s->page_tok * s->head_dim);
	bf16_t *v = c->kv.v + at * (size_t)(s->page_tok * s->head_dim);
	float dir[256] = { 0 };

	for (int d = 0; fill == FILL_BLOCKS && d < s->head_dim; d++)
		dir[d] = noise(rng) * 1.5f;
	for (int t = 0; t < n_tok; t++) {
		float rise = fill == FILL_RISING ? 60.0f * (float)(first + t) / (float)len - 30 : 0;

		for (int d = 0; d < s->head_dim; d++) {
			float x = fill == FILL_EQUAL ? 0.5f : dir[d] + rise + noise(rng);

			k[t * s->head_dim + d] = bf16_from_f32(x);
			v[t * s->head_dim + d] = bf16_from_f32(noise(rng));
		}
	}
}

static void fill_cache(struct batch_case *c, struct rng *rng, enum case_fill fill)
{
	const struct attn_shape *s = &c->b.shape;
	size_t n_state = (size_t)c->n_page * (size_t)(s->kv_heads * s->head_dim);

	c->kv.k = need(c->kv_len, sizeof(bf16_t));
	c->kv.v = need(c->kv_len, sizeof(bf16_t));
	c->state = need(n_state, sizeof(bf16_t));
	memset(c->kv.k, 0x7f, c->kv_len * sizeof(bf16_t));
	memset(c->kv.v, 0x7f, c->kv_len * sizeof(bf16_t));
	memset(c->state, 0xff, n_state * sizeof(bf16_t));
	for (int r = 0; r < c->n_seq; r++)
		for (int j = 0; j * s->page_tok < c->len[r]; j++)
			for (int h = 0; h < s->kv_heads; h++) {
				size_t page = (size_t)c->page[c->page0[r] + j];

				fill_page(c, rng, fill, page * (size_t)s->kv_heads + (size_t)h,
					  j * s->page_tok, c->len[r]);
			}
}

void case_make_bare(struct batch_case *c, struct rng *rng, struct attn_shape s, int n_seq,
		    const int *len)
{
	size_t n = (size_t)n_seq;

	memset(c, 0, sizeof *c);
	c->b.shape = s;
	c->n_seq = n_seq;
	c->len = need(n, sizeof *c->len);
	c->at = need(n + 1, sizeof *c->at);
	c->row0 = need(n + 1, sizeof *c->row0);
	c->qblk0 = need(n + 1, sizeof *c->qblk0);
	c->page0 = need(n + 1, sizeof *c->page0);
	c->ctx = need(n, sizeof *c->ctx);
	c->left = need(n, sizeof *c->left);
	c->end = need(n, sizeof *c->end);
	for (int r = 0; r < n_seq; r++) {
		c->len[r] = len[r];
		c->at[r + 1] = c->at[r] + (size_t)len[r];
		c->page0[r + 1] = c->page0[r] + (len[r] + s.page_tok - 1) / s.page_tok;
	}
	c->pos = need(c->at[n], sizeof *c->pos);
	c->first = need(c->at[n], sizeof *c->first);
	shuffle_pages(c, rng);
	c->kv_len = (size_t)c->n_page * case_page_elements(c);
}

void case_make(struct batch_case *c, struct rng *rng, enum case_fill fill, struct attn_shape s,
	       int n_seq, const int *len)
{
	float scale = fill == FILL_HUGE ? 30 : 1;
	size_t n_q;

	case_make_bare(c, rng, s, n_seq, len);
	fill_cache(c, rng, fill);
	n_q = c->at[n_seq] * (size_t)(s.q_heads * s.head_dim);
	c->all_q = need(n_q, sizeof(bf16_t));
	for (size_t i = 0; i < n_q; i++)
		c->all_q[i] = bf16_from_f32(scale * noise(rng));
}

/* Copy the queries of the batch and set its masks. */
static void cut_data(struct batch_case *c, const int *ctx, const int *rows)
{
	size_t row = (size_t)(c->b.shape.q_heads * c->b.shape.head_dim);

	free(c->q);
	free(c->mask);
	c->q = need(c->q_len, sizeof(bf16_t));
	c->mask = need(case_mask_words(c), sizeof(uint32_t));
	memset(c->mask, 0xff, case_mask_words(c) * sizeof(uint32_t));
	for (int r = 0; r < c->n_seq; r++)
		memcpy(c->q + (size_t)c->row0[r] * row,
		       c->all_q + (c->at[r] + (size_t)ctx[r]) * row,
		       (size_t)rows[r] * row * sizeof(bf16_t));
}

void case_cut(struct batch_case *c, const int *ctx, const int *rows)
{
	struct attn_batch *b = &c->b;
	int tok = b->shape.page_tok;

	b->keys.max_kv_blk = 1;
	for (int r = 0; r < c->n_seq; r++) {
		int end = ctx[r] + rows[r], n_blk = (end + tok - 1) / tok;

		c->ctx[r] = ctx[r];
		c->end[r] = end;
		c->left[r] = c->len[r] - end;
		c->row0[r + 1] = c->row0[r] + rows[r];
		c->qblk0[r + 1] = c->qblk0[r] + (rows[r] ? n_blk - ctx[r] / tok : 0);
		b->keys.max_kv_blk = n_blk > b->keys.max_kv_blk ? n_blk : b->keys.max_kv_blk;
		for (int i = 0; i < rows[r]; i++)
			c->pos[c->row0[r] + i] = ctx[r] + i;
	}
	b->rows = (struct attn_rows){ c->n_seq,
				      c->row0[c->n_seq],
				      c->qblk0[c->n_seq],
				      c->row0,
				      c->pos,
				      c->ctx,
				      c->qblk0,
				      c->left,
				      NULL,
				      NULL };
	b->keys = (struct attn_keys){ c->page0[c->n_seq],
				      b->keys.max_kv_blk,
				      (b->keys.max_kv_blk + 31) / 32,
				      c->end,
				      c->page0,
				      c->page,
				      NULL };
	b->tile = NULL;
	b->n_tile = b->n_part = 0;
	c->q_len = (size_t)b->rows.n_row * (size_t)(b->shape.q_heads * b->shape.head_dim);
	if (c->all_q)
		cut_data(c, ctx, rows);
}

static int *chunk_ends(int n_req, const int *ctx, const int *rows)
{
	int *len = need((size_t)n_req, sizeof *len);

	for (int r = 0; r < n_req; r++)
		len[r] = ctx[r] + rows[r];
	return len;
}

void case_chunks(struct batch_case *c, struct rng *rng, enum case_fill fill, struct attn_shape s,
		 int n_req, const int *ctx, const int *rows)
{
	int *len = chunk_ends(n_req, ctx, rows);

	case_make(c, rng, fill, s, n_req, len);
	case_cut(c, ctx, rows);
	free(len);
}

void case_bare_chunks(struct batch_case *c, struct rng *rng, struct attn_shape s, int n_req,
		      const int *ctx, const int *rows)
{
	int *len = chunk_ends(n_req, ctx, rows);

	case_make_bare(c, rng, s, n_req, len);
	case_cut(c, ctx, rows);
	free(len);
}

/* The blocks of request r before its first visible key become one of the spare pages. */
static void lose_blocks(struct batch_case *c, int r)
{
	size_t len = case_page_elements(c);
	int lost = c->page[c->page0[c->n_seq]], n = c->first[c->row0[r]] / c->b.shape.page_tok;

	for (int j = 0; j < n; j++)
		c->page[c->page0[r] + j] = lost;
	if (!c->kv.k)
		return;
	memset(c->kv.k + (size_t)lost * len, 0xff, len * sizeof *c->kv.k);
	memset(c->kv.v + (size_t)lost * len, 0xff, len * sizeof *c->kv.v);
}

void case_window(struct batch_case *c, int window, struct rng *rng)
{
	for (int r = 0; r < c->n_seq; r++) {
		int from = (int)rng_below(rng, (uint64_t)c->ctx[r] + 1);

		for (int i = c->row0[r]; i < c->row0[r + 1]; i++) {
			if (rng_below(rng, 4) == 0)
				from += (int)rng_below(rng, (uint64_t)(c->pos[i] - from) + 1);
			c->first[i] = !window		 ? from :
				      c->pos[i] < window ? 0 :
							   c->pos[i] - window + 1;
		}
		if (c->row0[r] < c->row0[r + 1])
			lose_blocks(c, r);
	}
	c->b.rows.first = c->first;
}

/* Keys [0, n) get the positions [0, n) in random order. */
static void draw_positions(int32_t *pos, int n, struct rng *rng)
{
	for (int i = 0; i < n; i++) {
		int k = (int)rng_below(rng, (uint64_t)i + 1);

		pos[i] = pos[k];
		pos[k] = i;
	}
}

void case_positions(struct batch_case *c, const int *rows, struct rng *rng)
{
	struct attn_batch *b = &c->b;
	size_t row = (size_t)(b->shape.q_heads * b->shape.head_dim), n = 0, at = 0, n_key;
	int32_t *a, *key;

	for (int r = 0; r < c->n_seq; r++)
		n += (size_t)rows[r];
	n_key = (size_t)c->page0[c->n_seq] * (size_t)b->shape.page_tok;
	a = c->shared = need(8 * n + 3 + n_key, sizeof *a);
	key = a + 8 * n + 3;
	b->rows = (struct attn_rows){ .n_req = (int)n, .n_row = (int)n, .n_qblk = (int)n };
	b->rows.row0 = b->rows.qblk0 = a;
	b->rows.pos = b->rows.pos0 = a + n + 1;
	b->rows.left = a + 2 * n + 1;
	b->rows.own = a + 3 * n + 1;
	b->keys.len = a + 4 * n + 1;
	b->keys.page0 = a + 5 * n + 1;
	b->keys.pos = key;
	free(c->q);
	c->q_len = n * row;
	c->q = need(c->q_len, sizeof *c->q);
	for (int r = 0; r < c->n_seq; r++) {
		int len = c->len[r], from = c->page0[r];

		draw_positions(key + from * b->shape.page_tok, len, rng);
		for (int i = 0; i < rows[r]; i++, at++) {
			size_t q = c->at[r] + rng_below(rng, (uint64_t)len);

			a[at + 1] = (int32_t)at + 1;
			a[n + 1 + at] = len - 1;
			a[2 * n + 1 + at] = 0;
			a[3 * n + 1 + at] = (int32_t)rng_below(rng, (uint64_t)len);
			a[4 * n + 1 + at] = len;
			a[5 * n + 1 + at] = a[5 * n + 2 + at] = from;
			memcpy(c->q + at * row, c->all_q + q * row, row * sizeof *c->q);
		}
	}
}

void case_sinks(struct batch_case *c, struct rng *rng)
{
	int n = c->b.shape.q_heads;

	free(c->sink);
	c->sink = need((size_t)n, sizeof *c->sink);
	for (int h = 0; h < n; h++)
		c->sink[h] = 3 * noise(rng);
}

void case_overflow(struct batch_case *c, struct rng *rng)
{
	size_t n = (size_t)c->b.shape.q_heads * (size_t)c->b.shape.head_dim;

	for (int i = 0; i < c->b.rows.n_row; i++)
		if (!rng_below(rng, 4))
			memset(c->q + (size_t)i * n, 0xff, n * sizeof *c->q);
}

void case_plan(struct batch_case *c, attend_plan_fn *cut, int heads)
{
	free(c->tile);
	c->b.n_tile = cut(&c->b, heads, NULL);
	c->tile = need((size_t)c->b.n_tile, sizeof *c->tile);
	cut(&c->b, heads, c->tile);
	c->b.tile = c->tile;
	c->b.n_part = executor_count_parts(c->tile, c->b.n_tile);
}

void case_release(struct batch_case *c)
{
	free(c->kv.k);
	free(c->kv.v);
	free(c->q);
	free(c->state);
	free(c->mask);
	free(c->shared);
	free(c->len);
	free(c->at);
	free(c->all_q);
	free(c->row0);
	free(c->ctx);
	free(c->qblk0);
	free(c->page0);
	free(c->page);
	free(c->left);
	free(c->end);
	free(c->pos);
	free(c->tile);
	free(c->first);
	free(c->sink);
	memset(c, 0, sizeof *c);
}

/* ---- the worked example ---- */

void case_example(struct batch_case *c)
{
	static const float k[14][2] = { { 2, 0 }, { 2, 0 },  { 0, 4 },	{ 0, 4 },  { 4, -2 },
					{ 0, 2 }, { -3, 0 }, { -5, 0 }, { 0, -1 }, { 0, -1 },
					{ 1, 1 }, { 1, 1 },  { 1, -1 }, { 1, -1 } };
	static const float q[4][2][2] = { /* [row][head] */
					  { { 2, 0 }, { 0, 2 } },
					  { { 2, 0 }, { 0, 2 } },
					  { { 0, -2 }, { -2, 0 } },
					  { { 2, 0 }, { -2, 0 } }
	};
	static const struct attn_shape s = {
		.q_heads = 2, .kv_heads = 1, .head_dim = 2, .page_tok = 2
	};
	struct rng rng = { 1 };

	case_make(c, &rng, FILL_BLOCKS, s, 1, (int[]){ 14 });
	for (int t = 0; t < 14; t++)
		for (int d = 0; d < 2; d++) {
			int at = (c->page[t / 2] * 2 + t % 2) * 2 + d;

			c->kv.k[at] = bf16_from_f32(k[t][d]);
			c->kv.v[at] = bf16_from_f32((float)(d ? -t : t));
		}
	for (int i = 0; i < 16; i++)
		c->all_q[10 * 4 + i] = bf16_from_f32(q[i / 4][i / 2 % 2][i % 2]);
}

void case_example_out(enum case_example which, float out[16])
{
	static const float first[][2][4] = {
		/* [head][row], of the first channel */
		[EXAMPLE_DENSE] = { { 3.736581f, 3.826211f, 6.103889f, 4.035125f },
				    { 2.634018f, 2.691163f, 6.939775f, 6.940951f } },
		[EXAMPLE_BLOCKS] = { { 3.714782f, 3.805778f, 5.124460f, 3.855740f },
				     { 2.546403f, 2.606075f, 6.944567f, 6.945747f } },
		[EXAMPLE_UNION] = { { 3.707466f, 3.797999f, 5.333435f, 4.008826f },
				    { 2.629245f, 2.686469f, 6.937280f, 6.938458f } },
	};

	for (int i = 0; i < 16; i++)
		out[i] = first[which][i / 2 % 2][i / 4] * (i % 2 ? -1 : 1);
}

void case_formula(struct batch_case *c, struct attn_shape s, int len)
{
	struct rng rng = { 1 };

	case_make(c, &rng, FILL_NORMAL, s, 1, &len);
	for (int t = 0; t < len; t++)
		for (int d = 0; d < s.head_dim; d++) {
			for (int h = 0; h < s.q_heads; h++)
				c->all_q[(t * s.q_heads + h) * s.head_dim + d] = bf16_from_f32(
					(float)((5 * h + 3 * t + 7 * d + t * t) % 37 - 18) / 8);
			for (int h = 0; h < s.kv_heads; h++) {
				int at = ((c->page[t / s.page_tok] * s.kv_heads + h) * s.page_tok +
					  t % s.page_tok) *
						 s.head_dim +
					 d;

				c->kv.k[at] = bf16_from_f32(
					(float)((3 * h + 5 * t + 2 * d + 2 * t * t) % 41 - 20) / 8);
				c->kv.v[at] = bf16_from_f32(
					(float)((7 * h + 2 * t + 3 * d + 3 * t * t) % 31 - 15) / 8);
			}
		}
}

void case_decode_keys(struct batch_case *c, int len)
{
	const struct attn_shape s = { 4, 2, 4, 8 };

	case_formula(c, s, len);
	for (int t = 0; t < len; t++)
		for (int d = 0; d < s.head_dim; d++)
			for (int h = 0; h < s.kv_heads; h++)
				c->kv.k[(((c->page[t / 8] * s.kv_heads + h) * 8) + t % 8) * 4 + d] =
					bf16_from_f32(
						(float)((3 * h + t * t * t + 2 * d + d * t) % 41 -
							20) /
						8);
}

void case_decode_example(struct batch_case *c)
{
	case_decode_keys(c, 39);
	case_cut(c, (int[]){ 38 }, (int[]){ 1 });
}

void case_unit_values(struct batch_case *c)
{
	int tok = c->b.shape.page_tok, dim = c->b.shape.head_dim;

	for (int t = 0; t < c->len[0]; t++)
		for (int d = 0; d < dim; d++)
			c->kv.v[(size_t)((c->page[t / tok] * tok + t % tok) * dim + d)] =
				bf16_from_f32(d == t);
}

/* ---- block lists ---- */

int case_n_list(const struct batch_case *c, attend_plan_fn *cut, int heads)
{
	const struct attn_shape *s = &c->b.shape;
	int group = s->q_heads / s->kv_heads;

	if (cut == attend_plan_blocks)
		return c->b.rows.n_qblk * s->q_heads;
	heads = heads ? heads : group;
	return c->b.rows.n_req * s->kv_heads * ((group + heads - 1) / heads);
}

void case_lists(const struct batch_case *c, int n, double density, struct block_lists *l,
		struct rng *rng)
{
	l->stride = c->b.keys.max_kv_blk;
	l->block = need((size_t)n * (size_t)l->stride, sizeof *l->block);
	l->n = need((size_t)n, sizeof *l->n);
	for (int i = 0; i < n; i++) {
		uint16_t *list = l->block + (size_t)i * (size_t)l->stride;
		double keep = rng_below(rng, 8) ? density : 0;

		for (int j = 0; j < c->b.keys.max_kv_blk; j++)
			if (rng_unit(rng) < keep)
				list[l->n[i]++] = (uint16_t)j;
	}
}

void lists_free(struct block_lists *l)
{
	free(l->block);
	free(l->n);
	memset(l, 0, sizeof *l);
}

/* ---- lists of other kinds ---- */

static int n_blocks(int n_tok, int page_tok)
{
	return (n_tok + page_tok - 1) / page_tok;
}

void case_tables(const struct batch_case *c, int heads, double density, struct block_lists *l,
		 struct rng *rng)
{
	int tok = c->b.shape.page_tok, n = case_n_list(c, attend_plan_rows, heads);

	l->stride = c->b.keys.max_kv_blk;
	l->block = need((size_t)n * (size_t)l->stride, sizeof *l->block);
	l->n = need((size_t)n, sizeof *l->n);
	for (int i = 0; i < n; i++) {
		uint16_t *list = l->block + (size_t)i * (size_t)l->stride;
		int r = i / (n / c->b.rows.n_req), end = c->ctx[r] + c->row0[r + 1] - c->row0[r];

		for (int j = 0; j < n_blocks(end, tok); j++)
			if (j >= c->ctx[r] / tok || rng_unit(rng) < density)
				list[l->n[i]++] = (uint16_t)j;
	}
}

void case_tokens(const struct batch_case *c, double density, struct token_lists *l, struct rng *rng)
{
	const struct attn_shape *s = &c->b.shape;
	size_t heads = (size_t)s->kv_heads;

	l->tok = need((size_t)c->b.keys.n_page * (size_t)s->page_tok * heads, sizeof *l->tok);
	l->n = need((size_t)c->b.rows.n_req * heads, sizeof *l->n);
	for (int r = 0; r < c->b.rows.n_req; r++)
		for (int h = 0; h < s->kv_heads; h++) {
			int32_t *n = &l->n[r * s->kv_heads + h];
			int n_page = c->page0[r + 1] - c->page0[r];
			int32_t *tok = l->tok + attn_token_row(s, c->page0[r], n_page, h);
			double keep = rng_below(rng, 8) ? density : 0;

			for (int t = 0; t < c->ctx[r]; t++)
				if (rng_unit(rng) < keep)
					tok[(*n)++] = t;
		}
}

void tokens_free(struct token_lists *l)
{
	free(l->tok);
	free(l->n);
	memset(l, 0, sizeof *l);
}

/* Draw one row, for the query block that begins at position st. */
static void draw_columns(struct column_lists *l, size_t row, int st, int tok, double density,
			 struct rng *rng)
{
	int32_t *run = l->run + row * (size_t)l->max_run, *n_run = &l->n_run[row];
	int32_t *col = l->col + row * (size_t)l->max_col, *n_col = &l->n_col[row];
	bool runs = rng_below(rng, 8), cols = rng_below(rng, 8);
	int at = 0;

	while (at < st + tok) {
		int next = at + (int)rng_below(rng, (uint64_t)(1 + tok / density));

		next = runs && next < st + tok ? next : st + tok;
		for (; at < next; at++)
			if (cols && at < st && rng_unit(rng) < density)
				col[(*n_col)++] = at;
		if (at < st + tok) {
			run[(*n_run)++] = at;
			at += tok;
		}
	}
	if (rng_below(rng, 2))
		l->band[row] = (struct attn_band){ (int)rng_below(rng, (uint64_t)(st + tok)),
						   1 + (int)rng_below(rng, (uint64_t)(st + tok)),
						   (int)rng_below(rng, (uint64_t)(3 * tok)) };
}

void case_columns(const struct batch_case *c, double density, struct column_lists *l,
		  struct rng *rng)
{
	const struct attn_shape *s = &c->b.shape;
	size_t n = (size_t)c->b.rows.n_qblk * (size_t)s->q_heads;

	l->max_run = c->b.keys.max_kv_blk + 1;
	l->max_col = c->b.keys.max_kv_blk * s->page_tok;
	l->run = need(n * (size_t)l->max_run, sizeof *l->run);
	l->n_run = need(n, sizeof *l->n_run);
	l->col = need(n * (size_t)l->max_col, sizeof *l->col);
	l->n_col = need(n, sizeof *l->n_col);
	l->band = need(n, sizeof *l->band);
	for (int r = 0; r < c->b.rows.n_req; r++)
		for (int i = c->qblk0[r]; i < c->qblk0[r + 1]; i++)
			for (int h = 0; h < s->q_heads; h++)
				draw_columns(l, (size_t)i * (size_t)s->q_heads + (size_t)h,
					     (c->ctx[r] / s->page_tok + i - c->qblk0[r]) *
						     s->page_tok,
					     s->page_tok, density, rng);
}

void columns_free(struct column_lists *l)
{
	free(l->run);
	free(l->n_run);
	free(l->col);
	free(l->n_col);
	free(l->band);
	memset(l, 0, sizeof *l);
}

void case_pieces(const struct batch_case *c, int tok, int heads, bool masked, double density,
		 struct piece_lists *l, struct rng *rng)
{
	const int per_req = c->b.shape.q_heads / heads;
	const size_t n = (size_t)(c->b.rows.n_req * per_req);
	const size_t stride = (size_t)(c->b.keys.max_kv_blk * c->b.shape.page_tok / tok);

	*l = (struct piece_lists){ .tok = tok, .heads = heads, .stride = (int)stride };
	l->piece = need(n * stride, sizeof *l->piece);
	l->n = need(n, sizeof *l->n);
	l->mask = masked ? need(n * stride, sizeof *l->mask) : NULL;
	for (size_t i = 0; i < n; i++) {
		double keep = density > 1 || rng_below(rng, 8) ? density : 0;

		for (int j = 0; j <= c->ctx[(int)i / per_req] / tok; j++)
			if (rng_unit(rng) < keep)
				l->piece[i * stride + (size_t)l->n[i]++] = j;
		for (size_t k = 0; masked && k < (size_t)l->n[i]; k++)
			l->mask[i * stride + k] = (uint16_t)rng_below(rng, 1 << 16);
	}
}

void pieces_free(struct piece_lists *l)
{
	free(l->piece);
	free(l->n);
	free(l->mask);
	memset(l, 0, sizeof *l);
}

/* Draw pieces of any size; half of the lists have masks. */
static void draw_pieces(const struct batch_case *c, struct piece_lists *l, struct rng *rng)
{
	int group = c->b.shape.q_heads / c->b.shape.kv_heads, heads = group, tok = 1;

	while (tok < c->b.shape.page_tok && rng_below(rng, 4))
		tok *= 2;
	if (rng_below(rng, 3) == 0)
		heads = 1;
	case_pieces(c, tok, heads, heads <= 16 && rng_below(rng, 2), 0.4, l, rng);
}

bool case_shape(const struct batch_case *c, unsigned shape, int most_heads,
		struct executor_lists *l, struct rng *rng)
{
	*l = (struct executor_lists){ 0 };
	switch (shape) {
	case SHAPE_ALL: return true;
	case SHAPE_MASK:
		case_lists(c, case_n_list(c, attend_plan_blocks, 0), 0.4, &l->blocks, rng);
		return true;
	case SHAPE_TABLE:
		l->heads = 1 + (int)rng_below(rng, (uint64_t)most_heads);
		case_tables(c, l->heads, 0.4, &l->blocks, rng);
		return true;
	case SHAPE_TOKENS: case_tokens(c, 0.3, &l->tokens, rng); return true;
	case SHAPE_COLUMNS: case_columns(c, 0.2, &l->columns, rng); return true;
	case SHAPE_PIECES: draw_pieces(c, &l->pieces, rng); return true;
	}
	return false;
}

void shape_lists_free(struct executor_lists *l)
{
	lists_free(&l->blocks);
	tokens_free(&l->tokens);
	columns_free(&l->columns);
	pieces_free(&l->pieces);
}
