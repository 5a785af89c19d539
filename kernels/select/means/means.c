/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "kernels/select/means/means.h"

size_t means_state_bytes(const struct attn_shape *s)
{
	return (size_t)s->kv_heads * (size_t)s->head_dim * sizeof(float);
}

/* The mean of one channel of n rows, stride elements apart. */
static float mean_of(const bf16_t *x, int n, size_t stride)
{
	float sum = 0;

	for (int i = 0; i < n; i++)
		sum += bf16_to_f32(x[(size_t)i * stride]);
	return sum / (float)n;
}

/* Write the means to `mean` or `rounded`; the other is NULL. */
static void update_means(const struct attn_batch *b, const bf16_t *k, float *mean, bf16_t *rounded)
{
	const struct attn_shape *s = &b->shape;
	size_t dim = (size_t)s->head_dim, heads = (size_t)s->kv_heads, tok = (size_t)s->page_tok;

	for (int r = 0; r < b->rows.n_req; r++) {
		int end = b->keys.len[r];

		for (int j = b->rows.pos0[r] / s->page_tok; j * s->page_tok < end; j++) {
			size_t page = (size_t)b->keys.page[b->keys.page0[r] + j];
			int left = end - j * s->page_tok;
			int n = left < s->page_tok ? left : s->page_tok;

			for (size_t i = 0; i < heads * dim; i++) {
				size_t head = page * heads + i / dim, d = i % dim;
				float x = mean_of(k + head * tok * dim + d, n, dim);

				if (mean)
					mean[head * dim + d] = x;
				else
					rounded[head * dim + d] = bf16_from_f32(x);
			}
		}
	}
}

void means_update(const struct attn_batch *b, const bf16_t *k, float *mean)
{
	update_means(b, k, mean, NULL);
}

void means_update_bf16(const struct attn_batch *b, const bf16_t *k, bf16_t *mean)
{
	update_means(b, k, NULL, mean);
}

void means_of_rows(const struct attn_batch *b, int lo, int hi, int head, const bf16_t *q,
		   float *out)
{
	const struct attn_shape *s = &b->shape;
	size_t row = (size_t)(s->q_heads * s->head_dim);

	for (int d = 0; d < s->head_dim; d++)
		out[d] = mean_of(q + (size_t)lo * row + (size_t)(head * s->head_dim + d), hi - lo,
				 row);
}
