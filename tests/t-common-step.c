/* SPDX-License-Identifier: Apache-2.0 */
/* Engines that share the experts of their layers: their iterations are steps of all. */
#include "config.h"
#include "replay/cost/backend_cost.h"
#include "replay/engine/replay.h"

#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "tests/tap.h"

#define MS 1000000

enum { MOST = 4096, REQUESTS = 200 };

/* What an observer saw: iterations, and ends of requests. */
struct seen {
	struct {
		int64_t replica, start_ns, end_ns, rows, step_rows, largest;
	} it[MOST];
	size_t n;
	int64_t finish_ns[REQUESTS];
};

static enum ar_status see_iteration(void *self, const struct observed_iteration *it,
				    struct ar_err *err)
{
	const struct batch *b = &it->sched->batch;
	struct seen *s = self;

	(void)err;
	if (!b->n)
		return AR_OK;
	if (s->n == MOST)
		bail_out("too many iterations");
	s->it[s->n].replica = it->replica;
	s->it[s->n].start_ns = it->start_ns;
	s->it[s->n].end_ns = it->end_ns;
	s->it[s->n].rows = batch_rows(b);
	s->it[s->n].step_rows = b->step.rows;
	s->it[s->n++].largest = b->step.largest;
	return AR_OK;
}

static enum ar_status see_request(void *self, const struct observed_request *q, struct ar_err *err)
{
	(void)err;
	((struct seen *)self)->finish_ns[q->id] = q->finish_ns;
	return AR_OK;
}

static struct replay plain(int64_t replicas, bool share)
{
	struct replay cfg = { .share_experts = share,
			      .limits = { .policy = policy_find("vllm-0.33"),
					  .max_batched_tok = 64,
					  .max_seqs = 8,
					  .block_tok = 4,
					  .num_blocks = 200 } };

	for (int i = 0; request_routers[i]; i++)
		if (!strcmp(request_routers[i]->name, "round-robin"))
			cfg.route = (struct router_rule){ request_routers[i], replicas, 0, 1 };
	return cfg;
}

/* Replay: an iteration takes 10 ms, and 1 ms for each token. */
static enum ar_status replay(const struct trace *t, const struct replay *like, struct seen *s,
			     struct ar_err *err)
{
	const struct cost_options opts = { .formula = { 10 * MS, MS } };
	const struct backend_env env = { 0 };
	const struct observer see = { s, see_iteration, see_request, NULL, NULL };
	struct replay cfg = *like;
	struct replay_result res = { 0 };
	enum ar_status st = backend_open(&backend_cost, &cfg.self, &opts, &env, err);

	memset(s, 0, sizeof *s);
	cfg.trace = t;
	cfg.backend = &backend_cost;
	cfg.observer = &see;
	if (!st)
		st = replay_run(&cfg, &res, err);
	replay_result_release(&res);
	backend_close(&backend_cost, cfg.self);
	return st;
}

/* ---- by hand ---- */

struct by_hand {
	const char *what;
	bool share;
	struct {
		int64_t ms;
		uint32_t prompt, out;
	} req[4];			   /* in turn to two replicas */
	const char *finish_ms, *starts_ms; /* of requests, and of iterations with their rows */
};

static const struct by_hand by_hand[] = {
	{ "engines alone do not wait",
	  false,
	  { { 0, 4, 2 }, { 5, 20, 1 } },
	  "25 35",
	  "0:4 5:20 14:1" },
	/* 14, then a decode beside 20 rows: 30 */
	{ "a request waits for the step of the others, and then they wait for it",
	  true,
	  { { 0, 4, 2 }, { 5, 20, 1 } },
	  "44 44",
	  "0:4 14:1 14:20" },
	{ "an engine without work costs nothing",
	  true,
	  { { 0, 4, 3 }, { 100, 4, 1 } },
	  "36 114",
	  "0:4 14:1 25:1 100:4" },
	{ "requests at one time share a step",
	  true,
	  { { 0, 1, 1 }, { 0, 9, 1 }, { 0, 2, 1 } },
	  "19 19 19",
	  "0:3 0:9" },
	{ "a request that comes when a step ends is in the next one",
	  true,
	  { { 0, 4, 2 }, { 14, 4, 1 } },
	  "28 28",
	  "0:4 14:1 14:4" },
	{ 0 }
};

