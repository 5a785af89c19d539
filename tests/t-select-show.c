/* SPDX-License-Identifier: Apache-2.0 */
/* The output of attnreplay select: counts and lists computed by hand, for every kind of
 * selection. */
#include "config.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/select/select.h"
#include "tests/alloc_fault.h"
#include "tests/tap.h"

/* ---- three selections ---- */

enum { TOK = 8 };

/* Two KV heads of two query heads, 20 tokens before the chunk and 12 in it: blocks of 8, two before
 * the chunk, query blocks 2 and 3. */
static const int32_t row0[] = { 0, 12 }, pos0[] = { 20 }, qblk0[] = { 0, 2 }, left[] = { 5 };
static const int32_t pos[] = { 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31 };
static const int32_t len[] = { 32 }, page0[] = { 0, 4 };
static const struct attn_batch batch = {
	.shape = { 4, 2, 16, TOK },
	.rows = { 1, 12, 2, row0, pos, pos0, qblk0, left },
	.keys = { 4, 4, 1, len, page0, NULL },
};

static void columns(const void *self, const struct attn_shape *s, int *max_run, int *max_col)
{
	(void)self, (void)s;
	*max_run = 2;
	*max_col = 3;
}

static enum ar_status ref(const struct attn_call *call, const void *self,
			  const struct selection *out, struct ar_err *err)
{
	(void)call;
	(void)self, (void)out;
	return ar_fail(err, AR_DATA, "not called");
}

static const struct selector of_blocks = { .name = "blocks", .scores = true, .ref = ref };
static const struct selector of_tokens = {
	.name = "tokens", .gives = SHAPE_TOKENS, .scores = true, .ref = ref
};
static const struct selector of_columns = {
	.name = "columns", .gives = SHAPE_COLUMNS, .columns = columns, .ref = ref
};

struct shown {
	struct method m;
	struct method_selection sel;
	struct selection_count count[2];
	struct accuracy acc[4];
	struct select_result r;
};

static void begin(struct shown *x, const struct selector *s, enum union_kind u)
{
	static char name[] = "a <method>", params[] = "{\"select\":\"x\"}";
	struct ar_err err;

	memset(x, 0, sizeof *x);
	x->m = (struct method){
		.name = name,
		.params = params,
		.part[ROW_PREFILL] = { .selector = s, .u = u, .executor = executor_find("paged") }
	};
	x->sel.scored = true;
	if (method_selection_init(&x->sel, method_prefill(&x->m), &batch, &err))
		bail_out("%s", err.msg);
	for (int h = 0; h < 4; h++)
		x->acc[h] = (struct accuracy){ 0.1 * (h + 1), 1 - 0.1 * h, 0.5, 0.25 * (h + 1) };
}

static void end(struct shown *x)
{
	struct ar_err err;

	if (method_count(method_prefill(&x->m), &batch, &x->sel.chosen, x->sel.table, x->count,
			 &err))
		bail_out("%s", err.msg);
	x->r = (struct select_result){
		.capture = "a&b",
		.model = "",
		.backend = "cpu",
		.method = &x->m,
		.layer = 3,
		.shape = batch.shape,
		.ctx = 20,
		.chunk = 12,
		.left = 5,
		.sel = &x->sel,
		.count = x->count,
		.acc = x->acc,
	};
}

/* Every head keeps its query block and, of the two before the chunk:
 *   head 0: query block 2 block 0, query block 3 block 1
 *   head 1: both query blocks block 0
 *   head 2: none;  head 3: query block 3 both */
static void make_blocks(struct shown *x)
{
	static const uint32_t mask[2][4] = { { 4 | 1, 4 | 1, 4, 4 }, { 8 | 2, 8 | 1, 8, 8 | 3 } };

	begin(x, &of_blocks, UNION_GROUP);
	memcpy(x->sel.chosen.mask, mask, sizeof mask);
	x->sel.chosen.score[0] = 0.5;
	union_ref(&batch, x->sel.lists.heads, x->sel.chosen.mask, x->sel.table);
	lists_ref(x->sel.table, 2, 1, &x->sel.lists.blocks);
	end(x);
}

