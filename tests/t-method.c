/* SPDX-License-Identifier: Apache-2.0 */
/* Methods: spellings, and the interplay of selector, union and executor. */
#include "config.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/methods/method.h"
#include "tests/alloc_fault.h"
#include "tests/batch_case.h"
#include "tests/tap.h"

/* ---- spellings ---- */

#define FP(alpha, exec, sink, u, window) \
	"{\"alpha\":" alpha ",\"dense-first\":true,\"exec\":\"" exec "\",\"last-n\":0," \
	"\"last-n-rule\":\"open\",\"select\":\"flashprefill\",\"sink\":" sink "," \
	"\"union\":\"" u "\",\"window\":" window "}"

#define DENSE "\"exec\":\"paged\",\"select\":\"none\",\"union\":\"none\""
#define STREAMING \
	"{\"decode\":{\"dense-layers\":0,\"exec\":\"lists\",\"min-tokens\":100,\"page\":1," \
	"\"recent\":1024,\"select\":\"streaming\",\"sink\":8,\"union\":\"none\"}," DENSE "}"
#define SNAPKV(window) \
	"{\"budget\":2048,\"group\":\"after\",\"kernel\":5,\"local\":0,\"name\":\"snapkv\"," \
	"\"pool\":\"avg\",\"sink\":0,\"softmax\":\"all\",\"variant\":\"snapkv\"," \
	"\"window\":" window ",\"window-rule\":\"ring\"}"

static const struct {
	const char *text, *params;
} spellings[] = {
	{ "dense", "{\"exec\":\"paged\",\"select\":\"none\",\"union\":\"none\"}" },
	{ "select=none/exec=blocksparse",
	  "{\"exec\":\"blocksparse\",\"select\":\"none\",\"union\":\"none\"}" },
	{ "flashprefill", FP("0.01", "blocksparse", "2", "none", "4") },
	{ "compact-fp", FP("0.06", "paged", "2", "group", "4") },
	{ "compact-fp:alpha=0.12", FP("0.12", "paged", "2", "group", "4") },
	{ "compact-fp:alpha=0.12,union=sub-group", FP("0.12", "paged", "2", "sub-group", "4") },
	{ "compact-fp:sink=1,sink=3", FP("0.06", "paged", "3", "group", "4") },
	{ "flashprefill:union=q-block,exec=paged,window=1",
	  FP("0.01", "paged", "2", "q-block", "1") },
	{ "select=flashprefill,alpha=0.06/union=group/exec=paged",
	  FP("0.06", "paged", "2", "group", "4") },
	{ "compact-fp-copy", FP("0.06", "copy", "2", "group", "4") },
	{ "union-bs:union=sub-group", FP("0.06", "blocksparse", "2", "sub-group", "4") },
	{ "select=flashprefill/exec=blocksparse", FP("0.01", "blocksparse", "2", "none", "4") },
	/* dense decodes, the default, are not in the record */
	{ "dense/decode=dense", "{\"exec\":\"paged\",\"select\":\"none\",\"union\":\"none\"}" },
	{ "compact-fp:alpha=0.12/decode=dense", FP("0.12", "paged", "2", "group", "4") },
	{ "select=flashprefill,alpha=0.06/union=group/exec=paged/decode=dense",
	  FP("0.06", "paged", "2", "group", "4") },
	/* names that stand for parts: keys are for the part that takes them, and parts of the text
	 * replace those of the name */
	{ "streaming:sink=8,min-tokens=100,exec=paged", STREAMING },
	{ "duo:exec=blocksparse,exec=paged/decode=streaming,sink=8,min-tokens=100", STREAMING },
	{ "snapkv/decode=dense", "{\"evict\":" SNAPKV("32") "," DENSE "}" },
	{ "skip-softmax",
	  "{\"exec\":\"paged\",\"select\":\"none\",\"skip\":{\"clamp\":true,\"decode\":16.52,"
	  "\"name\":\"softmax\",\"parts\":0,\"prefill\":587.18,"
	  "\"threshold\":0,\"tile\":\"64x128\"},\"union\":\"none\"}" },
	{ "rocketkv/evict=snapkv,window=64/decode=dense",
	  "{\"evict\":" SNAPKV("64") "," DENSE "}" },
	{ "dense/decode=streaming,sink=8,min-tokens=100", STREAMING },
	/* lists that pass between layers are in the record where they do */
	{ "dense/decode=streaming,sink=8,min-tokens=100,reuse=1,attend=list", STREAMING },
	{ "tidal:budget=9",
	  "{\"decode\":{\"attend\":\"full\",\"budget\":9,\"dense-layers\":2,\"exec\":\"lists\","
	  "\"min-tokens\":0,\"reselect\":\"2+13\",\"reuse\":1,\"select\":\"topk\","
	  "\"union\":\"none\"},\"exec\":\"paged\",\"select\":\"none\",\"union\":\"none\"}" },
	{ "twilight-quest:page=32/prune=twilight,p=0.9",
	  "{\"decode\":{\"budget\":8192,\"dense-layers\":2,\"exec\":\"lists\",\"min-pages\":1,"
	  "\"min-tokens\":0,\"newest\":1,\"page\":32,\"ratio\":0,\"recent\":1,"
	  "\"select\":\"quest\",\"share\":\"head\",\"union\":\"none\",\"update\":\"token\"},"
	  "\"exec\":\"paged\",\"prune\":{\"estimate\":\"int4\",\"exec\":\"lists\","
	  "\"keep-newest\":false,\"p\":0.9,\"select\":\"twilight\",\"union\":\"none\"},"
	  "\"select\":\"none\",\"union\":\"none\"}" },
	{ "dense/decode=oracle,budget=9/prune=twilight:p=0.5",
	  "{\"decode\":{\"budget\":9,\"dense-layers\":0,\"exec\":\"lists\",\"min-tokens\":0,"
	  "\"select\":\"topk\",\"union\":\"none\"},\"exec\":\"paged\",\"prune\":{"
	  "\"estimate\":\"int4\",\"exec\":\"lists\",\"keep-newest\":false,\"p\":0.5,"
	  "\"select\":\"twilight\",\"union\":\"none\"},\"select\":\"none\","
	  "\"union\":\"none\"}" },
};

