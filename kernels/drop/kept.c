/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "kernels/drop/kept.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/drop/mass.h"
#include "kernels/select/top.h"

static void sum_up(const float *mass_of, const uint8_t *keep, struct top_cell *cell,
		   struct kept_share *out)
{
	double all = 0, mass = 0;
	int kept = 0, top = 0;

	for (int t = 0; t < out->n_tok; t++) {
		all += (double)mass_of[t];
		mass += keep[t] ? (double)mass_of[t] : 0;
		kept += keep[t];
	}
	top_of(cell, mass_of, out->n_tok);
	out->top = out->n_tok < KEPT_TOP ? out->n_tok : KEPT_TOP;
	for (int i = 0; i < out->top; i++)
		top += keep[cell[i].at];
	out->n_kept = kept;
	out->mass = mass / all;
	out->recall = (double)top / out->top;
}

/* The keys of all tokens as one page, [kv_heads][n_tok][head_dim]. */
static void fill_page(const struct attn_shape *s, int n_tok, const bf16_t *k, bf16_t *page)
{
	size_t dim = (size_t)s->head_dim;

	for (int h = 0; h < s->kv_heads; h++)
		for (int t = 0; t < n_tok; t++)
			memcpy(page + ((size_t)h * (size_t)n_tok + (size_t)t) * dim,
			       k + ((size_t)t * (size_t)s->kv_heads + (size_t)h) * dim,
			       dim * sizeof *k);
}

enum ar_status kept_share(const struct attn_shape *s, const bf16_t *q, const bf16_t *k,
			  const uint8_t *keep, struct kept_share *out, struct ar_err *err)
{
	const struct mass_rule rule = { .n = out->queries, .block = 1 };
	const int32_t row0[] = { 0, out->queries }, pos0[] = { out->n_tok - out->queries };
	const int32_t page0[] = { 0, 1 }, page[] = { 0 }, left[] = { 0 };
	const struct attn_batch b = {
		.shape = { s->q_heads, s->kv_heads, s->head_dim, out->n_tok },
		.rows = { .n_req = 1,
			  .n_row = out->queries,
			  .row0 = row0,
			  .pos0 = pos0,
			  .left = left },
		.keys = { 1, 1, 1, &out->n_tok, page0, page },
	};
	size_t n = (size_t)out->n_tok, row = (size_t)(s->kv_heads * s->head_dim);
	bf16_t *keys = malloc(n * row * sizeof *keys);
	float *mass = malloc(n * sizeof *mass);
	struct top_cell *cell = malloc(n * sizeof *cell);
	enum ar_status st = keys && mass && cell ? AR_OK : ar_nomem(err);

	if (!st) {
		fill_page(s, out->n_tok, k, keys);
		st = mass_ref(&rule, &b, 0, q, keys, mass, err);
	}
	if (!st)
		sum_up(mass, keep, cell, out);
	free(keys);
	free(mass);
	free(cell);
	return st;
}
