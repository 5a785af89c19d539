/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON documents of run, search, trace info, methods and capture info: members that the
 * commands' tests do not reach, and no memory at any point. */
#include "config.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "src/capture_json.h"
#include "src/json_file.h"
#include "src/methods_json.h"
#include "src/run/run.h"
#include "src/search/search.h"
#include "src/trace_json.h"
#include "tests/alloc_fault.h"
#include "tests/tap.h"

static char file[] = "/tmp/t-json-XXXXXX";

/* ---- the runs that the documents describe ---- */

static struct request request[] = {
	{ .arrival_ns = 1000000000, .prompt_tok = 8, .output_tok = 2, .type = 1 },
	{ .arrival_ns = 1000000000, .prompt_tok = 8, .output_tok = 2, .type = 1 },
};
static char type[] = "a \"type\"", none[] = "none", name[] = "a\xff.csv", csv[] = "azure";
static char slo[] = "ttft:1s", *types[] = { type, none };
static struct trace trace = {
	.req = request,
	.n = 2,
	.type = types,
	.n_type = 2,
	.name = name,
	.format = csv,
};

static cJSON *of_trace(void)
{
	struct summary s = { 0 };
	struct ar_err err;

	return trace_summarize(&s, &trace, &err) ? NULL : trace_json(&trace, &s);
}

static cJSON *of_capture(void)
{
	static int layer[] = { 3, 5 };
	static char file_name[] = "x", model[] = "";
	const struct capture_info info = {
		.name = file_name, .model = model, .container = "arc", .n_layers = 2, .layer = layer
	};

	return capture_json(&info, 7);
}

static cJSON *of_methods(void)
{
	struct ar_err err;
	cJSON *o;

	return methods_json(&o, NULL, &err) ? NULL : o;
}

static cJSON *of_method(void)
{
	struct ar_err err;
	struct method *m;
	cJSON *o;

	if (method_parse(&m, "compact-fp:alpha=0.25", &err))
		return NULL;
	o = methods_json_of(m);
	method_free(m);
	return o;
}

/* Two points of a search for a rate, of which none is the best. */
static cJSON *of_search(void)
{
	static const struct search_kind kind = { .name = "rate" };
	static struct run run = { .in.trace = &trace, .session.backend = &backend_cost },
			  *base = &run;
	struct point point[] = { { .x = 1.5, .f = { .of = 2, .limited = { 2e6 } } },
				 { .x = 3, .f = { .of = 2, .limited = { 4e6 } } } };
	struct subject subject = { .base = base, .point = point, .n = 2, .failed = 1.5 };
	const struct search s = { .kind = &kind,
				  .slo = { .n = 1, .limit = { { "ttft", 50, 1000000 } } },
				  .base = &base,
				  .subject = &subject,
				  .n_subject = 1 };

	return search_json(&s);
}

/* Read the file as JSON. */
static cJSON *parsed(void)
{
	static char text[1 << 16];
	FILE *f = fopen(file, "r");
	size_t n = f ? fread(text, 1, sizeof text, f) : 0;

	if (f)
		fclose(f);
	return cJSON_ParseWithLength(text, n);
}

/* ---- the summary of run ---- */

/* Write a summary of one run, with latencies and samples or without. */
static enum ar_status write_run(bool full, struct ar_err *err)
{
	struct series_run once = { 2.5e6, 4 };
	struct replay_result res = { .ok = full, .rejected = !full, .good = full };
	struct run r = { .in = { .n_methods = 1, .trace = &trace },
			 .session.backend = &backend_cost };
	enum ar_status st;

	r.in.limits.policy = policies[0];
	r.session.o.json = file;
	strcpy(r.in.host.name, "none");
	if (full) {
		r.session.o.slo = slo;
		res.end_ns = 3000000000;
		res.latency[LATENCY_ITL] = (struct series){ &once, 1, 1, 1, 4 };
		res.sample[ROW_PREFILL] =
			(struct sample_sums){ .n = 1, .n_heads = 2, .rel_l2_sum = 1 };
	}
	st = run_json_open(&r.session, err);
	if (!st)
		st = run_json_put(&r, 0, NULL, &res, err);
	return run_json_close(&r.session, st, err);
}

static double number(const cJSON *o, const char *a, const char *b, const char *c)
{
	o = cJSON_GetObjectItem(o, a);
	o = b ? cJSON_GetObjectItem(o, b) : o;
	o = c ? cJSON_GetObjectItem(o, c) : o;
	return cJSON_IsNumber(o) ? o->valuedouble : -1;
}

