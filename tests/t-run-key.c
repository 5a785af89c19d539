/* SPDX-License-Identifier: Apache-2.0 */
/* The key of a run: options and inputs that change it, and others that do not. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bf16.h"
#include "base/binfile.h"
#include "base/safetensors.h"
#include "src/run/key.h"
#include "tests/alloc_fault.h"
#include "tests/file.h"
#include "tests/tap.h"
#include "traces/capture/capture.h"

#define TRACE(prompt) "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:00:00," #prompt ",1\n"

static void text_file(const char *path, const char *text)
{
	file_write(path, text, strlen(text));
}

static void capture_file(const char *path, bf16_t value)
{
	static const char *const name[] = { "layers.0.q", "layers.0.k", "layers.0.v" };
	const bf16_t x[3 * 2] = { value };
	struct safetensors_tensor t[3];
	struct outfile f;
	struct ar_err err;

	for (int k = 0; k < 3; k++)
		t[k] = (struct safetensors_tensor){ .name = name[k],
						    .n_dim = 3,
						    .dim = { 1, 1, 2 } };
	if (outfile_open(&f, path, &err) ||
	    safetensors_write_header(&f, t, 3, (const char *const[]){ NULL }, &err) ||
	    outfile_write(&f, x, sizeof x, &err) || outfile_commit(&f, &err))
		bail_out("%s", err.msg);
	outfile_release(&f);
}

static void must(enum ar_status st, const struct ar_err *err)
{
	if (st)
		bail_out("%s", err->msg);
}

/* Parse arguments, separated by spaces, into o. */
static void parse(struct run_options *o, const char *args)
{
	char *copy = strdup(args), *argv[32], *save = NULL;
	struct ar_err err = { 0 };
	int n = 0;

	for (char *s = strtok_r(copy, " ", &save); s; s = strtok_r(NULL, " ", &save))
		argv[n++] = s;
	must(run_options_parse(o, NULL, n, argv, &err), &err);
	free(copy);
}

static const struct run_key plain = { .backend = "cost", .version = "1.2.3-g0123456" };

/* The key of k with options o; the inputs are read anew. */
static const char *key_of(const struct run_options *o, struct run_key k)
{
	static char keys[64][RUN_KEY_SIZE];
	static int next;
	struct key_inputs in = { 0 };
	struct ar_err err = { 0 };
	char *key = keys[next++ % 64];

	k.o = o;
	must(run_key(key, &k, &in, &err), &err);
	key_inputs_release(&in);
	return key;
}

static const char *key_with(const char *args, struct run_key k)
{
	struct run_options o;
	const char *key;

	parse(&o, args);
	key = key_of(&o, k);
	run_options_release(&o);
	return key;
}

#define COST "--trace a.csv --backend cost"
#define CPU "--trace a.csv --backend cpu --model niah-llama-14m --capture a.st"

static void test_order(void)
{
	const char *key = key_with(COST " --requests 3 --rate 2 --policy sarathi", plain);

	ok(strlen(key) == 32 && strspn(key, "0123456789abcdef") == 32, "a key has 32 digits");
	is_str(key_with("--policy sarathi --rate 2 --backend cost --requests 3 --trace a.csv",
			plain),
	       key, "the order of options is of no account");
	is_str(key_with("--policy=sarathi --rate 2.0 --backend cost --requests=3 "
			"--trace ./a.csv --max-num-seqs 128",
			plain),
	       key, "... nor are spelling, path and defaults");
	is_str(key_with(COST " --num-gpu-blocks 2k", plain),
	       key_with(COST " --num-gpu-blocks 2000", plain), "... nor the unit of a number");
	is_str(key_with(COST " --max-num-batched-tokens 100", plain),
	       key_with(COST " --max-num-batched-tokens 100 --max-num-seqs 100", plain),
	       "a limit that follows from another counts as it is resolved");
	is_str(key_with(COST " --no-async-scheduling", plain),
	       key_with(COST " --engine-defaults none --max-num-seqs 1024 --enable-prefix-caching "
			     "--gpu-memory-utilization 0.92",
			plain),
	       "what an engine sets counts as what was given");
	ok(strcmp(key_with(CPU " --capture b.st", plain),
		  key_with("--trace a.csv --backend cpu --model niah-llama-14m --capture b.st "
			   "--capture a.st",
			   plain)),
	   "the order in a list counts");
}

