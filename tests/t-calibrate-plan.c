/* SPDX-License-Identifier: Apache-2.0 */
/* Plans from captures: the search over a table, settings of methods, and their measures. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/binfile.h"
#include "base/rng.h"
#include "base/safetensors.h"
#include "src/calibrate/plan_measure.h"
#include "tests/alloc_fault.h"
#include "tests/tap.h"

/* ---- the search ---- */

enum { LAYERS = 3, SETTINGS = 4 };

#define POINT(d, r) \
	{ \
		.density = (d), .recall = (r) \
	}

/* Layer 0 loses nothing at first, layer 1 loses most, layer 2 is in between. */
static struct plan_point points[LAYERS][SETTINGS] = {
	{ POINT(1, 1), POINT(0.6, 1), POINT(0.3, 0.96), POINT(0.1, 0.7) },
	{ POINT(1, 1), POINT(0.9, 0.8), POINT(0.5, 0.6), POINT(0.2, 0.3) },
	{ POINT(1, 1), POINT(0.5, 0.98), POINT(0.4, 0.9), POINT(0.2, 0.8) },
};
static const struct plan_table table = { LAYERS, SETTINGS, points[0] };

static bool is_choice(const size_t *choice, size_t a, size_t b, size_t c)
{
	return choice[0] == a && choice[1] == b && choice[2] == c;
}

static void test_search(void)
{
	size_t choice[LAYERS] = { 0 };
	struct plan_point mean;

	is_int((long long)plan_cheapest(&table, 0, 0.95), 2,
	       "the cheapest setting with the recall");
	is_int((long long)plan_cheapest(&table, 1, 0.95), 0, "... dense, if no other has it");
	ok(plan_step(&table, 0, choice) && is_choice(choice, 1, 0, 0),
	   "the first step loses nothing");
	ok(plan_step(&table, 0, choice) && is_choice(choice, 1, 0, 1),
	   "the next saves the most for each recall lost");
	ok(plan_step(&table, 0, choice) && is_choice(choice, 2, 0, 1), "... as the one after");
	mean = plan_mean(&table, choice);
	ok(fabs(mean.density - 1.8 / 3) < 1e-9 && fabs(mean.recall - 2.94 / 3) < 1e-9,
	   "density and recall are means over layers");
	while (plan_step(&table, 0, choice))
		;
	ok(is_choice(choice, 3, 3, 3), "the path ends with the cheapest of all");
	is_int((long long)plan_cheapest_uniform(&table, 0.9), 1, "one setting for all layers");
	mean = plan_greedy(&table, 0.9, choice);
	ok(mean.recall >= 0.9 && mean.density < plan_mean_uniform(&table, 1).density,
	   "a plan costs less at the same recall: %g", mean.density);
	mean = plan_greedy(&table, 1, choice);
	ok(is_choice(choice, 1, 0, 0) && mean.recall == 1, "a recall of 1 is what loses nothing");
}

/* Random tables: a plan keeps its recall, costs no more than one setting, and no less than the best
 * of all plans. */
static void test_random(void)
{
	struct plan_point at[LAYERS][SETTINGS];
	const struct plan_table t = { LAYERS, SETTINGS, at[0] };
	int bad = 0, below = 0, best = 0;
	struct rng rng = { 7 };

	for (int k = 0; k < 500; k++) {
		double recall = rng_unit(&rng), least = 1;
		size_t choice[LAYERS], all[LAYERS];
		struct plan_point mean, one;

		for (int i = 0; i < LAYERS * SETTINGS; i++)
			at[i / SETTINGS][i % SETTINGS] =
				(struct plan_point)POINT(i % SETTINGS ? rng_unit(&rng) : 1,
							 i % SETTINGS ? rng_unit(&rng) : 1);
		for (int i = 0; i < SETTINGS * SETTINGS * SETTINGS; i++) {
			all[0] = (size_t)i % SETTINGS;
			all[1] = (size_t)(i / SETTINGS % SETTINGS);
			all[2] = (size_t)(i / SETTINGS / SETTINGS);
			mean = plan_mean(&t, all);
			if (mean.recall >= recall && mean.density < least)
				least = mean.density;
		}
		mean = plan_greedy(&t, recall, choice);
		one = plan_mean_uniform(&t, plan_cheapest_uniform(&t, recall));
		bad += mean.recall < recall - 1e-9 || mean.density > one.density + 1e-9 ||
		       mean.density < least - 1e-9 ||
		       fabs(plan_mean(&t, choice).density - mean.density) > 1e-9;
		below += mean.density < one.density - 1e-9;
		best += mean.density < least + 1e-9;
	}
	is_int(bad, 0, "plans keep the recall and cost no more than one setting");
	ok(below > 250 && best > 250, "most cost less (%d), or the least (%d)", below, best);
}

