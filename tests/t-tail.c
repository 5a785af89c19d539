/* SPDX-License-Identifier: Apache-2.0 */
/* The dense tail: the last query blocks of a prompt attend to every block.  The block tables are
 * made without them. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/methods/method.h"
#include "tests/batch_case.h"
#include "tests/tap.h"

static void must(enum ar_status st, const struct ar_err *err)
{
	if (st)
		bail_out("%s", err->msg);
}

/* ---- the worked example: blocks of two, ten cached tokens, a chunk of four ---- */

#define EXAMPLE "compact-fp:alpha=0.30,sink=1,window=1"

/* Result of a method for the chunk of the example. */
struct made {
	uint32_t table;
	float out[16];
	struct selection_count n;
};

static struct made make(const char *method, bool last_chunk)
{
	struct method_selection x = { 0 };
	struct batch_case c;
	struct made made;
	struct method *m;
	bf16_t out[16];
	struct ar_err err;

	case_example(&c);
	must(method_parse(&m, method, &err), &err);
	for (int cut = 0; cut < 2; cut++) { /* the first leaves the means of the past */
		method_selection_release(&x);
		case_cut(&c, (int[]){ cut ? 10 : 0 }, (int[]){ cut ? 4 : 10 });
		c.left[0] += !last_chunk;
		c.b.tail = method_tail(method_prefill(m));
		must(method_select_ref(method_prefill(m),
				       &(struct attn_call){
					       .b = &c.b, .q = c.q, .kv = c.kv, .state = c.state },
				       &x, &err),
		     &err);
	}
	must(method_prefill(m)->executor->ref(
		     &(struct attn_call){ .b = &c.b, .q = c.q, .kv = c.kv, .out = out }, &x.lists,
		     &err),
	     &err);
	must(method_count(method_prefill(m), &c.b, &x.chosen, x.table, &made.n, &err), &err);
	made.table = *x.table;
	for (int i = 0; i < 16; i++)
		made.out[i] = bf16_to_f32(out[i]);
	method_selection_release(&x);
	method_free(m);
	case_release(&c);
	return made;
}

/* first: of the first channel, [head][row]. */
static void is_out(const struct made *x, const float first[2][4], const char *what)
{
	float want[16];

	for (int i = 0; i < 16; i++)
		want[i] = first[i / 2 % 2][i / 4] * (i % 2 ? -1 : 1);
	is_f32(x->out, want, 16, 0, 1.0 / 256, "%s", what);
}

static bool count_is(int64_t sel, int64_t total, int64_t want_sel, int64_t want_total)
{
	return sel == want_sel && total == want_total;
}

/* Rows 0 and 1 see blocks 0, 1, 2, 5 and 6, rows 2 and 3 see all. */
static const float with_tail[2][4] = { { 3.707356f, 3.797895f, 6.103889f, 4.035125f },
				       { 2.616247f, 2.673750f, 6.939775f, 6.940951f } };

/* All rows are under that table. */
static const float dropped[2][4] = { { 3.707356f, 3.797895f, 5.234508f, 4.008735f },
				     { 2.616247f, 2.673750f, 4.698954f, 5.191880f } };

static void test_example(void)
{
	struct made x = make(EXAMPLE ",last-n=1", true);
	const struct selection_count *n = &x.n;
	float want[16];

	is_int(x.table, 0x67, "the table is that of the first query block: 0 1 2 5 6");
	is_out(&x, with_tail, "the tail's rows see everything, the others the table");
	ok(count_is(n->tiles_sel, n->tiles_total, 4, 10) &&
		   count_is(n->qunion_sel, n->qunion_total, 4, 10) &&
		   count_is(n->group_sel, n->group_total, 3, 5),
	   "4 of 10 tiles are selected, 4 of 10 and 3 of 5 are left by unions");
	ok(count_is(n->exec_sel, n->exec_total, 2 * (7 + 8 + 13 + 14), 100),
	   "the pairs that are run are those of all rows");
	x = make(EXAMPLE ",last-n=1,exec=blocksparse", true);
	is_out(&x, with_tail, "block-sparse under tables does the same");
	x = make(EXAMPLE ",last-n=1,union=q-block", true);
	is_int(x.table, 0x65, "under a union of query blocks head 0 has 0 2 5 6");

	x = make(EXAMPLE ",last-n=1", false);
	case_example_out(EXAMPLE_UNION, want);
	is_int(x.table, 0x6f, "before the last chunk of a prompt there is no tail");
	is_f32(x.out, want, 16, 0, 1.0 / 256, "and every row is under the table");

	x = make(EXAMPLE ",last-n=3", true);
	case_example_out(EXAMPLE_DENSE, want);
	is_f32(x.out, want, 16, 0, 1.0 / 256, "a chunk that is all tail is dense");
	ok(!n->tiles_total && !n->qunion_total && !n->group_total && n->exec_sel == 100,
	   "and has no densities");

	x = make(EXAMPLE ",last-n=1,last-n-rule=drop", true);
	is_int(x.table, 0x67, "dropped query blocks add nothing to a table");
	is_out(&x, dropped, "and are under it");
	ok(count_is(n->tiles_sel, n->tiles_total, 6, 20), "of their own they keep the first block");
	x = make(EXAMPLE ",last-n=9,last-n-rule=drop", true);
	is_int(x.table, 0x67, "the first query block of a chunk is never dropped");
	x = make(EXAMPLE ",last-n=1,last-n-rule=drop", false);
	is_int(x.table, 0x6f, "nor is any before the last chunk of a prompt");
}