#define LISTED "want one that 'attnreplay methods' lists"
#define SPELLED "unknown name: " LISTED ", or select=NAME/union=NAME/exec=NAME"
#define RESELECT(text) \
	"reselect=" text ": want ascending layers with plus signs between, such as 2+13"
static const struct {
	const char *text, *msg;
} mistakes[] = {
	{ "", SPELLED },
	{ "densest", SPELLED },
	{ "alpha=1", SPELLED },
	{ "dense:", "'': want NAME=VALUE" },
	{ "compact-fp:alpha", "'alpha': want NAME=VALUE" },
	{ "compact-fp:alpha=", "'alpha=': want NAME=VALUE" },
	{ "compact-fp:=1", "'=1': want NAME=VALUE" },
	{ "compact-fp:alpha=2", "alpha '2': want a number from 0 to 1" },
	{ "compact-fp:alpha=x", "alpha 'x': want a number from 0 to 1" },
	{ "compact-fp:window=0", "window '0': want an integer from 1 to 65536" },
	{ "compact-fp:dense-first=maybe", "dense-first 'maybe': want yes or no" },
	{ "compact-fp:beta=1", "unknown parameter 'beta': selector 'flashprefill' has "
			       "alpha, sink, window, last-n, last-n-rule, dense-first" },
	{ "dense:alpha=1", "unknown parameter 'alpha': selector 'none' has none" },
	{ "streaming:alpha=1",
	  "unknown parameter 'alpha': selector 'streaming' has sink, recent, page, dense-layers, "
	  "min-tokens, reuse, reselect, attend" },
	{ "streaming/decode=dense/decode=dense", "two decode parts; leave out '/decode=dense'" },
	{ "select=foo/exec=paged", "unknown selector 'foo': " LISTED },
	{ "select=none/union=foo/exec=paged", "unknown union 'foo': " LISTED },
	{ "select=none/exec=foo", "unknown executor 'foo': " LISTED },
	{ "select=none", "no executor: add /exec=NAME" },
	{ "compact-fp:select=none",
	  "select is given already: write the whole composition instead" },
	{ "dense:union=group",
	  "selector 'none' keeps every block, so there is nothing to unite: use union=none" },
	{ "select=flashprefill/exec=paged",
	  "executor 'paged' takes all blocks, a table per head group, but "
	  "select=flashprefill with union=none gives a list per query block and head: use "
	  "exec=blocksparse or a union" },
	{ "flashprefill:exec=copy",
	  "executor 'copy' takes a table per head group, but select=flashprefill with union=none "
	  "gives a list per query block and head: use exec=blocksparse or a union" },
	{ "flashprefill:exec=gather",
	  "executor 'gather' takes a token list per KV head, but select=flashprefill with "
	  "union=none gives a list per query block and head: use exec=blocksparse" },
	{ "dense:exec=copy",
	  "executor 'copy' takes a table per head group, but select=none with union=none gives all "
	  "blocks: use exec=paged" },
	{ "compact-fp:exec=gather",
	  "executor 'gather' takes a token list per KV head, but select=flashprefill with "
	  "union=group gives a table per head group: use exec=paged" },
	{ "dense:exec=decode", "executor 'decode' is for requests of one row, not for prefill: "
			       "give it to decodes, /decode=dense" },
	{ "/decode=dense", SPELLED },
	{ "dense/decode=", "unknown decode part '': want one of dense" },
	{ "dense/decode=nil,budget=8192", "unknown decode part 'nil': want one of dense" },
	{ "dense/decode=streaming,local=1",
	  "unknown parameter 'local': selector 'streaming' has sink, recent, page, dense-layers, "
	  "min-tokens, reuse, reselect, attend" },
	{ "dense/decode=dense,dense-layers=1",
	  "unknown parameter 'dense-layers': selector 'none' has none" },
	{ "dense/decode=dense,budget=1", "unknown parameter 'budget': selector 'none' has none" },
	{ "dense/decode=dense:", "'': want NAME=VALUE" },
	{ "dense/decode=dense,exec=paged", "'exec=paged' after /decode=: put it before" },
	{ "dense/decode=dense/union=none", "'union=none' after /decode=: put it before" },
	{ "dense/decode=dense,select=none", "'select=none' after /decode=: put it before" },
	{ "dense/decode=dense/decode=dense", "two decode parts; leave out '/decode=dense'" },
	{ "dense/evict=x", "unknown evict part 'x': want one of snapkv, h2o, streaming" },
	{ "dense/evict=snapkv,budget=8",
	  "evictor 'snapkv,budget=8': budget=8: 32 tokens stay in any case; want a larger budget" },
	{ "dense/evict=h2o/evict=h2o", "two evict parts; leave out '/evict=h2o'" },
	{ "dense/decode=dense/prune=twilight",
	  "there are no lists to prune: add /decode=NAME, NAME other than dense" },
	{ "dense/prune=twilight/prune=twilight", "two prune parts; leave out '/prune=twilight'" },
	{ "dense/decode=oracle,reuse=0", "reuse '0': want an integer from 1 to 65536" },
	{ "dense/decode=oracle,reselect=2+", RESELECT("2+") },
	{ "dense/decode=oracle,reselect=5+2", RESELECT("5+2") },
	{ "dense/decode=oracle,reselect=2;5", RESELECT("2;5") },
	{ "dense/decode=oracle,reselect=99999", RESELECT("99999") },
	{ "dense/decode=oracle,reselect=2,reuse=2",
	  "reuse=2 and reselect=2 both say which layers choose: leave one out" },
	{ "dense/decode=oracle,attend=full",
	  "attend=full: every layer chooses, so no layer sees a list: add reuse=N or "
	  "reselect=LAYERS" },
	{ "dense/evict=snapkv/decode=rocket,reuse=2",
	  "evictor 'snapkv' keeps other tokens in each layer, so no layer can take the lists of "
	  "another: leave out reuse and reselect, or the evictor" },
	{ "dense/decode=oracle/prune=twilight,min-tokens=1",
	  "unknown parameter 'min-tokens': selector 'twilight' has p, estimate, keep-newest" },
	{ "dense/skip=soft", "unknown skip part 'soft': want one of softmax" },
	{ "dense/skip=softmax/skip=softmax", "two skip parts; leave out '/skip=softmax'" },
	{ "dense/skip=softmax:scale=8", "skip part 'softmax:scale=8': unknown option 'scale'" },
	{ "dense/skip=softmax,threshold=0.1,decode=8",
	  "skip part 'softmax,threshold=0.1,decode=8': threshold is for both halves: leave out "
	  "prefill and decode" },
	{ "flashprefill/skip=softmax,prefill=8",
	  "executor 'blocksparse' of prefill skips no tiles; 'paged' does: take that, or leave "
	  "prefill out of /skip=softmax" },
	{ "dense/decode=streaming/skip=softmax,threshold=0.1",
	  "executor 'lists' of decode skips no tiles; 'decode' does: take that, or leave decode "
	  "out of /skip=softmax" },
};

