/* SPDX-License-Identifier: Apache-2.0 */
/* Layers 0 and 1 replay one captured layer, 2 and 3 another.  So a layer that takes the lists of
 * its twin has the lists of its own. */
#include "config.h"
#include "tests/reuse-case.h"

#include <string.h>

#include "tests/tap.h"

enum { ROW = CASE_HEADS * CASE_DIM, N_STEP = 3, LEFT = 40 };
#define EVICT "/evict=streaming,sink=4,recent=36"
static const uint32_t prompt[CASE_REQ] = { 500, 133, 45 };

/* Outputs of the last layer in the last iteration, and samples of its decodes in all layers. */
struct got {
	bf16_t out[CASE_REQ][ROW];
	struct accuracy acc[CASE_LAYERS][CASE_REQ][CASE_HEADS];
	struct selection_count count[CASE_LAYERS][CASE_REQ][CASE_KV_HEADS];
	bool listed[CASE_LAYERS]; /* compare() gives lists */
};

/* evicts: all but LEFT tokens leave behind the prompt, and one behind each decode. */
static struct batch_entry decode(uint32_t req, uint32_t step, bool evicts)
{
	return (struct batch_entry){ .req = req,
				     .start = prompt[req] + step,
				     .n_tok = 1,
				     .known = prompt[req] + step + 1,
				     .kind = ROW_DECODE,
				     .n_emit = 1,
				     .gone = evicts ? prompt[req] - LEFT + step : 0,
				     .evict = evicts };
}

static void compare(struct backend_case *c, bool evicts, struct got *x)
{
	struct ar_err err;

	for (int i = 0; i < CASE_LAYERS; i++)
		for (uint32_t r = 0; r < CASE_REQ; r++) {
			const struct batch_entry e = decode(r, N_STEP, evicts);
			struct method_selection sel = { 0 };

			if (backend_compare(c->backend, c->self, &e, i, x->acc[i][r],
					    x->count[i][r], &sel, &err))
				bail_out("%s", err.msg);
			x->listed[i] = sel.chosen.pieces.n;
			method_selection_release(&sel);
		}
}

/* Decodes of ragged prompts.  lost: request 1 is preempted, and computes its tokens again beside
 * decodes of the others. */
static void run(const struct backend *b, mixed_read_fn *read, const char *method, bool lost,
		struct got *x)
{
	struct batch_entry e[CASE_REQ];
	struct backend_case c;
	struct iter_cost cost;
	struct ar_err err;
	bool evicts;

	memset(x, 0, sizeof *x);
	if (case_open(&c, b, &(struct case_how){ .method = method, .every = true }, &err))
		bail_out("%s", err.msg);
	evicts = c.env.evict != NULL;
	for (uint32_t r = 0; r < CASE_REQ; r++) {
		c.req[r].prompt_tok = prompt[r];
		e[r] = (struct batch_entry){ .req = r, .n_tok = prompt[r], .known = prompt[r] };
		e[r].n_emit = 1;
		e[r].evict = evicts ? prompt[r] - LEFT : 0;
	}
	case_run(&c, e, CASE_REQ, &cost);
	for (uint32_t step = 0; step <= N_STEP; step++) {
		for (uint32_t r = 0; r < CASE_REQ; r++)
			e[r] = decode(r, step, evicts);
		if (lost && step == 1) {
			case_drop(&c, 1);
			e[1].n_tok += e[1].start;
			e[1].start = 0;
			e[1].kind = ROW_PREFILL;
		}
		case_run(&c, e, CASE_REQ, &cost);
	}
	read(c.self, 0, (size_t)CASE_REQ * ROW, x->out[0]);
	compare(&c, evicts, x);
	case_close(&c);
}

/* The mean recall of a layer. */
static double recall(const struct got *x, int i)
{
	double sum = 0;

	for (int r = 0; r < CASE_REQ; r++)
		for (int h = 0; h < CASE_HEADS; h++)
			sum += x->acc[i][r][h].mass_recall;
	return sum / (CASE_REQ * CASE_HEADS);
}

static bool same_layer(const struct got *a, const struct got *b, int i)
{
	return !memcmp(a->acc[i], b->acc[i], sizeof a->acc[i]) &&
	       !memcmp(a->count[i], b->count[i], sizeof a->count[i]);
}

/* No more keys are executed than the lists of another layer have. */
static bool same_keys(const struct got *x, int i, int k)
{
	return !memcmp(x->count[i], x->count[k], sizeof x->count[i]);
}

