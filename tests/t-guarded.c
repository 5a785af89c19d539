/* SPDX-License-Identifier: Apache-2.0 */
/* References that are not of this program: whatever they write wrongly is found, and right ones
 * have the same results as without guards. */
#include "config.h"
#include "kernels/methods/guarded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/methods/shapes.h"
#include "tests/alloc_fault.h"
#include "tests/batch_case.h"
#include "tests/tap.h"

enum { TOK = 64, STATE = 48, MAX_RUN = 3, MAX_COL = 5 };
static const struct attn_shape heads = {
	.q_heads = 4, .kv_heads = 2, .head_dim = 16, .page_tok = TOK
};

/* A fault of the reference, besides writing the right results. */
static void (*fault)(const struct attn_call *call, const struct selection *out);
static bool failing;

static void set_masks(const struct attn_batch *b, uint32_t *mask)
{
	for (int r = 0; r < b->rows.n_req; r++)
		for (int q = b->rows.qblk0[r]; q < b->rows.qblk0[r + 1]; q++)
			for (int h = 0; h < b->shape.q_heads; h++)
				for (int j = 0; j <= b->rows.pos0[r] / TOK + q - b->rows.qblk0[r];
				     j++)
					mask[(q * b->shape.q_heads + h) * b->keys.mask_words +
					     j / 32] |= 1u << j % 32;
}

static void set_columns(const struct attn_batch *b, const struct column_lists *l)
{
	for (int r = 0; r < b->rows.n_req; r++)
		for (int q = b->rows.qblk0[r]; q < b->rows.qblk0[r + 1]; q++)
			for (int i = q * b->shape.q_heads; i < (q + 1) * b->shape.q_heads; i++) {
				int first = b->rows.pos0[r] / TOK + q - b->rows.qblk0[r];

				l->run[i * l->max_run] = first * TOK;
				l->n_run[i] = 1;
				l->col[i * l->max_col] = 3;
				l->n_col[i] = first > 0;
			}
}

static void set_tokens(const struct attn_batch *b, const struct token_lists *l)
{
	for (int r = 0; r < b->rows.n_req; r++)
		for (int h = 0; h < b->shape.kv_heads; h++) {
			int n = b->keys.page0[r + 1] - b->keys.page0[r];
			int32_t *tok = l->tok + attn_token_row(&b->shape, b->keys.page0[r], n, h);
			int keep = b->rows.pos0[r] < 4 ? b->rows.pos0[r] : 4;

			for (int i = 0; i < keep; i++)
				tok[i] = i;
			l->n[r * b->shape.kv_heads + h] = keep;
		}
}

static enum ar_status ref(const struct attn_call *call, const void *self,
			  const struct selection *out, struct ar_err *err)
{
	const struct attn_keys *k = &call->b->keys;

	(void)self;
	for (int i = 0; i < k->n_page; i++)
		memset((char *)call->state + k->page[i] * STATE, i + 1, STATE);
	if (out->mask)
		set_masks(call->b, out->mask);
	if (out->tokens.n)
		set_tokens(call->b, &out->tokens);
	if (out->columns.n_run)
		set_columns(call->b, &out->columns);
	if (out->score)
		out->score[0] = 7;
	if (fault)
		fault(call, out);
	return failing ? ar_nomem(err) : AR_OK;
}

static size_t state_bytes(const void *self, const struct attn_shape *s)
{
	(void)self, (void)s;
	return STATE;
}

static void columns(const void *self, const struct attn_shape *s, int *max_run, int *max_col)
{
	(void)self, (void)s;
	*max_run = MAX_RUN;
	*max_col = MAX_COL;
}

static const struct selector selector = {
	.name = "x", .scores = true, .columns = columns, .state_bytes = state_bytes, .ref = ref
};

/* ---- faults ---- */

static void before_mask(const struct attn_call *call, const struct selection *out)
{
	(void)call;
	out->mask[-1] = 0;
}

