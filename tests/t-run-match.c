/* SPDX-License-Identifier: Apache-2.0 */
/* Methods of a run tuned to a figure: which are, and on which sample. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/tune/match.h"
#include "tests/alloc_fault.h"
#include "tests/tap.h"
#include "traces/capture/random.h"

enum { METHODS = 5, REPEATS = 2, LAYERS = 10, TOK = 200 };

/* A run as run_load() leaves it before methods are tuned. */
struct loaded {
	struct run r;
	struct request req;
	struct trace trace;
	struct capture *capture[3];
	struct layer_spec layer[LAYERS];
	int captured[LAYERS], run_layer[LAYERS];
	struct resumed resumed;
	bool done[METHODS * REPEATS];
};

static const char *const names[METHODS] = { "quoka", "dense", "0-:compact-fp",
					    "seer:gate=mean,threshold=0.1", "quoka+uniprefill" };

static uint16_t first; /* the capture of the one request */

static void load(struct loaded *x)
{
	const struct capture_info shape = {
		.n_layers = LAYERS, .q_heads = 2, .kv_heads = 1, .head_dim = 64, .n_tok = TOK
	};
	struct run *r = &x->r;
	struct ar_err err;

	*x = (struct loaded){ .req = { .prompt_tok = 120, .output_tok = 1 } };
	x->trace = (struct trace){ .req = &x->req, .n = 1 };
	for (size_t i = 0; i < 3; i++)
		if (capture_random(&x->capture[i], "random:1", &shape, &err))
			bail_out("%s", err.msg);
	for (int i = 0; i < LAYERS; i++) {
		x->layer[i] = (struct layer_spec){ .mixer = i % 2 ? MIX_FULL : MIX_WINDOW,
						   .q_heads = 2,
						   .kv_heads = 1,
						   .head_dim = 64 };
		x->captured[i] = x->run_layer[i] = i;
	}
	r->session.tuner = &match_tuner;
	r->in.trace = &x->trace;
	r->in.limits = (struct sched_limits){ .policy = policies[0],
					      .max_batched_tok = 16,
					      .max_seqs = 1,
					      .block_tok = 16,
					      .num_blocks = 100 };
	r->in.capture = x->capture;
	r->in.n_capture = 3;
	r->in.model.n_layers = LAYERS;
	r->in.model.layer = x->layer;
	r->in.model.rope.theta = 10000;
	r->in.prep = (struct prepared){ .capture_of = &first,
					.captured_layer = x->captured,
					.run_layer = x->run_layer,
					.n_run_layers = LAYERS };
	r->in.method = (char **)(uintptr_t)names;
	r->in.n_methods = METHODS;
	r->in.n_runs = METHODS * REPEATS;
	r->in.plan = calloc(r->in.n_runs, sizeof(struct plan *));
	for (size_t i = 0; i < r->in.n_runs; i++)
		if (plan_parse(&r->in.plan[i], names[i % METHODS], &err))
			bail_out("%s", err.msg);
}

static void unload(struct loaded *x)
{
	if (x->r.session.match)
		match_tuner.close(x->r.session.match);
	for (size_t i = 0; i < x->r.in.n_runs; i++)
		plan_free(x->r.in.plan[i]);
	free(x->r.in.plan);
	for (size_t i = 0; i < 3; i++)
		capture_close(x->capture[i]);
}

static enum ar_status match(struct run *r, struct ar_err *err)
{
	enum ar_status st = match_tuner.open(&r->session.match, "recall=0.9", err);

	if (st)
		return st;
	((struct match *)r->session.match)->goal.near = 0.1;
	return match_tuner.tune(r->session.match, r, err);
}

static const struct match *must_match(struct run *r)
{
	struct ar_err err;

	if (match(r, &err))
		bail_out("%s", err.msg);
	return r->session.match;
}

/* How a method was tuned; NULL: it was not. */
static const struct tuned *tuned(const struct match *m, size_t method)
{
	for (size_t k = 0; k < m->n_tuned; k++)
		if (m->method[k] == method)
			return &m->tuned[k];
	return NULL;
}

