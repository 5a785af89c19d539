/* SPDX-License-Identifier: Apache-2.0 */
/* Rules that the reference of every selector follows, on random ragged batches:
 * - no block after the query block is kept;
 * - blocks that the selector always keeps are kept;
 * - a request has the same selection in a batch as alone;
 * - a looser parameter keeps all blocks that a stricter one keeps.
 * Descriptors bring the methods (selector.order). */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/methods/method.h"
#include "tests/batch_case.h"
#include "tests/selector_case.h"
#include "tests/tap.h"

enum { N_CASE = 6, N_REQ = 3 };

static const struct attn_shape heads = { .q_heads = 4, .kv_heads = 2, .head_dim = 16 };

static void must(enum ar_status st, const struct ar_err *err)
{
	if (st)
		bail_out("%s", err->msg);
}

static struct method *open_method(const struct selector_order *r, const char *value,
				  struct attn_shape *s)
{
	static float inv[8];
	struct selector_env env = { .n_layers = 1, .rope_inv = inv };
	char text[160];
	struct method *m;
	struct ar_err err;

	for (int i = 0; i < 8; i++)
		inv[i] = powf(10000, -(float)i / 8);
	selector_text(text, sizeof text, r->method, value);
	must(method_parse(&m, text, &err), &err);
	*s = heads;
	s->page_tok = method_page_tok(m);
	env.shape = *s;
	must(method_open(m, &env, &err), &err);
	return m;
}

/* ---- keys that are kept ---- */

/* A row a query block and query head, or of token lists a request and KV head. */
struct keys {
	int n_row, n_key;
	uint8_t *on; /* [n_row][n_key] */
};

static void mark(struct keys *x, int row, int from, int n)
{
	for (int t = from; t < from + n && t < x->n_key; t++)
		x->on[row * x->n_key + t] = 1;
}

static void mark_tokens(struct keys *x, const struct attn_batch *b, const struct token_lists *l)
{
	for (int i = 0; i < x->n_row; i++) {
		int r = i / b->shape.kv_heads, n_page = b->keys.page0[r + 1] - b->keys.page0[r];
		const int32_t *tok = l->tok + attn_token_row(&b->shape, b->keys.page0[r], n_page,
							     i % b->shape.kv_heads);

		for (int k = 0; k < l->n[i]; k++)
			mark(x, i, tok[k], 1);
	}
}

static void mark_row(struct keys *x, const struct attn_batch *b, const struct selection *s, int i)
{
	const struct column_lists *l = &s->columns;
	int tok = b->shape.page_tok;

	for (int j = 0; s->mask && j < b->keys.mask_words * 32; j++)
		if (s->mask[i * b->keys.mask_words + j / 32] >> j % 32 & 1)
			mark(x, i, j * tok, tok);
	for (int k = 0; l->run && k < l->n_run[i]; k++)
		mark(x, i, l->run[i * l->max_run + k], tok);
	for (int k = 0; l->col && k < l->n_col[i]; k++)
		mark(x, i, l->col[i * l->max_col + k], 1);
}

static void choose(struct keys *x, const struct method *m, const struct attn_batch *b,
		   const struct batch_case *c, const bf16_t *q, void *state)
{
	struct method_selection sel = { 0 };
	bool tokens = method_prefill(m)->selector->gives == SHAPE_TOKENS;
	struct ar_err err;

	must(method_select_ref(method_prefill(m),
			       &(struct attn_call){ .b = b, .q = q, .kv = c->kv, .state = state },
			       &sel, &err),
	     &err);
	*x = (struct keys){ .n_row = tokens ? b->rows.n_req * b->shape.kv_heads :
					      b->rows.n_qblk * b->shape.q_heads,
			    .n_key = (b->keys.max_kv_blk + 1) * b->shape.page_tok };
	x->on = calloc((size_t)(x->n_row * x->n_key), 1);
	if (tokens)
		mark_tokens(x, b, &sel.chosen.tokens);
	else
		for (int i = 0; i < x->n_row; i++)
			mark_row(x, b, &sel.chosen, i);
	method_selection_release(&sel);
}

/* ---- cases ---- */

static int draw(struct rng *rng, int lo, int hi)
{
	return lo + (int)rng_below(rng, (uint64_t)(hi - lo + 1));
}

/* Requests whose contexts the selector has seen. */
static void *make_case(struct batch_case *c, const struct method *m, struct attn_shape s, int k)
{
	struct rng rng = { 40 + (uint64_t)k };
	int len[N_REQ], ctx[N_REQ], rows[N_REQ];
	struct keys seen;
	void *state;

	for (int r = 0; r < N_REQ; r++) {
		ctx[r] = draw(&rng, 0, 3) ? draw(&rng, 1, 700) : 0;
		rows[r] = draw(&rng, 2, 260);
		len[r] = ctx[r] + rows[r] + draw(&rng, 0, 1) * 200;
	}
	case_make(c, &rng, k % 2 ? FILL_BLOCKS : FILL_NORMAL, s, N_REQ, len);
	state = calloc((size_t)c->n_page, method_state_bytes(method_prefill(m), &s) + 1);
	for (int r = 0; r < N_REQ; r++)
		len[r] = ctx[r] > 0 ? ctx[r] : 1;
	case_cut(c, (int[N_REQ]){ 0 }, len);
	choose(&seen, m, &c->b, c, c->q, state);
	free(seen.on);
	case_cut(c, ctx, rows);
	return state;
}