/* Keep the first of the executors or parts that a message lists: a new one may be among the
 * others. */
static void cut_list(char *msg)
{
	char *from = strstr(msg, "use exec="), *to;

	from = from ? from : strstr(msg, "want one of dense");
	if (!from)
		return;
	from += strcspn(from, ",");
	for (to = from; *to == ',';)
		to += 2 + strcspn(to + 2, ", ");
	memmove(from, to, strlen(to) + 1);
}

static void test_spellings(void)
{
	for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
		struct method *m;
		struct ar_err err = { 0 };

		if (method_parse(&m, spellings[i].text, &err))
			diag("%s", err.msg);
		is_str(m ? m->params : NULL, spellings[i].params, "%s", spellings[i].text);
		if (m && strcmp(m->name, spellings[i].text))
			bail_out("the name is not what was written");
		method_free(m);
	}
	for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
		struct method *m = (struct method *)1;
		struct ar_err err = { 0 };
		char want[512];
		enum ar_status st = method_parse(&m, mistakes[i].text, &err);

		snprintf(want, sizeof want, "method '%s': %s", mistakes[i].text, mistakes[i].msg);
		cut_list(err.msg);
		is_str(st == AR_USAGE && !m ? err.msg : "accepted", want, "'%s' is refused",
		       mistakes[i].text);
	}
	for (const struct method_name *n = method_names; n->name; n++) {
		struct method *a = NULL, *b = NULL;
		struct ar_err err = { 0 };

		ok(!method_parse(&a, n->name, &err) && !method_parse(&b, n->spec, &err) &&
			   !strcmp(a->params, b->params),
		   "%s is its composition", n->name);
		method_free(a);
		method_free(b);
	}
	method_free(NULL);
}

