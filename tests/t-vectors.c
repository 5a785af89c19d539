/* SPDX-License-Identifier: Apache-2.0 */
/* Worked numbers from the papers and the code of methods, across selectors: input formulas, counts
 * of the block example, ranks of scores, rescues, and published parameters. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/methods/method.h"
#include "kernels/select/bfla/bfla.h"
#include "kernels/select/flexprefill/flexprefill.h"
#include "kernels/select/means/means.h"
#include "kernels/select/xattention/xattention.h"
#include "src/select/select.h"
#include "tests/batch_case.h"
#include "tests/tap.h"

static void must(enum ar_status st, const struct ar_err *err)
{
	if (st)
		bail_out("%s", err->msg);
}

/* ---- the formulas ---- */

static void test_formula(void)
{
	static const struct {
		int head, tok;
		float x[4];
	} q[] = {
		{ 0, 0, { -2.25, -1.375, -0.5, 0.375 } }, { 1, 0, { -1.625, -0.75, 0.125, 1.0 } },
		{ 0, 3, { 0, 0.875, 1.75, -2.0 } }, { 0, 24, { 0.125, 1.0, 1.875, -1.875 } },
		{ 1, 33, { -1.125, -0.25, 0.625, 1.5 } },
	}, k[] = {
		{ 0, 0, { -2.5, -2.25, -2.0, -1.75 } }, { 0, 3, { 1.625, 1.875, 2.125, 2.375 } },
		{ 0, 31, { 0.875, 1.125, 1.375, 1.625 } },
	};
	struct batch_case c;
	int off = 0;

	case_formula(&c, (struct attn_shape){ 2, 1, 4, 4 }, 34);
	for (size_t i = 0; i < sizeof q / sizeof *q; i++)
		for (int d = 0; d < 4; d++)
			off += bf16_to_f32(c.all_q[(q[i].tok * 2 + q[i].head) * 4 + d]) !=
			       q[i].x[d];
	for (size_t i = 0; i < sizeof k / sizeof *k; i++) {
		const bf16_t *at = c.kv.k + (c.page[k[i].tok / 4] * 4 + k[i].tok % 4) * 4;

		for (int d = 0; d < 4; d++)
			off += bf16_to_f32(at[d]) != k[i].x[d];
	}
	is_int(off, 0, "the formulas give the values that the examples start from");
	case_release(&c);
}

static void test_rounding(void)
{
	ok(fabsf(bf16_to_f32(bf16_from_f32(3e-4f)) - 2.99454e-4f) < 5e-10f &&
		   fabsf(bf16_to_f32(bf16_from_f32(5e-4f)) - 4.99725e-4f) < 5e-10f,
	   "thresholds of gates round to their bf16 neighbours");
}

/* ---- the block example's counts ---- */

static bool counts(const struct select_result *r, const char *step, const char *scope,
		   int64_t selected, int64_t total)
{
	struct select_density d[SELECT_DENSITIES];
	int n = select_densities(r, d);

	for (int i = 0; i < n; i++)
		if (!strcmp(d[i].step, step) && !strcmp(d[i].scope, scope))
			return d[i].selected == selected && d[i].total == total;
	return false;
}

/* The example's chunk under a method. */
struct shown {
	struct batch_case c;
	struct method *m;
	struct method_selection sel;
	struct selection_count count[1];
	struct accuracy acc[2];
	struct select_result r;
};

static void show(struct shown *x, const char *method)
{
	struct ar_err err;

	memset(x, 0, sizeof *x);
	case_example(&x->c);
	must(method_parse(&x->m, method, &err), &err);
	for (int cut = 0; cut < 2; cut++) {
		method_selection_release(&x->sel);
		case_cut(&x->c, (int[]){ cut ? 10 : 0 }, (int[]){ cut ? 4 : 10 });
		x->c.b.tail = method_tail(method_prefill(x->m));
		must(method_select_ref(method_prefill(x->m),
				       &(struct attn_call){ .b = &x->c.b,
							    .q = x->c.q,
							    .kv = x->c.kv,
							    .state = x->c.state },
				       &x->sel, &err),
		     &err);
	}
	must(method_count(method_prefill(x->m), &x->c.b, &x->sel.chosen, x->sel.table, x->count,
			  &err),
	     &err);
	x->r = (struct select_result){ .capture = "",
				       .model = "",
				       .backend = "cpu",
				       .method = x->m,
				       .shape = x->c.b.shape,
				       .ctx = 10,
				       .chunk = 4,
				       .sel = &x->sel,
				       .count = x->count,
				       .acc = x->acc };
}