/* Another value of the option than the present one; NULL: another test has it. */
static const char *other_value(const struct opt *o, const struct opt_group *g)
{
	const void *p = (const char *)g->base + o->off;
	static const struct {
		const char *name, *value;
	} files[] = { { "trace", "b.csv" },	 { "merge", "b.csv" },
		      { "components", "b.csv" }, { "weights", "a" },
		      { "prompts", "b.csv" },	 { "model", "llama-3.1-8b" },
		      { "capture", "b.st" },	 { "host", "vllm-0.24" },
		      { "costs", NULL },	 { "match", "recall=0.9" },
		      { "method", NULL },	 { "backend", NULL },
		      { "comm", "b.csv" },	 { "routing", "b.csv" },
		      { "engine-args", NULL },	 { "engine-defaults", NULL } };
	static char text[64];

	for (size_t i = 0; i < sizeof files / sizeof *files; i++)
		if (!strcmp(files[i].name, o->name))
			return files[i].value;
	if (o->use)
		return NULL;
	switch (o->type) {
	case OPT_FLAG: return *(const bool *)p ? "0" : "1";
	case OPT_INT:
		snprintf(text, sizeof text, "%lld", (long long)*(const int64_t *)p + 1);
		return text;
	case OPT_TIME:
		snprintf(text, sizeof text, "%lldns", (long long)*(const int64_t *)p + 1);
		return text;
	case OPT_REAL: return *(const double *)p == 0.25 ? "0.5" : "0.25";
	case OPT_ENUM: return o->choice[!*(const int *)p];
	case OPT_STR:
	case OPT_LIST: return "7";
	case OPT_JOB: break;
	}
	return NULL;
}

/* Whether another value of the option changes the key. */
static void test_option(int group, const struct opt *o)
{
	struct run_key k = plain;
	struct ar_err err = { 0 };
	const char *before, *after, *value;
	struct run_options a;

	parse(&a, CPU);
	k.backend = group >= RUN_GROUP_BACKEND ? backends[group - RUN_GROUP_BACKEND]->name : "cpu";
	k.method = "dense";
	value = other_value(o, &a.group[group]);
	if (value) {
		before = key_of(&a, k);
		must(opt_set(a.group, o->name, value, &err), &err);
		after = key_of(&a, k);
		ok(!strcmp(before, after) == o->record_only, "another %s %s the key", o->name,
		   o->record_only ? "leaves" : "changes");
	}
	run_options_release(&a);
}

static void test_options(void)
{
	struct run_options all;

	parse(&all, COST);
	for (int g = 0; all.group[g].opts; g++)
		for (const struct opt *o = all.group[g].opts; o->name; o++)
			test_option(g, o);
	run_options_release(&all);
}

static void pack(const char *from, const char *to)
{
	struct capture *c;
	struct ar_err err;

	must(capture_open(&c, from, &err), &err);
	must(capture_pack(c, to, &(struct capture_pack){ 0 }, &err), &err);
	capture_close(c);
}

#define PACKED "--trace a.csv --backend cpu --model niah-llama-14m --capture "

static void test_packed(void)
{
	pack("a.st", "a.arc");
	pack("a.st", "same.arc");
	pack("b.st", "b.arc");
	is_str(key_with(PACKED "a.arc", plain), key_with(PACKED "same.arc", plain),
	       "packed captures of equal values have one key");
	ok(strcmp(key_with(PACKED "a.arc", plain), key_with(PACKED "b.arc", plain)),
	   "... of other values another");
	ok(strcmp(key_with(PACKED "random:1", plain), key_with(PACKED "random:2", plain)),
	   "random values have a key by their seed");
}