/* ---- settings ---- */

static void test_settings(void)
{
	static const struct {
		const char *list, *msg;
	} bad[] = {
		{ "nope", "method 'nope': unknown name" },
		{ "", "empty method name in ''" },
		{ "0:dense;1-:compact-fp", "a plan of layers; give one method for all layers" },
		{ "compact-fp,seer:gate=mean", "all layers share one page size" },
	};
	struct ar_err err = { 0 };
	struct plan_settings s;
	int alphas = 0;

	if (plan_settings_init(&s,
			       "flashprefill,compact-fp:alpha=0.06,dense,"
			       "compact-fp@llama-3.1-8b,ashape:block=128",
			       &err))
		bail_out("%s", err.msg);
	ok(s.method[0]->dense && s.page_tok == 128, "the first setting is dense");
	for (size_t i = 0; i < s.n; i++)
		alphas += !strncmp(s.method[i]->name, "flashprefill:alpha=", 19);
	ok(alphas > 10 && s.n == (size_t)alphas + 3,
	   "a threshold that is not stated is varied (%d), equal methods count once", alphas);
	plan_settings_release(&s);
	if (plan_settings_init(&s, "dense", &err))
		bail_out("%s", err.msg);
	ok(s.n == 1 && s.page_tok == 128, "dense alone is a setting");
	plan_settings_release(&s);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		is_int(plan_settings_init(&s, bad[i].list, &err), AR_USAGE, "'%s' is refused",
		       bad[i].list);
		ok(strstr(err.msg, bad[i].msg), "... %s", err.msg);
		plan_settings_release(&s);
	}
}

/* ---- measures ---- */

enum { HEADS = 2, KV_HEADS = 1, DIM = 16, TOK = 600 };

static const char capture_path[] = "t-calibrate-plan.st";
static const char out_path[] = "t-calibrate-plan.plan";

/* Layers 1 and 4.  In layer 4 all keys are the same, so that attention is even. */
static void write_capture(void)
{
	static const char *const name[] = { "layers.1.q", "layers.1.k", "layers.1.v",
					    "layers.4.q", "layers.4.k", "layers.4.v" };
	struct safetensors_tensor t[6];
	struct rng rng = { 3 };
	struct outfile f;
	struct ar_err err;

	for (int k = 0; k < 6; k++)
		t[k] = (struct safetensors_tensor){ .name = name[k],
						    .n_dim = 3,
						    .dim = { k % 3 ? KV_HEADS : HEADS, TOK, DIM } };
	if (outfile_open(&f, capture_path, &err) ||
	    safetensors_write_header(&f, t, 6,
				     (const char *const[]){ "rope_applied", "true", NULL }, &err))
		bail_out("%s", err.msg);
	for (int k = 0; k < 6; k++)
		for (int i = 0; i < t[k].dim[0] * TOK * DIM; i++) {
			bf16_t x = bf16_from_f32(k == 4 ? 1 : 2 * rng_normal(&rng));

			if (outfile_write(&f, &x, sizeof x, &err))
				bail_out("%s", err.msg);
		}
	if (outfile_commit(&f, &err))
		bail_out("%s", err.msg);
	outfile_release(&f);
}

static struct capture *must_open(void)
{
	struct capture *c;
	struct ar_err err;

