/* SPDX-License-Identifier: Apache-2.0 */
/* Selectors of decodes: worked examples, and rules that the reference of each follows on random
 * batches of one row a request:
 * - lists ascend and hold no piece past the row's own;
 * - what a selector always keeps is there;
 * - a request has the same list in a batch as alone;
 * - a looser parameter keeps all that a stricter one keeps; the loosest keeps every key, and then
 *   attention has the bits of /decode=dense;
 * - no head has more of the attention than under the oracle with as many keys;
 * - min-tokens shows every key to short rows.
 * Descriptors bring the methods (selector.order). */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/methods/method.h"
#include "kernels/select/pieces.h"
#include "tests/batch_case.h"
#include "tests/decode_case.h"
#include "tests/file.h"
#include "tests/selector_case.h"
#include "tests/tap.h"

static void must(enum ar_status st, const struct ar_err *err)
{
	if (st)
		bail_out("%s", err->msg);
}

static double logit(const struct batch_case *c, int h, int t)
{
	const bf16_t *q = c->q + h * 4, *k = c->kv.k + pieces_key(&c->b, 0, h / 2, t);

	return 0.5 * (double)bf16_dot(q, k, 4);
}

/* The share of head h's attention on these tokens, of this row of the example. */
static double recall(const struct batch_case *c, int h, const char seen[39])
{
	double sum = 0, all = 0;

	for (int t = 0; t < 39; t++) {
		all += exp(logit(c, h, t));
		sum += seen[t] ? exp(logit(c, h, t)) : 0;
	}
	return sum / all;
}

#define QUEST "quest,page=4,"

static const struct {
	const char *part;
	const char *head[4]; /* tokens, "a-b c": of each query head */
	double recall[4];    /* 0: not stated */
} vector[] = {
	{ "streaming,sink=4,recent=12",
	  { "0-3 27-38", "0-3 27-38", "0-3 27-38", "0-3 27-38" },
	  { .5511, .4227, .5766, .4278 } },
	{ "streaming,sink=4,recent=12,page=4",
	  { "0-3 28-38", "0-3 28-38", "0-3 28-38", "0-3 28-38" },
	  { 0 } },
	{ "oracle,budget=5",
	  { "0 1 5 6 32", "5 6 20 28 32", "6 19 28 32 36", "3 4 7 12 24" },
	  { 0 } },
	{ "tidal,budget=5,reselect=0,dense-layers=0",
	  { "0 1 5 6 32", "5 6 20 28 32", "6 19 28 32 36", "3 4 7 12 24" },
	  { 0 } },
	{ "rocket,topr=2,budget=12,meta-dtype=bf16",
	  { "4-7 20-27", "4-7 20-27", "0-7 28-31", "0-7 28-31" },
	  { 0 } },
	{ QUEST "budget=16",
	  { "0-7 24-27 36-38", "4-7 16-23 36-38", "4-7 16-19 28-31 36-38", "0-7 28-31 36-38" },
	  { .5794, .4853, .7383, .7770 } },
	{ QUEST "budget=16,newest=0",
	  { "0-7 24-27 32-35", "4-7 16-23 28-31", "4-7 16-19 28-31 36-38", "0-7 28-35" },
	  { 0 } },
	{ QUEST "budget=16,share=sum",
	  { "0-7 20-23 36-38", "0-7 20-23 36-38", "4-7 12-15 28-31 36-38",
	    "4-7 12-15 28-31 36-38" },
	  { .6056, .4431, .6645, .4900 } },
	{ QUEST "budget=16,share=mean",
	  { "0-7 20-23 36-38", "0-7 20-23 36-38", "0-7 12-15 36-38", "0-7 12-15 36-38" },
	  { 0 } },
	{ QUEST "budget=16,share=request",
	  { "0-7 20-23 36-38", "0-7 20-23 36-38", "0-7 20-23 36-38", "0-7 20-23 36-38" },
	  { .6056, .4431, .6217, .7683 } },
	{ QUEST "share=request,ratio=0.7,recent=4,update=page",
	  { "0-7 12-15 20-38", "0-7 12-15 20-38", "0-7 12-15 20-38", "0-7 12-15 20-38" },
	  { 0 } },
	{ QUEST "budget=4,min-pages=3,share=sum",
	  { "0-7 36-38", "0-7 36-38", "4-7 28-31 36-38", "4-7 28-31 36-38" },
	  { 0 } },
	{ QUEST "budget=16/prune=twilight,p=0.85",
	  { "0-2 5 6", "5 6 18-20 23", "6 19 28 36", "3 4 7" },
	  { .4969, .4224, .6551, .7417 } },
	{ QUEST "budget=16/prune=twilight,p=0.85,estimate=exact",
	  { "0-2 5 6", "5 6 18-20 23", "6 19 28 36", "3 4 7" },
	  { .4969, .4224, .6551, .7417 } },
	{ QUEST "budget=1", { "36-38", "36-38", "36-38", "36-38" }, { 0 } },
	{ QUEST "budget=40", { "0-38", "0-38", "0-38", "0-38" }, { 1, 1, 1, 1 } },
	{ "oracle,budget=39", { "0-38", "0-38", "0-38", "0-38" }, { 1, 1, 1, 1 } },
};

