/* SPDX-License-Identifier: Apache-2.0 */
/* Backend cpu with weights: whole tiny models of each architecture, against the forward pass. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "base/available.h"
#include "model/weights.h"
#include "replay/engine/act_weights.h"
#include "replay/forward/forward.h"
#include "tests/alloc_fault.h"
#include "tests/tap.h"
#include "tests/whole_model.h"

/* ---- dense ---- */

static int best_of(const float *x)
{
	int best = 0;

	for (int i = 1; i < TINY_VOCAB; i++)
		best = x[i] > x[best] ? i : best;
	return best;
}

/* Greedy decoding of one request by the forward pass. */
static void decode_alone(const struct weights *w, int q, struct whole_outputs *o)
{
	int n = (int)whole_requests[q].prompt_tok;
	struct ar_err err = { 0 };
	int32_t id[WHOLE_LEN];
	struct forward *f;

	for (int i = 0; i < n; i++)
		id[i] = whole_text[q].prompt[i % (int)whole_text[q].n_prompt];
	if (forward_open(&f, w, WHOLE_LEN, NULL, NULL, &err) || forward_run(f, id, n, &err))
		bail_out("%s", err.msg);
	for (int k = 0; k < (int)whole_requests[q].output_tok; k++) {
		if (k && forward_run(f, &o->token[q][k - 1], 1, &err))
			bail_out("%s", err.msg);
		if (forward_logits(f, k ? 0 : n - 1, 1, o->logit[q][k], &err))
			bail_out("%s", err.msg);
		o->token[q][k] = best_of(o->logit[q][k]);
		o->n[q]++;
	}
	forward_close(f);
}

static void decode_all(const struct weights *w, struct whole_outputs *o)
{
	memset(o, 0, sizeof *o);
	for (int q = 0; q < WHOLE_REQS; q++)
		decode_alone(w, q, o);
}

static void compare_models(const struct tiny *m, const struct weights *w, const char *what)
{
	static const uint32_t chunk[] = { 1, 7, 129, WHOLE_BUDGET };
	static struct whole_outputs want, got;

	decode_all(w, &want);
	for (size_t k = 0; k < sizeof chunk / sizeof *chunk; k++) {
		whole_run(w, whole_three("dense", &got), chunk[k]);
		ok(outputs_same(&got, &want), "%s%s, chunks of %u: the bits of the forward pass",
		   m->what, what, chunk[k]);
	}
}

/* The forward pass shows Q before the scale of scores, and rounds it again.  So only a scale that
 * rounds nothing, a power of two, gives the same bits. */
static void test_models(void)
{
	static struct whole_outputs want, got;
	struct weights w;

	for (int i = 0; i < TINY_MODELS; i++) {
		const struct tiny *m = &tiny_models[i];

		whole_load(&w, m);
		if (m->scale) {
			decode_all(&w, &want);
			whole_run(&w, whole_three("dense", &got), 129);
			ok(outputs_same_tokens(&got, &want) &&
				   outputs_distance(&got, &want) < 0.02 * outputs_largest(&want),
			   "%s: off the forward pass by %g of %g", m->what,
			   outputs_distance(&got, &want), outputs_largest(&want));
		}
		for (int l = 0; l < TINY_LAYERS && m->scale; l++)
			w.model.layer[l].score_scale = 0.5 / sqrt(m->dim);
		compare_models(m, &w, m->scale ? ", half the usual scale" : "");
		weights_release(&w);
	}
}

/* ---- histories ---- */

static void test_histories(const struct weights *w, const char *method)
{
	struct batch_entry hit = { .start = 200, .n_tok = 90, .known = 290, .n_emit = 1 };
	struct batch_entry known = { .n_tok = 292, .known = 292, .n_emit = 1, .recompute = true };
	static struct whole_outputs want, got;
	struct whole x;

	whole_run(w, whole_three(method, &want), WHOLE_BUDGET);
	whole_open(&x, w, whole_three(method, &got));
	whole_serve(&x, 1, WHOLE_BUDGET);
	whole_serve(&x, 6, WHOLE_BUDGET);
	ok(outputs_same(&got, &want), "%s: one request after the other", method);
	whole_close(&x);

	whole_open(&x, w, whole_three(method, &got));
	for (int i = 0; i < 3; i++) {
		struct batch_entry e = whole_next(&x, 0, WHOLE_BUDGET);

		whole_step(&x, &e, 1);
	}
	whole_drop(&x, 0);
	x.req[0].known = 292; /* its last output is lost */
	whole_step(&x, &known, 1);
	whole_serve(&x, 7, WHOLE_BUDGET);
	ok(outputs_same_tokens(&got, &want),
	   "%s: a request preempted and recomputed goes on as before", method);
	whole_close(&x);

	whole_open(&x, w, whole_three(method, &got));
	whole_step(&x, &hit, 1);
	whole_serve(&x, 7, WHOLE_BUDGET);
	ok(outputs_same_tokens(&got, &want),
	   "%s: tokens of the prefix cache are computed through all layers", method);
	whole_close(&x);
}

