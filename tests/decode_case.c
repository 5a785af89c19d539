/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "tests/decode_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tap.h"

static void must(enum ar_status st, const struct ar_err *err)
{
	if (st)
		bail_out("%s", err->msg);
}

void decode_open(struct decode_case *x, const char *text, const struct attn_shape *s)
{
	char method[160];
	struct ar_err err;

	memset(x, 0, sizeof *x);
	snprintf(method, sizeof method, "dense/decode=%s", text);
	must(method_parse(&x->m, method, &err), &err);
	must(method_open(x->m, &(struct selector_env){ .shape = *s, .n_layers = 1 }, &err), &err);
	x->part = &x->m->part[ROW_DECODE];
}

void decode_cut(struct batch_case *c, bool all)
{
	int *ctx = calloc((size_t)c->n_seq * 2, sizeof *ctx), *rows = ctx + c->n_seq;

	for (int r = 0; r < c->n_seq; r++) {
		ctx[r] = all ? 0 : c->len[r] - 1;
		rows[r] = c->len[r] - ctx[r];
	}
	case_cut(c, ctx, rows);
	free(ctx);
}

struct attn_limits decode_limits(const struct batch_case *c)
{
	const struct attn_batch *b = &c->b;

	return (struct attn_limits){ b->rows.n_req, b->rows.n_row, b->keys.max_kv_blk, 0,
				     b->keys.n_page };
}

void decode_choose(struct decode_case *x, const char *text, struct batch_case *c)
{
	struct attn_call call = { .b = &c->b, .kv = c->kv };
	struct attn_limits limits;
	struct ar_err err;

	decode_open(x, text, &c->b.shape);
	x->state = calloc((size_t)c->n_page, method_state_bytes(x->part, &c->b.shape) + 1);
	if (x->part->prune)
		x->prune_state = calloc((size_t)c->n_page,
					method_state_bytes(x->part->prune, &c->b.shape) + 1);
	call.state = x->state;
	call.prune_state = x->prune_state;
	decode_cut(c, true);
	must(method_append_ref(x->part, &call, &err), &err);
	decode_cut(c, false);
	limits = decode_limits(c);
	call.q = c->q;
	call.lists = x->lists = calloc(1, method_lists_bytes(x->part, &c->b.shape, &limits) + 1);
	must(method_select_ref(x->part, &call, &x->sel, &err), &err);
}

void decode_release(struct decode_case *x)
{
	method_selection_release(&x->sel);
	method_free(x->m);
	free(x->state);
	free(x->prune_state);
	free(x->lists);
}

bool decode_sees(const struct attn_shape *s, const struct piece_lists *l, int r, int h, int t)
{
	int list = r * (s->q_heads / l->heads) + h / l->heads;
	size_t at = (size_t)list * (size_t)l->stride;

	for (int i = 0; i < l->n[list]; i++)
		if (l->piece[at + (size_t)i] == t / l->tok)
			return !l->mask || l->mask[at + (size_t)i] >> h % l->heads & 1;
	return false;
}
