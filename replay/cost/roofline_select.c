/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/cost/roofline_select.h"

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

void roofline_select(const struct roofline_subject *s, const struct layer_spec *l,
		     const struct batch_entry *e, struct roofline_work *w)
{
	const struct method *m = s->method;
	const struct attn_shape shape = { l->q_heads, l->kv_heads, l->head_dim,
					  method_page_tok(m) };
	const struct selector_work x = method_prefill(m)->selector->work(
		method_prefill(m)->param, &shape,
		&(struct selector_chunk){ batch_stored(e), e->n_tok });

	w->kernels = x.launches;
	w->flops += x.flops;
	w->bytes += roofline_mask_bytes(s, l, e);
	w->bytes += x.bytes;
}
