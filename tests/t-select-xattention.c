/* SPDX-License-Identifier: Apache-2.0 */
/* XAttention, the reference: worked examples, properties of every selection, and tables of
 * thresholds. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/methods/method.h"
#include "kernels/select/xattention/xattention.h"
#include "tests/alloc_fault.h"
#include "tests/batch_case.h"
#include "tests/file.h"
#include "tests/tap.h"

static struct xattention_self *rule(int stride, int q_heads, double threshold)
{
	struct xattention_self *x = calloc(1, sizeof *x + (size_t)q_heads * sizeof(float));

	x->stride = stride;
	x->q_heads = q_heads;
	for (int h = 0; h < q_heads; h++)
		x->threshold[h] = (float)threshold;
	return x;
}

static enum ar_status choose(struct batch_case *c, const struct xattention_self *x,
			     struct ar_err *err)
{
	return selector_find("xattention")
		->ref(&(struct attn_call){ .b = &c->b, .q = c->q, .kv = c->kv }, x,
		      &(struct selection){ .mask = c->mask }, err);
}

static void must_choose(struct batch_case *c, const struct xattention_self *x)
{
	struct ar_err err;

	memset(c->mask, 0xa5, case_mask_words(c) * sizeof *c->mask);
	if (choose(c, x, &err))
		bail_out("%s", err.msg);
}

/* Kept blocks of a row as "0 2 5". */
static const char *bits(const struct batch_case *c, int qblk, int head)
{
	static char text[256];
	size_t n = 0;

	*text = 0;
	for (int j = 0; j < c->b.keys.mask_words * 32; j++)
		if (case_kept(c, qblk, head, j))
			n += (size_t)snprintf(text + n, sizeof text - n, "%s%d", n ? " " : "", j);
	return text;
}

static double mass_of(struct batch_case *c, int stride, int qblk, int head, int j)
{
	size_t blks = (size_t)c->b.keys.max_kv_blk;
	uint32_t *mass = malloc((size_t)c->b.rows.n_qblk * blks * sizeof *mass), x;
	struct ar_err err;

	if (xattention_masses(&c->b, stride, 0, head, c->q, c->kv.k, mass, &err))
		bail_out("%s", err.msg);
	x = mass[(size_t)qblk * blks + (size_t)j];
	free(mass);
	return x / 67108864.0;
}

/* ---- worked examples ---- */

static void set_k(struct batch_case *c, int t, int d, double x)
{
	const struct attn_shape *s = &c->b.shape;

	c->kv.k[(c->page[t / s->page_tok] * s->page_tok + t % s->page_tok) * s->head_dim + d] =
		bf16_from_f32((float)x);
}

/* One channel, strides of two, blocks of four: twelve cached tokens and a chunk of four. */
static void test_small(void)
{
	static const int k[16] = { 2, 1, 0, 0, 0, 1, 3, 2, 1, 1, 0, 2, 1, 0, 0, 1 };
	static const int q[4] = { 1, 2, 2, 1 };
	static const double mass[4] = { .30489, 1.30155, .28708, .10649 };
	struct xattention_self *x = rule(2, 1, 0.8);
	struct rng rng = { 1 };
	struct batch_case c;
	int bad = 0;

	case_make(&c, &rng, FILL_NORMAL, (struct attn_shape){ 1, 1, 1, 4 }, 1, (int[]){ 16 });
	for (int t = 0; t < 16; t++)
		set_k(&c, t, 0, k[t]);
	for (int t = 0; t < 4; t++)
		c.all_q[12 + t] = bf16_from_f32((float)q[t]);
	case_cut(&c, (int[]){ 12 }, (int[]){ 4 });
	for (int j = 0; j < 4; j++)
		bad += fabs(mass_of(&c, 2, 0, 0, j) - mass[j]) > 1e-5;
	is_int(bad, 0, "the masses of the small example");
	must_choose(&c, x);
	is_str(bits(&c, 0, 0), "0 1 3", "its sink, its diagonal and the largest block are kept");
	x->threshold[0] = 0;
	must_choose(&c, x);
	is_str(bits(&c, 0, 0), "0 3", "threshold 0 leaves the first and the diagonal");
	free(x);
	case_release(&c);
}

