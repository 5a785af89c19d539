/* SPDX-License-Identifier: Apache-2.0 */
/* Spellings of plans: which method each layer runs. */
#include "config.h"
#include "kernels/methods/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "tests/alloc_fault.h"
#include "tests/file.h"
#include "tests/tap.h"

static const char path[] = "test.plan";

/* The ranges of a plan as "LAYERS METHOD|...". */
static const char *show(const struct plan *p)
{
	static char text[512];
	size_t n = 0;

	*text = 0;
	for (size_t i = 0; i < p->n_range && n < sizeof text; i++) {
		char layers[32];

		n += (size_t)snprintf(text + n, sizeof text - n, "%s%s %s", i ? "|" : "",
				      plan_layers(&p->range[i], layers, sizeof layers),
				      p->method[p->range[i].method]->name);
	}
	return text;
}

/* ---- texts ---- */

static const struct {
	const char *text, *want;
} spellings[] = {
	{ "dense", "0- dense" },
	{ "compact-fp:alpha=0.06", "0- compact-fp:alpha=0.06" },
	{ "0-:compact-fp", "0- compact-fp" },
	{ "0-1:dense;2-:compact-fp:alpha=0.06", "0-1 dense|2- compact-fp:alpha=0.06" },
	{ "4-:dense;3:flashprefill;0-2:dense", "0-2 dense|3 flashprefill|4- dense" },
	{ "0:dense;1:dense;2-:dense", "0- dense" },
	{ "0:compact-fp;1:compact-fp:alpha=0.06;3-:dense", "0-1 compact-fp|3- dense" },
	{ "0-3:select=flashprefill,alpha=0.1/union=none/exec=blocksparse;4-7:dense",
	  "0-3 select=flashprefill,alpha=0.1/union=none/exec=blocksparse|4-7 dense" },
	{ "0-1:dense;2-:compact-fp+uniprefill:p=0.98,layers=7+11", "0-1 dense|2- compact-fp" },
	{ "uniprefill:p=0.98,layers=7+11", "0- dense" },
	{ "0-1:seer:gate=a+b.gate;2-:compact-fp:alpha=1e+0",
	  "0-1 seer:gate=a+b.gate|2- compact-fp:alpha=1e+0" },
};

#define LISTED "want one that 'attnreplay methods' lists"
static const struct {
	const char *text, *msg; /* after "method 'TEXT': " */
} mistakes[] = {
	{ ";", "'': want LAYERS:METHOD, such as 0-3:dense" },
	{ "0:dense;", "'': want LAYERS:METHOD, such as 0-3:dense" },
	{ "dense;1-:dense", "'dense': want LAYERS:METHOD, such as 0-3:dense" },
	{ "0-3", "'0-3': want LAYERS:METHOD, such as 0-3:dense" },
	{ "0:dense;compact-fp:alpha=0.1",
	  "'compact-fp:alpha=0.1': want LAYERS:METHOD, such as 0-3:dense" },
	{ "0-1-:dense", "layers '0-1-': want N, N-M or N-, such as 0-3" },
	{ "3-1:dense", "layers '3-1': want N, N-M or N-, such as 0-3" },
	{ "0x:dense", "layers '0x': want N, N-M or N-, such as 0-3" },
	{ "0--:dense", "layers '0--': want N, N-M or N-, such as 0-3" },
	{ "0-2147483647:dense", "layers '0-2147483647': want N, N-M or N-, such as 0-3" },
	{ "0-3:dense;3:compact-fp", "layers 0-3 and 3 overlap; give each layer one method" },
	{ "3-:dense;0-5:compact-fp", "layers 0-5 and 3- overlap; give each layer one method" },
	{ "2-:dense;0-1:compact-fp;7:dense",
	  "layers 2- and 7 overlap; give each layer one method" },
	{ "0:", "method '': unknown name: " LISTED ", or select=NAME/union=NAME/exec=NAME" },
	{ "0:dense;1-:compact-fp:alpha=2",
	  "method 'compact-fp:alpha=2': alpha '2': want a number from 0 to 1" },
	{ "0-1:2-3:dense", "method '2-3:dense': a plan of layers; give one method for all layers" },
	{ "0-:plan=x", "method 'plan=x': a plan of layers; give one method for all layers" },
	{ "compact-fp+nope", "dropper 'nope': unknown name: " LISTED },
	{ "0:dense;1-:compact-fp+nope:p=0.9", "dropper 'nope:p=0.9': unknown name: " LISTED },
	{ "dense+lazyllm+uniprefill",
	  "two droppers, but a method takes one; leave out '+uniprefill'" },
	{ "lazyllm+uniprefill:p=1",
	  "two droppers, but a method takes one; leave out '+uniprefill:p=1'" },
	{ "lazyllm:layers=7:0.5+uniprefill",
	  "two droppers, but a method takes one; leave out '+uniprefill'" },
	{ "uniprefill:p=2", "dropper 'uniprefill:p=2': p '2': want a number from 0 to 1" },
	{ "dense+uniprefill:p=2", "dropper 'uniprefill:p=2': p '2': want a number from 0 to 1" },
};