/* Whether the tokens are those of the text. */
static bool is_text(const char seen[39], const char *text)
{
	char want[39] = { 0 }, *end;

	while (*text) {
		long a = strtol(text, &end, 10), b = *end == '-' ? strtol(end + 1, &end, 10) : a;

		memset(want + a, 1, (size_t)(b - a + 1));
		text = end + strspn(end, " ");
	}
	return !memcmp(seen, want, sizeof want);
}

static void test_vectors(void)
{
	struct batch_case c;

	case_decode_example(&c);
	for (size_t i = 0; i < sizeof vector / sizeof *vector; i++) {
		struct decode_case x;
		bool same = true, near = true;

		decode_choose(&x, vector[i].part, &c);
		for (int h = 0; h < 4; h++) {
			char seen[39];

			for (int t = 0; t < 39; t++)
				seen[t] = decode_sees(&c.b.shape, &x.sel.chosen.pieces, 0, h, t);
			same &= is_text(seen, vector[i].head[h]);
			near &= !(vector[i].recall[h] > 0) ||
				fabs(recall(&c, h, seen) - vector[i].recall[h]) < 5e-5;
		}
		ok(same, "%s: the tokens of each head", vector[i].part);
		ok(near, "... and their share of the attention");
		decode_release(&x);
	}
	case_release(&c);
}

/* A layer with other queries takes the lists of the layer before, and has no state. */
static void test_takes(void)
{
	static const char text[] = "quest,page=4,budget=16,dense-layers=0,reuse=2/prune=twilight";
	struct method_selection taken = { 0 };
	struct batch_case c;
	struct decode_case x;
	struct method *later;
	struct ar_err err;
	bool same = true;

	case_decode_example(&c);
	decode_choose(&x, text, &c);
	later = x.m->later;
	must(method_open(later, &(struct selector_env){ .shape = c.b.shape, .n_layers = 2 }, &err),
	     &err);
	for (size_t i = 0; i < c.q_len; i++)
		c.q[i] ^= 0x8000;
	must(method_select_ref(&later->part[ROW_DECODE],
			       &(struct attn_call){ .b = &c.b, .q = c.q, .lists = x.lists }, &taken,
			       &err),
	     &err);
	for (int h = 0; h < 4; h++)
		for (int t = 0; t < 39; t++)
			same &= decode_sees(&c.b.shape, &taken.chosen.pieces, 0, h, t) ==
				decode_sees(&c.b.shape, &x.sel.chosen.pieces, 0, h, t);
	ok(same && taken.chosen.pieces.n[0] > 0, "%s: a layer takes the lists that another made",
	   text);
	ok(!method_state_bytes(&later->part[ROW_DECODE], &c.b.shape) &&
		   method_state_bytes(x.part, &c.b.shape) > 0,
	   "... and keeps no bounds of pages");
	method_selection_release(&taken);
	decode_release(&x);
	case_release(&c);
}

/* ---- rules ---- */

enum { N_CASE = 8, N_REQ = 4 };

static void make_case(struct batch_case *c, int k)
{
	static const int edge[] = { 1, 3, 4, 5, 63, 64, 65, 129 };
	struct rng rng = { 90 + (uint64_t)k };
	struct attn_shape s = { 4, 2, 16, 64 << k % 2 };
	int len[N_REQ];

	for (int r = 0; r < N_REQ; r++)
		len[r] = r ? 1 + (int)rng_below(&rng, 700) : edge[k % 8];
	case_make(c, &rng, k % 3 ? FILL_BLOCKS : FILL_NORMAL, s, N_REQ, len);
}

/* Lists that do not ascend from 0 on to the row's piece. */
static int disorder(const struct batch_case *c, const struct piece_lists *l)
{
	int groups = c->b.shape.q_heads / l->heads, off = 0;

	for (int i = 0; i < N_REQ * groups; i++) {
		const int32_t *piece = l->piece + (size_t)i * (size_t)l->stride;
		int before = -1, n = l->n[i];

		off += n < 1 || n > l->stride || piece[n - 1] * l->tok >= c->len[i / groups];
		for (int k = 0; k < n; before = piece[k++])
			off += piece[k] <= before;
	}
	return off;
}