static void test_run(void)
{
	struct ar_err err;
	cJSON *o, *run, *ttft;

	ok(!write_run(true, &err), "a summary with all parts is written");
	o = parsed();
	run = cJSON_GetArrayItem(cJSON_GetObjectItem(o, "runs"), 0);
	ok(number(run, "latency_ms", "ITL", "p99") == 2.5 &&
		   number(run, "latency_ms", "ITL", "count") == 4,
	   "latencies are in ms");
	ok(number(run, "accuracy", "rel_l2_mean", NULL) == 0.5, "accuracy is a mean over heads");
	ok(number(run, "goodput", "of", NULL) == 1 && number(run, "goodput", "per_s", NULL) == 0.5,
	   "goodput counts from the first arrival");
	is_str(cJSON_GetStringValue(cJSON_GetObjectItem(run, "trace")), "a\xef\xbf\xbd.csv",
	       "names are UTF-8");
	cJSON_Delete(o);
	ok(!write_run(false, &err), "a summary without them is written");
	o = parsed();
	run = cJSON_GetArrayItem(cJSON_GetObjectItem(o, "runs"), 0);
	ttft = cJSON_GetObjectItem(cJSON_GetObjectItem(run, "latency_ms"), "TTFT");
	ok(number(ttft, "count", NULL, NULL) == 0 &&
		   cJSON_IsNull(cJSON_GetObjectItem(ttft, "mean")) &&
		   cJSON_IsNull(cJSON_GetObjectItem(ttft, "p50")),
	   "a latency that no request has is null");
	ok(cJSON_IsNull(cJSON_GetObjectItem(run, "accuracy")) &&
		   cJSON_IsNull(cJSON_GetObjectItem(run, "goodput")) &&
		   cJSON_IsNull(cJSON_GetObjectItem(run, "method")),
	   "so is what was not measured");
	cJSON_Delete(o);
}

/* ---- the others ---- */

static void test_documents(void)
{
	cJSON *o = of_trace(), *all = cJSON_GetObjectItem(o, "types");

	ok(cJSON_GetArraySize(all) == 1 &&
		   number(cJSON_GetArrayItem(all, 0), "requests", NULL, NULL) == 2,
	   "a type without requests is left out");
	ok(cJSON_IsNull(cJSON_GetObjectItem(o, "rate_per_s")) &&
		   cJSON_IsNull(cJSON_GetObjectItem(o, "prefix")) &&
		   cJSON_IsNull(cJSON_GetObjectItem(o, "first_arrival")),
	   "an undefined figure is null");
	cJSON_Delete(o);
	o = of_capture();
	ok(cJSON_IsNull(cJSON_GetObjectItem(o, "model")) &&
		   cJSON_IsNull(cJSON_GetObjectItem(o, "rope_theta")) &&
		   cJSON_IsNull(cJSON_GetObjectItem(o, "checksum")) &&
		   cJSON_IsNull(cJSON_GetObjectItem(o, "frame_tokens")),
	   "what a capture does not say is null");
	cJSON_Delete(o);
	o = of_search();
	all = cJSON_GetArrayItem(cJSON_GetObjectItem(o, "curves"), 0);
	ok(cJSON_IsNull(cJSON_GetObjectItem(all, "best")) &&
		   number(all, "failed", NULL, NULL) == 1.5 &&
		   cJSON_GetArraySize(cJSON_GetObjectItem(all, "points")) == 2,
	   "a search that found none has its points and the rate that failed");
	cJSON_Delete(o);
	o = of_method();
	ok(number(o, "values", "alpha", NULL) == 0.25, "a method has its values");
	cJSON_Delete(o);
}

/* ---- no memory ---- */

static void test_make_faults(const char *what, cJSON *(*make)(void))
{
	bool clean = true;
	long k = 0;

	for (;; k++) {
		cJSON *o;
		bool failed;

		fault_arm(k);
		o = make();
		failed = fault_disarm();
		clean = clean && !o == failed;
		cJSON_Delete(o);
		if (!failed)
			break;
	}
	ok(clean && k > 10, "%s without memory: no document (%ld places)", what, k);
}

static void test_write_faults(void)
{
	bool clean = true;
	struct ar_err err;
	long k = 0;

	for (;; k++) {
		enum ar_status st;

		unlink(file);
		fault_arm(k);
		st = write_run(true, &err);
		if (!fault_disarm())
			break;
		clean = clean && st && access(file, F_OK) != 0;
	}
	ok(clean && k > 50, "a summary without memory: no file (%ld places)", k);
	clean = true;
	for (k = 0;; k++) {
		cJSON *o = cJSON_CreateNumber(1);
		enum ar_status st;

		fault_arm(k);
		st = json_file_write(file, o, &err);
		if (!fault_disarm())
			break;
		clean = clean && (st == AR_NOMEM || st == AR_IO);
	}
	ok(clean && k > 3, "nor another file (%ld places)", k);
	is_int(json_file_write(file, NULL, &err), AR_NOMEM, "a document that could not be made");
	is_int(json_file_write("/no/where", cJSON_CreateNull(), &err), AR_IO,
	       "a folder that is not there");
}

/* cJSON is a shared library, whose allocations have to be led through the wrapped ones. */
static void *hooked_malloc(size_t n)
{
	return malloc(n);
}

static void hooked_free(void *p)
{
	free(p);
}

int main(void)
{
	cJSON_Hooks hooks = { hooked_malloc, hooked_free };
	int fd = mkstemp(file);

	if (fd < 0)
		bail_out("cannot make a file in /tmp");
	close(fd);
	plan(0);
	test_run();
	test_documents();
	cJSON_InitHooks(&hooks);
	test_make_faults("trace info", of_trace);
	test_make_faults("capture info", of_capture);
	test_make_faults("methods", of_methods);
	test_make_faults("a method", of_method);
	test_make_faults("search", of_search);
	test_write_faults();
	unlink(file);
	return done_testing();
}