/* The name of the part of a table with this selector. */
static const char *part_named(const struct method_name *table, const char *selector)
{
	char select[64];
	int n = snprintf(select, sizeof select, "select=%s", selector);

	for (; table->name; table++)
		if (!strncmp(table->spec, select, (size_t)n) && strchr(",/", table->spec[n]))
			return table->name;
	bail_out("no part has selector %s", selector);
}

/* Write the members of o as ",KEY=VALUE", but these. */
static void put_params(const cJSON *o, const char *but, FILE *f)
{
	for (const cJSON *i = o->child; i; i = i->next) {
		char word[64];

		snprintf(word, sizeof word, " %s ", i->string);
		if (strstr(but, word))
			continue;
		if (cJSON_IsString(i))
			fprintf(f, ",%s=%s", i->string, i->valuestring);
		else
			fprintf(f, ",%s=%.17g", i->string,
				cJSON_IsBool(i) ? cJSON_IsTrue(i) : i->valuedouble);
	}
}

static const char *member(const cJSON *o, const char *key)
{
	return cJSON_GetStringValue(cJSON_GetObjectItem(o, key));
}

/* The spelling of a record; the caller frees it. */
static char *respell(const char *params)
{
	cJSON *o = cJSON_Parse(params);
	const cJSON *decode = cJSON_GetObjectItem(o, "decode");
	const cJSON *evict = cJSON_GetObjectItem(o, "evict");
	const cJSON *prune = cJSON_GetObjectItem(o, "prune");
	const cJSON *skip = cJSON_GetObjectItem(o, "skip");
	char *text;
	size_t n;
	FILE *f = open_memstream(&text, &n);

	fprintf(f, "select=%s", member(o, "select"));
	put_params(o, " select union exec decode evict prune skip ", f);
	fprintf(f, "/union=%s/exec=%s", member(o, "union"), member(o, "exec"));
	if (evict) {
		fprintf(f, "/evict=%s", member(evict, "name"));
		put_params(evict, " name ", f);
	}
	if (decode) {
		fprintf(f, "/decode=%s", part_named(decode_parts, member(decode, "select")));
		put_params(decode, " select union exec ", f);
	}
	if (prune) {
		fprintf(f, "/prune=%s", part_named(prune_parts, member(prune, "select")));
		put_params(prune, " select union exec ", f);
	}
	if (skip) {
		fprintf(f, "/skip=%s", member(skip, "name"));
		put_params(skip, " name ", f);
	}
	fclose(f);
	cJSON_Delete(o);
	return text;
}