static void test_by_hand(const struct by_hand *h)
{
	const struct replay cfg = plain(2, h->share);
	struct request req[4] = { { 0 } };
	struct trace t = { .req = req, .name = (char[]){ "by hand" } };
	static struct seen s;
	char finish[128] = "", starts[256] = "";

	for (; t.n < 4 && h->req[t.n].out; t.n++)
		req[t.n] = (struct request){ .arrival_ns = h->req[t.n].ms * MS,
					     .prompt_tok = h->req[t.n].prompt,
					     .output_tok = h->req[t.n].out,
					     .session = -1 };
	is_int(replay(&t, &cfg, &s, NULL), AR_OK, "%s", h->what);
	for (size_t i = 0; i < t.n; i++)
		snprintf(finish + strlen(finish), sizeof finish - strlen(finish), "%s%lld",
			 i ? " " : "", (long long)(s.finish_ns[i] / MS));
	for (size_t i = 0; i < s.n; i++)
		snprintf(starts + strlen(starts), sizeof starts - strlen(starts), "%s%lld:%lld",
			 i ? " " : "", (long long)(s.it[i].start_ns / MS), (long long)s.it[i].rows);
	is_str(finish, h->finish_ms, "... until when, in ms");
	is_str(starts, h->starts_ms, "... in which iterations");
}

static void test_rows(void)
{
	struct replay cfg = plain(3, true);
	struct request req[2] = { { .prompt_tok = 4, .output_tok = 1, .session = -1 },
				  { .prompt_tok = 9, .output_tok = 1, .session = -1 } };
	const struct trace t = { .req = req, .n = 2, .name = (char[]){ "by hand" } };
	static struct seen s;

	is_int(replay(&t, &cfg, &s, NULL), AR_OK, "two of three engines have work");
	is_int(s.it[0].step_rows, 4 + 9 + 1, "... the third has a row that nobody needs");
	is_int(s.it[0].largest, 9, "... and the largest is known");
	cfg.share_experts = false;
	is_int(replay(&t, &cfg, &s, NULL), AR_OK, "engines that share none");
	is_int(s.it[0].step_rows, 0, "... have no step");
}

/* ---- random traces ---- */

static void draw(struct request *req, size_t n, uint64_t seed)
{
	struct rng r = { seed };
	int64_t at = 0;

	for (size_t i = 0; i < n; i++) {
		at += (int64_t)rng_below(&r, 2) * (int64_t)rng_below(&r, 60 * MS);
		req[i] = (struct request){ .arrival_ns = at,
					   .prompt_tok = 1 + (uint32_t)rng_below(&r, 90),
					   .output_tok = 1 + (uint32_t)rng_below(&r, 20),
					   .session = -1 };
	}
}

/* Iterations that overlap begin and end together; no engine has two of them. */
static void test_steps(bool async, int64_t host_ns, int64_t blocks)
{
	struct replay cfg = plain(4, true);
	struct request req[REQUESTS];
	const struct trace t = { .req = req, .n = REQUESTS, .name = (char[]){ "drawn" } };
	static struct seen s;
	int64_t apart = 0, shared = 0, unfinished = 0;

	draw(req, REQUESTS, 7);
	cfg.limits.async = async;
	cfg.limits.num_blocks = blocks;
	cfg.host.ns[HOST_SCHEDULE_REQ] = cfg.host.ns[HOST_UPDATE] = host_ns;
	is_int(replay(&t, &cfg, &s, NULL), AR_OK, "steps: async %d, host %d, %d blocks", async,
	       (int)host_ns, (int)blocks);
	for (size_t i = 0; i < s.n; i++)
		for (size_t k = i + 1; k < s.n; k++) {
			const bool same = s.it[i].end_ns == s.it[k].end_ns;

			apart += !same && s.it[i].start_ns < s.it[k].end_ns - host_ns &&
				 s.it[k].start_ns < s.it[i].end_ns - host_ns;
			apart += same && s.it[i].replica == s.it[k].replica;
			shared += same;
		}
	for (int i = 0; i < REQUESTS; i++)
		unfinished += s.finish_ns[i] < 0;
	is_int(apart, 0, "... iterations at one time end together");
	ok(shared > 200, "... as %d pairs do", (int)shared);
	is_int(unfinished, 0, "... and all requests end");
}

/* One engine with all requests is not changed by others without work. */
static void test_lone(bool async)
{
	struct replay one = plain(1, false), share = plain(3, true);
	struct request req[REQUESTS];
	const struct trace t = { .req = req, .n = REQUESTS, .name = (char[]){ "drawn" } };
	static struct seen a, b;

	draw(req, REQUESTS, 9);
	one.limits.async = share.limits.async = async;
	is_int(replay(&t, &one, &a, NULL), AR_OK, "one engine, async %d", async);
	for (int i = 0; i < REQUESTS; i++)
		req[i].replica = 2;
	is_int(replay(&t, &share, &b, NULL), AR_OK, "... and two more, without work");
	ok(!memcmp(a.finish_ns, b.finish_ns, sizeof a.finish_ns) && a.n == b.n,
	   "... whose requests end at the same times");
}

int main(void)
{
	plan(0);
	for (const struct by_hand *h = by_hand; h->what; h++)
		test_by_hand(h);
	test_rows();
	test_steps(false, 0, 200);
	test_steps(false, MS / 10, 200);
	test_steps(true, 0, 200);
	test_steps(true, MS / 10, 60);
	test_lone(false);
	test_lone(true);
	return done_testing();
}