static size_t mask_words(const struct attn_batch *b)
{
	return (size_t)(b->rows.n_qblk * b->shape.q_heads * b->keys.mask_words);
}

static void after_mask(const struct attn_call *call, const struct selection *out)
{
	out->mask[mask_words(call->b)] = 0;
}

static void later_block(const struct attn_call *call, const struct selection *out)
{
	out->mask[mask_words(call->b) - 1] |= 1u << 31;
}

static void after_scores(const struct attn_call *call, const struct selection *out)
{
	out->score[call->b->rows.n_qblk * call->b->shape.q_heads * call->b->keys.max_kv_blk] = 0;
}

static void before_state(const struct attn_call *call, const struct selection *out)
{
	(void)out;
	((char *)call->state)[-1] = 0;
}

static void other_page(const struct attn_call *call, const struct selection *out)
{
	const struct attn_keys *k = &call->b->keys;
	char used[256] = { 0 };
	int last = 0, free_page = 0;

	(void)out;
	for (int i = 0; i < k->n_page; i++) {
		used[k->page[i]] = 1;
		last = k->page[i] > last ? k->page[i] : last;
	}
	while (free_page < last && used[free_page])
		free_page++;
	if (free_page == last)
		bail_out("every page is of the batch");
	((char *)call->state)[free_page * STATE + 5] = 99;
}

static void many_tokens(const struct attn_call *call, const struct selection *out)
{
	out->tokens.n[0] = call->b->rows.pos0[0] + 1;
}

static void few_tokens(const struct attn_call *call, const struct selection *out)
{
	(void)call;
	out->tokens.n[0] = -1;
}

static void late_token(const struct attn_call *call, const struct selection *out)
{
	out->tokens.tok[3] = call->b->rows.pos0[0];
}

static void equal_tokens(const struct attn_call *call, const struct selection *out)
{
	(void)call;
	out->tokens.tok[3] = out->tokens.tok[2];
}

static void many_runs(const struct attn_call *call, const struct selection *out)
{
	(void)call;
	out->columns.n_run[0] = out->columns.max_run + 1;
}

static void early_run(const struct attn_call *call, const struct selection *out)
{
	(void)call;
	out->columns.run[0] = -1;
}

static void late_column(const struct attn_call *call, const struct selection *out)
{
	out->columns.col[0] = call->b->rows.pos0[0] / TOK * TOK;
}

static void after_bands(const struct attn_call *call, const struct selection *out)
{
	out->columns.band[call->b->rows.n_qblk * call->b->shape.q_heads].last = 1;
}

/* ---- calls ---- */

struct guarded_case {
	struct batch_case c;
	struct selector s;
	struct method_part m;
	char *state;
	struct method_selection x;
};

static void make(struct guarded_case *g, unsigned gives)
{
	struct rng rng = { 5 };
	struct ar_err err;

	case_make(&g->c, &rng, FILL_NORMAL, heads, 2, (int[]){ 400, 300 });
	case_cut(&g->c, (int[]){ 200, 70 }, (int[]){ 130, 20 });
	g->s = selector;
	g->s.gives = gives;
	g->m = (struct method_part){ .selector = &g->s, .u = UNION_NONE };
	g->state = calloc((size_t)g->c.n_page, STATE);
	g->x = (struct method_selection){ .scored = true };
	if (!g->state || method_selection_init(&g->x, &g->m, &g->c.b, &err))
		bail_out("no memory");
}

static void end(struct guarded_case *g)
{
	method_selection_release(&g->x);
	free(g->state);
	case_release(&g->c);
}

static enum ar_status call_guarded(struct guarded_case *g, struct ar_err *err)
{
	const struct attn_call call = {
		.b = &g->c.b, .q = g->c.q, .kv = g->c.kv, .state = g->state
	};

	return guarded_ref(&g->m, &call, &g->x, err);
}

