/* SPDX-License-Identifier: Apache-2.0 */
/* Settings measured by the answers of a tiny model: the figures, and that failures are clean. */
#include "config.h"
#include "src/tune/tune_prompts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/alloc_fault.h"
#include "tests/file.h"
#include "tests/tap.h"
#include "tests/tiny_model.h"

#define DROPS "dense+lazyllm:layers=0:0.5+1:0.5"

static char dir[] = "/tmp/t-tune-prompts-XXXXXX", path[100];

/* The tiny Qwen2, and two prompts whose answers are arbitrary. */
static void write_model(void)
{
	static const char text[] =
		"{\"prompt\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20],"
		"\"answer\":[41,42]}\n"
		"{\"prompt\":[60,50,40,30,20,10,5,15,25],\"answer\":[7]}\n";

	tiny_folder(dir, &tiny_models[2]);
	snprintf(path, sizeof path, "%s/t.jsonl", dir);
	file_write(path, text, strlen(text));
}

static enum ar_status parsed(const struct run_command *c, struct run_options *o, struct ar_err *err)
{
	(void)c;
	return tune_prompts_set(o, "dense", path, err);
}

static const struct opt no_opts[] = { { 0 } };

/* Release *p also after a failure.  backend: "--backend=NAME". */
static enum ar_status sample_open(struct tune_prompts *p, char *backend, struct ar_err *err)
{
	char weights[] = "--weights", accuracy[] = "--accuracy=1", pool[] = "--num-gpu-blocks=64";
	char *argv[] = { weights, dir, backend, accuracy, pool };
	struct run_command c = { .own = { .opts = no_opts }, .parsed = parsed };

	*p = (struct tune_prompts){ 0 };
	return tune_prompts_open(p, &c, 5, argv, err);
}

static char cpu[] = "--backend=cpu";

static void test_measure(void)
{
	char *setting[] = { (char[]){ "dense" }, (char[]){ DROPS }, (char[]){ "0-:compact-fp" },
			    (char[]){ "dense" } };
	struct tune_figures f[4];
	struct tune_prompts p;
	struct ar_err err = { 0 };

	if (sample_open(&p, cpu, &err))
		bail_out("%s", err.msg);
	ok(tune_measure_prompts(&p, (char *[]){ setting[0], (char[]){ "0-9:dense" } }, 2, f,
				&err) == AR_USAGE &&
		   !p.dense.n,
	   "a setting that does not fit the model is refused before anything runs: %s", err.msg);
	if (tune_measure_prompts(&p, setting, 4, f, &err))
		bail_out("%s", err.msg);
	ok(p.dense.n == 2 && p.dense.logprob < 0, "dense attention answers too");
	ok(f[0].logprob == 0 && f[0].exact == (double)p.dense.exact / 2 && f[0].executed == 1 &&
		   f[0].recall == 1 && f[0].rel_l2 == 0 && isnan(f[0].selected),
	   "dense attention differs by nothing from itself");
	ok(f[1].logprob != 0 && f[1].exact >= 0 && isnan(f[1].executed) && isnan(f[1].recall) &&
		   isnan(f[1].rel_l2),
	   "a dropper differs by %g a token, and its layers are not known", f[1].logprob);
	ok(f[2].executed <= 1 && !isnan(f[2].logprob), "a plan of layers is measured");
	ok(!memcmp(&f[0], &f[3], sizeof f[0]), "the same setting has the same figures");
	setting[1] = (char[]){ "0-9:dense" };
	is_int(tune_measure_prompts(&p, setting, 2, f, &err), AR_USAGE, "... later too");
	tune_prompts_release(&p);
}

static void test_print(void)
{
	struct tune_goal g;
	struct tune_prompts p;
	struct ar_err err = { 0 };
	bool less[2];

	if (sample_open(&p, cpu, &err))
		bail_out("%s", err.msg);
	p.dense.n = 2;
	p.dense.exact = 1;
	for (int i = 0; i < 2; i++) {
		char *text = NULL;
		size_t n = 0;
		FILE *f = open_memstream(&text, &n);

		if (!f || tune_goal_parse(&g, i ? "exact=0.6" : "exact=0.5", TUNE_PROMPTS, 0, &err))
			bail_out("%s", err.msg);
		tune_prompts_print(&p, &g, f);
		fclose(f);
		less[i] = strstr(text, "1 of 2 answers exact (0.5000)") &&
			  strstr(text, "less than");
		free(text);
	}
	ok(!less[0] && less[1], "a share above that of dense attention is told");
	tune_prompts_release(&p);
}

/* One step, from loading to the JSON, with all of its allocations. */
static enum ar_status step(struct tune_prompts *p, bool *json, struct ar_err *err)
{
	char *setting = (char[]){ "compact-fp" };
	struct tune_figures f;
	enum ar_status st = sample_open(p, cpu, err);
	cJSON *o;

	if (!st)
		st = tune_measure_prompts(p, &setting, 1, &f, err);
	if (st)
		return st;
	o = cJSON_CreateObject();
	*json = o && tune_prompts_json(p, o);
	cJSON_Delete(o);
	return AR_OK;
}

static void test_faults(void)
{
	bool clean = true, hit = true;
	long k;

	for (k = 0; hit; k += fault_stride(7)) {
		struct tune_prompts p;
		struct ar_err err = { 0 };
		bool json = false;
		enum ar_status st;

		fault_arm(k);
		st = step(&p, &json, &err);
		hit = fault_disarm();
		tune_prompts_release(&p);
		if (st && st != AR_NOMEM)
			bail_out("allocation %ld: status %d, %s", k, st, err.msg);
		clean &= hit || (!st && json);
	}
	ok(clean && k > 100, "each of %ld allocations may fail", k);
}

int main(void)
{
	char command[64];

	plan(0);
	if (!mkdtemp(dir))
		bail_out("cannot make a temporary folder");
	write_model();
	test_measure();
	test_print();
	test_faults();
	snprintf(command, sizeof command, "rm -r %s", dir);
	if (system(command))
		bail_out("%s", command);
	return done_testing();
}