static void test_spellings(void)
{
	for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
		struct ar_err err = { 0 };
		struct plan *p;

		if (plan_parse(&p, spellings[i].text, &err)) {
			is_str(err.msg, "", "'%s' is a plan", spellings[i].text);
			continue;
		}
		is_str(show(p), spellings[i].want, "the layers of '%s'", spellings[i].text);
		ok(!strcmp(p->name, spellings[i].text), "... it is called as it was written");
		plan_free(p);
	}
	for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
		struct plan *p = (struct plan *)1;
		struct ar_err err = { 0 };
		enum ar_status st = plan_parse(&p, mistakes[i].text, &err);
		char want[512];

		snprintf(want, sizeof want, "method '%s': %s", mistakes[i].text, mistakes[i].msg);
		is_str(st == AR_USAGE && !p ? err.msg : "accepted", want, "'%s' is refused",
		       mistakes[i].text);
	}
	plan_free(NULL);
}

/* Pieces in random order: a plan, whose ranges ascend, or wrong usage. */
static void test_random(void)
{
	static const char *const piece[] = { "0-1:dense", "0:ashape", "2-:ashape", "3-9:dense",
					     "1",	  ";",	      ";",	   ";",
					     ":",	  "-",	      "+",	   "x" };
	const int n = rounds(20000);
	int good = 0, accepted = 0;

	for (int k = 0; k < n; k++) {
		struct rng rng = { (uint64_t)k };
		struct ar_err err = { 0 };
		struct plan *p = NULL;
		char text[256] = "";
		bool fine;

		for (uint64_t i = rng_below(&rng, 7) + 1; i; i--)
			strcat(text, piece[rng_below(&rng, sizeof piece / sizeof *piece)]);
		if (plan_parse(&p, text, &err)) {
			good += err.status == AR_USAGE && !p && *err.msg;
			continue;
		}
		fine = p->n_range && p->n_method && *p->params == '{' && p->range[0].first >= 0;
		for (size_t i = 1; i < p->n_range; i++)
			fine &= p->range[i - 1].last != PLAN_TO_LAST &&
				p->range[i - 1].last < p->range[i].first;
		good += fine;
		accepted += strchr(text, ';') != NULL;
		plan_free(p);
	}
	is_int(good, n, "random texts are plans or wrong usage");
	ok(accepted > 3, "some are plans of several ranges (%d)", accepted);
}

/* ---- the record ---- */

static void test_params(void)
{
	static const struct {
		const char *text, *params;
		bool dense;
	} cases[] = {
		{ "0-1:dense;2-:ashape",
		  "{\"plan\":[{\"layers\":\"0-1\",\"method\":{\"exec\":\"paged\",\"select\":"
		  "\"none\",\"union\":\"none\"}},{\"layers\":\"2-\",\"method\":",
		  false },
		{ "0-1:dense;2:dense:exec=blocksparse",
		  "{\"plan\":[{\"layers\":\"0-1\",\"method\":{\"exec\":\"paged\",\"select\":"
		  "\"none\",\"union\":\"none\"}},{\"layers\":\"2\",\"method\":{\"exec\":"
		  "\"blocksparse\",\"select\":\"none\",\"union\":\"none\"}}]}",
		  true },
	};
	struct plan *p, *q;
	struct method *m;
	struct ar_err err;

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		if (plan_parse(&p, cases[i].text, &err))
			bail_out("%s", err.msg);
		ok(!strncmp(p->params, cases[i].params, strlen(cases[i].params)),
		   "the parameters of '%s'", cases[i].text);
		is_int(p->dense, cases[i].dense, "... are they dense");
		ok(!plan_single(p), "... not of one method");
		plan_free(p);
	}
	if (plan_parse(&p, "0-:compact-fp", &err) || plan_parse(&q, "compact-fp", &err) ||
	    method_parse(&m, "compact-fp", &err))
		bail_out("%s", err.msg);
	ok(plan_single(p) && !strcmp(p->params, m->params) && !strcmp(q->params, m->params),
	   "a plan of one method has the parameters of that");
	plan_free(p);
	plan_free(q);
	method_free(m);
}