static void shown_release(struct shown *x)
{
	method_selection_release(&x->sel);
	method_free(x->m);
	case_release(&x->c);
}

static void test_counts(void)
{
	struct shown x;

	show(&x, "compact-fp:alpha=0.30,sink=1,window=1");
	ok(counts(&x.r, "selected", "past", 8, 20) && counts(&x.r, "q-block", "past", 5, 10) &&
		   counts(&x.r, "group", "past", 4, 5),
	   "of past blocks 8 of 20, 5 of 10 and 4 of 5 are kept");
	ok(counts(&x.r, "selected", "full", 12, 28) && counts(&x.r, "q-block", "full", 9, 14) &&
		   counts(&x.r, "group", "full", 6, 7),
	   "of all blocks 12 of 28, 9 of 14 and 6 of 7");
	ok(counts(&x.r, "selected", "causal", 12, 26), "26 of the 28 are causal");
	shown_release(&x);
	show(&x, "compact-fp:alpha=0.30,sink=1,window=1,last-n=1");
	ok(counts(&x.r, "selected", "past", 4, 10) && counts(&x.r, "q-block", "past", 4, 10) &&
		   counts(&x.r, "group", "past", 3, 5) &&
		   counts(&x.r, "selected", "causal", 6, 12) &&
		   counts(&x.r, "selected", "full", 6, 14) && counts(&x.r, "group", "full", 5, 7) &&
		   counts(&x.r, "executed", "causal", 84, 100),
	   "a dense tail is in the pairs alone");
	shown_release(&x);
	show(&x, "compact-fp:last-n=2");
	ok(counts(&x.r, "selected", "past", 0, 0) && counts(&x.r, "group", "full", 0, 0) &&
		   isnan(select_head_density(&x.r, 0)),
	   "where there is nothing else there are no densities");
	shown_release(&x);
}

/* ---- masks of one head over the formulas' 24 tokens, blocks of four ---- */

static const struct attn_shape tiny = { 1, 1, 4, 4 };

/* The mask's rows as "0|0 1|1 2". */
static const char *rows_of(const struct batch_case *c)
{
	static char text[256];
	size_t n = 0;

	*text = 0;
	for (int i = 0; i < c->b.rows.n_qblk; i++)
		for (int j = 0, first = 1; j < 32; j++)
			if (c->mask[i * c->b.keys.mask_words] >> j & 1) {
				n += (size_t)snprintf(text + n, sizeof text - n, "%s%d",
						      !first ? " " :
						      i	     ? "|" :
							       "",
						      j);
				first = 0;
			}
	return text;
}

static void choose(struct batch_case *c, const char *selector, const void *self, void *state)
{
	struct ar_err err;

	must(selector_find(selector)->ref(
		     &(struct attn_call){ .b = &c->b, .q = c->q, .kv = c->kv, .state = state },
		     self, &(struct selection){ .mask = c->mask }, &err),
	     &err);
}

static void test_xattention(void)
{
	struct xattention_self *x = calloc(1, sizeof *x + sizeof(float));
	struct batch_case c;

	if (!x)
		bail_out("out of memory");
	x->stride = 2, x->q_heads = 1, x->threshold[0] = 0.8f;
	case_formula(&c, tiny, 24);
	case_cut(&c, (int[]){ 0 }, (int[]){ 24 });
	choose(&c, "xattention", x, NULL);
	is_str(rows_of(&c), "0|0 1|0 1 2|0 1 2 3|0 1 3 4|0 2 4 5",
	       "xattention: from 0.7 to 0.8 only the fourth row keeps more");
	free(x);
	case_release(&c);
}

/* Every head is query-aware below a distance of 1: one column and one diagonal, and ten of the
 * heaviest blocks.  The eleventh would cross 0.7 of six rows. */
static void test_flexprefill(void)
{
	const struct flexprefill p = { .gamma = 0.7, .tau = 1, .min_budget = 1 };
	struct batch_case c;
	void *state;

	case_formula(&c, tiny, 24);
	state = calloc((size_t)c.n_page, means_state_bytes(&tiny));
	case_cut(&c, (int[]){ 0 }, (int[]){ 24 });
	choose(&c, "flexprefill", &p, state);
	is_str(rows_of(&c), "0|0 1|0 1 2|0 2 3|0 1 3 4|0 2 5",
	       "flexprefill: the block that crosses gamma is left out");
	free(state);
	case_release(&c);
	is_int(flexprefill_count(&(struct flexprefill){ .min_budget = 1 }, 4, 6, 7), 3,
	       "flexprefill: eight tokens, the one that crosses among them, are three blocks");
}