/* A record that is spelled out again has the same record. */
static void same_again(const char *text)
{
	struct method *a = NULL, *b = NULL;
	struct ar_err err = { 0 };
	char *again = NULL;

	if (method_parse(&a, text, &err))
		diag("%s", err.msg);
	else if (method_parse(&b, again = respell(a->params), &err))
		diag("%s", err.msg);
	is_str(b ? b->params : NULL, a ? a->params : "", "the record of %s is that of its spelling",
	       text);
	free(again);
	method_free(a);
	method_free(b);
}

static void test_records(void)
{
	char text[128];

	for (const struct method_name *n = method_names; n->name; n++)
		same_again(n->name);
	for (const struct part_kind *k = part_kinds; k->key; k++)
		for (const struct method_name *p = k->part; p->name; p++) {
			snprintf(text, sizeof text, "compact-fp:alpha=0.0625%s/%s=%s",
				 k->part == prune_parts ? "/decode=oracle" : "", k->key, p->name);
			same_again(text);
		}
	same_again("dense/evict=snapkv,budget=512,window=16/decode=rocket,page=4,budget=64");
}

/* Whether m has a part for each kind of rows. */
static bool is_whole(const struct method *m)
{
	bool whole = true;

	for (int k = 0; k < ROW_KINDS; k++)
		whole = whole && m->part[k].selector && m->part[k].executor;
	return whole;
}

/* Pieces of spellings in random order: refused or accepted, and never both. */
static void test_random_spellings(void)
{
	static const char *const piece[] = {
		"dense", "compact-fp", "flashprefill", "select=",     "union=", "exec=",
		"none",	 "group",      "paged",	       "blocksparse", "alpha",	"sink",
		"=",	 "=0.5",       "=3",	       ":",	      ",",	"/",
		"",	 "x",	       "/decode=",     "/skip="
	};
	int good = 0, accepted = 0;

	for (int k = 0; k < 20000; k++) {
		struct rng rng = { (uint64_t)k };
		struct method *m = NULL;
		struct ar_err err = { 0 };
		char text[256] = "";
		enum ar_status st;

		for (uint64_t n = rng_below(&rng, 9) + 1; n; n--)
			strcat(text, piece[rng_below(&rng, sizeof piece / sizeof *piece)]);
		st = method_parse(&m, text, &err);
		if (st)
			good += st == AR_USAGE && !m && *err.msg;
		else
			good += m && is_whole(m) && *m->params == '{';
		accepted += !st;
		method_free(m);
	}
	is_int(good, 20000, "random spellings are methods or wrong usage");
	ok(accepted > 20, "and some are methods (%d)", accepted);
}