/* Outputs of the batch under a part, owned by the caller. */
static bf16_t *attend(const struct batch_case *c, const struct decode_case *x)
{
	bf16_t *out = calloc(c->q_len, sizeof *out);
	struct ar_err err;

	must(method_ref(x->part,
			&(struct attn_call){ .b = &c->b,
					     .q = c->q,
					     .kv = c->kv,
					     .state = x->state,
					     .prune_state = x->prune_state,
					     .out = out },
			NULL, &err),
	     &err);
	return out;
}

/* Whether request r of the case has the list that it has alone. */
static bool alone(const struct decode_case *x, const struct batch_case *c, int r)
{
	const struct attn_shape *s = &c->b.shape;
	struct attn_batch b = c->b;
	int32_t page0[] = { 0, c->page0[r + 1] - c->page0[r] };
	struct method_selection own = { 0 };
	struct ar_err err;
	bool same = true;

	b.rows.n_req = b.rows.n_row = b.rows.n_qblk = 1;
	b.rows.pos += r, b.rows.pos0 += r, b.rows.left += r;
	b.keys.len += r, b.keys.page += c->page0[r];
	b.keys.page0 = page0, b.keys.n_page = page0[1];
	must(method_select_ref(x->part,
			       &(struct attn_call){ .b = &b,
						    .q = c->q + r * s->q_heads * s->head_dim,
						    .kv = c->kv,
						    .state = x->state,
						    .prune_state = x->prune_state },
			       &own, &err),
	     &err);
	for (int h = 0; h < s->q_heads; h++)
		for (int t = 0; t < c->len[r]; t++)
			same &= decode_sees(s, &own.chosen.pieces, 0, h, t) ==
				decode_sees(s, &x->sel.chosen.pieces, r, h, t);
	method_selection_release(&own);
	return same;
}

struct faults {
	int order, lacking, alone, lost, won, bits;
};

/* Add the faults of a case under the v-th value.  seen: what the values before keep. */
static void check_value(const struct selector_order *rule, int v, struct batch_case *c, char *seen,
			struct faults *f)
{
	const struct piece_lists *l;
	struct decode_case x;
	char text[160];
	int i = 0;

	selector_text(text, sizeof text, rule->method + strlen("dense/decode="), rule->value[v]);
	decode_choose(&x, text, c);
	l = &x.sel.chosen.pieces;
	f->order += disorder(c, l);
	for (int r = 0; r < N_REQ; r++) {
		f->alone += !alone(&x, c, r);
		for (int h = 0; h < c->b.shape.q_heads; h++)
			for (int t = 0; t < c->len[r]; t++, i++) {
				bool sees = decode_sees(&c->b.shape, l, r, h, t);

				f->lost += seen[i] && !sees;
				f->won += v && sees && !seen[i];
				f->lacking += !sees &&
					      (v == SELECTOR_VALUES - 1 || (rule->first && !t) ||
					       (rule->own && t == c->len[r] - 1));
				seen[i] = sees;
			}
	}
	if (v == SELECTOR_VALUES - 1) {
		struct decode_case dense;
		bf16_t *own = attend(c, &x), *all;

		decode_open(&dense, "dense", &c->b.shape);
		all = attend(c, &dense);
		f->bits += !!memcmp(own, all, c->q_len * sizeof *own);
		free(own);
		free(all);
		decode_release(&dense);
	}
	decode_release(&x);
}

/* Count the rows that min-tokens does not make dense where they are short, or changes where they
 * are not. */
static int gate_faults(const struct selector_order *rule, struct batch_case *c)
{
	enum { MIN = 200 };
	struct decode_case x, gated;
	char text[160], with[192];
	int off = 0, part;

	selector_text(text, sizeof text, rule->method + strlen("dense/decode="), rule->value[0]);
	part = (int)strcspn(text, "/");
	snprintf(with, sizeof with, "%.*s,min-tokens=%d%s", part, text, MIN, text + part);
	decode_choose(&x, text, c);
	decode_choose(&gated, with, c);
	off += disorder(c, &gated.sel.chosen.pieces);
	for (int r = 0; r < N_REQ; r++)
		for (int h = 0; h < c->b.shape.q_heads; h++)
			for (int t = 0; t < c->len[r]; t++)
				off += decode_sees(&c->b.shape, &gated.sel.chosen.pieces, r, h,
						   t) !=
				       (c->len[r] < MIN ||
					decode_sees(&c->b.shape, &x.sel.chosen.pieces, r, h, t));
	decode_release(&x);
	decode_release(&gated);
	return off;
}

