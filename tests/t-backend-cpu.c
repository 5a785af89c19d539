/* SPDX-License-Identifier: Apache-2.0 */
/* The cpu backend. */
#include "config.h"
#include "tests/backend-case.h"

#include <stdbool.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "replay/engine/act_capture.h"
#include "replay/engine/backend_cpu.h"
#include "tests/alloc_fault.h"
#include "tests/mixed-case.h"
#include "tests/reuse-case.h"
#include "tests/tap.h"
#include "tests/verify-case.h"

/* Layer sampling: two of four layers were run. */
static void test_cost(void)
{
	struct batch_entry e = { .n_tok = 500, .n_emit = 1 };
	struct iter_cost cost;
	struct backend_case c;
	struct ar_err err;

	if (case_open(&c, &backend_cpu, &(struct case_how){ .method = "dense" }, &err))
		bail_out("%s", err.msg);
	case_run(&c, &e, 1, &cost);
	is_int(cost.cost_ns, 2 * (cost.phase_ns[PHASE_ATTEND] + cost.phase_ns[PHASE_DECODE]),
	       "layers that were left out are made up for");
	is_int(cost.span_ns, -1, "there is no span of kernels");
	is_int(cost.phase_ns[PHASE_LINEAR], 0, "and no projection");
	case_close(&c);
}

/* Phases of a chunk that follows another chunk. */
static void test_phases(void)
{
	static const struct {
		const char *method;
		bool select, metadata;
	} cases[] = {
		{ "dense", false, false },	{ "compact-fp", true, true },
		{ "flashprefill", true, true }, { "quoka", true, false },
		{ "minference", true, false },
	};
	struct batch_entry first = { .n_tok = 300 };
	struct batch_entry second = { .start = 300, .n_tok = 200, .n_emit = 1 };
	struct batch_entry decode = { .start = 500, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1 };
	struct ar_err err;

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const char *name = cases[i].method;
		struct iter_cost cost;
		const int64_t *ns = cost.phase_ns;
		int64_t sum = 0;
		struct backend_case c;

		if (case_open(&c, &backend_cpu, &(struct case_how){ .method = name }, &err))
			bail_out("%s", err.msg);
		case_run(&c, &first, 1, &cost);
		case_run(&c, &second, 1, &cost);
		for (int p = 0; p < PHASE_COUNT; p++)
			sum += ns[p];
		ok((ns[PHASE_SELECT] > 0) == cases[i].select &&
			   (ns[PHASE_METADATA] > 0) == cases[i].metadata && ns[PHASE_ATTEND] > 0,
		   "%s has the time of its steps", name);
		is_int(ns[PHASE_DECODE], 0, "... and none of what did not run");
		is_int(cost.cost_ns, 2 * sum, "... which make up its cost, over all layers");
		case_run(&c, &decode, 1, &cost);
		ok(ns[PHASE_DECODE] > 0 && cost.cost_ns == 2 * ns[PHASE_DECODE],
		   "... and a decode its own");
		case_close(&c);
	}
}

/* Random captures: rows have the values of their positions, as they are. */
static void test_random(void)
{
	enum { FIRST = 700, ROWS = 3, DIM = 64, LAYER = 1 };
	const struct attn_shape shape = { CASE_HEADS, CASE_KV_HEADS, DIM, 128 };
	const struct activations *a = &activations_capture;
	bf16_t q[ROWS][CASE_HEADS][DIM], k[ROWS][CASE_KV_HEADS][DIM];
	bf16_t want[CASE_HEADS][ROWS][DIM];
	const struct qkv out = { q[0][0], k[0][0], NULL };
	struct layer_row row[ROWS];
	struct backend_case c;
	struct ar_err err;
	void *self;
	int bad = 0;

	if (case_open(&c, &backend_cpu, &(struct case_how){ .method = "dense", .random = true },
		      &err) ||
	    a->open(&self, &c.env, &shape, &err) || a->load_ref(self, &err) ||
	    a->begin(self, 2, FIRST, ROWS, row, &err) ||
	    a->qkv_ref(self, LAYER, row, ROWS, NULL, &out, &err) ||
	    capture_read(c.capture[0], c.env.captured_layer[c.env.run_layer[LAYER]], CAPTURE_Q,
			 FIRST, ROWS, want[0][0], &err))
		bail_out("%s", err.msg);
	for (int r = 0; r < ROWS; r++)
		for (int h = 0; h < CASE_HEADS; h++)
			bad += memcmp(q[r][h], want[h][r], sizeof want[h][r]) != 0;
	ok(!bad && memcmp(q[0], q[1], sizeof q[0]),
	   "rows have the random values of their positions");
	a->close(self);
	case_close(&c);
}

static void test_rank(void)
{
	struct backend_case c;
	struct ar_err err;
	void *self;

	if (case_open(&c, &backend_cpu, &(struct case_how){ .method = "dense" }, &err))
		bail_out("%s", err.msg);
	c.model.vocab = 1000;
	if (model_split(&c.model, 2, &err))
		bail_out("%s", err.msg);
	is_int(backend_open(&backend_cpu, &self, NULL, &c.env, &err), AR_OK,
	       "a capture of all ranks serves one of them");
	backend_close(&backend_cpu, self);
	case_close(&c);
}

/* Open, start, run and compare with the k-th allocation failing. */
static enum ar_status life(const struct backend_env *env)
{
	struct batch_entry e = { .n_tok = 130, .n_emit = 1 };
	struct accuracy acc[CASE_HEADS];
	struct selection_count count[CASE_KV_HEADS];
	struct method_selection sel = { .scored = true };
	struct blocks blocks = { 0 };
	const struct batch b = { .entry = &e, .n = 1, .blocks = &blocks };
	struct backend_env own = *env;
	struct iter_cost cost;
	struct ar_err err;
	enum ar_status st;
	void *self;