/* Query-aware blocks that neither the column nor the diagonal holds.  sum: the shares of all blocks
 * whose share is no smaller. */
static void test_flexprefill_order(void)
{
	static const struct {
		int row, blk;
		double sum;
	} v[] = {
		{ 2, 1, 2.4266 }, { 3, 2, 3.1046 }, { 4, 3, 3.4056 },
		{ 4, 1, 3.9104 }, { 5, 2, 4.1595 }, { 5, 4, 4.4054 },
	};
	struct flexprefill p = { .tau = 1, .min_budget = 1 };
	struct batch_case c;
	void *state;
	int wrong = 0;

	case_formula(&c, tiny, 24);
	state = calloc((size_t)c.n_page, means_state_bytes(&tiny));
	case_cut(&c, (int[]){ 0 }, (int[]){ 24 });
	for (size_t i = 0; i < sizeof v / sizeof *v; i++)
		for (int in = 0; in < 2; in++) {
			p.gamma = (v[i].sum + (in ? 0.002 : -0.002)) / 6;
			choose(&c, "flexprefill", &p, state);
			wrong += (int)(c.mask[v[i].row * c.b.keys.mask_words] >> v[i].blk & 1) !=
				 in;
		}
	is_int(wrong, 0, "flexprefill: the heaviest blocks come in the worked order");
	free(state);
	case_release(&c);
}

/* ---- bfla ---- */

/* Blocks of largest share, as bits, until they hold 0.7; shares of n blocks, each in two pages. */
static uint32_t heaviest(const float *share, int n)
{
	uint32_t set = 0;
	double sum = 0;

	while (sum < 0.7) {
		int best = -1;

		for (int j = 0; j < n; j++)
			if (!(set >> j & 1) && (best < 0 || share[2 * j] > share[2 * best]))
				best = j;
		set |= 1u << best;
		sum += share[2 * best];
	}
	return set;
}

/* Of each query block and head: shares of the aligned example.  set: the blocks that make up 0.7,
 * in the aligned example and in another. */
static void test_shares(void)
{
	static const double share[2][2][8] = {
		{ { .0559, .4228, .0425, .0782, .3478, .0369, .0158 },
		  { .0515, .0218, .0947, .0003, .0348, .7931, .0037 } },
		{ { .0461, .0353, .0960, .0095, .0530, .0578, .6928, .0096 },
		  { .0012, .0007, .0015, .0010, .7364, .2545, .0020, .0027 } },
	};
	static const struct {
		int n_kv;
		uint32_t set[2][2];
	} v[] = {
		{ 32, { { 1 << 1 | 1 << 4, 1 << 5 }, { 1 << 2 | 1 << 6, 1 << 4 } } },
		{ 34, { { 0xb4, 0xb4 }, { 1 << 4 | 1 << 6, 1 << 4 } } },
	};
	const struct bfla p = { .block = 4,
				.group = 2,
				.mass = 0.7,
				.threshold = 1,
				.local = 2,
				.sink = 1,
				.score_div = 1 };

	for (int i = 0; i < 2; i++) {
		struct batch_case c;
		struct ar_err err;
		float *score;
		int off = 0, sets = 0;

		case_formula(&c, (struct attn_shape){ 2, 1, 4, 2 }, v[i].n_kv);
		case_cut(&c, (int[]){ v[i].n_kv - 8 }, (int[]){ 8 });
		score = calloc((size_t)(c.b.rows.n_qblk * 2 * c.b.keys.max_kv_blk), sizeof *score);
		must(selector_find("bfla")->ref(
			     &(struct attn_call){ .b = &c.b, .q = c.q, .kv = c.kv }, &p,
			     &(struct selection){ .mask = c.mask, .score = score }, &err),
		     &err);
		for (int q = 0; q < 2; q++)
			for (int h = 0; h < 2; h++) {
				/* The second page of a query block sees all of its own. */
				const float *x = score + (4 * q + 2 + h) * c.b.keys.max_kv_blk;
				int n = (v[i].n_kv - 8 + 4 * q + 3) / 4 + 1;

				for (int j = 0; j < 8 && !i; j++)
					off += fabs(x[2 * j] - share[q][h][j]) > 5.1e-5;
				sets += heaviest(x, n) == v[i].set[q][h];
			}
		if (!i)
			is_int(off, 0, "bfla: the worked shares of each head");
		is_int(sets, 4, "bfla: the blocks of each head, behind %d tokens", v[i].n_kv - 8);
		free(score);
		case_release(&c);
	}
}