/* All outputs after the first of a request at once: the drafts are the tokens that were chosen. */
static void test_verify(const struct weights *w, const char *method)
{
	static struct whole_outputs want, got;
	struct whole_how how = whole_three(method, &got);
	struct batch_entry e[WHOLE_REQS];
	struct whole x;

	whole_run(w, whole_three(method, &want), WHOLE_BUDGET);
	how.max_draft_tok = WHOLE_OUTS;
	whole_open(&x, w, how);
	whole_serve(&x, 7, WHOLE_BUDGET);
	memset(&got, 0, sizeof got);
	for (uint32_t q = 0; q < WHOLE_REQS; q++) {
		const struct request *r = &whole_requests[q];
		uint32_t n = r->output_tok - 1;

		whole_drop(&x, q);
		x.req[q].known = r->prompt_tok;
		e[q] = whole_entry(&x, q, 0, r->prompt_tok);
		whole_step(&x, &e[q], 1);
		e[q] = (struct batch_entry){ .req = q,
					     .start = r->prompt_tok,
					     .n_tok = n,
					     .known = r->prompt_tok + n,
					     .kind = ROW_VERIFY,
					     .n_emit = n };
	}
	whole_step(&x, e, 2); /* the third has one output */
	ok(outputs_same_tokens(&got, &want) && !memcmp(got.n, want.n, sizeof got.n) &&
		   outputs_distance(&got, &want) < 0.02 * outputs_largest(&want),
	   "%s: each row of a verify entry gives the logits of its position: off by %g of %g",
	   method, outputs_distance(&got, &want), outputs_largest(&want));
	whole_close(&x);
}

/* A policy that plans ahead runs one row more. */
static void test_ahead(const struct weights *w)
{
	struct batch_entry e[] = { { .req = 2, .n_tok = 131, .known = 131, .n_emit = 1 },
				   { .req = 2,
				     .start = 131,
				     .n_tok = 1,
				     .known = 132,
				     .kind = ROW_DECODE,
				     .n_emit = 1 } };
	static struct whole_outputs o;
	struct whole x;

	whole_open(&x, w, whole_three("dense", &o));
	whole_step(&x, &e[0], 1);
	whole_step(&x, &e[1], 1);
	is_int(o.n[2], 1, "a row past the last output gives none");
	whole_close(&x);
}

static struct whole_how hot(uint64_t seed, struct whole_outputs *o)
{
	struct whole_how how = whole_three("dense", o);

	how.temperature = 1.5;
	how.seed = seed;
	return how;
}

static void test_draws(const struct weights *w)
{
	static struct whole_outputs want, got, greedy;

	whole_run(w, hot(5, &want), WHOLE_BUDGET);
	whole_run(w, hot(5, &got), 50);
	ok(outputs_same(&got, &want), "drawn tokens are the same again, in other chunks, too");
	whole_run(w, hot(6, &got), WHOLE_BUDGET);
	whole_run(w, whole_three("dense", &greedy), WHOLE_BUDGET);
	ok(!outputs_same_tokens(&got, &want) && !outputs_same_tokens(&greedy, &want),
	   "... but not with another seed, nor without a temperature");
}

/* ---- times, refusals, memory ---- */

static void test_phases(const struct weights *w)
{
	static const enum phase all[] = { PHASE_LINEAR, PHASE_NORM, PHASE_ROPE, PHASE_ATTEND,
					  PHASE_HEAD };
	struct batch_entry e = { .n_tok = 290, .known = 290, .n_emit = 1 };
	static struct whole_outputs o;
	struct iter_cost cost;
	struct whole x;
	int64_t sum = 0;
	int good = 0;

	whole_open(&x, w, whole_three("dense", &o));
	cost = whole_step(&x, &e, 1);
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		good += cost.phase_ns[all[i]] > 0;
	for (int p = 0; p < PHASE_COUNT; p++)
		sum += cost.phase_ns[p];
	is_int(good, sizeof all / sizeof *all, "all phases of a layer have a time");
	ok(cost.phase_ns[PHASE_NONE] == 0 && sum == cost.cost_ns, "... and the cost is their sum");
	whole_close(&x);
}