/* ---- rules ---- */

static int request_of(const struct attn_batch *b, int qblk)
{
	int r = 0;

	while (qblk >= b->rows.qblk0[r + 1])
		r++;
	return r;
}

/* Count rows that keep a key past the own block, and rows that lack a key that is always kept.
 * Runs may reach past a query block. */
static void check_places(const struct selector_order *rule, const struct attn_batch *b,
			 const struct keys *x, bool mask, int *past, int *lacking)
{
	int tok = b->shape.page_tok;

	for (int i = 0; i < x->n_row; i++) {
		int qblk = i / b->shape.q_heads, r = request_of(b, qblk);
		int own = (b->rows.pos0[r] / tok + qblk - b->rows.qblk0[r]) * tok;
		const uint8_t *on = x->on + i * x->n_key;

		*past += mask && memchr(on + own + tok, 1, (size_t)(x->n_key - own - tok));
		*lacking += (rule->first && !on[0]) ||
			    (rule->own && memchr(on + own, 0, (size_t)tok));
	}
}

/* Rows that request r does not have alone. */
static int check_alone(const struct method *m, const struct batch_case *c, const struct keys *x,
		       void *state, int r)
{
	const struct attn_batch *all = &c->b;
	int32_t row0[] = { 0, all->rows.row0[r + 1] - all->rows.row0[r] };
	int32_t qblk0[] = { 0, all->rows.qblk0[r + 1] - all->rows.qblk0[r] };
	int32_t page0[] = { 0, all->keys.page0[r + 1] - all->keys.page0[r] };
	const struct attn_shape *s = &all->shape;
	struct attn_batch b = *all;
	struct keys own;
	bool tokens = method_prefill(m)->selector->gives == SHAPE_TOKENS;
	int off = 0, first = tokens ? r * s->kv_heads : all->rows.qblk0[r] * s->q_heads;

	b.rows.n_req = 1, b.rows.n_row = row0[1], b.rows.n_qblk = qblk0[1];
	b.rows.row0 = row0, b.rows.qblk0 = qblk0, b.keys.page0 = page0;
	b.rows.pos += all->rows.row0[r], b.rows.pos0 += r, b.rows.left += r;
	b.keys.len += r, b.keys.page += all->keys.page0[r], b.keys.n_page = page0[1];
	choose(&own, m, &b, c,
	       c->q + (size_t)all->rows.row0[r] * (size_t)(s->q_heads * s->head_dim), state);
	for (int i = 0; i < own.n_row; i++)
		off += !!memcmp(own.on + i * own.n_key, x->on + (first + i) * x->n_key,
				(size_t)own.n_key);
	free(own.on);
	return off;
}

/* Count keys of a that b lacks, and keys of b that a lacks. */
static void compare(const struct keys *a, const struct keys *b, int *lost, int *won)
{
	for (int i = 0; i < a->n_row * a->n_key; i++) {
		*lost += a->on[i] && !b->on[i];
		*won += !a->on[i] && b->on[i];
	}
}

static void test_rule(const struct selector_order *rule)
{
	int past = 0, lacking = 0, alone = 0, lost = 0, won = 0;

	for (int k = 0; k < rounds(N_CASE); k++) {
		struct keys before = { 0 }, x;

		for (int v = 0; v < SELECTOR_VALUES; v++) {
			struct attn_shape s;
			struct method *m = open_method(rule, rule->value[v], &s);
			struct batch_case c;
			void *state = make_case(&c, m, s, k);

			choose(&x, m, &c.b, &c, c.q, state);
			if (method_prefill(m)->selector->gives != SHAPE_TOKENS)
				check_places(rule, &c.b, &x,
					     method_prefill(m)->selector->gives != SHAPE_COLUMNS,
					     &past, &lacking);
			for (int r = 0; r < N_REQ; r++)
				alone += check_alone(m, &c, &x, state, r);
			if (v)
				compare(&before, &x, &lost, &won);
			free(before.on);
			before = x;
			free(state);
			case_release(&c);
			method_free(m);
		}
		free(before.on);
	}
	is_int(past, 0, "%s: nothing past a query block", rule->method);
	is_int(lacking, 0, "%s: what is always kept is there", rule->method);
	is_int(alone, 0, "%s: a ragged batch has what its requests have alone", rule->method);
	is_int(lost, 0, "%s: keeps more and more", rule->method);
	ok(won, "%s: ... and not the same", rule->method);
}

int main(int argc, char **argv)
{
	plan(0);
	for (int i = selector_first(argc, argv); selectors[i]; i++)
		for (const struct selector_order *o = selectors[i]->order; o && o->method; o++)
			test_rule(o);
	return done_testing();
}