/* Coarse blocks that are kept in the two query blocks, as bits.  They are the blocks of the n best
 * scores of each head, the first block, and the band. */
static void test_scores(void)
{
	static const struct {
		int n;
		const char *coarse[2];
	} v[] = {
		{ 1, { "11000110", "10001011" } }, { 2, { "11101110", "10101111" } },
		{ 3, { "11111110", "10101111" } }, { 6, { "11111110", "11101111" } },
		{ 7, { "11111110", "11111111" } },
	};
	struct bfla p = {
		.block = 4, .group = 2, .threshold = 1, .local = 2, .sink = 1, .score_div = 1
	};
	struct batch_case c;
	int by_ratio = 0;

	case_formula(&c, (struct attn_shape){ 2, 1, 4, 4 }, 32);
	case_cut(&c, (int[]){ 24 }, (int[]){ 8 });
	for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
		char got[2][9] = { "", "" };

		p.least = v[i].n, p.ratio = 0;
		choose(&c, "bfla", &p, NULL);
		for (int q = 0; q < 2; q++)
			for (int j = 0; j < 8; j++)
				got[q][j] = c.mask[q * 2 * c.b.keys.mask_words] >> j & 1 ? '1' :
											   '0';
		ok(!strcmp(got[0], v[i].coarse[0]) && !strcmp(got[1], v[i].coarse[1]),
		   "bfla: the %d best scores of each head (%s, %s)", v[i].n, got[0], got[1]);
		p.least = 0, p.ratio = (v[i].n + 0.9) / 8;
		choose(&c, "bfla", &p, NULL);
		for (int q = 0; q < 2; q++)
			for (int j = 0; j < 8; j++)
				by_ratio += (c.mask[q * 2 * c.b.keys.mask_words] >> j & 1) !=
					    (v[i].coarse[q][j] == '1');
	}
	is_int(by_ratio, 0, "bfla: a ratio is rounded down");
	case_release(&c);
}

/* Random rescues of seed 1: runs of blocks, from and to, of the first four query blocks. */
static void test_rescues(void)
{
	static const struct {
		int from, to;
	} run[4][4] = {
		{ { 43, 50 }, { 124, 131 }, { -1, -1 }, { -1, -1 } },
		{ { 40, 47 }, { 121, 128 }, { -1, -1 }, { -1, -1 } },
		{ { 0, 5 }, { 79, 86 }, { 160, 167 }, { -1, -1 } },
		{ { 0, 3 }, { 77, 84 }, { -1, -1 }, { -1, -1 } },
	};
	static const int64_t psi[2][8] = {
		{ 479704, 492049, 504394, 516739, 529084, 541429, 553774, 566119 },
		{ 511301, 523646, 535991, 548336, 560681, 573026, 585371, 597716 },
	};
	struct bfla p = { .block = 256, .random = 0.1, .seed = 1 };
	struct bfla_rows rows = bfla_rows(&p, 256 * 300, 1024);
	int wrong = 0;

	for (int i = 0; i < 4; i++)
		for (int j = 0; j < 150; j++) {
			bool want = false;

			for (int k = 0; k < 4; k++)
				want |= j >= run[i][k].from && j <= run[i][k].to;
			wrong += bfla_placed(&p, &rows, i, j, 0) != want;
		}
	is_int(wrong, 0, "bfla: random rescues of a tenth are runs of about eight blocks");
	wrong = 0;
	for (int i = 0; i < 2; i++)
		for (int j = 0; j < 8; j++) {
			p.random = (double)psi[i][j] / 1e6 + 1e-9;
			wrong += bfla_placed(&p, &rows, i, j, 0);
			p.random = (double)(psi[i][j] + 1) / 1e6 + 1e-9;
			wrong += !bfla_placed(&p, &rows, i, j, 0);
		}
	is_int(wrong, 0, "bfla: their hash has the worked values");
}

/* ---- a single row ---- */