/* ---- lists of methods ---- */

static const struct {
	const char *text, *parts; /* joined by '|' */
} splits[] = {
	{ "dense", "dense" },
	{ "dense,compact-fp", "dense|compact-fp" },
	{ "dense,compact-fp:alpha=0.06,window=4", "dense|compact-fp:alpha=0.06,window=4" },
	{ "compact-fp:alpha=0.06,window=4,dense", "compact-fp:alpha=0.06,window=4|dense" },
	{ "compact-fp:union=sub-group,alpha=0.1,flashprefill:sink=1",
	  "compact-fp:union=sub-group,alpha=0.1|flashprefill:sink=1" },
	{ "select=flashprefill,alpha=0.1/exec=blocksparse,select=none/exec=paged,dense",
	  "select=flashprefill,alpha=0.1/exec=blocksparse|select=none/exec=paged|dense" },
	{ "dense/decode=dense,compact-fp/decode=dense,flashprefill",
	  "dense/decode=dense|compact-fp/decode=dense|flashprefill" },
	{ "compact-fp:alpha=0.1/decode=quest,budget=8,page=16,dense/evict=snapkv,budget=1/skip=a",
	  "compact-fp:alpha=0.1/decode=quest,budget=8,page=16|dense/evict=snapkv,budget=1/skip=a" },
	{ "seer:gate=/a/b,dense", "seer:gate=/a/b|dense" },
};

static void free_all(char **v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(v[i]);
	free(v);
}

static void test_splits(void)
{
	static const char *const empty[] = { "", "dense,", ",dense", "dense,,flashprefill" };
	struct ar_err err = { 0 };

	for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
		char got[256] = "", **v = NULL;
		size_t n = 0;

		if (method_split(splits[i].text, &v, &n, &err))
			diag("%s", err.msg);
		for (size_t k = 0; k < n; k++) {
			strcat(got, k ? "|" : "");
			strcat(got, v[k]);
		}
		is_str(got, splits[i].parts, "the methods of '%s'", splits[i].text);
		free_all(v, n);
	}
	for (size_t i = 0; i < sizeof empty / sizeof *empty; i++) {
		char want[64], **v = NULL;
		size_t n = 0;
		enum ar_status st = method_split(empty[i], &v, &n, &err);

		snprintf(want, sizeof want, "empty method name in '%s'", empty[i]);
		is_str(st == AR_USAGE && !v ? err.msg : "accepted", want, "'%s' is refused",
		       empty[i]);
	}
}

static void test_with(void)
{
	static const char *const with[][2] = {
		{ "dense", "dense:alpha=0.25" },
		{ "compact-fp:sink=1", "compact-fp:sink=1,alpha=0.25" },
		{ "select=none/exec=paged", "select=none/exec=paged,alpha=0.25" },
		{ "dense/decode=dense", "dense:alpha=0.25/decode=dense" },
		{ "compact-fp:sink=1/decode=dense", "compact-fp:sink=1,alpha=0.25/decode=dense" },
	};

	for (size_t i = 0; i < sizeof with / sizeof *with; i++) {
		char got[80];
		size_t n = method_spell_with(got, sizeof got, with[i][0], "alpha", 0.25);

		is_str(n == strlen(got) ? got : "", with[i][1], "%s with another alpha",
		       with[i][0]);
	}
}

/* ---- stages ---- */