static void test_refused(struct weights *w)
{
	static struct whole_outputs o;
	struct ar_err err = { 0 };
	struct layer_row row[2];
	struct whole x;

	whole_open(&x, w, whole_three("dense", &o));
	ok(activations_weights.begin(((const struct cpu *)x.self)->engine.act_self, 0,
				     WHOLE_LEN - 1, 2, row, &err) == AR_USAGE &&
		   strstr(err.msg, "position 295 is past the longest request of 295 tokens"),
	   "a position past the longest request: %s", err.msg);
	whole_close(&x);

	w->model.rope.theta = 0;
	strcpy(w->model.rope_unknown, "rope type 'longrope'");
	ok(whole_try(&x, w, whole_three("dense", &o), &err) == AR_DATA &&
		   strstr(err.msg, "the angles of rope type 'longrope' are not known"),
	   "no angles: %s", err.msg);
	whole_close(&x);
	w->model.rope.theta = 500;
	*w->model.rope_unknown = 0;
}

/* What the first step of requests 2 and 1, or of request 1 alone, says. */
static void overflows(const struct weights *w, bool both, const char *want)
{
	static struct whole_outputs o;
	struct ar_err err = { 0 };
	struct batch_entry e[2];
	struct iter_cost cost;
	struct whole x;

	whole_open(&x, w, whole_three("dense", &o));
	e[0] = whole_entry(&x, 2, 0, 5);
	e[1] = whole_entry(&x, 1, 0, 7);
	is_int(whole_try_step(&x, both ? e : e + 1, 1 + both, &cost, &err), AR_DATA,
	       "hidden states that overflow are refused");
	ok(strstr(err.msg, want), "... by layer and request: %s", err.msg);
	whole_close(&x);
}

static void test_overflow(struct weights *w)
{
	enum { VALUES = TINY_HIDDEN * TINY_VOCAB }; /* of the embedding; a product has fewer */
	static bf16_t big[VALUES];
	const bf16_t *embed = w->embed;

	for (int i = 0; i < VALUES; i++)
		big[i] = 0x7f00;
	for (int l = 0; l < TINY_LAYERS; l += TINY_LAYERS - 1) {
		const bf16_t *down = w->layer[l][WEIGHT_DOWN];
		char want[96];

		w->layer[l][WEIGHT_DOWN] = big;
		snprintf(want, sizeof want,
			 "request 2: layer %d is the first whose output is not finite", l);
		overflows(w, true, want);
		snprintf(want, sizeof want, "request 1: layer %d is the first whose", l);
		overflows(w, false, want);
		w->layer[l][WEIGHT_DOWN] = down;
	}
	w->embed = big;
	for (int i = 0; i < VALUES; i++)
		big[i] = 0x7f80;
	overflows(w, false, "request 1: the embedding of a token is not finite");
	w->embed = embed;
}

/* 16 million pages of 16 KiB in three layers. */
static void test_room(const struct weights *w)
{
	struct ar_err err = { 0 };
	static struct whole_outputs o;
	struct whole_how how = whole_three("dense", &o);
	struct whole x;

	if (memory_available() > 7e11) {
		skip(1, "the machine has more memory");
		return;
	}
	how.num_blocks = 130000000;
	ok(whole_try(&x, w, how, &err) == AR_NOMEM &&
		   strstr(err.msg, "GiB for 130000000 KV blocks and"),
	   "a cache that the machine has no room for: %s", err.msg);
	whole_close(&x);
}

/* Open a backend, run a chunk and compare it with allocation k failing.  True: none failed. */
static bool run_faulty(const struct weights *w, long k, int *bad)
{
	struct batch_entry e = { .n_tok = 290, .known = 290, .n_emit = 1 };
	struct selection_count count[WHOLE_HEADS];
	struct accuracy acc[WHOLE_HEADS];
	static struct whole_outputs o;
	struct ar_err err = { 0 };
	struct iter_cost cost;
	struct whole x;
	enum ar_status st;
	bool failed;

	fault_arm(k);
	st = whole_try(&x, w, whole_three(WHOLE_SPARSE WHOLE_LAZY, &o), &err);
	if (!st)
		st = whole_try_step(&x, &e, 1, &cost, &err);
	if (!st)
		st = backend_compare(&backend_cpu, x.self, &e, 1, acc, count, NULL, &err);
	failed = fault_disarm();
	*bad += st != (failed ? AR_NOMEM : AR_OK);
	whole_close(&x);
	return !failed;
}

static void test_faults(const struct weights *w)
{
	int bad = 0;
	long k = 0;

	while (!run_faulty(w, k, &bad))
		k += fault_stride(13);
	ok(!bad && k > 100, "each of %ld allocations fails cleanly, %d did not", k, bad);
}

int main(void)
{
	struct weights w;

	plan(0);
	whole_begin();
	test_models();
	whole_load(&w, &tiny_models[0]);
	test_histories(&w, "dense");
	test_histories(&w, WHOLE_SPARSE);
	test_verify(&w, "dense");
	test_verify(&w, WHOLE_SPARSE);
	test_ahead(&w);
	test_draws(&w);
	test_phases(&w);
	test_refused(&w);
	test_overflow(&w);
	test_room(&w);
	test_faults(&w);
	weights_release(&w);
	whole_end();
	return done_testing();
}