	if (capture_open(&c, capture_path, &err))
		bail_out("%s", err.msg);
	return c;
}

/* The same figures from kept results of dense attention. */
static void test_kept(void)
{
	struct capture *c = must_open();
	const struct calib_input in = { &c, 1, 0 };
	struct plan_dense dense = { 0 };
	const struct plan_sample how[] = { { .chunk = 100, .n_chunk = 2 },
					   { .chunk = 100, .n_chunk = 2, .dense = &dense } };
	struct plan_table t[3];
	struct plan_settings s;
	struct ar_err err;
	int *layer;

	if (plan_settings_init(&s, "ashape:init=30,local=100", &err))
		bail_out("%s", err.msg);
	for (int i = 0; i < 3; i++) {
		if (plan_measure(&s, &in, &how[i > 0], &t[i], &layer, &err))
			bail_out("%s", err.msg);
		free(layer);
	}
	is_int((long long)dense.n, 4, "dense attention is kept for 2 chunks of 2 layers");
	ok(!memcmp(t[0].at, t[1].at, 4 * sizeof *t[0].at) &&
		   !memcmp(t[1].at, t[2].at, 4 * sizeof *t[0].at),
	   "... and changes no figure");
	/* Outputs are compared with the kept ones. */
	for (size_t i = 0; i < 100 * HEADS * DIM; i++)
		dense.chunk[0].out[i] = bf16_from_f32(100);
	free(t[2].at);
	if (plan_measure(&s, &in, &how[1], &t[2], &layer, &err))
		bail_out("%s", err.msg);
	ok(plan_at(&t[2], 0, 1)->rel_l2 != plan_at(&t[0], 0, 1)->rel_l2, "... as it is used");
	free(layer);
	for (int i = 0; i < 3; i++)
		free(t[i].at);
	plan_dense_release(&dense);
	plan_settings_release(&s);
	capture_close(c);
}

/* Layers that are not wanted. */
static void test_layers(void)
{
	struct capture *c = must_open();
	const struct calib_input in = { &c, 1, 0 };
	bool ignore[CAPTURE_MAX_LAYER + 1] = { [1] = true };
	const struct plan_sample how = { .chunk = 100, .n_chunk = 1, .ignore = ignore };
	struct plan_settings s;
	struct plan_table t;
	struct ar_err err;
	int *layer;

	if (plan_settings_init(&s, "ashape:init=30,local=100", &err) ||
	    plan_measure(&s, &in, &how, &t, &layer, &err))
		bail_out("%s", err.msg);
	ok(t.n_layer == 1 && layer[0] == 4, "a layer may be ignored");
	free(t.at);
	free(layer);
	ignore[4] = true;
	is_int(plan_measure(&s, &in, &how, &t, &layer, &err), AR_USAGE, "... but not all");
	is_str(err.msg, "the captures hold no layer to measure methods in", "... which is told");
	free(t.at);
	free(layer);
	plan_settings_release(&s);
	capture_close(c);
}