/* Whether both have the same arrays. */
static bool same(const struct guarded_case *a, const struct guarded_case *b)
{
	struct shape_extent e = shape_extent(&a->m, &a->c.b);

	for (const struct shape_array *x = e.row->array; x->bytes; x++)
		if (memcmp(shape_array(&a->x, x), shape_array(&b->x, x), x->bytes(&e)))
			return false;
	return !memcmp(a->x.chosen.score, b->x.chosen.score, shape_score_bytes(&e)) &&
	       !memcmp(a->state, b->state, (size_t)a->c.n_page * STATE);
}

static void test_right(unsigned gives, const char *what)
{
	struct guarded_case a, b;
	struct ar_err err = { 0 };

	make(&a, gives);
	make(&b, gives);
	fault = NULL;
	ref(&(struct attn_call){ .b = &a.c.b, .state = a.state }, NULL, &a.x.chosen, &err);
	ok(!call_guarded(&b, &err) && same(&a, &b), "%s: what is right passes as it is", what);
	end(&a);
	end(&b);
}

static void test_faults(void)
{
	static const struct {
		unsigned gives;
		void (*fault)(const struct attn_call *call, const struct selection *out);
		const char *text;
	} faults[] = {
		{ 0, before_mask, "it wrote outside of its selection" },
		{ 0, after_mask, "it wrote outside of its selection" },
		{ 0, later_block, "its mask has blocks after a query block" },
		{ 0, after_scores, "it wrote outside of its scores" },
		{ 0, before_state, "it wrote outside of its state" },
		{ 0, other_page, "it wrote to the state of pages that are not of the batch" },
		{ SHAPE_TOKENS, many_tokens, "its tokens do not ascend to the chunk" },
		{ SHAPE_TOKENS, few_tokens, "its tokens do not ascend to the chunk" },
		{ SHAPE_TOKENS, late_token, "its tokens do not ascend to the chunk" },
		{ SHAPE_TOKENS, equal_tokens, "its tokens do not ascend to the chunk" },
		{ SHAPE_COLUMNS, many_runs,
		  "its runs do not ascend to the query block, or are too many" },
		{ SHAPE_COLUMNS, early_run,
		  "its runs do not ascend to the query block, or are too many" },
		{ SHAPE_COLUMNS, late_column,
		  "its columns do not ascend to the query block, or are too many" },
		{ SHAPE_COLUMNS, after_bands, "it wrote outside of its selection" },
	};

	for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
		struct guarded_case g;
		struct ar_err err = { 0 };
		char want[128];

		make(&g, faults[i].gives);
		fault = faults[i].fault;
		snprintf(want, sizeof want, "selector 'x': %s", faults[i].text);
		ok(call_guarded(&g, &err) == AR_DATA && !strcmp(err.msg, want), "%s", want);
		if (strcmp(err.msg, want))
			diag("%s", err.msg);
		end(&g);
	}
	fault = NULL;
}

static void test_error(void)
{
	struct guarded_case g;
	struct ar_err err;

	make(&g, 0);
	failing = true;
	ok(call_guarded(&g, &err) == AR_NOMEM && !*g.x.chosen.mask,
	   "an error of its own is returned, and nothing else");
	failing = false;
	end(&g);
}

static void test_memory(void)
{
	enum ar_status st = AR_NOMEM;
	struct ar_err err;
	int bad = 0;
	long k = 0;

	for (bool failed = true; failed; k++) {
		struct guarded_case g;

		make(&g, 0);
		fault_arm(k);
		st = call_guarded(&g, &err);
		failed = fault_disarm();
		bad += st != (failed ? AR_NOMEM : AR_OK);
		end(&g);
	}
	ok(!bad && k > 5, "each of %ld allocations may fail", k - 1);
}

int main(void)
{
	plan(0);
	test_right(0, "a mask");
	test_right(SHAPE_TOKENS, "tokens");
	test_right(SHAPE_COLUMNS, "columns");
	test_faults();
	test_error();
	test_memory();
	return done_testing();
}