/* The published codes run a chunk of one row densely, whatever the parameters. */
static void test_one_row(void)
{
	static const char *const method[] = {
		"flashprefill:alpha=1,sink=0,window=1",
		"flexprefill:min-budget=1",
		"xattention:threshold=0",
		"bfla:min-tokens=0",
		"proxyattn:mass=0",
	};

	for (size_t i = 0; i < sizeof method / sizeof *method; i++) {
		struct method_selection sel = { 0 };
		struct rng rng = { 4 };
		struct batch_case c;
		struct method *m;
		struct ar_err err;
		int tok, len, n = 0;
		void *state;

		must(method_parse(&m, method[i], &err), &err);
		tok = method_page_tok(m);
		len = 10 * tok + 6;
		case_make(&c, &rng, FILL_BLOCKS, (struct attn_shape){ 4, 2, 16, tok }, 1, &len);
		must(method_open(m, &(struct selector_env){ .shape = c.b.shape, .n_layers = 1 },
				 &err),
		     &err);
		state = calloc((size_t)c.n_page,
			       method_state_bytes(method_prefill(m), &c.b.shape) + 1);
		for (int cut = 0; cut < 2; cut++) {
			method_selection_release(&sel);
			case_cut(&c, (int[]){ cut ? len - 1 : 0 }, (int[]){ cut ? 1 : len - 1 });
			must(method_select_ref(
				     method_prefill(m),
				     &(struct attn_call){
					     .b = &c.b, .q = c.q, .kv = c.kv, .state = state },
				     &sel, &err),
			     &err);
		}
		for (int h = 0; h < 4; h++)
			n += sel.chosen.mask[h * c.b.keys.mask_words] == (2u << 10) - 1;
		is_int(n, 4, "%s: a single row sees everything", method[i]);
		method_selection_release(&sel);
		method_free(m);
		free(state);
		case_release(&c);
	}
}

/* ---- operating points ---- */

/* Parameters of the methods in papers and code, in the order of the record. */
static void test_points(void)
{
	/* clang-format off */
	static const struct {
		const char *method, *has[8];
	} v[] = {
		{ "flashprefill", { "alpha\":0.01,", "last-n\":0,", "sink\":2,", "window\":4}" } },
		{ "flashprefill@qwen3-30b-a3b", { "alpha\":0.02,", "union\":\"none\"" } },
		{ "compact-fp", { "alpha\":0.06,", "sink\":2,", "union\":\"group\"",
				  "window\":4}" } },
		{ "compact-fp@qwen3-30b-a3b", { "alpha\":0.12,", "union\":\"sub-group\"" } },
		{ "seer", { "dense-first\":false", "diagonal\":false", "threshold\":0.0003," } },
		{ "compact-sa", { "dense-first\":true", "threshold\":0.0005,",
				  "union\":\"group\"" } },
		{ "quoka", { "kv-ratio\":0.25,", "query-ratio\":0.25," } },
		{ "xattention", { "block\":\"128\"", "stride\":\"8\"", "tail\":\"doc\"" } },
		{ "bfla", { "block\":256,", "group\":64,", "local\":256,", "mass\":0.99,",
			    "min-tokens\":256,", "pool\":\"flat\"", "random\":0,",
			    "stride\":0," } },
		{ "flexprefill", { "gamma\":0.9,", "max-budget\":0,", "min-budget\":1024,",
				   "tau\":0.1," } },
		{ "flexprefill@llama-3.1-8b", { "gamma\":0.95,", "tau\":0.1," } },
		{ "minference", { "blocks\":100,", "last\":64,", "local\":100,", "sink\":30,",
				  "slash\":2048,", "vertical\":512}" } },
		{ "ashape", { "init\":128,", "local\":3968," } },
		{ "trishape", { "last-dense\":100,", "recent\":1920,", "start\":128," } },
		{ "proxyattn", { "block\":\"128\"", "groups\":4,", "mass\":0.95,",
				 "q-stride\":1," } },
	};
	/* clang-format on */

	for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
		struct method *m;
		struct ar_err err;
		bool good = true;

		must(method_parse(&m, v[i].method, &err), &err);
		for (int k = 0; k < 8 && v[i].has[k]; k++)
			good = good && strstr(m->params, v[i].has[k]);
		ok(good, "%s: %s", v[i].method, m->params);
		method_free(m);
	}
}

int main(void)
{
	plan(0);
	test_formula();
	test_rounding();
	test_counts();
	test_xattention();
	test_flexprefill();
	test_flexprefill_order();
	test_shares();
	test_scores();
	test_rescues();
	test_one_row();
	test_points();
	return done_testing();
}