static const double large_mass[6][6] = {
	{ 2.0 },
	{ 1.1623, 0.8377 },
	{ .8082, .9195, .2723 },
	{ .5449, .4585, .7019, .2947 },
	{ .4342, .4776, .3316, .5261, .2304 },
	{ .3195, .1984, .4768, .1331, .5234, .3488 },
};

/* Four channels, strides of two, blocks of four, 24 tokens. */
static void test_large(void)
{
	static const char *const want[6] = { "0", "0 1", "0 1 2", "0 2 3", "0 1 3 4", "0 2 4 5" };
	struct xattention_self *x = rule(2, 1, 0.7);
	struct rng rng = { 1 };
	struct batch_case c;
	int bad = 0;

	case_make(&c, &rng, FILL_NORMAL, (struct attn_shape){ 1, 1, 4, 4 }, 1, (int[]){ 24 });
	for (int t = 0; t < 24; t++)
		for (int d = 0; d < 4; d++) {
			set_k(&c, t, d, ((5 * t + 2 * d + 2 * t * t) % 41 - 20) / 8.0);
			c.all_q[t * 4 + d] =
				bf16_from_f32((float)(((3 * t + 7 * d + t * t) % 37 - 18) / 8.0));
		}
	case_cut(&c, (int[]){ 0 }, (int[]){ 24 });
	for (int i = 0; i < 6; i++)
		for (int j = 0; j <= i; j++)
			bad += fabs(mass_of(&c, 2, i, 0, j) - large_mass[i][j]) > 5.1e-5;
	is_int(bad, 0, "the masses of the large example");
	must_choose(&c, x);
	for (int i = 0; i < 6; i++)
		is_str(bits(&c, i, 0), want[i], "query block %d of the large example", i);
	case_cut(&c, (int[]){ 8 }, (int[]){ 16 });
	must_choose(&c, x);
	for (int i = 0; i < 4; i++)
		is_str(bits(&c, i, 0), want[i + 2], "query block %d in a chunk of its own", i + 2);
	x->threshold[0] = 0.8f;
	must_choose(&c, x);
	is_str(bits(&c, 1, 0), "0 1 2 3", "a higher threshold keeps more");
	free(x);
	case_release(&c);
}

/* All keys alike: every reduced column weighs the same, so the lower of equal blocks go first.  16
 * reduced rows see 152.5 columns on average: the first block has 1.68, the diagonal 0.89, and four
 * more blocks add the rest of 8. */
static void test_ties(void)
{
	struct xattention_self *x = rule(4, 1, 0.5);
	struct rng rng = { 3 };
	struct batch_case c;

	case_make(&c, &rng, FILL_EQUAL, (struct attn_shape){ 1, 1, 16, 64 }, 1, (int[]){ 640 });
	case_cut(&c, (int[]){ 576 }, (int[]){ 64 });
	must_choose(&c, x);
	is_str(bits(&c, 0, 0), "0 1 2 3 4 9", "of equal blocks the lower numbers are kept");
	free(x);
	case_release(&c);
}

/* ---- properties ---- */

static const struct attn_shape small = { 4, 2, 16, 64 };

static void random_case(struct batch_case *c, struct rng *rng)
{
	int ctx[3], rows[3];

	for (int r = 0; r < 3; r++) {
		ctx[r] = (int)rng_below(rng, 700);
		rows[r] = 1 + (int)rng_below(rng, 200);
	}
	case_chunks(c, rng, FILL_NORMAL, small, 3, ctx, rows);
}

/* Whether the row keeps the first block and its own, and nothing past its own.  Of the others it
 * keeps the largest, no more than the threshold asks for. */
static bool row_holds(const struct batch_case *c, int qblk, int h, int qa, const uint32_t *mass,
		      double threshold)
{
	uint64_t total = 0, sum = 0, least = UINT64_MAX, most = 0;

	if (!case_kept(c, qblk, h, 0) || !case_kept(c, qblk, h, qa))
		return false;
	for (int j = 0; j < c->b.keys.mask_words * 32; j++) {
		bool on = case_kept(c, qblk, h, j);

		if (j > qa && on)
			return false;
		if (j > qa)
			continue;
		total += mass[j];
		sum += on ? mass[j] : 0;
		if (j && j < qa && on)
			least = mass[j] < least ? mass[j] : least;
		if (!on)
			most = mass[j] > most ? mass[j] : most;
	}
	if (least < most || (double)sum < (double)(float)threshold * (double)total)
		return false;
	return least == UINT64_MAX ||
	       (double)(sum - least) < (double)(float)threshold * (double)total;
}

