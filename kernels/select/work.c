/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "kernels/select/work.h"

struct selector_work selector_places(const void *param, const struct attn_shape *s,
				     const struct selector_chunk *c)
{
	(void)param, (void)s, (void)c;
	return (struct selector_work){ .launches = 1 };
}

static struct selector_form filled(struct selector_form f, const struct attn_shape *s)
{
	f.passes = f.passes ? f.passes : 1;
	f.row = f.row ? f.row : 1;
	f.key = f.key ? f.key : 1;
	f.share = f.share > 0 ? f.share : 1;
	f.heads = f.heads ? f.heads : s->q_heads;
	return f;
}

struct selector_work selector_products(const struct selector_form *form, const struct attn_shape *s,
				       const struct selector_chunk *c)
{
	const struct selector_form f = filled(*form, s);
	double start = (double)c->start, n = (double)c->n_tok, len = start + n;
	double own = n < f.own ? n : f.own, token = 2.0 * s->head_dim;
	double keys = len * s->kv_heads * f.passes;
	double products = f.last ? (n < f.last ? n : f.last) * len : n * start + n * (n + 1) / 2;

	products *= (double)f.heads / (f.row * f.key);
	products += own * len * s->q_heads;
	if (f.keys == SELECTOR_MEANS)
		keys = (n + len / f.key) * s->kv_heads;
	else if (f.keys == SELECTOR_GATE)
		keys = n * s->kv_heads + len / f.key * s->q_heads;
	return (struct selector_work){ .flops = token * f.passes * products * f.share,
				       .bytes = token * (n * s->q_heads + keys),
				       .launches = f.launches };
}
