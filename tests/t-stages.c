/* SPDX-License-Identifier: Apache-2.0 */
/* Pipeline stages: splits of layers, batches that go from stage to stage, and a replay. */
#include "config.h"
#include "replay/engine/stages.h"

#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "replay/cost/backend_cost.h"
#include "replay/engine/replay.h"
#include "tests/alloc_fault.h"
#include "tests/tap.h"

#define MS 1000000

enum { BATCHES = 200, REQUESTS = 100 };

static void test_splits(void)
{
	static const struct {
		int layers, n;
		const char *want;
	} splits[] = { { 32, 3, "11 11 10" },
		       { 61, 4, "15 15 16 15" },
		       { 80, 8, "10 10 10 10 10 10 10 10" },
		       { 5, 2, "3 2" },
		       { 7, 4, "2 2 2 1" },
		       { 4, 1, "4" } };
	struct ar_err err;
	struct stages s;
	static const char *const bad[] = { "",		"11,11",   "11,11,9", "11,11,10,",
					   "11,11,5,5", "11,x,10", "32,0,0",  "11;11;10" };

	for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
		char text[64] = "";

		stages_split(&s, splits[i].layers, splits[i].n);
		for (int k = 0; k < s.n; k++)
			snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d",
				 k ? " " : "", s.layers[k]);
		is_str(text, splits[i].want, "%d layers on %d stages", splits[i].layers,
		       splits[i].n);
	}
	ok(!stages_read(&s, "10,12,10", 32, 3, &err) && s.n == 3 && s.layers[1] == 12,
	   "a list is read");
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		is_int(stages_read(&s, bad[i], 32, 3, &err), AR_USAGE, "'%s' is refused", bad[i]);
	is_str(err.msg,
	       "pp-layers '11;11;10': want the layers of each of 3 stages, 32 in all, such as "
	       "11,11,10",
	       "... with a message");
}

/* The same by steps of a nanosecond: each stage takes the next batch that has come, when it is
 * free. */
static void simulate(const struct stages *s, const int64_t at[BATCHES], const int64_t cost[BATCHES],
		     int64_t send, int64_t end[BATCHES])
{
	int next[STAGES_MOST] = { 0 };
	int64_t until[STAGES_MOST] = { 0 }; /* when the batch that it runs ends */
	int64_t come[STAGES_MOST][BATCHES];

	for (int i = 0; i < STAGES_MOST; i++)
		for (int b = 0; b < BATCHES; b++)
			come[i][b] = i ? INT64_MAX : at[b];
	for (int64_t now = 0; next[s->n - 1] < BATCHES; now++)
		for (int i = 0; i < s->n; i++) {
			const int b = next[i];

			if (b == BATCHES || until[i] > now || come[i][b] > now)
				continue;
			until[i] = now + cost[b] * s->layers[i] / s->n_layers;
			next[i]++;
			if (i == s->n - 1)
				end[b] = until[i];
			else
				come[i + 1][b] = until[i] + send;
		}
}

static void test_recurrence(void)
{
	const struct comm comm = { .ranks = 1, .ring = { 1, 3, 0 }, .gbps = 1 };
	struct batch b = { .decode_tok = 2 };
	struct rng r = { 5 };

	for (int n = 1; n <= 5; n++) {
		struct stages s = { .comm = n % 2 ? &comm : NULL, .row_bytes = 4 };
		int64_t at[BATCHES], cost[BATCHES], want[BATCHES], end[STAGES_MOST] = { 0 };
		int wrong = 0;

		stages_split(&s, 7, n);
		for (int i = 0; i < BATCHES; i++) {
			at[i] = (i ? at[i - 1] : 0) + (int64_t)rng_below(&r, 60);
			cost[i] = 7 * (1 + (int64_t)rng_below(&r, 20));
		}
		simulate(&s, at, cost, s.comm ? 3 + 8 : 0, want);
		for (int i = 0; i < BATCHES; i++) {
			stages_run(&s, &b, at[i], cost[i], 0, end);
			wrong += end[n - 1] != want[i];
		}
		is_int(wrong, 0, "%d stages: batches end as in a simulation by steps", n);
	}
}

static void test_head(void)
{
	const struct comm comm = { .ranks = 2, .ring = { 1, 3, 0 }, .gbps = 1 };
	struct batch b = { .decode_tok = 1 };
	struct stages s = { 0 };
	int64_t end[2] = { 4, 0 };

	stages_split(&s, 4, 2);
	is_int(stages_run(&s, &b, 1, 100, 20, end), 4, "a batch waits for the one before");
	ok(end[0] == 44 && end[1] == 104, "the last stage has the head");
	s.comm = &comm;
	s.row_bytes = 6;
	end[0] = end[1] = 0;
	stages_run(&s, &b, 0, 100, 0, end);
	is_int(end[1], 100 + 2 * 3 + 6 + 6, "ranks send a half each, and gather both");
}

