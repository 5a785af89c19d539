#include "config.h"
#include "kernels/selectors/means.h"

size_t means_state_bytes(const struct attn_shape *s)
{
	return (size_t)s->kv_heads * (size_t)s->head_dim * sizeof(float);
}

/* n rows, stride elements apart. */
static void mean_of(const bf16_t *x, int n, size_t stride, int head_dim, float *out)
{
	for (int d = 0; d < head_dim; d++) {
		float sum = 0;

		for (int i = 0; i < n; i++)
			sum += bf16_to_f32(x[(size_t)i * stride + (size_t)d]);
		out[d] = sum / (float)n;
	}
}

void means_update(const struct attn_batch *b, const bf16_t *k, float *mean)
{
	const struct attn_shape *s = &b->shape;

	for (int r = 0; r < b->n_req; r++) {
		int end = b->ctx[r] + b->row0[r + 1] - b->row0[r];

		for (int j = b->ctx[r] / s->page_tok; j * s->page_tok < end; j++) {
			size_t page = (size_t)b->page[b->page0[r] + j];
			int n = end - j * s->page_tok;

			for (int h = 0; h < s->kv_heads; h++) {
				size_t at = page * (size_t)s->kv_heads + (size_t)h;

				mean_of(k + at * (size_t)(s->page_tok * s->head_dim),
					n < s->page_tok ? n : s->page_tok, (size_t)s->head_dim,
					s->head_dim, mean + at * (size_t)s->head_dim);
			}
		}
	}
}

void means_of_rows(const struct attn_batch *b, int lo, int hi, int head, const bf16_t *q,
		   float *out)
{
	const struct attn_shape *s = &b->shape;
	size_t row = (size_t)(s->q_heads * s->head_dim);

	mean_of(q + (size_t)lo * row + (size_t)(head * s->head_dim), hi - lo, row, s->head_dim,
		out);
}
