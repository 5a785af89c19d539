/* SPDX-License-Identifier: Apache-2.0 */
/* QUOKA, the reference: a worked example, and properties of every list. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/methods/method.h"
#include "kernels/select/quoka/quoka.h"
#include "tests/alloc_fault.h"
#include "tests/batch_case.h"
#include "tests/tap.h"

static void lists_make(const struct batch_case *c, struct token_lists *l)
{
	const struct attn_shape *s = &c->b.shape;

	l->tok = malloc(((size_t)(c->b.keys.n_page * s->kv_heads * s->page_tok) + 1) *
			sizeof *l->tok);
	l->n = malloc((size_t)(c->b.rows.n_req * s->kv_heads) * sizeof *l->n);
	if (!l->tok || !l->n)
		bail_out("out of memory");
}

static enum ar_status choose(const struct batch_case *c, const struct quoka *p,
			     struct token_lists *l, struct ar_err *err)
{
	memset(l->n, 0xff, (size_t)(c->b.rows.n_req * c->b.shape.kv_heads) * sizeof *l->n);
	return selector_find("quoka")->ref(
		&(struct attn_call){ .b = &c->b, .q = c->q, .kv = c->kv }, p,
		&(struct selection){ .tokens = *l }, err);
}

static void must(enum ar_status st, const struct ar_err *err)
{
	if (st)
		bail_out("%s", err->msg);
}

static const int32_t *list(const struct batch_case *c, const struct token_lists *l, int r, int h)
{
	return l->tok + attn_token_row(&c->b.shape, c->page0[r], c->page0[r + 1] - c->page0[r], h);
}

/* ---- the worked example ---- */

/* Eight tokens of one KV head of two channels on pages of four, a chunk of four, two heads. */
static void example_make(struct batch_case *c)
{
	static const float k[8][2] = { { 2, 0 },  { 0, 5 },  { 3, 3 }, { -1, 0 },
				       { 1, -1 }, { 0, -2 }, { 1, 3 }, { -2, 2 } };
	static const float q[4][2][2] = { /* [row][head] */
					  { { 4, 0 }, { 1, 1 } },
					  { { 4, 1 }, { 2, 2 } },
					  { { 0, 3 }, { 1, 2 } },
					  { { 4, -1 }, { 3, -1 } }
	};
	struct rng rng = { 3 };

	case_chunks(c, &rng, FILL_NORMAL, (struct attn_shape){ 2, 1, 2, 4 }, 1, (int[]){ 8 },
		    (int[]){ 4 });
	for (int i = 0; i < 16; i++) {
		c->kv.k[(c->page[i / 8] * 4 + i / 2 % 4) * 2 + i % 2] =
			bf16_from_f32(k[i / 2][i % 2]);
		c->q[i] = bf16_from_f32(q[i / 4][i / 2 % 2][i % 2]);
	}
}

static void test_example(void)
{
	static const double want[] = { .7087, .3419, .7316, -.4743, .2706, -.3259, .5333, -.0937 };
	struct quoka p = { .query_ratio = 0.5, .kv_ratio = 0.25 };
	struct token_lists l;
	struct batch_case c;
	uint16_t score[8];
	struct ar_err err;
	int off = 0;

	example_make(&c);
	lists_make(&c, &l);
	must(quoka_scores(&c.b, &p, 0, 0, c.q, c.kv.k, score, &err), &err);
	for (int t = 0; t < 8; t++) {
		bf16_t x = score[t] & 0x8000 ? score[t] & 0x7fff : (bf16_t)~score[t];

		off += fabs(bf16_to_f32(x) - want[t]) > 0.005;
	}
	is_int(off, 0, "worked scores");
	must(choose(&c, &p, &l, &err), &err);
	ok(l.n[0] == 2 && l.tok[0] == 0 && l.tok[1] == 2, "the worked list");
	p = (struct quoka){ .queries = 2, .tokens = 3 };
	must(choose(&c, &p, &l, &err), &err);
	ok(l.n[0] == 3 && l.tok[0] == 0 && l.tok[1] == 2 && l.tok[2] == 6,
	   "numbers take the place of ratios");
	tokens_free(&l);
	case_release(&c);
}

/* ---- any list ---- */

static const struct attn_shape shape = { 6, 2, 16, 16 };
enum { N_REQ = 5 };
static const int ctx[N_REQ] = { 203, 0, 64, 1, 90 }, rows[N_REQ] = { 45, 30, 16, 7, 1 };

static void ragged_make(struct batch_case *c, enum case_fill fill)
{
	struct rng rng = { 5 };

	case_chunks(c, &rng, fill, shape, N_REQ, ctx, rows);
}

