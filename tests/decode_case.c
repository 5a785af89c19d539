/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "tests/decode_case.h"

#include <stdlib.h>
#include <string.h>

#include "base/opt.h"
#include "tests/tap.h"

static void must(enum ar_status st, const struct ar_err *err)
{
	if (st)
		bail_out("%s", err->msg);
}

static void open_part(struct method_part *p, const char *text, const struct attn_shape *s)
{
	char *copy = strdup(text), *next = copy, *name = strsep(&next, ","), *item;
	struct opt_group g[2] = { { 0 } };
	struct ar_err err;

	*p = (struct method_part){ .selector = selector_find(name) };
	if (!p->selector)
		bail_out("no selector '%s'", name);
	p->self = p->param = calloc(1, p->selector->param_size);
	g->opts = p->selector->params;
	g->base = p->param;
	must(opt_init(g, &err), &err);
	while ((item = strsep(&next, ","))) {
		char *key = strsep(&item, "=");

		must(opt_set(g, key, item, &err), &err);
	}
	if (p->selector->open)
		must(p->selector->open(&p->self, p->param,
				       &(struct selector_env){ .shape = *s, .n_layers = 1 }, &err),
		     &err);
	free(copy);
}

/* Cut the last token of each sequence, or all that is before it too. */
static void cut_last(struct batch_case *c, bool all)
{
	int *ctx = calloc((size_t)c->n_seq * 2, sizeof *ctx), *rows = ctx + c->n_seq;

	for (int r = 0; r < c->n_seq; r++) {
		ctx[r] = all ? 0 : c->len[r] - 1;
		rows[r] = c->len[r] - ctx[r];
	}
	case_cut(c, ctx, rows);
	free(ctx);
}

void decode_choose(struct decode_case *x, const char *text, struct batch_case *c)
{
	struct attn_call call = { .b = &c->b, .kv = c->kv };
	struct ar_err err;

	memset(x, 0, sizeof *x);
	open_part(&x->part, text, &c->b.shape);
	x->state = calloc((size_t)c->n_page, method_state_bytes(&x->part, &c->b.shape) + 1);
	call.state = x->state;
	cut_last(c, true);
	must(method_append_ref(&x->part, &call, &err), &err);
	cut_last(c, false);
	call.q = c->q;
	must(method_select_ref(&x->part, &call, &x->sel, &err), &err);
}

void decode_release(struct decode_case *x)
{
	struct opt_group g[2] = { { .opts = x->part.selector->params, .base = x->part.param },
				  { 0 } };

	method_selection_release(&x->sel);
	if (x->part.selector->close)
		x->part.selector->close(x->part.self);
	opt_release(g);
	free(x->part.param);
	free(x->state);
}