/* The keys of request r that head h sees, and their share of its attention. */
static double mass(const struct batch_case *c, const struct decode_case *x, int r, int h, int *n)
{
	const struct attn_shape *s = &c->b.shape;
	const bf16_t *q = c->q + (r * s->q_heads + h) * s->head_dim;
	double sum = 0, all = 0;

	*n = 0;
	for (int t = 0; t < c->len[r]; t++) {
		size_t k = pieces_key(&c->b, r, h / (s->q_heads / s->kv_heads), t);
		double w = exp((double)bf16_dot(q, c->kv.k + k, s->head_dim) / sqrt(s->head_dim));

		all += w;
		if (decode_sees(s, &x->sel.chosen.pieces, r, h, t))
			sum += w, ++*n;
	}
	return sum / all;
}

/* Heads of a request that have more of the attention than the oracle with as many keys. */
static int above_oracle(const struct selector_order *rule, struct batch_case *c)
{
	struct decode_case x, best;
	char text[160], bound[32];
	int off = 0;

	selector_text(text, sizeof text, rule->method + strlen("dense/decode="), rule->value[1]);
	decode_choose(&x, text, c);
	for (int h = 0; h < c->b.shape.q_heads; h++) {
		int n, same;
		double own = mass(c, &x, 1, h, &n);

		snprintf(bound, sizeof bound, "oracle,budget=%d", n ? n : 1);
		decode_choose(&best, bound, c);
		off += own > mass(c, &best, 1, h, &same) + 1e-9 || same != (n ? n : 1);
		decode_release(&best);
	}
	decode_release(&x);
	return off;
}

static void test_rule(const struct selector_order *rule)
{
	struct faults f = { 0 };
	int gate = 0, above = 0;

	for (int k = 0; k < rounds(N_CASE); k++) {
		struct batch_case c;
		char *seen;

		make_case(&c, k);
		seen = calloc(c.at[N_REQ], (size_t)c.b.shape.q_heads);
		for (int v = 0; v < SELECTOR_VALUES; v++)
			check_value(rule, v, &c, seen, &f);
		gate += gate_faults(rule, &c);
		above += above_oracle(rule, &c);
		free(seen);
		case_release(&c);
	}
	is_int(f.order, 0, "%s: lists ascend to the row's piece", rule->method);
	is_int(f.lacking, 0, "... hold what is always kept, and at last every key");
	is_int(f.alone, 0, "... are those of the request alone");
	is_int(f.lost, 0, "... hold more and more");
	ok(f.won, "... and not the same");
	is_int(gate, 0, "... with min-tokens short rows see every key, others what they did");
	is_int(above, 0, "... have no more of the attention than the oracle's with as many keys");
	is_int(f.bits, 0, "... and of every key attention has the bits of dense attention");
}

/* ---- refusals ---- */

static void refused(const char *text, struct attn_shape s, const char *want)
{
	struct method *m;
	struct ar_err err = { 0 };

	must(method_parse(&m, text, &err), &err);
	if (!method_open(m, &(struct selector_env){ .shape = s, .n_layers = 1 }, &err))
		snprintf(err.msg, sizeof err.msg, "opened");
	is_str(err.msg, want, "refused");
	method_free(m);
}

static void test_refusals(void)
{
	refused("dense/decode=rocket,page=3", (struct attn_shape){ 4, 2, 64, 128 },
		"method 'dense/decode=rocket,page=3': selector 'rocket': page=3 does not divide "
		"the 128 tokens of a page of the cache: use a lower power of two");
	refused("dense/decode=streaming,page=128", (struct attn_shape){ 4, 2, 64, 64 },
		"method 'dense/decode=streaming,page=128': selector 'streaming': page=128 does "
		"not divide the 64 tokens of a page of the cache: use a lower power of two");
	refused("dense/decode=oracle", (struct attn_shape){ 34, 2, 64, 128 },
		"method 'dense/decode=oracle': selector 'topk': 17 query heads share a KV head; "
		"it takes up to 16");
}

int main(void)
{
	static const char duo[] = "0.3 0.7\n";

	plan(0);
	file_write("agree.duo", duo, strlen(duo));
	test_vectors();
	test_takes();
	for (int i = 0; decode_selectors[i]; i++)
		for (const struct selector_order *o = decode_selectors[i]->order; o->method; o++)
			test_rule(o);
	unlink("agree.duo");
	test_refusals();
	return done_testing();
}