/* Count faults of lists: a list does not ascend, reaches past the context, or has a wrong length;
 * or it leaves out a token for a worse or later one. */
static int faults(const struct batch_case *c, const struct quoka *p, const struct token_lists *l)
{
	int bad = 0;

	for (int r = 0; r < N_REQ; r++)
		for (int h = 0; h < shape.kv_heads; h++) {
			const int32_t *tok = list(c, l, r, h);
			int n = l->n[r * shape.kv_heads + h], m = 0, least = 1 << 16, last = 0;
			uint16_t score[256] = { 0 };
			struct ar_err err;

			must(quoka_scores(&c->b, p, r, h, c->q, c->kv.k, score, &err), &err);
			bad += n != (rows[r] == 1 || !ctx[r] ?
					     ctx[r] :
					     quoka_share(p->kv_ratio, p->tokens, ctx[r]));
			for (int i = 0; i < n; i++) {
				bad += tok[i] >= ctx[r] || tok[i] <= (i ? tok[i - 1] : -1);
				if (score[tok[i]] <= least)
					least = score[tok[i]], last = tok[i];
			}
			for (int t = 0; t < ctx[r]; t++) {
				if (m < n && tok[m] == t)
					m++;
				else
					bad += score[t] > least || (score[t] == least && t < last);
			}
			bad += m != n;
		}
	return bad;
}

static void test_lists(void)
{
	static const struct quoka p[] = {
		{ 0.25, 0.25, 0, 0 }, { 1, 1, 0, 0 },	   { 0, 0, 0, 0 },
		{ 0.5, 0.5, 3, 0 },   { 0.3, 0.1, 0, 70 }, { 0.3, 0.1, 1000, 1000 },
	};
	static const enum case_fill fills[] = { FILL_NORMAL, FILL_HUGE, FILL_EQUAL, FILL_BLOCKS };
	struct token_lists l;
	struct batch_case c;
	struct ar_err err;

	for (int f = 0; f < 4; f++) {
		int bad = 0;

		ragged_make(&c, fills[f]);
		lists_make(&c, &l);
		for (size_t i = 0; i < sizeof p / sizeof *p; i++) {
			must(choose(&c, &p[i], &l, &err), &err);
			bad += faults(&c, &p[i], &l);
		}
		is_int(bad, 0, "lists have the best tokens, as many as asked for: fill %d", f);
		if (fills[f] == FILL_EQUAL) {
			must(choose(&c, &p[0], &l, &err), &err);
			is_int(list(&c, &l, 0, 1)[49], 49, "of equal tokens the first are kept");
		}
		tokens_free(&l);
		case_release(&c);
	}
}

/* With all rows of one head as queries, a score is the largest cosine. */
static void test_cosine(void)
{
	static const struct attn_shape s = { 2, 2, 16, 16 };
	const struct quoka p = { .query_ratio = 1, .kv_ratio = 0.25 };
	int n = 70, m = 20, off = 0;
	struct rng rng = { 8 };
	struct batch_case c;
	uint16_t score[70];
	struct ar_err err;

	case_chunks(&c, &rng, FILL_NORMAL, s, 1, &n, &m);
	must(quoka_scores(&c.b, &p, 0, 1, c.q, c.kv.k, score, &err), &err);
	for (int t = 0; t < n; t++) {
		const bf16_t *k = c.kv.k + ((c.page[t / 16] * 2 + 1) * 16 + t % 16) * 16;
		double best = -1;

		for (int r = 0; r < m; r++) {
			const bf16_t *q = c.q + (r * 2 + 1) * 16;
			double qk = 0, qq = 0, kk = 0;

			for (int d = 0; d < 16; d++) {
				qk += bf16_to_f32(q[d]) * bf16_to_f32(k[d]);
				qq += bf16_to_f32(q[d]) * bf16_to_f32(q[d]);
				kk += bf16_to_f32(k[d]) * bf16_to_f32(k[d]);
			}
			best = fmax(best, qk / sqrt(qq * kk));
		}
		off += score[t] < 0x8000 || fabs(bf16_to_f32(score[t] & 0x7fff) - best) > 0.008;
	}
	is_int(off, 0, "scores are the largest cosines");
	case_release(&c);
}

/* A query of zeros and a key of zeros have no direction, and are no error. */
static void test_zeros(void)
{
	const struct quoka p = { .query_ratio = 0.5, .kv_ratio = 0.5 };
	struct token_lists l;
	struct batch_case c;
	struct ar_err err;

	ragged_make(&c, FILL_NORMAL);
	lists_make(&c, &l);
	memset(c.q, 0, c.q_len * sizeof *c.q);
	memset(c.kv.k, 0, c.kv_len * sizeof *c.kv.k);
	must(choose(&c, &p, &l, &err), &err);
	is_int(faults(&c, &p, &l), 0, "zeros are no error");
	is_int(list(&c, &l, 0, 0)[100], 100, "their scores are equal");
	tokens_free(&l);
	case_release(&c);
}