static void test_files(void)
{
	const char *key = key_with(CPU, plain);
	struct key_inputs in = { 0 };
	struct ar_err err = { 0 };
	struct run_options o;
	struct run_key k = plain;
	char first[RUN_KEY_SIZE], again[RUN_KEY_SIZE];

	text_file("copy.csv", TRACE(10));
	is_str(key_with("--trace copy.csv --backend cpu --model niah-llama-14m --capture a.st",
			plain),
	       key, "an input of another name has the same key");
	parse(&o, CPU);
	k.o = &o;
	must(run_key(first, &k, &in, &err), &err);
	text_file("a.csv", TRACE(11));
	ok(strcmp(key_with(CPU, plain), key), "a changed trace changes the key");
	must(run_key(again, &k, &in, &err), &err);
	is_str(again, first, "... where it is read again");
	key_inputs_release(&in);
	run_options_release(&o);
	text_file("a.csv", TRACE(10));
	is_str(key_with(CPU, plain), key, "the first content has the first key");
	capture_file("a.st", 2);
	ok(strcmp(key_with(CPU, plain), key), "a changed capture changes the key");
	capture_file("a.st", 1);
	test_packed();
	ok(strcmp(key_with("--trace a.csv:keep=0.5 --backend cost", plain), key_with(COST, plain)),
	   "options in the name of the trace count");
	ok(strcmp(key_with(COST " --merge b.csv", plain),
		  key_with(COST " --merge b.csv:shift=1s", plain)),
	   "... and in that of a merged one");
	text_file("factors.json", "{\"prefill\":[[1,2]],\"decode\":[[1,2]]}");
	key = key_with(CPU " --dense-as-engine factors.json", plain);
	text_file("factors.json", "{\"prefill\":[[1,3]],\"decode\":[[1,2]]}");
	ok(strcmp(key_with(CPU " --dense-as-engine factors.json", plain), key),
	   "a changed file of factors changes the key");
}

/* The sum of a trace is that of a trace that was read. */
/* Three MiB of values, one of which is set. */
static void weights_folder(const char *dir, size_t at, bf16_t value)
{
	enum { N = 3 << 19 };
	const struct safetensors_tensor t = { .name = "x", .n_dim = 2, .dim = { 1, N } };
	bf16_t *x = calloc(N, sizeof *x);
	char path[64];
	struct outfile f;
	struct ar_err err;

	mkdir(dir, 0777);
	snprintf(path, sizeof path, "%s/config.json", dir);
	text_file(path, "{}");
	snprintf(path, sizeof path, "%s/model.safetensors", dir);
	x[at] = value;
	if (outfile_open(&f, path, &err) ||
	    safetensors_write_header(&f, &t, 1, (const char *const[]){ NULL }, &err) ||
	    outfile_write(&f, x, N * sizeof *x, &err) || outfile_commit(&f, &err))
		bail_out("%s", err.msg);
	outfile_release(&f);
	free(x);
}

static void test_trace_sum(void)
{
	static const char *const all[] = { COST, COST " --merge b.csv:shift=1s --merge a.csv" };

	for (int i = 0; i < 2; i++) {
		struct run_key k = plain;
		struct ar_err err = { 0 };
		struct run_options o;
		struct trace *t;
		const char *key;

		parse(&o, all[i]);
		must(trace_read(&t, o.trace, &o.trace_args, &err), &err);
		k.trace_sha256 = t->sha256;
		key = key_of(&o, k);
		is_str(key, key_of(&o, plain), "%s trace that was read has the same key",
		       i ? "a merged" : "a");
		trace_free(t);
		run_options_release(&o);
	}
}