/* ---- files ---- */

static void write_plan(const char *text)
{
	file_write(path, text, strlen(text));
}

static void test_files(void)
{
	static const struct {
		const char *text, *msg;
	} bad[] = {
		{ "# none\n\n", "test.plan: no lines; want LAYERS METHOD in each" },
		{ "", "test.plan: no lines; want LAYERS METHOD in each" },
		{ "0-3\n", "test.plan:1: '0-3': want LAYERS METHOD, such as '0-3 dense'" },
		{ "0 dense\n#\n0-3 dense\n",
		  "test.plan:3: layers 0 and 0-3 overlap; give each layer one method" },
		{ "\na dense", "test.plan:2: layers 'a': want N, N-M or N-, such as 0-3" },
		{ "0- dense;1:dense", "test.plan:1: method 'dense;1:dense': a plan of layers; give "
				      "one method for all layers" },
	};
	struct ar_err err = { 0 };
	struct plan *p = NULL, *q = NULL;

	write_plan(
		"# the first are dense\n\n 0-1\tdense \n2- compact-fp:alpha=0.06,window=3 # x\n");
	if (plan_parse(&p, "plan=test.plan", &err) ||
	    plan_parse(&q, "0-1:dense;2-:compact-fp:alpha=0.06,window=3", &err))
		diag("%s", err.msg);
	is_str(p ? show(p) : "refused", "0-1 dense|2- compact-fp:alpha=0.06,window=3",
	       "a file has a line for each range");
	ok(p && q && !strcmp(p->params, q->params) && !strcmp(p->name, "plan=test.plan"),
	   "... it says the same as the text of its lines");
	plan_free(p);
	plan_free(q);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		write_plan(bad[i].text);
		is_str(plan_parse(&p, "plan=test.plan", &err) == AR_USAGE && !p ? err.msg :
										  "accepted",
		       bad[i].msg, "a bad file");
	}
	unlink(path);
	ok(plan_parse(&p, "plan=test.plan", &err) == AR_DATA && strstr(err.msg, "test.plan: "),
	   "a file that is missing is named");
}

/* ---- lists, single methods ---- */

static void test_split(void)
{
	static const char text[] = "dense,0-1:dense;2-:compact-fp:alpha=0.06,window=4;5:dense,"
				   "plan=a.plan,flashprefill:sink=1,0:dense:exec=blocksparse;"
				   "1-:select=none/exec=paged";
	static const char *const want[] = { "dense",
					    "0-1:dense;2-:compact-fp:alpha=0.06,window=4;5:dense",
					    "plan=a.plan", "flashprefill:sink=1",
					    "0:dense:exec=blocksparse;1-:select=none/exec=paged" };
	struct ar_err err = { 0 };
	char **v = NULL;
	size_t n = 0;

	if (method_split(text, &v, &n, &err))
		diag("%s", err.msg);
	is_int((long long)n, sizeof want / sizeof *want, "plans stand in lists of methods");
	for (size_t i = 0; i < n; i++) {
		if (i < sizeof want / sizeof *want)
			is_str(v[i], want[i], "... member %zu", i);
		free(v[i]);
	}
	free(v);
}