static void test_methods(void)
{
	struct loaded x;
	struct run *r = &x.r;
	const struct match *m;
	int bad = 0;

	load(&x);
	m = must_match(r);
	for (size_t i = 0; i < r->in.n_runs; i++)
		bad += strcmp(r->in.plan[i]->name, r->in.plan[i % METHODS]->name) != 0;
	is_int(bad, 0, "repeats have one setting");
	ok(!strncmp(r->in.plan[0]->name, "quoka:kv-ratio=", 15) &&
		   fabs(tuned(m, 0)->figures.recall - 0.9) <= 0.1,
	   "a method is tuned: %s", r->in.plan[0]->name);
	ok(tuned(m, 1)->how == TUNE_FIXED && tuned(m, 3)->how == TUNE_GIVEN &&
		   !strcmp(r->in.plan[3]->name, names[3]),
	   "one without a threshold, or with a stated one, is not");
	ok(!tuned(m, 2) && !strcmp(r->in.plan[2]->name, names[2]), "nor is a plan of layers");
	ok(!tuned(m, 4) && !strcmp(r->in.plan[4]->name, names[4]), "nor one with a dropper");
	unload(&x);
}

static void test_sample(void)
{
	struct loaded x;
	const struct match *m;

	load(&x);
	m = must_match(&x.r);
	ok(m->in.n == 2 && m->in.capture[0] == x.capture[0] && m->in.capture[1] == x.capture[2],
	   "of many captures a few serve");
	ok(m->n_layer == 4 && m->layer[0] == 1 && m->layer[1] == 3 && m->layer[2] == 7 &&
		   m->layer[3] == 9 && !m->ignore[7] && m->ignore[0] && m->ignore[5],
	   "and a few of the layers with full attention: %d %d %d %d", m->layer[0], m->layer[1],
	   m->layer[2], m->layer[3]);
	ok(m->chunks.n == 8 && m->chunks.of == 8 && m->chunks.longest == 16 &&
		   m->chunks.v[7].from == 112 && m->chunks.v[7].to == 120,
	   "chunks are those of the run: %zu, up to %lld", m->chunks.n,
	   (long long)m->chunks.longest);
	unload(&x);
	load(&x);
	x.r.in.limits.max_batched_tok = 1 << 20;
	x.r.in.prep.n_run_layers = 2;
	x.r.in.n_capture = 1;
	m = must_match(&x.r);
	ok(m->chunks.n == 1 && m->chunks.longest == 120 && m->n_layer == 1 && m->layer[0] == 1 &&
		   m->in.n == 1,
	   "a prompt may be one chunk, and there may be fewer layers and captures");
	unload(&x);
}

static void test_resumed(void)
{
	struct loaded x;
	const struct match *m;

	load(&x);
	x.resumed.done = x.done;
	x.r.session.o.resumed = &x.resumed;
	x.done[0] = x.done[METHODS] = x.done[1] = true;
	m = must_match(&x.r);
	ok(!tuned(m, 0) && tuned(m, 1) && !strcmp(x.r.in.plan[0]->name, "quoka"),
	   "of a resumed command only what is left is tuned");
	unload(&x);
}

static void test_faults(void)
{
	bool clean = true, hit = true;
	long k;

	for (k = 0; hit; k += fault_stride(7)) {
		struct loaded x;
		struct ar_err err;
		enum ar_status st;

		load(&x);
		x.r.in.prep.n_run_layers = 2;
		x.r.in.n_capture = 1;
		fault_arm(k);
		st = match(&x.r, &err);
		hit = fault_disarm();
		clean &= st == (hit ? AR_NOMEM : AR_OK);
		unload(&x);
	}
	ok(clean && k > 50, "each of %ld allocations may fail", k);
}

int main(void)
{
	plan(0);
	test_methods();
	test_sample();
	test_resumed();
	test_faults();
	return done_testing();
}