/* ---- a tail is a chunk of its own that is dense ---- */

enum { N_SEQ = 3 };

/* Rows of the batch, each into its place among the rows of whole sequences. */
static void run(const struct method *m, struct batch_case *c, void *state, const int *ctx,
		const int *rows, bf16_t *out)
{
	size_t row = (size_t)(c->b.shape.q_heads * c->b.shape.head_dim);
	bf16_t *own;
	struct ar_err err;

	case_cut(c, ctx, rows);
	own = malloc(c->q_len * sizeof *own + 1);
	must(method_ref(method_prefill(m),
			&(struct attn_call){
				.b = &c->b, .q = c->q, .kv = c->kv, .state = state, .out = own },
			NULL, &err),
	     &err);
	for (int r = 0; r < N_SEQ; r++)
		memcpy(out + (c->at[r] + (size_t)ctx[r]) * row, own + (size_t)c->row0[r] * row,
		       (size_t)rows[r] * row * sizeof *out);
	free(own);
}

/* Whether the prompts' last chunks have the same outputs with a tail and in two pieces. */
static bool in_two(const char *name, int k, struct rng *rng)
{
	struct attn_shape s = { 6, 2, 16, 8 << rng_below(rng, 3) };
	const float inv[8] = { 1, 0.3f, 0.1f, 0.03f, 0.01f, 3e-3f, 1e-3f, 3e-4f };
	int zero[N_SEQ] = { 0 }, ctx[N_SEQ], rows[N_SEQ], body[N_SEQ], mid[N_SEQ], len[N_SEQ];
	struct method *m, *dense;
	struct batch_case c;
	bf16_t *one, *two;
	struct ar_err err;
	size_t bytes;
	void *state;
	bool same;

	for (int r = 0; r < N_SEQ; r++) {
		int start;

		len[r] = 60 + (int)rng_below(rng, 300);
		ctx[r] = (int)rng_below(rng, 200) * (len[r] - 40) / 200;
		rows[r] = len[r] - ctx[r];
		start = ((len[r] - 1) / s.page_tok + 1 - k) * s.page_tok;
		mid[r] = start > ctx[r] ? start : ctx[r];
		body[r] = mid[r] - ctx[r];
		if (body[r] == 1) /* alone a row sees everything */
			return in_two(name, k, rng);
		zero[r] = 0;
	}
	must(method_parse(&m, name, &err), &err);
	must(method_parse(&dense, "dense", &err), &err);
	case_make(&c, rng, FILL_BLOCKS, s, N_SEQ, len);
	must(method_open(m, &(struct selector_env){ .shape = s, .n_layers = 1, .rope_inv = inv },
			 &err),
	     &err);
	state = calloc((size_t)c.n_page, method_state_bytes(method_prefill(m), &s));
	bytes = c.at[N_SEQ] * (size_t)(s.q_heads * s.head_dim) * sizeof *one;
	one = calloc(1, bytes);
	two = calloc(1, bytes);
	run(m, &c, state, zero, ctx, one);
	memcpy(two, one, bytes);
	run(m, &c, state, ctx, body, two);
	run(dense, &c, NULL, mid, (int[]){ len[0] - mid[0], len[1] - mid[1], len[2] - mid[2] },
	    two);
	c.b.tail = method_tail(method_prefill(m));
	run(m, &c, state, ctx, rows, one);
	same = c.b.tail == k && !memcmp(one, two, bytes);
	free(one);
	free(two);
	free(state);
	case_release(&c);
	method_free(m);
	method_free(dense);
	return same;
}