/* The worked example's outputs, in the order of enum case_example. */
#define EXAMPLE_PARAMS ":alpha=0.30,sink=1,window=1"
static const char *const example_method[] = { "dense", "flashprefill" EXAMPLE_PARAMS,
					      "compact-fp" EXAMPLE_PARAMS };

/* The batch through method_ref: outputs as floats, owned by the caller. */
static float *run(struct batch_case *c, const char *name, struct selection_count *count)
{
	size_t n = c->q_len;
	bf16_t *out = malloc(n * sizeof *out);
	float *f = malloc(n * sizeof *f);
	const struct selector_env env = { .shape = c->b.shape, .n_layers = 1 };
	struct method *m;
	struct ar_err err;

	if (method_parse(&m, name, &err) || method_open(m, &env, &err) ||
	    method_ref(method_prefill(m),
		       &(struct attn_call){
			       .b = &c->b, .q = c->q, .kv = c->kv, .state = c->state, .out = out },
		       count, &err))
		bail_out("%s", err.msg);
	if (method_plan(method_prefill(m), &c->b, NULL) <= 0)
		bail_out("no tiles");
	for (size_t i = 0; i < n; i++)
		f[i] = bf16_to_f32(out[i]);
	method_free(m);
	free(out);
	return f;
}

static void test_example(void)
{
	struct selection_count count;
	struct batch_case c;

	case_example(&c);
	case_cut(&c, (int[]){ 0 }, (int[]){ 10 });
	free(run(&c, "flashprefill", NULL)); /* leaves the means of the cached blocks */
	case_cut(&c, (int[]){ 10 }, (int[]){ 4 });
	for (int i = 0; i < 3; i++) {
		float *got = run(&c, example_method[i], &count), want[16];

		case_example_out(i, want);
		is_f32(got, want, 16, 0, 1.0 / 256, "worked outputs of %s", example_method[i]);
		free(got);
	}
	ok(count.group_sel == 4 && count.group_total == 5 && count.tiles_sel == 8,
	   "the counts come with the reference");
	case_release(&c);
}

/* Fill the state by the whole prompts, then cut. */
static void random_case(struct batch_case *c, uint64_t seed)
{
	static const struct attn_shape shape = {
		.q_heads = 4, .kv_heads = 2, .head_dim = 16, .page_tok = 8
	};
	struct rng rng = { seed };

	case_make(c, &rng, FILL_BLOCKS, shape, 2, (int[]){ 203, 90 });
	case_cut(c, (int[2]){ 0 }, c->len);
	free(run(c, "flashprefill", NULL));
	case_cut(c, (int[]){ 150, 33 }, (int[]){ 40, 57 });
}

/* The same with pages as large as the blocks of selectors. */
static void paged_case(struct batch_case *c, uint64_t seed)
{
	static const struct attn_shape shape = {
		.q_heads = 4, .kv_heads = 2, .head_dim = 16, .page_tok = 128
	};
	struct rng rng = { seed };

	case_make(c, &rng, FILL_BLOCKS, shape, 2, (int[]){ 1403, 190 });
	case_cut(c, (int[]){ 1250, 133 }, (int[]){ 140, 57 });
}

static void test_alpha_zero(void)
{
	struct batch_case c;
	size_t n;

	for (uint64_t seed = 0; seed < 3; seed++) {
		float *dense, *group, *lists;

		random_case(&c, seed);
		n = (size_t)(c.b.rows.n_row * c.b.shape.q_heads * c.b.shape.head_dim);
		dense = run(&c, "dense", NULL);
		group = run(&c, "compact-fp:alpha=0", NULL);
		lists = run(&c, "flashprefill:alpha=0", NULL);
		ok(!memcmp(dense, group, n * sizeof *dense),
		   "with alpha 0 a union is dense to the last bit");
		is_f32(lists, dense, n, 1e-2, 1e-2, "and lists are up to rounding");
		free(dense);
		free(group);
		free(lists);
		case_release(&c);
	}
}