/* KV head 0 keeps 0, 7, 8 and 19, KV head 1 nothing. */
static void make_tokens(struct shown *x)
{
	static const int32_t tok[] = { 0, 7, 8, 19 };

	begin(x, &of_tokens, UNION_NONE);
	memcpy(x->sel.chosen.tokens.tok, tok, sizeof tok);
	x->sel.chosen.tokens.n[0] = 4;
	x->sel.chosen.score[attn_token_row(&batch.shape, 0, 4, 1) + 19] = -0.25;
	end(x);
}

/* Query head 1 only: query block 2 has a run from 14 and columns 3 and 5, query block 3 a run from
 * 22. */
static void make_columns(struct shown *x)
{
	struct column_lists *l = &x->sel.chosen.columns;

	begin(x, &of_columns, UNION_NONE);
	l->run[1 * l->max_run] = 14;
	l->n_run[1] = 1;
	l->col[1 * l->max_col] = 3;
	l->col[1 * l->max_col + 1] = 5;
	l->n_col[1] = 2;
	l->run[5 * l->max_run] = 22;
	l->n_run[5] = 1;
	end(x);
}

/* ---- counts ---- */

static bool counts(const struct select_result *r, const char *step, const char *scope,
		   int64_t selected, int64_t total)
{
	struct select_density d[SELECT_DENSITIES];
	int n = select_densities(r, d);

	for (int i = 0; i < n; i++)
		if (!strcmp(d[i].step, step) && !strcmp(d[i].scope, scope)) {
			if (d[i].selected == selected && d[i].total == total)
				return true;
			diag("%s %s: %lld of %lld", step, scope, (long long)d[i].selected,
			     (long long)d[i].total);
		}
	return false;
}

static bool near(double got, double want)
{
	return fabs(got - want) < 1e-6;
}

static void test_blocks(void)
{
	struct shown x;
	float cell[4];

	make_blocks(&x);
	ok(counts(&x.r, "selected", "past", 6, 16), "blocks before the chunk are counted");
	ok(counts(&x.r, "selected", "causal", 14, 28) && counts(&x.r, "selected", "full", 14, 32),
	   "and all up to the query block's own, out of causal ones and of all");
	ok(counts(&x.r, "q-block", "past", 5, 8) && counts(&x.r, "q-block", "full", 13, 16),
	   "united over query blocks");
	ok(counts(&x.r, "sub-group", "past", 4, 4) && counts(&x.r, "group", "full", 8, 8),
	   "and over query heads");
	ok(near(select_jaccard(&x.r), (0 + 1 + 1 + 0) / 4.0),
	   "sets are alike by the Jaccard index");
	ok(near(select_head_density(&x.r, 0), 0.5) && near(select_head_density(&x.r, 2), 0),
	   "a head has a density of its own");
	select_cover(&x.r, 3, 1, cell);
	ok(cell[0] == 1 && cell[1] == 1 && cell[2] == 0 && cell[3] == 1,
	   "a picture shows its blocks");
	is_int(select_groups(&x.r), 2, "there is a table for each KV head");
	select_table(&x.r, 1, cell);
	ok(cell[0] == 1 && cell[3] == 1, "and it can be drawn");
	method_selection_release(&x.sel);
}