static void test_random(void)
{
	int rows = 0, good = 0, sums = 0;

	for (int k = 0; k < 12; k++) {
		double threshold = (double[]){ 0.3, 0.7, 0.9, 0.99 }[k % 4];
		int stride = 4 << k % 3;
		struct xattention_self *x = rule(stride, small.q_heads, threshold);
		struct rng rng = { (uint64_t)k };
		struct batch_case c;
		uint32_t *mass;

		random_case(&c, &rng);
		mass = malloc((size_t)c.b.rows.n_qblk * (size_t)c.b.keys.max_kv_blk * sizeof *mass);
		must_choose(&c, x);
		for (int i = 0; i < 3 * small.q_heads; i++) {
			int r = i / small.q_heads, h = i % small.q_heads;
			struct ar_err err;

			if (xattention_masses(&c.b, stride, r, h, c.q, c.kv.k, mass, &err))
				bail_out("%s", err.msg);
			for (int q = c.qblk0[r]; q < c.qblk0[r + 1]; q++, rows++) {
				int qa = c.ctx[r] / small.page_tok + q - c.qblk0[r];
				int lo = qa * small.page_tok, hi = lo + small.page_tok;
				int end = c.ctx[r] + c.row0[r + 1] - c.row0[r];
				const uint32_t *w = mass + (q - c.qblk0[r]) * c.b.keys.max_kv_blk;
				double sum = 0;

				lo = lo > c.ctx[r] ? lo : c.ctx[r];
				hi = hi < end ? hi : end;
				good += row_holds(&c, q, h, qa, w, threshold);
				for (int j = 0; j <= qa; j++)
					sum += w[j] / 67108864.0;
				sums += fabs(sum - ((hi + stride - 1) / stride - lo / stride)) <
					1e-4;
			}
		}
		free(mass);
		free(x);
		case_release(&c);
	}
	is_int(good, rows, "rows keep the least that reaches the threshold");
	is_int(sums, rows, "every reduced row of the chunk has mass 1");
}

/* Query blocks that lie whole in a chunk select the same however the prompt is cut. */
static void test_cuts(void)
{
	int tok = small.page_tok, differ = 0, whole = 0;

	for (int k = 0; k < 6; k++) {
		struct xattention_self *x = rule(4 << k % 3, small.q_heads, 0.8);
		struct rng rng = { 100 + (uint64_t)k };
		int len = 300 + (int)rng_below(&rng, 500), words;
		struct batch_case c;
		uint32_t *all;
		size_t bytes;

		case_make(&c, &rng, FILL_NORMAL, small, 1, &len);
		case_cut(&c, (int[]){ 0 }, &len);
		must_choose(&c, x);
		bytes = case_mask_words(&c) * sizeof *all;
		words = c.b.keys.mask_words;
		all = malloc(bytes);
		memcpy(all, c.mask, bytes);
		for (int at = 0, n; at < len; at += n) {
			n = 1 + (int)rng_below(&rng, 200);
			n = n < len - at ? n : len - at;
			case_cut(&c, &at, &n);
			must_choose(&c, x);
			for (int i = 0; i < c.b.rows.n_qblk; i++) {
				int qa = at / tok + i;

				if (qa * tok < at || (qa + 1) * tok > at + n)
					continue;
				whole++;
				for (int h = 0; h < small.q_heads; h++)
					for (int j = 0; j <= qa; j++)
						differ += case_kept(&c, i, h, j) !=
							  (all[(qa * small.q_heads + h) * words +
							       j / 32] >>
								   j % 32 &
							   1);
			}
		}
		free(all);
		free(x);
		case_release(&c);
	}
	ok(whole > 20 && !differ, "whole query blocks select the same however the prompt is cut");
}

