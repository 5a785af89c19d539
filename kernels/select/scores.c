/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "kernels/select/scores.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/prim/multiply.h"

enum ar_status scores_init(struct scores *s, const struct attn_batch *b, int rows,
			   struct ar_err *err)
{
	size_t dim = (size_t)b->shape.head_dim, row = (size_t)multiply_pad(rows, MULTIPLY_ROWS);
	size_t n_blk = (size_t)b->keys.max_kv_blk, key;

	*s = (struct scores){ .head_dim = b->shape.head_dim,
			      .page_tok = b->shape.page_tok,
			      .ld_key = multiply_pad(b->shape.page_tok, MULTIPLY_LANES) };
	s->ld = (b->keys.max_kv_blk - 1) * s->page_tok + s->ld_key;
	key = n_blk * dim * (size_t)s->ld_key;
	s->q = calloc(row * dim + key + row * (size_t)s->ld, sizeof *s->q);
	if (!s->q)
		return ar_nomem(err);
	s->k = s->q + row * dim;
	s->x = s->k + key;
	return AR_OK;
}

void scores_release(struct scores *s)
{
	free(s->q);
}

float *scores_key(const struct scores *s, int t)
{
	size_t j = (size_t)(t / s->page_tok);

	return s->k + j * (size_t)(s->head_dim * s->ld_key) + t % s->page_tok;
}

/* How many of n keys are in block j. */
static int block_len(const struct scores *s, int j, int n)
{
	int left = n - j * s->page_tok;

	return left < s->page_tok ? left : s->page_tok;
}

void scores_keys(struct scores *s, const struct attn_batch *b, int r, int kv_head, const bf16_t *k)
{
	int n = b->keys.len[r];

	for (int j = 0; j * s->page_tok < n; j++) {
		size_t page = (size_t)b->keys.page[b->keys.page0[r] + j];
		size_t from = page * (size_t)b->shape.kv_heads + (size_t)kv_head;

		multiply_transpose(scores_key(s, j * s->page_tok), s->ld_key,
				   k + from * (size_t)(s->page_tok * s->head_dim),
				   block_len(s, j, n), s->head_dim);
	}
}

void scores_rows(struct scores *s, const struct attn_batch *b, int row, int n, int head,
		 const bf16_t *q)
{
	for (int i = 0; i < n; i++) {
		size_t from = (size_t)(row + i) * (size_t)b->shape.q_heads + (size_t)head;

		bf16_widen(s->q + i * s->head_dim, q + from * (size_t)s->head_dim, s->head_dim);
	}
}

void scores_multiply(struct scores *s, int n_row, int n_key)
{
	for (int j = 0; j * s->page_tok < n_key; j++)
		multiply(s->x + j * s->page_tok, s->ld, s->q, s->head_dim,
			 scores_key(s, j * s->page_tok), s->ld_key, n_row, block_len(s, j, n_key),
			 s->head_dim, false);
}

float *scores_soften(struct scores *s, int i, int n)
{
	float *x = s->x + (size_t)i * (size_t)s->ld, scale = 1 / sqrtf((float)s->head_dim);
	float max = -INFINITY, sum = 0;

	for (int t = 0; t < n; t++) {
		x[t] *= scale;
		max = fmaxf(max, x[t]);
	}
	for (int t = 0; t < n; t++)
		sum += x[t] = expf(x[t] - max);
	for (int t = 0; t < n; t++)
		x[t] /= sum;
	return x;
}