/* Each row sees the first 30 and the last 100 keys. */
static void test_measures(void)
{
	struct capture *c = must_open();
	const struct calib_input in = { &c, 1, 0 };
	const struct plan_sample how = { .chunk = 100, .n_chunk = 2 };
	struct plan_settings s;
	struct plan_table t;
	struct ar_err err;
	double kept = 0, all = 0, even = 0;
	int *layer;

	if (plan_settings_init(&s,
			       "ashape:init=30,local=100,"
			       "trishape:start=128,recent=0,last-dense=0",
			       &err) ||
	    plan_measure(&s, &in, &how, &t, &layer, &err))
		bail_out("%s", err.msg);
	ok(t.n_layer == 2 && layer[0] == 1 && layer[1] == 4 && t.n_setting == 3,
	   "each captured layer has its measures");
	for (int from = 250; from <= 500; from += 250) /* the chunks */
		for (int pos = from; pos < from + 100; pos++) {
			kept += 130;
			all += pos + 1;
			even += 130 / (double)(pos + 1) / 200;
		}
	ok(kept < all && fabs(plan_at(&t, 0, 1)->density - kept / all) < 1e-9,
	   "the density is that of the pairs: %g of %g", plan_at(&t, 0, 1)->density, kept / all);
	ok(fabs(plan_at(&t, 1, 1)->recall - even) < 1e-4,
	   "where attention is even, the recall is the share of keys: %g of %g",
	   plan_at(&t, 1, 1)->recall, even);
	ok(plan_at(&t, 0, 2)->selected == 0.5,
	   "the selector keeps 1 of 1 and 1 of 3 blocks before the chunks, for 2 query blocks "
	   "each");
	ok(plan_at(&t, 0, 1)->rel_l2 > 0.1 && plan_at(&t, 0, 1)->rel_l2 < 2,
	   "the output differs from that of dense attention");
	ok(plan_at(&t, 0, 0)->density == 1 && plan_at(&t, 1, 0)->recall == 1 &&
		   plan_at(&t, 0, 0)->selected == 1 && plan_at(&t, 0, 0)->rel_l2 == 0,
	   "dense keeps all and has no error");
	free(t.at);
	free(layer);
	plan_settings_release(&s);
	capture_close(c);
}

/* ---- the command ---- */

struct command {
	void *arg;
	struct opt_group g[2];
	struct capture *capture;
	struct calib_input in;
};

static void command_open(struct command *c, const char *list, const char *layers, int64_t tokens)
{
	struct ar_err err;

	*c = (struct command){ .arg = calloc(1, calibrate_plan.arg_size), .capture = must_open() };
	c->g[0] = (struct opt_group){ .opts = calibrate_plan.opts, .base = c->arg };
	c->in = (struct calib_input){ &c->capture, 1, tokens };
	if (!c->arg || opt_init(c->g, &err) || (list && opt_set(c->g, "method", list, &err)) ||
	    opt_set(c->g, "layers", layers, &err) || opt_set(c->g, "chunk", "64", &err))
		bail_out("%s", err.msg);
}

static enum ar_status command_run(const struct command *c, struct ar_err *err)
{
	return calibrate_plan.run(c->arg, &c->in, out_path, err);
}

static void command_close(struct command *c)
{
	opt_release(c->g);
	free(c->arg);
	capture_close(c->capture);
}

static enum ar_status calibrate(const char *list, const char *layers, struct ar_err *err)
{
	struct command c;
	enum ar_status st;

	command_open(&c, list, layers, 64);
	st = command_run(&c, err);
	command_close(&c);
	return st;
}

static void test_refused(void)
{
	struct ar_err err;

	is_int(calibrate(NULL, "0", &err), AR_USAGE, "a list of methods is needed");
	ok(strstr(err.msg, "add --method LIST"), "... %s", err.msg);
	is_int(calibrate("ashape", "4", &err), AR_USAGE, "layers that do not hold the captured");
	is_str(err.msg, "layers 4: layer 4 is captured; give the model's layers", "... are named");
	is_int(calibrate("minference:pattern=none.json", "8", &err), AR_DATA,
	       "a file of a method that is missing");
}

static void test_faults(void)
{
	struct ar_err err;
	struct command c;
	bool clean = true;
	long k;

	command_open(&c, "compact-fp:alpha=0.5,flashprefill:alpha=0.5", "0", 200);
	for (k = 0;; k += fault_stride(3)) {
		enum ar_status st;

		fault_arm(k);
		st = command_run(&c, &err);
		if (!fault_disarm()) {
			clean &= st == AR_OK;
			break;
		}
		clean &= st == AR_NOMEM;
	}
	ok(clean && k > 50, "each of %ld allocations may fail", k);
	command_close(&c);
}

int main(void)
{
	plan(0);
	test_search();
	test_random();
	test_settings();
	write_capture();
	test_measures();
	test_kept();
	test_layers();
	test_refused();
	test_faults();
	unlink(capture_path);
	unlink(out_path);
	return done_testing();
}