/* Whether a change of the file that the method reads, table.json, changes the key. */
static bool file_counts(const char *method)
{
	struct run_key k = plain;
	char *key;
	bool differ;

	k.backend = "cpu";
	k.method = method;
	text_file("table.json", "{}");
	key = strdup(key_with(CPU, k));
	text_file("table.json", "{ }");
	differ = strcmp(key_with(CPU, k), key);
	free(key);
	return differ;
}

static void test_methods(void)
{
	struct run_key k = plain, l = plain;

	k.backend = l.backend = "cpu";
	k.method = "compact-fp";
	l.method = "compact-fp:alpha=0.07";
	ok(strcmp(key_with(CPU, k), key_with(CPU, l)), "a parameter of the method counts");
	l.method = "compact-fp:window=4";
	is_str(key_with(CPU, l), key_with(CPU, k), "... but not that it was written");
	ok(file_counts("xattention:table=table.json"),
	   "a changed file of the method changes the key");
	ok(file_counts("dense/decode=duo,file=table.json"), "... also of its part for decodes");
	k.method = "seer:gate=mean";
	l.method = "seer:gate=other";
	ok(strcmp(key_with(CPU, k), key_with(CPU, l)), "... and so does a word in its place");
}

/* The goal of --match counts, and whether the threshold is tuned. */
static void test_match(void)
{
	struct run_key k = plain, l = plain;
	char *key;

	k.backend = l.backend = "cpu";
	k.method = "compact-fp";
	key = strdup(key_with(CPU " --match recall=0.9", k));
	ok(strcmp(key_with(CPU, k), key) && strcmp(key_with(CPU " --match recall=0.8", k), key),
	   "what methods are tuned to counts");
	l.method = "compact-fp:alpha=0.06";
	ok(!strcmp(key_with(CPU, l), key_with(CPU, k)) &&
		   strcmp(key_with(CPU " --match recall=0.9", l), key),
	   "... and a default that is stated, as it is not tuned");
	free(key);
}

static void test_plans(void)
{
	struct run_key k = plain, l = plain;
	char *key;

	k.backend = l.backend = "cpu";
	k.method = "compact-fp";
	l.method = "0-3:compact-fp;4-:compact-fp";
	is_str(key_with(CPU, l), key_with(CPU, k), "a plan of one method has the key of that");
	k.method = "0-3:dense;4-:compact-fp";
	ok(strcmp(key_with(CPU, k), key_with(CPU, l)), "... one of two has not");
	l.method = "0-4:dense;5-:compact-fp";
	ok(strcmp(key_with(CPU, k), key_with(CPU, l)), "the layers count");
	text_file("a.plan", "4- compact-fp # comment\n0-3 dense\n");
	l.method = "plan=a.plan";
	is_str(key_with(CPU, l), key_with(CPU, k), "a file counts by what it says");
	text_file("table.json", "{}");
	k.method = "0-3:dense;4-:xattention:table=table.json";
	key = strdup(key_with(CPU, k));
	is_str(key_with(CPU, k), key, "the files of its methods count");
	text_file("table.json", "{ }");
	ok(strcmp(key_with(CPU, k), key), "... by their content");
	free(key);
}

static void test_program(void)
{
	struct run_key a = plain, b = plain;
	char *key = strdup(key_with(COST, a));

	b.version = "1.2.3-g7654321-dirty";
	is_str(key_with(COST, b), key, "the revision is of no account without a GPU");
	b.version = "1.2.4";
	ok(strcmp(key_with(COST, b), key), "... the release is");
	a.device = b.device = "GPU";
	b.version = a.version;
	is_str(key_with(COST, b), key_with(COST, a), "a GPU's key repeats");
	b.version = "1.2.3-g7654321";
	ok(strcmp(key_with(COST, b), key_with(COST, a)), "... with its revision");
	b = a;
	b.device = "GPU 2";
	ok(strcmp(key_with(COST, b), key_with(COST, a)), "... on its device");
	a.version = "1.2.3-g0123456-dirty";
	ok(strcmp(key_with(COST, a), key_with(COST, a)), "... and never in a changed tree");
	a = plain;
	a.backend = "cpu";
	ok(strcmp(key_with(COST, a), key), "another backend changes the key");
	free(key);
}