static void test_oracle(const struct backend *b, mixed_read_fn *read)
{
	static struct got own, x, full;

	run(b, read, "dense/decode=oracle,budget=20", false, &own);
	run(b, read, "dense/decode=oracle,budget=20,reselect=0+1+2+3", false, &x);
	ok(!memcmp(&own, &x, sizeof x), "%s: if all layers choose, all is as without reuse",
	   b->name);
	run(b, read, "dense/decode=oracle,budget=20,reuse=2", false, &x);
	ok(!memcmp(&own, &x, sizeof x), "%s: lists of a twin are those of the layer itself",
	   b->name);
	run(b, read, "dense/decode=oracle,budget=20,reuse=2", true, &x);
	ok(!memcmp(&own, &x, sizeof x), "%s: ... also after a preemption", b->name);
	run(b, read, "dense/decode=oracle,budget=20,reuse=4", false, &x);
	ok(same_layer(&own, &x, 0) && same_layer(&own, &x, 1),
	   "%s: the first layer and its twin have their lists", b->name);
	ok(same_keys(&x, 2, 0) && same_keys(&x, 3, 0) && recall(&x, 2) < recall(&own, 2),
	   "%s: the others have theirs too, with recall %.3f of %.3f", b->name, recall(&x, 2),
	   recall(&own, 2));
	ok(memcmp(own.out, x.out, sizeof x.out) != 0, "%s: ... and other outputs", b->name);
	run(b, read, "dense/decode=oracle,budget=20,reselect=0+2", false, &x);
	ok(!memcmp(&own, &x, sizeof x), "%s: reselect names the layers that choose", b->name);
	run(b, read, "dense/decode=tidal,budget=20,dense-layers=1,reselect=1", false, &full);
	ok(recall(&full, 0) == 1 && recall(&full, 1) == 1 &&
		   full.count[1][0][0].exec_sel == full.count[1][0][0].exec_total,
	   "%s: attend=full: layers that choose see every key", b->name);
	ok(!full.listed[0] && !full.listed[1] && full.listed[2], "%s: ... and read no lists",
	   b->name);
	run(b, read, "dense/decode=oracle,budget=20,dense-layers=1,reselect=1", false, &x);
	ok(same_layer(&full, &x, 2) && same_layer(&full, &x, 3) &&
		   !memcmp(full.out, x.out, sizeof x.out),
	   "%s: ... for the layers after them it is the same", b->name);
}

static void test_others(const struct backend *b, mixed_read_fn *read)
{
	static const char *const part[][2] = {
		{ "quest,page=4,budget=16,dense-layers=0", "" },
		{ "rocket,page=4,budget=16", "" },
		{ "oracle,budget=100", "/prune=twilight,p=0.5" },
	};
	static struct got own, x;

	for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
		char method[128];

		for (int k = 0; k < 2; k++) {
			snprintf(method, sizeof method, "dense/decode=%s%s%s", part[i][0],
				 k ? ",reuse=2" : "", part[i][1]);
			run(b, read, method, k, k ? &x : &own);
		}
		ok(!memcmp(&own, &x, sizeof x), "%s: %s: layers have the lists of their twins",
		   b->name, method);
	}
	run(b, read, "dense/decode=oracle,budget=20" EVICT, false, &own);
	run(b, read, "dense/decode=oracle,budget=20,reuse=2" EVICT, false, &x);
	ok(!memcmp(&own, &x, sizeof x) && recall(&x, 3) < 1,
	   "%s: ... also where an evictor leaves the same tokens in all layers", b->name);
	run(b, read, "dense", false, &own);
	run(b, read, "dense/decode=streaming,recent=2000,reuse=4", false, &x);
	ok(!memcmp(own.out, x.out, sizeof x.out) && recall(&x, 3) == 1,
	   "%s: lists of every key give the bits of dense decodes", b->name);
}

static void refused(const struct backend *b, const struct case_how *how, const char *want)
{
	struct backend_case c;
	struct ar_err err = { .msg = "opened" };

	case_open(&c, b, how, &err);
	is_str(err.msg, want, "%s: %s is refused", b->name, how->method);
	case_close(&c);
}

void reuse_test_all(const struct backend *b, mixed_read_fn *read)
{
	test_oracle(b, read);
	test_others(b, read);
	refused(b, &(struct case_how){ .method = "dense/decode=oracle,reuse=2" },
		"method 'dense/decode=oracle,reuse=2': layers take the lists of others, so it "
		"needs all layers of model 'small'; leave out --sample-layers");
	refused(b, &(struct case_how){ .method = "dense/decode=oracle,reselect=1", .every = true },
		"method 'dense/decode=oracle,reselect=1': layer 0 takes lists, but no layer before "
		"it chooses: add 0 to reselect, or dense-layers=1");
}