	own.blocks = &blocks;
	st = backend_open(&backend_cpu, &self, NULL, &own, &err);

	if (!st)
		st = backend_start(&backend_cpu, self, env->num_blocks, &err);
	if (!st)
		st = backend_run(&backend_cpu, self, &b, &cost, &err);
	if (!st)
		st = backend_compare(&backend_cpu, self, &e, 0, acc, count, &sel, &err);
	method_selection_release(&sel);
	backend_close(&backend_cpu, self);
	blocks_release(&blocks);
	return st;
}

static void test_faults(void)
{
	struct backend_case c;
	struct ar_err err;
	bool clean = true;
	long k;

	if (case_open(&c, &backend_cpu, &(struct case_how){ .method = "compact-fp", .mixed = true },
		      &err))
		bail_out("%s", err.msg);
	for (k = 0;; k += fault_stride(3)) {
		enum ar_status st;

		fault_arm(k);
		st = life(&c.env);
		if (!fault_disarm()) {
			clean &= st == AR_OK;
			break;
		}
		clean &= st == AR_NOMEM;
	}
	ok(clean && k > 20, "any of %ld allocations may fail", k);
	case_close(&c);
}

/* Selections are counted in layers that see all keys. */
static void test_count(void)
{
	const struct batch_entry e = { .n_tok = 500, .known = 500 };
	struct selection_count count[CASE_LAYERS][CASE_KV_HEADS];
	const struct selection_count none[CASE_KV_HEADS] = { 0 };
	struct backend_case c;
	struct ar_err err;

	if (case_open(&c, &backend_cpu, &(struct case_how){ .method = "compact-fp", .mixed = true },
		      &err))
		bail_out("%s", err.msg);
	memset(count, 0xff, sizeof count);
	is_int(backend_cpu_count(c.self, &e, count[0], &err), AR_OK, "counts of mixed layers");
	ok(count[0][1].exec_total > 0 && count[2][1].exec_total == count[0][1].exec_total,
	   "are those of full ones");
	ok(!memcmp(count[1], none, sizeof none) && !memcmp(count[3], none, sizeof none),
	   "and nothing in others");
	case_close(&c);
}

/* The mean recall, and the largest error, of decodes after a prompt of 600 tokens. */
static double recall_of(const char *method, double *error)
{
	struct batch_entry prompt = { .n_tok = 600 };
	struct backend_case c;
	struct case_result r;
	struct iter_cost cost;
	struct ar_err err;
	double sum = 0;

	*error = 0;
	if (case_open(&c, &backend_cpu, &(struct case_how){ .method = method }, &err))
		bail_out("%s", err.msg);
	case_run(&c, &prompt, 1, &cost);
	for (uint32_t i = 0; i < 4; i++) {
		struct batch_entry e = { .start = 600 + i, .n_tok = 1, .kind = ROW_DECODE };

		case_run(&c, &e, 1, &cost);
		case_compare(&c, &e, &r);
		*error = fmax(*error, case_largest_error(&r));
		for (int k = 0; k < CASE_RUN_LAYERS * CASE_HEADS; k++)
			sum += r.acc[k / CASE_HEADS][k % CASE_HEADS].mass_recall;
	}
	case_close(&c);
	return sum / (4 * CASE_RUN_LAYERS * CASE_HEADS);
}

/* What must hold of samples of decodes, whatever the values are. */
static void test_controls(void)
{
	static const char *const rival[] = { "streaming,sink=4,recent=60",
					     "quest,budget=64,page=16,share=head,dense-layers=0",
					     "quest,budget=64,page=16,share=sum,dense-layers=0",
					     "rocket,budget=64,page=4" };
	char method[128];
	double best, error, before = 0;

	best = recall_of("dense/decode=oracle,budget=100000", &error);
	ok(best == 1 && error == 0, "the oracle with a budget for all keys loses nothing");
	best = recall_of("dense/decode=oracle,budget=64", &error);
	ok(best < 1 && error > 0, "with 64 keys it loses something: it has %g", best);
	for (size_t i = 0; i < sizeof rival / sizeof *rival; i++) {
		double recall;

		snprintf(method, sizeof method, "dense/decode=%s", rival[i]);
		recall = recall_of(method, &error);
		ok(recall <= best && recall > 0, "no more than %s with as many: %g", rival[i],
		   recall);
	}
	for (int budget = 64; budget <= 1024; budget *= 2) {
		double recall;

		snprintf(method, sizeof method,
			 "dense/decode=quest,budget=%d,page=16,dense-layers=0", budget);
		recall = recall_of(method, &error);
		ok(recall >= before - 0.01, "quest with a budget of %d has %g", budget, recall);
		before = recall;
	}
	ok(before == 1 && error == 0, "... all of it at last");
}

static void read_out(void *self, size_t at, size_t n, bf16_t *out)
{
	const struct cpu *c = self;

	memcpy(out, c->out + at, n * sizeof *out);
}

int main(void)
{
	plan(0);
	case_test_all(&backend_cpu, 0);
	mixed_test_all(&backend_cpu, read_out, 0.01);
	verify_test_all(&backend_cpu, read_out, 0);
	reuse_test_all(&backend_cpu, read_out);
	test_count();
	test_cost();
	test_phases();
	test_random();
	test_rank();
	test_controls();
	test_faults();
	return done_testing();
}
