#include "config.h"
#include "tests/select-case.h"

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

size_t case_page_elements(const struct select_case *c)
{
	const struct attn_shape *s = &c->b.shape;

	return (size_t)s->kv_heads * (size_t)s->page_tok * (size_t)s->head_dim;
}

size_t case_mask_words(const struct select_case *c)
{
	return (size_t)c->b.n_qblk * (size_t)c->b.shape.q_heads * (size_t)c->b.mask_words;
}

/* About normal, variance 1, from one draw: the sum of four uniforms. */
static float noise(struct rng *rng)
{
	uint64_t x = rng_u64(rng);
	uint32_t sum = (uint32_t)(x & 0xffff) + (x >> 16 & 0xffff) + (x >> 32 & 0xffff) +
		       (uint32_t)(x >> 48);

	return ((float)sum - 131070.0f) * (1.7320508f / 65536.0f);
}

static void shuffle_pages(struct select_case *c, struct rng *rng)
{
	c->n_page = c->page0[c->n_seq] + 3;
	c->page = need((size_t)c->n_page, sizeof *c->page);
	for (int i = 0; i < c->n_page; i++) {
		int k = (int)rng_below(rng, (uint64_t)i + 1);

		c->page[i] = c->page[k];
		c->page[k] = i;
	}
}

/* Keys and values of one page of one KV head: n_tok tokens. */
static void fill_page(struct select_case *c, struct rng *rng, size_t at, int n_tok)
{
	const struct attn_shape *s = &c->b.shape;
	bf16_t *k = c->kv.k + at * (size_t)(s->page_tok * s->head_dim);
	bf16_t *v = c->kv.v + at * (size_t)(s->page_tok * s->head_dim);
	float dir[256];

	for (int d = 0; d < s->head_dim; d++)
		dir[d] = noise(rng) * 1.5f;
	for (int t = 0; t < n_tok; t++)
		for (int d = 0; d < s->head_dim; d++) {
			k[t * s->head_dim + d] = bf16_from_f32(dir[d] + noise(rng));
			v[t * s->head_dim + d] = bf16_from_f32(noise(rng));
		}
}

static void fill_cache(struct select_case *c, struct rng *rng)
{
	const struct attn_shape *s = &c->b.shape;
	size_t n_kv = (size_t)c->n_page * case_page_elements(c);
	size_t n_state = (size_t)c->n_page * (size_t)(s->kv_heads * s->head_dim);

	c->kv.k = need(n_kv, sizeof(bf16_t));
	c->kv.v = need(n_kv, sizeof(bf16_t));
	c->state = need(n_state, sizeof(bf16_t));
	memset(c->kv.k, 0x7f, n_kv * sizeof(bf16_t));
	memset(c->kv.v, 0x7f, n_kv * sizeof(bf16_t));
	memset(c->state, 0xff, n_state * sizeof(bf16_t));
	for (int r = 0; r < c->n_seq; r++)
		for (int j = 0; j * s->page_tok < c->len[r]; j++)
			for (int h = 0; h < s->kv_heads; h++) {
				size_t page = (size_t)c->page[c->page0[r] + j];
				int left = c->len[r] - j * s->page_tok;

				fill_page(c, rng, page * (size_t)s->kv_heads + (size_t)h,
					  left < s->page_tok ? left : s->page_tok);
			}
}

void case_make(struct select_case *c, struct rng *rng, struct attn_shape s, int n_seq,
	       const int *len)
{
	size_t n = (size_t)n_seq, n_q;

	memset(c, 0, sizeof *c);
	c->b.shape = s;
	c->n_seq = n_seq;
	c->len = need(n, sizeof *c->len);
	c->at = need(n + 1, sizeof *c->at);
	c->row0 = need(n + 1, sizeof *c->row0);
	c->qblk0 = need(n + 1, sizeof *c->qblk0);
	c->page0 = need(n + 1, sizeof *c->page0);
	c->ctx = need(n, sizeof *c->ctx);
	c->last = need(n, sizeof *c->last);
	for (int r = 0; r < n_seq; r++) {
		c->len[r] = len[r];
		c->at[r + 1] = c->at[r] + (size_t)len[r];
		c->page0[r + 1] = c->page0[r] + (len[r] + s.page_tok - 1) / s.page_tok;
	}
	shuffle_pages(c, rng);
	fill_cache(c, rng);
	n_q = c->at[n_seq] * (size_t)(s.q_heads * s.head_dim);
	c->all_q = need(n_q, sizeof(bf16_t));
	for (size_t i = 0; i < n_q; i++)
		c->all_q[i] = bf16_from_f32(noise(rng));
}

void case_cut(struct select_case *c, const int *ctx, const int *rows)
{
	struct attn_batch *b = &c->b;
	size_t row = (size_t)(b->shape.q_heads * b->shape.head_dim);
	int tok = b->shape.page_tok;

	b->n_req = c->n_seq;
	b->max_kv_blk = 1;
	for (int r = 0; r < c->n_seq; r++) {
		int end = ctx[r] + rows[r], n_blk = (end + tok - 1) / tok;

		c->ctx[r] = ctx[r];
		c->last[r] = end == c->len[r];
		c->row0[r + 1] = c->row0[r] + rows[r];
		c->qblk0[r + 1] = c->qblk0[r] + (rows[r] ? n_blk - ctx[r] / tok : 0);
		b->max_kv_blk = n_blk > b->max_kv_blk ? n_blk : b->max_kv_blk;
	}
	b->n_row = c->row0[c->n_seq];
	b->n_qblk = c->qblk0[c->n_seq];
	b->mask_words = (b->max_kv_blk + 31) / 32;
	b->row0 = c->row0, b->ctx = c->ctx, b->qblk0 = c->qblk0;
	b->page0 = c->page0, b->page = c->page, b->last = c->last;
	free(c->q);
	free(c->mask);
	c->q = need((size_t)b->n_row * row, sizeof(bf16_t));
	c->mask = need(case_mask_words(c), sizeof(uint32_t));
	memset(c->mask, 0xff, case_mask_words(c) * sizeof(uint32_t));
	for (int r = 0; r < c->n_seq; r++)
		memcpy(c->q + (size_t)c->row0[r] * row,
		       c->all_q + (c->at[r] + (size_t)ctx[r]) * row,
		       (size_t)rows[r] * row * sizeof(bf16_t));
}

void case_release(struct select_case *c)
{
	free(c->kv.k);
	free(c->kv.v);
	free(c->q);
	free(c->state);
	free(c->mask);
	free(c->len);
	free(c->at);
	free(c->all_q);
	free(c->row0);
	free(c->ctx);
	free(c->qblk0);
	free(c->page0);
	free(c->page);
	free(c->last);
	memset(c, 0, sizeof *c);
}