/* Parts for methods that have none of their own. */
static void test_parts(void)
{
	static const struct {
		const char *list, *kind, *parts, *want;
	} given[] = {
		{ "dense", "decode", "dense", "dense/decode=dense" },
		{ "dense,compact-fp:alpha=0.1,sink=1", "decode", "dense,quest,budget=8",
		  "dense/decode=dense,dense/decode=quest,budget=8,"
		  "compact-fp:alpha=0.1,sink=1/decode=dense,"
		  "compact-fp:alpha=0.1,sink=1/decode=quest,budget=8" },
		{ "dense/decode=quest,budget=8,ashape", "decode", "a,b",
		  "dense/decode=quest,budget=8,ashape/decode=a,ashape/decode=b" },
		{ "dense/decode=quest/evict=x,y=1", "prune", "p:q=1",
		  "dense/decode=quest/evict=x,y=1/prune=p:q=1" },
		{ "0-1:dense;2-:ashape:sink=4/decode=b", "decode", "a",
		  "0-1:dense/decode=a;2-:ashape:sink=4/decode=b" },
		{ "compact-fp+uniprefill:p=0.98,uniprefill", "skip", "softmax",
		  "compact-fp/skip=softmax+uniprefill:p=0.98,dense/skip=softmax+uniprefill" },
		{ "select=seer,gate=/a/decode/b=1/union=none/exec=blocksparse", "decode", "a",
		  "select=seer,gate=/a/decode/b=1/union=none/exec=blocksparse/decode=a" },
		{ "streaming,0:snapkv:exec=paged;1-:duo", "decode", "dense",
		  "streaming,0:snapkv:exec=paged/decode=dense;1-:duo" },
		{ "dense/decode=a", "decode", "b",
		  "decode has no effect: every method has its own /decode=NAME; leave it out" },
		{ "dense", "evict", "a,", "empty method name in 'a,'" },
		{ "dense,", "evict", "a", "empty method name in 'dense,'" },
		{ "dense,plan=f", "skip", "a",
		  "method 'plan=f': the methods of a file have their parts there; write /skip=NAME "
		  "into its lines, or leave out --skip" },
	};

	for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
		const struct part_kind *kind = part_kinds;
		char *list = strdup(given[i].list);
		struct ar_err err = { 0 };
		enum ar_status st;

		while (strcmp(kind->key, given[i].kind))
			kind++;
		st = plan_give_parts(&list, kind, given[i].parts, &err);
		is_str(st ? err.msg : list, given[i].want, "%s of '%s' for '%s'", given[i].kind,
		       given[i].parts, given[i].list);
		ok(!st || (st == AR_USAGE && !strcmp(list, given[i].list)),
		   "... and a list that gets none stays");
		free(list);
	}
	for (long k = 0;; k++) {
		char *list = strdup("dense,0-1:ashape");
		struct ar_err err = { 0 };
		enum ar_status st;

		fault_arm(k);
		st = plan_give_parts(&list, &part_kinds[1], "a,b", &err);
		free(list);
		if (!fault_disarm())
			break;
		ok(st == AR_NOMEM, "allocation %ld of a list fails cleanly", k);
	}
}

static void test_no_plan(void)
{
	static const char *const text[] = { "0-1:dense", "dense;", "plan=x" };

	for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
		struct ar_err err = { 0 };
		struct method *m;
		char want[128];

		snprintf(want, sizeof want,
			 "method '%s': a plan of layers; give one method for all layers", text[i]);
		is_str(method_parse(&m, text[i], &err) == AR_USAGE && !m ? err.msg : "accepted",
		       want, "where one method is wanted, '%s' is refused", text[i]);
	}
}

static void test_faults(void)
{
	static const char *const text[] = { "0-1:dense;2-:compact-fp;1:dense", "plan=test.plan",
					    "0-1:dense;2-:compact-fp",
					    "0-1:dense;2-:compact-fp+uniprefill:layers=3",
					    "uniprefill" };

	write_plan("0-1 dense\n2- compact-fp\n");
	for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
		bool clean = true;
		long k = 0;

		for (;; k++) {
			struct ar_err err = { 0 };
			struct plan *p;
			enum ar_status st;

			fault_arm(k);
			st = plan_parse(&p, text[i], &err);
			if (!fault_disarm()) {
				clean &= st == (i ? AR_OK : AR_USAGE);
				plan_free(p);
				break;
			}
			clean &= st == AR_NOMEM && !p;
		}
		ok(clean && k > 10, "each of %ld allocations may fail for '%s'", k, text[i]);
	}
	unlink(path);
}

int main(void)
{
	char dir[] = "/tmp/t-plan-XXXXXX";

	plan(0);
	if (!mkdtemp(dir) || chdir(dir))
		bail_out("cannot make a folder");
	test_spellings();
	test_random();
	test_params();
	test_files();
	test_split();
	test_parts();
	test_no_plan();
	test_faults();
	rmdir(dir);
	return done_testing();
}
