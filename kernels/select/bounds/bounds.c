/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "kernels/select/bounds/bounds.h"

#include "kernels/select/pieces.h"

const char *const bounds_types[] = { "bf16", "e5m2", NULL };
const char *const bounds_rounds[] = { "nearest", "outward", NULL };

size_t bounds_state_bytes(const struct bounds *x, const struct attn_shape *s)
{
	return (size_t)(s->page_tok / x->tok * s->kv_heads * s->head_dim) * 2 * bounds_elem(x);
}

struct selector_work bounds_work(const struct bounds *x, const struct attn_shape *s,
				 const struct selector_chunk *c)
{
	double pieces = pieces_of(c->start + c->n_tok, x->tok), n = (double)c->n_tok;
	double bytes = 2 * pieces * s->kv_heads * (double)bounds_elem(x) + 2 * n * s->q_heads;

	return (struct selector_work){ 2 * n * s->q_heads * pieces * s->head_dim,
				       bytes * s->head_dim, .launches = 2 };
}

/* One channel of a piece of n keys; k: its first value. */
static void set_channel(const struct bounds *x, int head_dim, const bf16_t *k, int n, void *state,
			size_t at)
{
	int16_t least = bounds_order((int16_t)*k), most = least;

	for (int i = 1; i < n; i++) {
		int16_t v = bounds_order((int16_t)k[(size_t)i * (size_t)head_dim]);

		least = v < least ? v : least;
		most = v > most ? v : most;
	}
	bounds_set(x, state, at, head_dim, (bf16_t)bounds_order(least), (bf16_t)bounds_order(most));
}

void bounds_append(const struct bounds *x, const struct attn_batch *b, const bf16_t *k, void *state)
{
	const struct attn_shape *s = &b->shape;

	for (int r = 0; r < b->rows.n_req; r++)
		for (int j = b->rows.pos0[r] / x->tok; j * x->tok < b->keys.len[r]; j++)
			for (int i = 0; i < s->kv_heads * s->head_dim; i++) {
				int h = i / s->head_dim, d = i % s->head_dim;
				int left = b->keys.len[r] - j * x->tok;

				set_channel(x, s->head_dim, k + pieces_key(b, r, h, j * x->tok) + d,
					    left < x->tok ? left : x->tok, state,
					    bounds_at(x, b, r, h, j) + (size_t)d);
			}
}