static void test_tail(void)
{
	static const struct {
		int left, last_dense, tail;
		bool all;
	} v[] = {
		{ 0, 0, XATTENTION_TAIL_DOC, false },	 { 0, 1, XATTENTION_TAIL_DOC, true },
		{ 9, 10, XATTENTION_TAIL_DOC, true },	 { 10, 10, XATTENTION_TAIL_DOC, false },
		{ 0, 10, XATTENTION_TAIL_CODE, false },	 { 9, 10, XATTENTION_TAIL_CODE, true },
		{ 10, 10, XATTENTION_TAIL_CODE, false },
	};
	struct xattention_self *x = rule(8, small.q_heads, 0);
	struct rng rng = { 4 };
	struct batch_case c;
	int bad = 0;

	random_case(&c, &rng);
	for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
		int qa = c.ctx[0] / small.page_tok;

		x->last_dense = v[i].last_dense;
		x->tail = v[i].tail;
		c.left[0] = v[i].left;
		must_choose(&c, x);
		for (int j = 0; j <= qa; j++)
			bad += case_kept(&c, 0, 1, j) != (v[i].all || !j || j == qa);
		bad += case_kept(&c, 0, 1, qa + 1);
	}
	is_int(bad, 0, "the dense tail is the last tokens of a prompt, in both rules");
	x->last_dense = 0;
	x->threshold[2] = 1;
	must_choose(&c, x);
	for (int j = 0; j <= c.ctx[0] / small.page_tok; j++)
		bad += !case_kept(&c, 0, 2, j);
	is_int(bad, 0, "threshold 1 keeps everything");
	free(x);
	case_release(&c);
}

static void test_faults(void)
{
	struct xattention_self *x = rule(8, small.q_heads, 0.9);
	struct rng rng = { 5 };
	struct batch_case c;
	struct ar_err err;
	bool hit = true;
	int bad = 0, k = 0;

	random_case(&c, &rng);
	for (; hit && k < 100; k++) {
		enum ar_status st;

		fault_arm(k);
		st = choose(&c, x, &err);
		hit = fault_disarm();
		bad += st != (hit ? AR_NOMEM : AR_OK);
	}
	ok(!bad && k > 5 && k < 100, "every allocation that fails is reported");
	free(x);
	case_release(&c);
}

/* ---- tables ---- */

static const struct selector_env env = { .shape = { 2, 1, 64, 128 }, .n_layers = 4 };

static enum ar_status open_table(const struct selector_env *e, const char *text,
				 const struct xattention_self **x, struct method **m,
				 struct ar_err *err)
{
	enum ar_status st;

	file_write("xattention.json", text, strlen(text));
	st = method_parse(m, "xattention:table=xattention.json", err);
	if (st)
		bail_out("%s", err->msg);
	st = method_open(*m, e, err);
	*x = method_prefill(*m)->self;
	return st;
}

static void test_table(void)
{
	static const char text[] = "{\"threshold\": [[0.5,0.25],[1,0],[0.125,0],[0.75,1]]}";
	struct selector_env twice = { .shape = { 4, 2, 64, 128 }, .n_layers = 4 };
	const struct xattention_self *x;
	struct method *m;
	struct ar_err err;

	if (open_table(&env, text, &x, &m, &err))
		bail_out("%s", err.msg);
	ok(x->threshold[0] == 0.5f && x->threshold[1] == 0.25f && x->threshold[4] == 0.125f &&
		   x->threshold[7] == 1,
	   "a table has a row for each layer and a number for each head");
	method_free(m);
	is_int(open_table(&twice, text, &x, &m, &err), AR_DATA,
	       "a table of fewer heads is refused");
	method_free(m);
	twice.repeats = 2;
	if (open_table(&twice, text, &x, &m, &err))
		bail_out("%s", err.msg);
	ok(x->threshold[0] == 0.5f && x->threshold[1] == 0.25f && x->threshold[2] == 0.5f &&
		   x->threshold[3] == 0.25f && x->threshold[14] == 0.75f && x->threshold[15] == 1,
	   "but serves such heads repeated");
	method_free(m);
	if (open_table(&env,
		       "{\"layers\": [3, 1], \"threshold\": [[0.5,0.25,9],[0.75,1,9]],"
		       "\"stride\": 8, \"block\": 128}",
		       &x, &m, &err))
		bail_out("%s", err.msg);
	ok(x->threshold[0] == 0.75f && x->threshold[2] == 0.75f && x->threshold[4] == 0.75f &&
		   x->threshold[7] == 0.25f,
	   "a layer without a row takes the nearest one's, the lower of two; further heads are "
	   "other ranks'");
	method_free(m);
	if (method_parse(&m, "xattention:threshold=0.25,stride=16,last-dense=100,tail=code",
			 &err) ||
	    method_open(m, &env, &err))
		bail_out("%s", err.msg);
	x = method_prefill(m)->self;
	ok(x->stride == 16 && x->threshold[0] == 0.25f && x->threshold[7] == 0.25f &&
		   x->last_dense == 100 && x->tail == XATTENTION_TAIL_CODE,
	   "without a table the threshold holds everywhere");
	is_int(method_page_tok(m), 128, "blocks are of 128 tokens");
	method_free(m);
}