/* The distance of bf16 numbers of this size. */
static float bf16_step(float x)
{
	return ldexpf(1, (x != 0 ? ilogbf(x) : -126) - 7);
}

/* Settings that see every token, through executors that sum in another order.  Sums of float that
 * cancel are 1e-6 off. */
static void test_dense_settings(void)
{
	static const char *const name[] = { "quoka:kv-ratio=1", "ashape:local=2000",
					    "minference:vertical=2000,slash=2000" };
	struct batch_case c;

	for (uint64_t seed = 0; seed < 3; seed++) {
		float *dense, *got;
		size_t n, far = 0, off = 0;

		paged_case(&c, seed);
		n = (size_t)(c.b.rows.n_row * c.b.shape.q_heads * c.b.shape.head_dim);
		dense = run(&c, "dense", NULL);
		for (size_t k = 0; k < sizeof name / sizeof *name; k++) {
			got = run(&c, name[k], NULL);
			off = far = 0;
			for (size_t i = 0; i < n; i++) {
				float d = fabsf(got[i] - dense[i]);

				off += d > 0;
				far += d > fmaxf(1e-6F,
						 bf16_step(fmaxf(fabsf(got[i]), fabsf(dense[i]))));
			}
			ok(!far, "%s: %zu of %zu values are one bf16 step off dense, %zu more",
			   name[k], off - far, n, far);
			free(got);
		}
		free(dense);
		case_release(&c);
	}
}

/* ---- failures ---- */

static enum ar_status fake_ref(const struct attn_call *call, const struct executor_lists *lists,
			       struct ar_err *err)
{
	(void)call;
	(void)lists;
	return ar_fail(err, AR_IO, "from the executor");
}

static void test_failures(void)
{
	struct executor fake = { .ref = fake_ref };
	struct batch_case c;
	struct method *m;
	struct ar_err err;
	bf16_t *out;

	random_case(&c, 9);
	out = malloc((size_t)(c.b.rows.n_row * c.b.shape.q_heads * c.b.shape.head_dim) *
		     sizeof *out);
	if (method_parse(&m, "compact-fp", &err))
		bail_out("%s", err.msg);
	m->part[ROW_PREFILL].executor = &fake;
	for (long k = 0;; k++) {
		enum ar_status st;

		fault_arm(k);
		st = method_ref(
			method_prefill(m),
			&(struct attn_call){
				.b = &c.b, .q = c.q, .kv = c.kv, .state = c.state, .out = out },
			NULL, &err);
		if (!fault_disarm()) {
			is_int(st, AR_IO, "an executor's failure is passed on");
			break;
		}
		ok(st == AR_NOMEM, "allocation %ld of a selection fails cleanly", k);
	}
	method_free(m);
	free(out);
	case_release(&c);
}

static void test_no_memory(void)
{
	struct ar_err err;

	for (long k = 0;; k++) {
		struct method *m = (struct method *)1;
		enum ar_status st;

		fault_arm(k);
		st = method_parse(&m, "compact-fp:alpha=0.1/decode=dense", &err);
		if (!fault_disarm()) {
			method_free(m);
			break;
		}
		ok(st == AR_NOMEM && !m, "allocation %ld of a parse fails cleanly", k);
	}
	for (long k = 0;; k++) {
		char **v = NULL;
		size_t n = 0;
		enum ar_status st;

		fault_arm(k);
		st = method_split("dense,flashprefill", &v, &n, &err);
		if (!fault_disarm()) {
			free_all(v, n);
			break;
		}
		ok(st == AR_NOMEM && !v, "allocation %ld of a split fails cleanly", k);
	}
}

int main(void)
{
	plan(0);
	test_spellings();
	test_with();
	test_records();
	test_random_spellings();
	test_splits();
	test_example();
	test_alpha_zero();
	test_dense_settings();
	test_failures();
	test_no_memory();
	return done_testing();
}