static void test_tokens(void)
{
	struct shown x;
	float cell[4];

	make_tokens(&x);
	ok(counts(&x.r, "selected", "past", 2 * 2 * 4, 4 * 2 * 20) &&
		   counts(&x.r, "q-block", "past", 2 * 4, 4 * 20) &&
		   counts(&x.r, "group", "past", 4, 40),
	   "of token lists tokens are counted");
	ok(counts(&x.r, "executed", "causal", 2 * 12 * 4 + 4 * 78, 4 * (12 * 20 + 78)),
	   "and pairs with the chunk's own");
	ok(isnan(select_jaccard(&x.r)) && isnan(select_density(&x.r, "selected", "full")),
	   "what is of blocks alone is not there");
	ok(near(select_head_density(&x.r, 1), 0.2) && near(select_head_density(&x.r, 2), 0),
	   "query heads have the density of their KV head");
	select_cover(&x.r, 1, 0, cell);
	ok(near((double)cell[0], 0.25) && near((double)cell[1], 0.125) &&
		   near((double)cell[2], 5.0 / 8) && cell[3] == 0,
	   "a picture shows shares of blocks, with the chunk up to the query block");
	method_selection_release(&x.sel);
}

static void test_columns(void)
{
	struct shown x;
	float cell[4];

	make_columns(&x);
	ok(counts(&x.r, "selected", "past", 8, 4 * 2 * 20), "of runs and columns keys are counted");
	ok(near(select_head_density(&x.r, 1), 8 / 40.0), "a head has its own");
	select_cover(&x.r, 1, 0, cell);
	ok(near((double)cell[0], 2 / 8.0) && near((double)cell[1], 2 / 8.0) &&
		   near((double)cell[2], 6 / 8.0) && cell[3] == 0,
	   "a picture shows shares of blocks, runs across their borders");
	method_selection_release(&x.sel);
}

/* ---- outputs ---- */

struct text {
	char *s;
	size_t n;
	FILE *f;
};

static void open_text(struct text *t)
{
	*t = (struct text){ 0 };
	t->f = open_memstream(&t->s, &t->n);
	if (!t->f)
		bail_out("no memory");
}

static bool has(const char *text, const char *part)
{
	if (strstr(text, part))
		return true;
	diag("no '%s' in %s", part, text);
	return false;
}

/* The JSON of the selection, compact. */
static char *json_of(const struct shown *x)
{
	struct text t;
	struct ar_err err;

	open_text(&t);
	if (select_put_json(&x->r, t.f, &err))
		bail_out("%s", err.msg);
	fclose(t.f);
	return t.s;
}

static void test_json(void)
{
	struct shown x;
	char *s;

	make_blocks(&x);
	s = json_of(&x);
	ok(has(s, "\"blocks\":[[[0,2],[1,3]],[[0,2],[0,3]],[[2],[3]],[[2],[0,1,3]]]"),
	   "blocks are listed by query head and query block");
	ok(has(s, "\"table_heads\":2,\"tables\":[[0,1,2,3],[0,1,2,3]]"), "tables by KV head");
	ok(has(s, "\"scores\":[[[0.5,null,null],[null,null,null,null]],"),
	   "scores up to the query block's own, null where there is none");
	ok(has(s, "\"model\":null") && has(s, "\"left\":5"), "what is not known is null");
	free(s);
	method_selection_release(&x.sel);

	make_tokens(&x);
	s = json_of(&x);
	ok(has(s, "\"tokens\":[[0,7,8,19],[]]") && !strstr(s, "\"blocks\""),
	   "tokens are listed by KV head");
	ok(has(s, "null],[null,") && has(s, ",null,-0.25]]}"),
	   "with scores of those before the chunk");
	free(s);
	method_selection_release(&x.sel);

	make_columns(&x);
	s = json_of(&x);
	ok(has(s, "\"runs\":[[[],[]],[[14],[22]],") && has(s, "\"columns\":[[[],[]],[[3,5],[]],"),
	   "runs and columns by query head and query block");
	ok(!strstr(s, "scores"), "of which there are no scores");
	free(s);
	method_selection_release(&x.sel);
}