/* Orders of bfloat16 and of its integers. */
static void test_order(void)
{
	int bad = 0;
	float last = -INFINITY;

	for (int i = 0; i < 1 << 16; i++) {
		uint16_t bits = i & 0x8000 ? (uint16_t)(i & 0x7fff) : (uint16_t)~i;
		float x = bf16_to_f32(bits);

		if (isnan(x))
			continue;
		bad += x < last || quoka_order(bits) != (x != 0 ? i : 0x8000);
		last = x;
	}
	is_int(bad, 0, "integers order like what they stand for");
}

/* ---- the method ---- */

static void test_method(void)
{
	struct selection_count count[2];
	struct batch_case c;
	struct method *m;
	struct ar_err err;
	bf16_t *out, *dense;
	int diff = 0;

	ragged_make(&c, FILL_NORMAL);
	out = malloc(c.q_len * sizeof *out);
	dense = malloc(c.q_len * sizeof *dense);
	must(method_parse(&m, "dense", &err), &err);
	must(method_ref(method_prefill(m),
			&(struct attn_call){ .b = &c.b, .q = c.q, .kv = c.kv, .out = dense }, NULL,
			&err),
	     &err);
	method_free(m);
	must(method_parse(&m, "quoka:kv-ratio=1", &err), &err);
	must(method_ref(method_prefill(m),
			&(struct attn_call){ .b = &c.b, .q = c.q, .kv = c.kv, .out = out }, count,
			&err),
	     &err);
	for (size_t i = 0; i < c.q_len; i++)
		diff += fabsf(bf16_to_f32(out[i]) - bf16_to_f32(dense[i])) > 0.01f;
	is_int(diff, 0, "with all tokens the method is dense");
	is_int(count[1].group_sel, 203, "... and counts them all");
	method_free(m);
	must(method_parse(&m, "quoka", &err), &err);
	must(method_ref(method_prefill(m),
			&(struct attn_call){ .b = &c.b, .q = c.q, .kv = c.kv, .out = out }, count,
			&err),
	     &err);
	is_int(count[1].group_sel, 50, "by itself it keeps a quarter");
	is_str(m->params,
	       "{\"exec\":\"gather\",\"kv-ratio\":0.25,\"queries\":0,"
	       "\"query-ratio\":0.25,\"select\":\"quoka\",\"tokens\":0,\"union\":\"none\"}",
	       "its record");
	method_free(m);
	free(out);
	free(dense);
	case_release(&c);
}

static void test_refusals(void)
{
	static const char *const text[][2] = {
		{ "quoka:kv-ratio=1.5", "method 'quoka:kv-ratio=1.5': kv-ratio '1.5': "
					"want a number from 0 to 1" },
		{ "quoka:queries=-1", "method 'quoka:queries=-1': queries '-1': want an integer "
				      "from 0 to 1048576" },
		{ "quoka:exec=paged",
		  "method 'quoka:exec=paged': executor 'paged' takes all "
		  "blocks, a table per head group, but select=quoka with union=none gives a token "
		  "list per KV head: use exec=gather" },
		{ "quoka:union=group", "method 'quoka:union=group': selector 'quoka' has no block "
				       "mask, so there is nothing to unite: use union=none" },
	};

	for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
		struct method *m;
		struct ar_err err = { 0 };

		is_int(method_parse(&m, text[i][0], &err), AR_USAGE, "%s is refused", text[i][0]);
		is_str(err.msg, text[i][1], "... with what is wrong");
	}
}

static void test_faults(void)
{
	const struct quoka p = { .query_ratio = 0.5, .kv_ratio = 0.5 };
	struct token_lists l;
	struct batch_case c;
	struct ar_err err;
	bool hit = true;
	int bad = 0, k = 0;

	ragged_make(&c, FILL_NORMAL);
	lists_make(&c, &l);
	for (; hit && k < 1000; k++) {
		enum ar_status st;

		fault_arm(k);
		st = choose(&c, &p, &l, &err);
		hit = fault_disarm();
		bad += st != (hit ? AR_NOMEM : AR_OK);
	}
	ok(!bad && k > 7, "every allocation that fails is reported");
	tokens_free(&l);
	case_release(&c);
}

int main(void)
{
	plan(0);
	test_example();
	test_lists();
	test_cosine();
	test_zeros();
	test_order();
	test_method();
	test_refusals();
	test_faults();
	return done_testing();
}
