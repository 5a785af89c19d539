#include "config.h"
#include "kernels/selectors/lastq.h"

#include <math.h>
#include <string.h>

/* A of the row at pos; x: [pos + 1]. */
static void row_attention(const struct attn_batch *b, int r, int pos, int head, const bf16_t *q,
			  const bf16_t *k, float *x)
{
	const struct attn_shape *s = &b->shape;
	size_t dim = (size_t)s->head_dim, tok = (size_t)s->page_tok;
	size_t kv_head = (size_t)(head / (s->q_heads / s->kv_heads));
	float scale = 1 / sqrtf((float)s->head_dim), max = -INFINITY, sum = 0;

	for (int t = 0; t <= pos; t++) {
		size_t page = (size_t)b->page[b->page0[r] + t / s->page_tok];
		const bf16_t *key = k + ((page * (size_t)s->kv_heads + kv_head) * tok +
					 (size_t)t % tok) * dim;

		x[t] = 0;
		for (size_t d = 0; d < dim; d++)
			x[t] += bf16_to_f32(q[d]) * bf16_to_f32(key[d]);
		x[t] *= scale;
		max = fmaxf(max, x[t]);
	}
	for (int t = 0; t <= pos; t++)
		sum += x[t] = expf(x[t] - max);
	for (int t = 0; t <= pos; t++)
		x[t] /= sum;
}

void lastq_ref(const struct attn_batch *b, int r, int head, int n, const bf16_t *q, const bf16_t *k,
	       float *x, float *column, float *slash)
{
	const struct attn_shape *s = &b->shape;
	int rows = b->row0[r + 1] - b->row0[r], end = b->ctx[r] + rows;

	n = n < rows ? n : rows;
	memset(column, 0, (size_t)end * sizeof *column);
	memset(slash, 0, (size_t)end * sizeof *slash);
	for (int pos = end - n; pos < end; pos++) {
		size_t row = (size_t)(b->row0[r] + pos - b->ctx[r]);

		row = (row * (size_t)s->q_heads + (size_t)head) * (size_t)s->head_dim;
		row_attention(b, r, pos, head, q + row, k, x);
		for (int t = 0; t <= pos; t++) {
			column[t] += x[t];
			slash[pos - t] += x[t];
		}
	}
	for (int t = 0; t < end; t++) {
		column[t] /= (float)n;
		slash[t] /= (float)n;
	}
}