/* ---- replays ---- */

struct seen {
	int64_t finish_ns[REQUESTS];
	int64_t n, ok;
};

static enum ar_status see_iteration(void *self, const struct observed_iteration *it,
				    struct ar_err *err)
{
	(void)it, (void)err;
	((struct seen *)self)->n++;
	return AR_OK;
}

static enum ar_status see_request(void *self, const struct observed_request *q, struct ar_err *err)
{
	(void)err;
	((struct seen *)self)->finish_ns[q->id] = q->finish_ns;
	((struct seen *)self)->ok += !strcmp(q->outcome, "ok");
	return AR_OK;
}

/* Replay: each iteration takes 10 ms, and half of it in each of two stages. */
static enum ar_status replay(const struct trace *t, int stages, int64_t blocks, struct seen *s,
			     struct ar_err *err)
{
	const struct cost_options opts = { .formula = { 10 * MS, 0 } };
	const struct backend_env env = { 0 };
	const struct observer see = { .self = s,
				      .iteration = see_iteration,
				      .request = see_request };
	struct replay cfg = { .trace = t,
			      .backend = &backend_cost,
			      .observer = &see,
			      .limits = { .policy = policy_find("vllm-0.33"),
					  .max_batched_tok = 64,
					  .max_seqs = 8,
					  .block_tok = 4,
					  .num_blocks = blocks } };
	struct replay_result res = { 0 };
	enum ar_status st = backend_open(&backend_cost, &cfg.self, &opts, &env, err);

	*s = (struct seen){ 0 };
	if (stages)
		stages_split(&cfg.stages, 4, stages);
	if (!st)
		st = replay_run(&cfg, &res, err);
	replay_result_release(&res);
	backend_close(&backend_cost, cfg.self);
	return st;
}

static void test_by_hand(void)
{
	struct request req[3] = {
		{ .prompt_tok = 64, .output_tok = 2, .session = -1 },
		{ .prompt_tok = 64, .output_tok = 2, .session = -1 },
		{ .arrival_ns = MS, .prompt_tok = 4, .output_tok = 1, .session = -1 }
	};
	const struct trace t = { .req = req, .n = 3, .name = (char[]){ "by hand" } };
	struct seen s;

	/* Prompts 0-5-10 and 5-10-15; the queue is full until 10.  Then the first decodes beside
	 * the third's prompt, 10-15-20; at 15 the second decodes, 15-20-25. */
	is_int(replay(&t, 2, 200, &s, NULL), AR_OK, "two stages");
	ok(s.finish_ns[0] == 20 * MS && s.finish_ns[1] == 25 * MS && s.finish_ns[2] == 20 * MS,
	   "two batches are in flight, and requests in one are not in the other");
	is_int(s.n, 4, "... four batches");
}

static void test_random(int64_t blocks)
{
	struct request req[REQUESTS];
	const struct trace t = { .req = req, .n = REQUESTS, .name = (char[]){ "drawn" } };
	struct rng r = { 3 };
	struct seen none, one, four;
	int64_t at = 0;

	for (int i = 0; i < REQUESTS; i++) {
		at += (int64_t)rng_below(&r, 20 * MS);
		req[i] = (struct request){ .arrival_ns = at,
					   .prompt_tok = 1 + (uint32_t)rng_below(&r, 90),
					   .output_tok = 1 + (uint32_t)rng_below(&r, 20),
					   .session = -1 };
	}
	is_int(replay(&t, 0, blocks, &none, NULL), AR_OK, "%d blocks", (int)blocks);
	is_int(replay(&t, 1, blocks, &one, NULL), AR_OK, "... one stage");
	ok(!memcmp(&none, &one, sizeof one), "... is as without");
	is_int(replay(&t, 4, blocks, &four, NULL), AR_OK, "... four stages");
	is_int(four.ok, REQUESTS, "... end all requests");
}

static void test_faults(void)
{
	struct request req[2] = { { .prompt_tok = 4, .output_tok = 2, .session = -1 },
				  { .prompt_tok = 4, .output_tok = 2, .session = -1 } };
	const struct trace t = { .req = req, .n = 2, .name = (char[]){ "faults" } };
	struct seen s;
	struct ar_err err;
	enum ar_status st;
	bool fired;
	long k = 0, bad = 0;

	do {
		fault_arm(k++);
		st = replay(&t, 3, 200, &s, &err);
		fired = fault_disarm();
		bad += fired && st != AR_NOMEM;
	} while (fired);
	ok(!bad && !st && k > 10, "each of %ld allocations can fail", k - 1);
}

int main(void)
{
	plan(0);
	test_splits();
	test_recurrence();
	test_head();
	test_by_hand();
	test_random(200);
	test_random(40);
	test_faults();
	return done_testing();
}
