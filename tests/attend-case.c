#include "config.h"

#include "tests/attend-case.h"

#include <stdlib.h>
#include <string.h>

enum { BF16_MAX = 0x7f7f };	/* past the end of a request */

static void *get(size_t n, size_t size)
{
	void *p = malloc(n * size + 1);

	if (!p)
		abort();
	return p;
}

static void fill_batch(struct attend_case *c, int n_req, const int *ctx, const int *rows)
{
	struct attn_batch *b = &c->b;
	int32_t *row0 = get((size_t)n_req + 1, sizeof *row0);
	int32_t *qblk0 = get((size_t)n_req + 1, sizeof *qblk0);
	int32_t *page0 = get((size_t)n_req + 1, sizeof *page0);
	int32_t *past = get((size_t)n_req, sizeof *past);
	uint8_t *last = get((size_t)n_req, sizeof *last);
	int t = b->shape.page_tok;

	row0[0] = qblk0[0] = page0[0] = 0;
	for (int r = 0; r < n_req; r++) {
		int n = (ctx[r] + rows[r] + t - 1) / t;

		past[r] = ctx[r];
		last[r] = 1;
		row0[r + 1] = row0[r] + rows[r];
		qblk0[r + 1] = qblk0[r] + (rows[r] ? n - ctx[r] / t : 0);
		page0[r + 1] = page0[r] + n;
		if (n > b->max_kv_blk)
			b->max_kv_blk = n;
	}
	b->n_req = n_req;
	b->n_row = row0[n_req];
	b->n_qblk = qblk0[n_req];
	b->mask_words = (b->max_kv_blk + 31) / 32;
	b->row0 = row0;
	b->qblk0 = qblk0;
	b->page0 = page0;
	b->ctx = past;
	b->last = last;
	c->n_page = page0[n_req];
}

static void fill_pages(struct attend_case *c, struct rng *rng)
{
	int32_t *page = get((size_t)c->n_page, sizeof *page);

	for (int i = 0; i < c->n_page; i++) {
		int j = (int)rng_below(rng, (uint64_t)i + 1);

		page[i] = page[j];
		page[j] = i;
	}
	c->b.page = page;
}

static void fill_kv(struct attend_case *c, enum attend_fill fill, struct rng *rng)
{
	const struct attn_batch *b = &c->b;
	size_t dim = (size_t)b->shape.head_dim, t = (size_t)b->shape.page_tok;

	c->kv.k = get(c->kv_len, sizeof *c->kv.k);
	c->kv.v = get(c->kv_len, sizeof *c->kv.v);
	for (size_t i = 0; i < c->kv_len; i++)
		c->kv.k[i] = c->kv.v[i] = BF16_MAX;
	for (int r = 0; r < b->n_req; r++) {
		size_t n = (size_t)(b->ctx[r] + b->row0[r + 1] - b->row0[r]);

		for (size_t pos = 0; pos < n; pos++)
			for (size_t h = 0; h < (size_t)b->shape.kv_heads; h++) {
				size_t page = (size_t)b->page[(size_t)b->page0[r] + pos / t];
				size_t head = page * (size_t)b->shape.kv_heads + h;
				size_t at = (head * t + pos % t) * dim;

				for (size_t d = 0; d < dim; d++) {
					c->kv.k[at + d] = fill == FILL_EQUAL ? bf16_from_f32(0.5f) :
							  bf16_from_f32(rng_normal(rng));
					c->kv.v[at + d] = bf16_from_f32(rng_normal(rng));
				}
			}
	}
}

void case_make_batch(struct attend_case *c, const struct attn_shape *s, int n_req, const int *ctx,
		     const int *rows, struct rng *rng)
{
	memset(c, 0, sizeof *c);
	c->b.shape = *s;
	fill_batch(c, n_req, ctx, rows);
	fill_pages(c, rng);
	c->q_len = (size_t)c->b.n_row * (size_t)s->q_heads * (size_t)s->head_dim;
	c->kv_len = (size_t)c->n_page * (size_t)s->kv_heads * (size_t)s->page_tok *
		    (size_t)s->head_dim;
}

void case_make(struct attend_case *c, const struct attn_shape *s, int n_req, const int *ctx,
	       const int *rows, enum attend_fill fill, struct rng *rng)
{
	float scale = fill == FILL_HUGE ? 30 : 1;

	case_make_batch(c, s, n_req, ctx, rows, rng);
	fill_kv(c, fill, rng);
	c->q = get(c->q_len, sizeof *c->q);
	for (size_t i = 0; i < c->q_len; i++)
		c->q[i] = bf16_from_f32(scale * rng_normal(rng));
}

void case_free(struct attend_case *c)
{
	free((void *)c->b.row0);
	free((void *)c->b.ctx);
	free((void *)c->b.qblk0);
	free((void *)c->b.page0);
	free((void *)c->b.page);
	free((void *)c->b.last);
	free(c->kv.k);
	free(c->kv.v);
	free(c->q);
	memset(c, 0, sizeof *c);
}

int case_n_list(const struct attend_case *c, attend_plan_fn *plan, int heads)
{
	const struct attn_shape *s = &c->b.shape;
	int group = s->q_heads / s->kv_heads;

	if (plan == attend_plan_blocks)
		return c->b.n_qblk * s->q_heads;
	heads = heads ? heads : group;
	return c->b.n_req * s->kv_heads * ((group + heads - 1) / heads);
}

void case_lists(const struct attend_case *c, int n, double density, struct block_lists *l,
		struct rng *rng)
{
	l->stride = c->b.max_kv_blk;
	l->block = get((size_t)n * (size_t)l->stride, sizeof *l->block);
	l->n = get((size_t)n, sizeof *l->n);
	for (int i = 0; i < n; i++) {
		uint16_t *list = l->block + (size_t)i * (size_t)l->stride;
		double keep = rng_below(rng, 8) ? density : 0;

		l->n[i] = 0;
		for (int j = 0; j < c->b.max_kv_blk; j++)
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