static void test_pieces(void)
{
	static const struct {
		const char *method;
		int tail;
	} v[] = {
		{ "compact-sa:gate=mean,threshold=0.05,dense-tail=1", 2 },
		{ "compact-sa:gate=mean,threshold=0.1,dense-tail=1,dense-first=0", 2 },
		{ "compact-fp:alpha=0.5,window=1,last-n=1,union=sub-group", 1 },
		{ "compact-fp:alpha=0.5,window=1,sink=0,last-n=3,union=q-block", 3 },
		{ "union-bs:alpha=0.5,window=1,last-n=2", 2 },
	};

	for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
		struct rng rng = { 5 + i };
		int same = 0;

		for (int k = 0; k < 12; k++)
			same += in_two(v[i].method, v[i].tail, &rng);
		is_int(same, 12, "the rows of %s are those of a chunk and a dense one behind it",
		       v[i].method);
	}
}

/* ---- plans ---- */

/* Whether tiles hold each row and head once, with tiles of the tail first and under no list. */
static bool covers(const struct batch_case *c)
{
	const struct attn_batch *b = &c->b;
	int heads = b->shape.q_heads, tok = b->shape.page_tok;
	int *seen = calloc((size_t)(b->rows.n_row * heads) + 1, sizeof *seen);
	bool good = true;

	for (int i = 0; i < b->n_tile; i++) {
		const struct attn_tile *t = &b->tile[i];
		int first = (b->rows.pos0[t->req] / tok + attn_body(b, t->req)) * tok;

		good &= t->list >= 0 || !i || t[-1].list < 0;
		good &= t->list < 0 ? t->pos >= first : t->pos + t->n_row <= first;
		for (int k = 0; k < t->n_row * t->n_head && !t->part; k++)
			seen[(t->row + k / t->n_head) * heads + t->head + k % t->n_head]++;
	}
	for (int i = 0; i < b->rows.n_row * heads; i++)
		good &= seen[i] == 1;
	free(seen);
	return good;
}

static void test_plans(void)
{
	static const char *const name[] = { "paged", "blocksparse" };

	for (int x = 0; x < 2; x++) {
		struct rng rng = { 7 };
		int good = 0;

		for (int i = 0; i < 200; i++) {
			int group = 1 + (int)rng_below(&rng, 9), ctx[2], rows[2];
			struct attn_shape s = { 2 * group, 2, 8, 16 << rng_below(&rng, 4) };
			struct batch_case c;

			for (int r = 0; r < 2; r++) {
				ctx[r] = (int)rng_below(&rng, 3000);
				rows[r] = (int)rng_below(&rng, 600);
			}
			case_bare_chunks(&c, &rng, s, 2, ctx, rows);
			c.left[1] = (int)rng_below(&rng, 2);
			c.b.tail = (int)rng_below(&rng, 6);
			c.b.n_sm = (int)rng_below(&rng, 2) * 132;
			case_plan(&c, executor_find(name[x])->plan,
				  1 + (int)rng_below(&rng, (uint64_t)group));
			good += covers(&c);
			case_release(&c);
		}
		is_int(good, 200,
		       "%s: every row and head is in one tile, the tail's first, without list",
		       name[x]);
	}
}

/* ---- methods ---- */

static void test_methods(void)
{
	static const struct {
		const char *name;
		int tail;
	} v[] = {
		{ "compact-fp:last-n=3", 3 },
		{ "compact-fp:last-n=3,last-n-rule=drop", 0 },
		{ "flashprefill:last-n=3", 0 },
		{ "compact-sa:dense-tail=1", 2 },
		{ "seer:dense-tail=1", 0 },
		{ "compact-sa", 0 },
		{ "dense", 0 },
	};
	struct method *m;
	struct ar_err err;

	for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
		must(method_parse(&m, v[i].name, &err), &err);
		is_int(method_tail(method_prefill(m)), v[i].tail, "the tail of %s", v[i].name);
		method_free(m);
	}
	is_int(method_parse(&m, "compact-fp-copy:last-n=1", &err), AR_USAGE,
	       "an executor that copies tables has no keys for a tail");
	is_str(err.msg,
	       "method 'compact-fp-copy:last-n=1': executor 'copy' reads only tables, but "
	       "query blocks of the dense tail see every block: use exec=paged, or no dense tail",
	       "and says so");
}

int main(void)
{
	plan(0);
	test_example();
	test_pieces();
	test_plans();
	test_methods();
	return done_testing();
}