static void fails(const char *args, const char *method, const char *want)
{
	struct run_key k = plain;
	struct key_inputs in = { 0 };
	struct ar_err err = { 0 };
	struct run_options o;
	char key[RUN_KEY_SIZE];

	parse(&o, args);
	k.o = &o;
	k.method = method;
	is_int(run_key(key, &k, &in, &err), AR_DATA, "an input that cannot be read: %s", want);
	is_str(err.msg, want, "... is named");
	key_inputs_release(&in);
	run_options_release(&o);
}

#define REAL "--trace a.csv --backend cpu --weights "

static void test_weights(void)
{
	const char *key = key_with(REAL "a --prompts b.csv", plain);

	weights_folder("b", 0, 0);
	text_file("copy.csv", TRACE(20));
	is_str(key_with(REAL "b --prompts copy.csv", plain), key,
	       "weights and prompts of other names have the same key");
	ok(strcmp(key_with(REAL "a --prompts a.csv", plain), key), "other prompts change the key");
	weights_folder("b", 7, 1);
	ok(strcmp(key_with(REAL "b --prompts b.csv", plain), key), "other weights change the key");
	weights_folder("b", 1 << 19, 1);
	ok(strcmp(key_with(REAL "b --prompts b.csv", plain), key),
	   "... in a further megabyte, too");
	weights_folder("b", 0, 0);
	text_file("b/config.json", "{ }");
	ok(strcmp(key_with(REAL "b --prompts b.csv", plain), key), "... and so does their config");
	remove("b/config.json");
	fails(REAL "b --prompts b.csv", NULL, "b/config.json: No such file or directory");
}

static void test_faults(const char *args)
{
	struct run_key k = plain;
	struct ar_err err = { 0 };
	struct run_options o;
	long bad = 0, n = 0;
	bool failed = true;
	char *want;

	parse(&o, args);
	k.o = &o;
	k.method = "compact-fp";
	want = strdup(key_of(&o, k));
	for (; failed; n++) {
		struct key_inputs in = { 0 };
		char key[RUN_KEY_SIZE] = "";
		enum ar_status st;

		fault_arm(n);
		st = run_key(key, &k, &in, &err);
		failed = fault_disarm();
		bad += failed ? st != AR_NOMEM : st || strcmp(key, want) != 0;
		if (run_key(key, &k, &in, &err) || strcmp(key, want))
			bad++;
		key_inputs_release(&in);
	}
	ok(n > 20 && !bad, "without memory there is no key (%ld places)", n - 1);
	free(want);
	run_options_release(&o);
}

int main(void)
{
	char dir[] = "/tmp/t-run-key-XXXXXX", command[64];

	plan(0);
	if (!mkdtemp(dir) || chdir(dir))
		bail_out("cannot make a temporary folder");
	text_file("a.csv", TRACE(10));
	text_file("b.csv", TRACE(20));
	capture_file("a.st", 1);
	capture_file("b.st", 2);
	weights_folder("a", 0, 0);
	test_order();
	test_options();
	test_files();
	test_trace_sum();
	test_weights();
	test_methods();
	test_match();
	test_plans();
	test_program();
	fails("--trace no.csv --backend cost", NULL, "no.csv: No such file or directory");
	fails("--trace /tmp --backend cost", NULL, "/tmp: Is a directory");
	test_faults(CPU " --merge b.csv");
	test_faults(REAL "a --prompts b.csv");
	snprintf(command, sizeof command, "rm -r %s", dir);
	if (chdir("/") || system(command))
		diag("%s is left", dir);
	return done_testing();
}
