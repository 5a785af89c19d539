/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "kernels/exec/keys.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/prim/multiply.h"

enum { STEP = 64 }; /* keys that are multiplied at once */

enum ar_status keys_init(struct keys *k, const struct attn_batch *b, struct ar_err *err)
{
	size_t n = ((size_t)b->keys.max_kv_blk + 1) * (size_t)b->shape.page_tok;
	size_t rows = (size_t)multiply_pad(b->shape.page_tok, MULTIPLY_ROWS), dim;

	*k = (struct keys){ .ld = multiply_pad((int)n, STEP),
			    .ld_dim = multiply_pad(b->shape.head_dim, MULTIPLY_LANES) };
	dim = (size_t)k->ld_dim;
	k->pos = malloc(n * sizeof *k->pos);
	k->q = calloc(2 * (rows + STEP) * dim + rows * ((size_t)k->ld + 1), sizeof *k->q);
	if (!k->pos || !k->q)
		return ar_nomem(err);
	k->out = k->q + rows * dim;
	k->k = k->out + rows * dim;
	k->v = k->k + STEP * dim;
	k->p = k->v + STEP * dim;
	k->sum = k->p + rows * (size_t)k->ld;
	return AR_OK;
}

void keys_release(struct keys *k)
{
	free(k->pos);
	free(k->q);
}

/* Element of k and v where the key at pos begins. */
static size_t key_at(const struct attn_batch *b, int req, int head, int pos)
{
	const struct attn_shape *s = &b->shape;
	size_t page = (size_t)b->keys.page[b->keys.page0[req] + pos / s->page_tok];
	size_t kv_head = (size_t)(head / (s->q_heads / s->kv_heads));

	return ((page * (size_t)s->kv_heads + kv_head) * (size_t)s->page_tok +
		(size_t)(pos % s->page_tok)) *
	       (size_t)s->head_dim;
}

/* Scores of a row at pos become exponentials; returns their sum and the sink's, 0: it sees no key.
 * sink -inf: none. */
static float soften(const struct keys *k, int pos, float scale, float sink, float *p, float *max)
{
	float sum;

	*max = sink;
	for (int i = 0; i < k->n; i++) {
		bool seen = k->pos[i] <= pos &&
			    (i >= k->n_run || !attn_band_hides(&k->band, k->total, pos, k->pos[i]));

		p[i] = seen ? scale * p[i] : -INFINITY;
		*max = p[i] > *max || isnan(p[i]) ? p[i] : *max;
	}
	if (*max == -INFINITY)
		*max = 0;
	sum = expf(sink - *max);
	for (int i = 0; i < k->n; i++)
		sum += p[i] = expf(p[i] - *max);
	return sum;
}

void keys_attend(struct keys *k, const struct attn_call *call, int req, int row, int n_row,
		 int head)
{
	const struct attn_batch *b = call->b;
	int dim = b->shape.head_dim;
	size_t heads = (size_t)b->shape.q_heads;
	size_t first = (size_t)(b->rows.row0[req] + row) * heads + (size_t)head;
	const int32_t *pos = b->rows.pos + b->rows.row0[req] + row;

	for (int i = 0; i < n_row; i++)
		bf16_widen(k->q + i * dim, call->q + (first + (size_t)i * heads) * (size_t)dim,
			   dim);
	for (int at = 0; at < k->n; at += STEP) {
		int n = k->n - at < STEP ? k->n - at : STEP;

		for (int t = 0; t < n; t++)
			multiply_transpose(k->k + t, STEP,
					   call->kv.k + key_at(b, req, head, k->pos[at + t]), 1,
					   dim);
		multiply(k->p + at, k->ld, k->q, dim, k->k, STEP, n_row, n, dim, false);
	}
	for (int i = 0; i < n_row; i++) {
		size_t to = first + (size_t)i * heads;
		float max, *p = k->p + i * k->ld;
		float sum = soften(k, pos[i], 1 / sqrtf((float)dim),
				   call->sink ? call->sink[head] : -INFINITY, p, &max);

		k->sum[i] = sum;
		if (call->lse)
			call->lse[to] = sum <= 0 ? -INFINITY : max + logf(sum);
	}
	for (int at = 0; at < k->n; at += STEP) {
		int n = k->n - at < STEP ? k->n - at : STEP;

		for (int t = 0; t < n; t++)
			bf16_widen(k->v + t * k->ld_dim,
				   call->kv.v + key_at(b, req, head, k->pos[at + t]), dim);
		multiply(k->out, k->ld_dim, k->p + at, k->ld, k->v, k->ld_dim, n_row, dim, n,
			 at > 0);
	}
	for (int i = 0; i < n_row; i++) {
		bf16_t *to = call->out + (first + (size_t)i * heads) * (size_t)dim;

		for (int d = 0; d < dim; d++)
			to[d] = !k->n || k->sum[i] <= 0 ?
					0 :
					bf16_from_f32(k->out[i * k->ld_dim + d] / k->sum[i]);
	}
}