static void test_text(void)
{
	static const struct {
		void (*make)(struct shown *x);
		int head;
		enum select_picture how;
		const char *want, *what;
	} t[] = {
		{ make_blocks, 0, SELECT_ASCII,
		  "query block 2: 0 2\n  query block 3: 1 3\n"
		  "  its table 0: 0-3\n",
		  "a head's blocks and table are ranges" },
		{ make_blocks, 0, SELECT_ASCII, "|# # |\n  | # #|\n", "they are drawn" },
		{ make_blocks, 0, SELECT_UNICODE, "|\u2580\u2584\u2580\u2584|\n",
		  "two lines in one" },
		{ make_tokens, 1, SELECT_ASCII, "tokens of KV head 0: 0 7-8 19\n", "tokens are" },
		{ make_tokens, -1, SELECT_UNICODE, "|\u2591\u2591", "shares are shades" },
		{ make_columns, 1, SELECT_NO_PICTURE,
		  "query block 2: runs from 14; columns 3 5\n"
		  "  query block 3: runs from 22; columns\n",
		  "so are runs and columns" },
	};

	for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
		struct shown x;
		struct text out;
		struct ar_err err;

		t[i].make(&x);
		open_text(&out);
		if (select_put_text(&x.r, t[i].head, t[i].how, out.f, &err))
			bail_out("%s", err.msg);
		fclose(out.f);
		ok(has(out.s, t[i].want), "in the text, %s", t[i].what);
		free(out.s);
		method_selection_release(&x.sel);
	}
}

static void test_svg(void)
{
	struct shown x;
	struct text out;
	struct ar_err err;
	double y = 0;

	make_blocks(&x);
	open_text(&out);
	if (select_put_svg(&x.r, -1, out.f, &y, &err))
		bail_out("%s", err.msg);
	fclose(out.f);
	ok(has(out.s, ">a &lt;method&gt;, a&amp;b, layer 3"), "in a drawing, names are escaped");
	ok(has(out.s, "head 3: density 0.500, recall 1.000") && has(out.s, "table 1: 4 blocks"),
	   "every head and table has a panel");
	ok(y > 60 && y < 400, "its height is told");
	free(out.s);
	method_selection_release(&x.sel);
}

/* ---- faults ---- */

/* cJSON is a shared library, whose allocations have to be led through the wrapped ones. */
static void *hooked_malloc(size_t n)
{
	return malloc(n);
}

static void hooked_free(void *p)
{
	free(p);
}

static enum ar_status all_outputs(const struct select_result *r, FILE *f, struct ar_err *err)
{
	double y = 0;
	enum ar_status st = select_put_json(r, f, err);

	if (!st)
		st = select_put_text(r, 0, SELECT_ASCII, f, err);
	return st ? st : select_put_svg(r, -1, f, &y, err);
}

static void test_faults(void)
{
	void (*const make[])(struct shown * x) = { make_blocks, make_tokens, make_columns };
	cJSON_Hooks hooks = { hooked_malloc, hooked_free };
	FILE *f = fopen("/dev/null", "w");

	if (!f)
		bail_out("no /dev/null");
	setvbuf(f, NULL, _IONBF, 0);
	cJSON_InitHooks(&hooks);
	for (int i = 0; i < 3; i++) {
		struct shown x;
		struct ar_err err;
		enum ar_status st = AR_NOMEM;
		long k = 0;

		make[i](&x);
		for (; st == AR_NOMEM && k < 100000; k++) {
			fault_arm(k);
			st = all_outputs(&x.r, f, &err);
			fault_disarm();
		}
		ok(!st && k > 50, "without memory at any point, outputs fail cleanly (%s)",
		   method_prefill(&x.m)->selector->name);
		method_selection_release(&x.sel);
	}
	cJSON_InitHooks(NULL);
	fclose(f);
}

int main(void)
{
	plan(0);
	test_blocks();
	test_tokens();
	test_columns();
	test_json();
	test_text();
	test_svg();
	test_faults();
	return done_testing();
}
