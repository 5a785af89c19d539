/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "kernels/methods/plan.h"

#include <stdlib.h>

enum ar_status plan_init(struct layer_plan *p, int n_layers, struct method *m, struct ar_err *err)
{
	p->n_layers = n_layers;
	p->page_tok = method_page_tok(m);
	p->method = malloc((size_t)n_layers * sizeof *p->method);
	if (!p->method)
		return ar_nomem(err);
	for (int i = 0; i < n_layers; i++)
		p->method[i] = m;
	return AR_OK;
}

void plan_release(struct layer_plan *p)
{
	free(p->method);
	*p = (struct layer_plan){ 0 };
}

bool plan_first(const struct layer_plan *p, int layer)
{
	for (int i = 0; i < layer; i++)
		if (p->method[i] == p->method[layer])
			return false;
	return p->method[layer];
}

struct attn_shape plan_shape(const struct layer_plan *p, const struct model *m, int layer)
{
	const struct layer_spec *l = &m->layer[layer];

	return (struct attn_shape){ l->q_heads, l->kv_heads, l->head_dim, p->page_tok };
}

/* A block must be whole pages.  The kernels take blocks of one page only. */
static enum ar_status check_page(const struct method *m, int page_tok, struct ar_err *err)
{
	int block_tok = method_page_tok(m);

	if (m->dense || block_tok == page_tok)
		return AR_OK;
	return ar_fail(err, AR_USAGE,
		       "method '%s': blocks of %d tokens on pages of %d; a block "
		       "must be one page",
		       m->name, block_tok, page_tok);
}

enum ar_status plan_open(const struct layer_plan *p, const struct model *m,
			 const struct selector_env *env, struct ar_err *err)
{
	struct selector_env e = *env;
	enum ar_status st = AR_OK;

	e.n_layers = p->n_layers;
	for (int i = 0; i < p->n_layers && !st; i++) {
		if (!plan_first(p, i))
			continue;
		e.shape = plan_shape(p, m, i);
		st = check_page(p->method[i], p->page_tok, err);
		if (!st)
			st = method_open(p->method[i], &e, err);
	}
	return st;
}
