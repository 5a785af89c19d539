/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/cost/roofline_select.h"

#include <math.h>

static double block_count(const struct roofline_subject *s, int64_t tok)
{
	int64_t page = method_page_tok(s->method);

	return (double)((tok + page - 1) / page);
}

double roofline_mask_bytes(const struct roofline_subject *s, const struct layer_spec *l,
			   const struct batch_entry *e)
{
	return l->q_heads * block_count(s, e->n_tok) * block_count(s, batch_stores(e)) / 8;
}

static struct attn_shape shape_of_layer(const struct roofline_subject *s,
					const struct layer_spec *l)
{
	return (struct attn_shape){ l->q_heads, l->kv_heads, l->head_dim,
				    method_page_tok(s->method) };
}

/* Add what the selector of p does for entry e.  Returns its keys. */
static double add_selector(const struct roofline_subject *s, const struct layer_spec *l,
			   const struct method_part *p, const struct batch_entry *e,
			   struct roofline_work *w)
{
	const struct attn_shape shape = shape_of_layer(s, l);
	const struct selector_work x = p->selector->work(
		p->param, &shape, &(struct selector_chunk){ batch_stored(e), e->n_tok });

	w->flops += x.flops;
	w->bytes += x.bytes;
	w->kernels += x.launches;
	return x.keys;
}

void roofline_select(const struct roofline_subject *s, const struct layer_spec *l,
		     const struct batch_entry *e, struct roofline_work *w)
{
	w->kernels = 0;
	add_selector(s, l, method_prefill(s->method), e, w);
	w->bytes += roofline_mask_bytes(s, l, e);
}

double roofline_listed(const struct roofline_subject *s, const struct layer_spec *l,
		       const struct batch_entry *e, struct roofline_work *w)
{
	const struct method_part *p = &s->method->part[ROW_DECODE];
	const struct attn_shape shape = shape_of_layer(s, l);
	double len = batch_stores(e), keys;
	struct piece_form f;

	w->kernels = 0;
	keys = add_selector(s, l, p, e, w);
	if (p->prune)
		add_selector(s, l, p->prune, e, w);
	if (!(keys > 0)) {
		f = p->selector->pieces(p->param, &shape, (int)len);
		keys = (double)f.most * f.tok;
	}
	return len < (double)p->min_tokens ? len : fmin(len, keys);
}

/* Keys are read, and a state is written. */
static void add_state(const struct roofline_subject *s, const struct layer_spec *l,
		      const struct method_part *p, double n, struct roofline_work *w)
{
	const struct attn_shape shape = shape_of_layer(s, l);

	if (!p || !p->selector->state_bytes)
		return;
	w->bytes += n * 2.0 * l->kv_heads * l->head_dim +
		    n * (double)p->selector->state_bytes(p->param, &shape) / shape.page_tok;
	w->kernels++;
}

void roofline_meta(const struct roofline_subject *s, const struct layer_spec *l, double n,
		   struct roofline_work *w)
{
	const struct method_part *p = &s->method->part[ROW_DECODE];

	w->kernels = 0;
	add_state(s, l, p, n, w);
	add_state(s, l, p->prune, n, w);
}