static void test_refusals(void)
{
	static const struct {
		const char *text, *want;
	} v[] = {
		{ "{\n\n[", "xattention.json:3: malformed JSON" },
		{ "[]", "want an object with 'threshold'" },
		{ "{\"threshold\": []}", "want an object with 'threshold'" },
		{ "{\"threshold\": 1}", "want an object with 'threshold'" },
		{ "{\"threshold\": [[1,1]], \"layers\": 3}", "want an object with 'threshold'" },
		{ "{\"threshold\": [[1,1]]}", "1 rows for 4 layers" },
		{ "{\"threshold\": [[1,1]], \"layers\": [1,2]}", "1 rows for 2 layers" },
		{ "{\"threshold\": [[1,1]], \"layers\": [4]}",
		  "entry 0 of 'layers': want a layer from 0 to 3" },
		{ "{\"threshold\": [[1,1]], \"layers\": [0.5]}",
		  "entry 0 of 'layers': want a layer from 0 to 3" },
		{ "{\"threshold\": [[1,1]], \"layers\": [null]}",
		  "entry 0 of 'layers': want a layer from 0 to 3" },
		{ "{\"threshold\": [[1]], \"layers\": [0]}",
		  "row 0 of 'threshold': want a number for each of 2 heads" },
		{ "{\"threshold\": [1], \"layers\": [0]}",
		  "row 0 of 'threshold': want a number for each of 2 heads" },
		{ "{\"threshold\": [[1,1.5]], \"layers\": [0]}",
		  "row 0, head 1: want a threshold from 0 to 1" },
		{ "{\"threshold\": [[1,\"x\"]], \"layers\": [0]}",
		  "row 0, head 1: want a threshold from 0 to 1" },
		{ "{\"threshold\": [[1,1]], \"layers\": [0], \"stride\": 16}",
		  "not made for stride=8; use the table's stride or calibrate again" },
		{ "{\"threshold\": [[1,1]], \"layers\": [0], \"block\": 64}",
		  "not made for block=128; use the table's block or calibrate again" },
	};
	const struct xattention_self *x;
	struct method *m;
	struct ar_err err;

	for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
		enum ar_status st = open_table(&env, v[i].text, &x, &m, &err);

		ok(st == AR_DATA && !x && strstr(err.msg, v[i].want), "refused: %s", v[i].want);
		if (!strstr(err.msg, v[i].want))
			diag("%s", err.msg);
		method_free(m);
	}
	remove("xattention.json");
	if (method_parse(&m, "xattention:table=/none/x.json", &err))
		bail_out("%s", err.msg);
	is_int(method_open(m, &env, &err), AR_DATA, "a table that is not there is refused");
	is_str(err.msg,
	       "method 'xattention:table=/none/x.json': /none/x.json: No such file or "
	       "directory",
	       "with its name");
	method_free(m);
}

static void test_table_faults(void)
{
	static const char text[] = "{\"layers\": [0], \"threshold\": [[0.5, 0.5]]}";
	bool hit = true;
	int bad = 0, k = 0;

	for (; hit && k < 100; k++) {
		const struct xattention_self *x = NULL;
		struct method *m;
		struct ar_err err;
		enum ar_status st;

		file_write("xattention.json", text, sizeof text - 1);
		if (method_parse(&m, "xattention:table=xattention.json", &err))
			bail_out("%s", err.msg);
		fault_arm(k);
		st = method_open(m, &env, &err);
		hit = fault_disarm();
		x = method_prefill(m)->self;
		bad += hit ? st != AR_NOMEM || x : st != AR_OK;
		method_free(m);
	}
	ok(!bad && k > 2 && k < 100,
	   "every allocation that fails while a table is read is reported");
	remove("xattention.json");
}

int main(void)
{
	plan(0);
	test_small();
	test_large();
	test_ties();
	test_random();
	test_cuts();
	test_tail();
	test_faults();
	test_table();
	test_refusals();
	test_table_faults();
	return done_testing();
}
