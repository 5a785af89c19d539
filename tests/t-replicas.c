/* SPDX-License-Identifier: Apache-2.0 */
/* Replicas and their routers: traces made by hand; random ones beside engines that run alone. */
#include "config.h"
#include "replay/cost/backend_cost.h"
#include "replay/engine/replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tests/alloc_fault.h"
#include "tests/tap.h"

#define MS 1000000

enum { MOST = 200 };

/* What an observer saw. */
struct seen {
	/* by request */
	int64_t replica[MOST], prefill[MOST], kv_ns[MOST], first_ns[MOST], finish_ns[MOST];
	int64_t n_request, n_ok;
	/* by replica: the start of its last iteration, and the number after that */
	int64_t last_ns[ROUTER_MOST], next_no[ROUTER_MOST];
	int64_t n_iteration, backwards;
};

static enum ar_status see_iteration(void *self, const struct observed_iteration *it,
				    struct ar_err *err)
{
	struct seen *s = self;
	const int64_t r = it->replica < 0 ? 0 : it->replica;

	(void)err;
	s->backwards += it->start_ns < s->last_ns[r] || it->no < s->next_no[r] ||
			(it->replica < 0 && it->no != s->n_iteration) ||
			(it->no % 256 && it->no != s->next_no[r]);
	s->last_ns[r] = it->start_ns;
	s->next_no[r] = it->no + 1;
	s->n_iteration++;
	return AR_OK;
}

static enum ar_status see_request(void *self, const struct observed_request *q, struct ar_err *err)
{
	struct seen *s = self;

	(void)err;
	s->replica[q->id] = q->replica;
	s->prefill[q->id] = q->prefill_replica;
	s->kv_ns[q->id] = q->kv_end_ns;
	s->first_ns[q->id] = q->first_token_ns;
	s->finish_ns[q->id] = q->finish_ns;
	s->n_request++;
	s->n_ok += !strcmp(q->outcome, "ok");
	return AR_OK;
}

static const struct request_router *router_named(const char *name)
{
	for (int i = 0; request_routers[i]; i++)
		if (!strcmp(request_routers[i]->name, name))
			return request_routers[i];
	bail_out("no router %s", name);
}

/* Replay: each iteration takes 10 ms. */
static enum ar_status replay(const struct trace *t, const struct router_rule *rule,
			     const struct replay *like, struct seen *s, struct replay_result *res,
			     struct ar_err *err)
{
	const struct cost_options opts = { .formula = { 10 * MS, 0 } };
	const struct backend_env env = { 0 };
	const struct observer see = { s, see_iteration, see_request, NULL, NULL };
	struct replay cfg = *like;
	enum ar_status st = backend_open(&backend_cost, &cfg.self, &opts, &env, err);

	*s = (struct seen){ 0 };
	*res = (struct replay_result){ 0 };
	cfg.trace = t;
	cfg.route = *rule;
	cfg.backend = &backend_cost;
	cfg.observer = &see;
	if (!st)
		st = replay_run(&cfg, res, err);
	backend_close(&backend_cost, cfg.self);
	return st;
}

static struct replay plain(void)
{
	return (struct replay){ .limits = { .policy = policy_find("vllm-0.16"),
					    .max_batched_tok = 64,
					    .max_seqs = 8,
					    .block_tok = 4,
					    .num_blocks = 200 } };
}

/* ---- by hand ---- */

static char text[] = "by hand";

/* A request: arrival and pin (0: none), then its output, so it takes as many iterations. */
struct by_hand {
	const char *what, *router;
	int64_t stats_ms;
	struct {
		int64_t ms;
		uint32_t out, pin;
	} req[8];
	const char *to, *finish_ms; /* by request */
};

static const struct by_hand by_hand[] = {
	{ "round robin: in turn",
	  "round-robin",
	  0,
	  { { 0, 3, 0 }, { 0, 1, 0 }, { 11, 2, 0 }, { 12, 1, 0 } },
	  "0 1 0 1",
	  "30 10 40 22" },
	{ "least: a request that ends at an arrival counts",
	  "least",
	  0,
	  { { 0, 3, 0 }, { 0, 1, 0 }, { 10, 1, 0 } },
	  "0 1 0",
	  "30 10 20" },
	{ "least: ... and does not after it",
	  "least",
	  0,
	  { { 0, 3, 0 }, { 0, 1, 0 }, { 11, 2, 0 } },
	  "0 1 1",
	  "30 10 31" },
	{ "a pin wins over the router, which does not count it as routed",
	  "round-robin",
	  0,
	  { { 0, 1, 0 }, { 0, 1, 1 }, { 0, 1, 0 }, { 0, 1, 0 } },
	  "0 0 1 0",
	  "10 10 10 10" },
	{ "least: a pinned request counts",
	  "least",
	  0,
	  { { 0, 9, 1 }, { 1, 9, 0 }, { 2, 1, 0 } },
	  "0 1 0",
	  "90 91 20" },
	{ "vllm-4w: loads of the moment",
	  "vllm-4w",
	  0,
	  { { 0, 1, 0 }, { 1, 20, 0 }, { 50, 1, 0 }, { 60, 1, 0 }, { 61, 1, 0 }, { 100, 1, 0 } },
	  "0 1 0 0 0 0",
	  "10 201 60 70 80 110" },
	{ "vllm-4w: loads of 100 ms ago, and what was sent since then",
	  "vllm-4w",
	  100,
	  { { 0, 1, 0 }, { 1, 20, 0 }, { 50, 1, 0 }, { 60, 1, 0 }, { 61, 1, 0 }, { 100, 1, 0 } },
	  "0 1 0 1 0 0",
	  "10 201 60 71 71 110" },
	{ "vllm: the start moves on",
	  "vllm",
	  0,
	  { { 0, 1, 0 }, { 20, 1, 0 }, { 40, 1, 0 } },
	  "0 1 0",
	  "10 30 50" },
	{ "vllm: unfinished requests are known at once",
	  "vllm",
	  100,
	  { { 0, 9, 0 }, { 20, 1, 0 }, { 40, 1, 0 }, { 60, 1, 0 } },
	  "0 1 0 1",
	  "90 30 50 70" },
	{ "prefix: without blocks, the fewest tokens",
	  "prefix",
	  0,
	  { { 0, 1, 0 }, { 0, 1, 0 }, { 50, 1, 0 }, { 50, 1, 0 } },
	  "0 1 0 1",
	  "10 10 60 60" },
	{ 0 }
};

static void test_by_hand(const struct by_hand *h)
{
	const struct router_rule rule = { router_named(h->router), 2, h->stats_ms * MS, 1 };
	const struct replay cfg = plain();
	struct request req[8] = { { 0 } };
	struct trace t = { .req = req, .name = text };
	struct replay_result res;
	struct seen s;
	char to[64] = "", finish[128] = "";

	for (; h->req[t.n].out; t.n++)
		req[t.n] = (struct request){ .arrival_ns = h->req[t.n].ms * MS,
					     .prompt_tok = 4,
					     .output_tok = h->req[t.n].out,
					     .session = -1,
					     .replica = h->req[t.n].pin };
	is_int(replay(&t, &rule, &cfg, &s, &res, NULL), AR_OK, "%s", h->what);
	for (size_t i = 0; i < t.n; i++) {
		const char *sep = i ? " " : "";

		snprintf(to + strlen(to), sizeof to - strlen(to), "%s%lld", sep,
			 (long long)s.replica[i]);
		snprintf(finish + strlen(finish), sizeof finish - strlen(finish), "%s%lld", sep,
			 (long long)(s.finish_ns[i] / MS));
	}
	is_str(to, h->to, "... who runs what");
	is_str(finish, h->finish_ms, "... until when, in ms");
	replay_result_release(&res);
}

/* ---- prefill and decodes apart ---- */

/* A block of KV, 4 tokens, takes 5 ms of latency and 10 ms of its link. */
struct apart {
	const char *what;
	int64_t prefill, decode, usable; /* usable: blocks of each pool */
	struct {
		int64_t ms;
		uint32_t prompt, out;
	} req[4];
	const char
		*ends; /* of each: replicas, first token, end of the transfer and finish, in ms */
};

static const struct apart aparts[] = {
	{ "a token, a transfer, decodes", 1, 1, 90, { { 0, 4, 3 } }, "0>1 10 25 45" },
	{ "one token needs no transfer", 1, 1, 90, { { 0, 4, 1 } }, "-1>0 10 -1 10" },
	/* The second joins the iteration after 40 ms, that of 45. */
	{ "a link has one transfer at a time",
	  1,
	  1,
	  90,
	  { { 0, 4, 3 }, { 0, 4, 3 } },
	  "0>1 10 25 45, 0>1 10 40 65" },
	{ "each pair of replicas has a link",
	  1,
	  2,
	  90,
	  { { 0, 4, 3 }, { 0, 4, 3 } },
	  "0>1 10 25 45, 0>2 10 25 45" },
	{ "two prefill replicas have two",
	  2,
	  1,
	  90,
	  { { 0, 4, 3 }, { 0, 4, 3 } },
	  "0>2 10 25 45, 1>2 10 25 45" },
	{ "longer prompts have more blocks", 1, 1, 90, { { 0, 9, 2 } }, "0>1 10 45 55" },
	/* Two of three blocks are taken until 45, so the second has no place before.  The prefill
	 * pool has its block until 60; then the third finds three. */
	{ "a transfer waits for a place, and both pools hold the blocks",
	  1,
	  1,
	  3,
	  { { 0, 4, 3 }, { 0, 4, 3 }, { 50, 12, 1 } },
	  "0>1 10 25 45, 0>1 10 60 80, -1>0 70 -1 70" },
	{ 0 }
};

static int64_t to_ms(int64_t ns)
{
	return ns < 0 ? -1 : ns / MS;
}

static void test_apart(const struct apart *a)
{
	const struct router_rule rule = { router_named("round-robin"), 1, 0, 1 };
	struct replay cfg = plain();
	struct request req[4] = { { 0 } };
	struct trace t = { .req = req, .name = text };
	struct replay_result res;
	struct seen s;
	char ends[256] = "";

	cfg.apart = (struct replay_apart){ a->prefill, a->decode, 1e5, 5 * MS, 1000 };
	cfg.limits.num_blocks = a->usable + 1;
	for (; t.n < 4 && a->req[t.n].out; t.n++)
		req[t.n] = (struct request){ .arrival_ns = a->req[t.n].ms * MS,
					     .prompt_tok = a->req[t.n].prompt,
					     .output_tok = a->req[t.n].out,
					     .session = -1 };
	is_int(replay(&t, &rule, &cfg, &s, &res, NULL), AR_OK, "%s", a->what);
	for (size_t i = 0; i < t.n; i++)
		snprintf(ends + strlen(ends), sizeof ends - strlen(ends),
			 "%s%lld>%lld %lld %lld %lld", i ? ", " : "", (long long)s.prefill[i],
			 (long long)s.replica[i], (long long)to_ms(s.first_ns[i]),
			 (long long)to_ms(s.kv_ns[i]), (long long)to_ms(s.finish_ns[i]));
	is_str(ends, a->ends, "... by hand");
	replay_result_release(&res);
}

/* ---- rules alone ---- */

static void test_rules(void)
{
	static const struct trace none = { .name = text };
	const struct router_rule rule = { router_named("vllm"), 3, 0, 1 };
	const struct router_rule drawn = { router_named("random"), 4, 0, 7 };
	const struct router_rule other = { router_named("random"), 4, 0, 8 };
	struct routing r, q;
	int n[4] = { 0 }, same = 0, order = 0;

	if (routing_open(&r, &rule, &none, NULL))
		bail_out("no memory");
	r.load[0] =
		(struct router_load){ .unfinished = 2, .waiting = 1, .running = 1, .kv_use = 0.9 };
	r.load[1] = (struct router_load){ .unfinished = 4, .running = 3, .kv_use = 0.9 };
	r.load[2] = (struct router_load){ .unfinished = 5 };
	is_int((int64_t)routing_choose(&r, 0), 1,
	       "vllm: a queue counts more where KV blocks are short: 4.4, 4 and 5");
	is_int(r.load[1].waiting, 1, "... and the request counts as one that waits");
	is_int((int64_t)routing_choose(&r, 1), 0,
	       "... so that the next one goes elsewhere: 4.4, 6.4");
	routing_release(&r);

	if (routing_open(&r, &drawn, &none, NULL) || routing_open(&q, &other, &none, NULL))
		bail_out("no memory");
	for (uint32_t i = 0; i < 4000; i++) {
		const size_t to = routing_choose(&r, i);

		n[to]++;
		same += to == routing_choose(&q, i);
		order += to != routing_choose(&r, i);
	}
	/* 4 sigma of 4000 draws of one in four are 110. */
	for (int i = 0; i < 4; i++)
		ok(abs(n[i] - 1000) < 110, "random: replica %d gets its share", i);
	ok(abs(same - 1000) < 110, "... another seed draws others");
	is_int(order, 0, "... and a request has one draw, whatever came before");
	routing_release(&r);
	routing_release(&q);
}

/* Requests of four blocks of 4 tokens, by the ids of their blocks, which can be far apart; the last
 * request has none. */
static void test_prefix(void)
{
	static const uint64_t id[4][4] = {
		{ 0, 1, 2, 3 }, { 0, 1, 4, 5 }, { 6, 7, 8, 9 }, { 0, 10, 11, 12 }
	};
	const uint64_t far = 1000000000007;
	struct request req[5];
	struct trace t = { .req = req, .n = 5, .block_tok = 4, .name = text };
	const struct router_rule rule = { router_named("prefix"), 3, 0, 1 };
	struct routing r;

	for (int i = 0; i < 5; i++) {
		req[i] = (struct request){ .prompt_tok = i < 4 ? 16 : 100, .run = t.n_run };
		for (int k = 0; k < 4 && i < 4; k++)
			if (!trace_put_block(&t, &req[i], far * id[i][k]))
				bail_out("no memory");
	}
	if (routing_open(&r, &rule, &t, NULL))
		bail_out("no memory");
	is_int((int64_t)routing_choose(&r, 0), 0, "prefix: nobody knows it: the smallest tree");
	is_int((int64_t)routing_choose(&r, 1), 0, "... half of a prompt is known");
	is_int((int64_t)routing_choose(&r, 2), 1, "... none of it");
	is_int((int64_t)routing_choose(&r, 3), 2, "... a quarter, which is not enough");
	ok(r.tree_tok[0] == 24 && r.tree_tok[1] == 16 && r.tree_tok[2] == 16,
	   "... a tree has each prefix once");
	is_int((int64_t)routing_choose(&r, 4), 1, "a prompt without blocks is known to nobody");
	is_int(r.tree_tok[1], 116, "... and makes the tree larger");
	r.load[0].unfinished = 66;
	r.load[1].unfinished = 2;
	r.load[2].unfinished = 3;
	is_int((int64_t)routing_choose(&r, 0), 0, "64 requests more than another are not too many");
	r.load[0].unfinished = 67;
	is_int((int64_t)routing_choose(&r, 0), 1, "65 are: the fewest requests decide");
	r.load[0].unfinished = 300;
	r.load[1].unfinished = 220;
	r.load[2].unfinished = 201;
	is_int((int64_t)routing_choose(&r, 1), 0, "... unless they are at most 1.5 times as many");
	routing_release(&r);
	free(t.run);
}

/* ---- beside engines that run alone ---- */

static void draw_trace(struct trace *t, struct request *req, size_t n, uint64_t seed)
{
	struct rng g = { seed };
	int64_t at = 0;

	*t = (struct trace){ .req = req, .n = n, .name = text };
	for (size_t i = 0; i < n; i++) {
		at += (int64_t)(rng_unit(&g) * 8 * MS);
		req[i] = (struct request){ .arrival_ns = at,
					   .prompt_tok = 1 + (uint32_t)(rng_unit(&g) * 90),
					   .output_tok = 1 + (uint32_t)(rng_unit(&g) * 12),
					   .session = -1 };
	}
}

/* Requests of replica r that end otherwise in an engine of their own. */
static int64_t differ_alone(const struct trace *t, const struct replay *cfg, const struct seen *s,
			    int64_t r)
{
	const struct router_rule one = { 0 };
	struct request req[MOST];
	struct trace part = { .req = req, .name = text };
	struct replay_result res;
	struct seen alone;
	int64_t bad = 0;
	size_t k = 0;

	for (size_t i = 0; i < t->n; i++)
		if (s->replica[i] == r)
			req[part.n++] = t->req[i];
	if (replay(&part, &one, cfg, &alone, &res, NULL))
		return -1;
	for (size_t i = 0; i < t->n; i++)
		if (s->replica[i] == r) {
			bad += alone.first_ns[k] != s->first_ns[i] ||
			       alone.finish_ns[k] != s->finish_ns[i];
			k++;
		}
	replay_result_release(&res);
	return bad;
}

static void test_alone(const struct request_router *router, const struct replay *cfg, int64_t n,
		       const char *what)
{
	const struct router_rule rule = { router, n, 100 * MS, 3 };
	int64_t bad = 0, lost = 0;
	const int times = rounds(8);

	for (int k = 0; k < times; k++) {
		struct request req[MOST];
		struct trace t;
		struct replay_result res;
		struct seen s;

		draw_trace(&t, req, MOST, (uint64_t)k + 1);
		if (replay(&t, &rule, cfg, &s, &res, NULL))
			bail_out("the replay fails");
		lost += s.n_ok != MOST || s.n_request != MOST || res.ok != MOST || s.backwards ||
			s.n_iteration != res.iterations;
		for (int64_t r = 0; r < n; r++)
			bad += differ_alone(&t, cfg, &s, r);
		replay_result_release(&res);
	}
	is_int(lost, 0, "%s, %lld replicas, %s: no request is lost", router->name, (long long)n,
	       what);
	is_int(bad, 0, "... each ends as in an engine that has its replica's requests alone");
}

static int64_t blocks_ns(const struct request *q)
{
	return (q->prompt_tok + 3) / 4 * 10 * MS / 10 + 5 * MS / 10; /* a link ten times as fast */
}

/* Transfers that begin before their token, overlap on a link, or end after the request. */
static int64_t bad_transfers(const struct trace *t, const struct seen *s)
{
	int64_t bad = 0;

	for (size_t i = 0; i < t->n; i++) {
		const int64_t begin = s->kv_ns[i] - blocks_ns(&t->req[i]);

		if (t->req[i].output_tok == 1) {
			bad += s->kv_ns[i] != -1 || s->prefill[i] != -1 || s->replica[i] > 1;
			continue;
		}
		bad += begin < s->first_ns[i] || s->finish_ns[i] <= s->kv_ns[i] ||
		       s->replica[i] < 2 || s->prefill[i] > 1;
		for (size_t k = 0; k < t->n; k++)
			bad += k != i && s->prefill[k] == s->prefill[i] &&
			       s->replica[k] == s->replica[i] && s->kv_ns[k] > begin &&
			       s->kv_ns[k] <= s->kv_ns[i];
	}
	return bad;
}

static void test_apart_random(const char *router, bool async, bool cache)
{
	const struct router_rule rule = { router_named(router), 1, 20 * MS, 1 };
	struct replay cfg = plain();
	struct request req[MOST];
	struct trace t;
	struct replay_result res;
	struct seen s;

	cfg.apart = (struct replay_apart){ 2, 2, 1e6, MS / 2, 1000 };
	cfg.limits.policy = policy_find("vllm-0.33");
	cfg.limits.num_blocks = 45;
	cfg.limits.async = async;
	cfg.limits.prefix_cache = cache;
	draw_trace(&t, req, MOST, 5);
	is_int(replay(&t, &rule, &cfg, &s, &res, NULL), AR_OK,
	       "apart, router %s, short pools%s%s: the trace is replayed", router,
	       async ? ", planned ahead" : "", cache ? ", with a prefix cache" : "");
	ok(s.n_ok == MOST && s.n_request == MOST && !s.backwards, "... no request is lost");
	is_int(bad_transfers(&t, &s), 0, "... transfers follow each other on their links");
	replay_result_release(&res);
}

/* One replica is an engine without a router, in closed loops, too. */
static void test_one(void)
{
	const struct router_rule none = { 0 }, one = { router_named("vllm"), 1, 100 * MS, 1 };
	struct replay cfg = plain();
	struct request req[MOST];
	struct trace t;
	struct replay_result res;
	struct seen a, b;

	cfg.arrival = (struct arrival_rule){ .loop = LOOP_USERS, .users = 5 };
	draw_trace(&t, req, MOST, 9);
	if (replay(&t, &none, &cfg, &a, &res, NULL))
		bail_out("the replay fails");
	replay_result_release(&res);
	if (replay(&t, &one, &cfg, &b, &res, NULL))
		bail_out("the replay fails");
	replay_result_release(&res);
	ok(!memcmp(&a, &b, sizeof a), "one replica is one engine");
	ok(a.n_ok == MOST && a.replica[0] == -1, "... whose number nobody tells");
}

/* ---- ends ---- */

/* A policy that never runs request 1. */
static void compose_shyly(struct sched *s)
{
	if (s->wait_head != 1)
		policy_find("vllm-0.16")->compose(s);
}

static const struct policy shy = { .name = "shy",
				   .slots = sched_slots_computed,
				   .unfit = sched_unfit_pool,
				   .requeue = sched_requeue_first,
				   .compose = compose_shyly };

static void test_stuck(bool share)
{
	const struct router_rule two = { router_named("round-robin"), 2, 0, 1 };
	struct replay cfg = plain();
	struct request req[2] = { { .prompt_tok = 4, .output_tok = 2, .session = -1 },
				  { .prompt_tok = 4, .output_tok = 9, .session = -1 } };
	const struct trace t = { .req = req, .n = 2, .name = text };
	struct replay_result res;
	struct ar_err err = { 0 };
	struct seen s;

	cfg.limits.policy = &shy;
	cfg.share_experts = share;
	is_int(replay(&t, &two, &cfg, &s, &res, &err), AR_ENGINE,
	       "a replica that can run none of its requests fails%s",
	       share ? ", which shares experts" : "");
	ok(strstr(err.msg, "cannot schedule any of 1 requests"), "... and says so");
	ok(res.ok == 1 && res.unfinished == 1, "... when the others are done");
	replay_result_release(&res);
}

static void test_faults(struct replay_apart apart)
{
	const struct router_rule rule = { router_named("prefix"), 2, 0, 1 };
	struct replay cfg = plain();
	struct request req[20];
	struct trace t;
	struct replay_result res;
	struct ar_err err = { 0 };
	struct seen s;
	enum ar_status st;
	int64_t bad = 0;
	bool fired;
	long k = 0;

	cfg.apart = apart;
	draw_trace(&t, req, 20, 1);
	do {
		fault_arm(k++);
		st = replay(&t, &rule, &cfg, &s, &res, &err);
		fired = fault_disarm();
		bad += fired && (st != AR_NOMEM || !strstr(err.msg, "out of memory"));
		replay_result_release(&res);
	} while (fired);
	ok(!bad && !st && k > 20, "each of %ld allocations can fail", k - 1);
}

int main(void)
{
	struct replay cfg = plain();

	plan(0);
	for (const struct by_hand *h = by_hand; h->what; h++)
		test_by_hand(h);
	for (const struct apart *a = aparts; a->what; a++)
		test_apart(a);
	test_rules();
	test_prefix();
	for (int i = 0; request_routers[i]; i++) {
		test_alone(request_routers[i], &cfg, 3, "ample pools");
		test_alone(request_routers[i], &cfg, 70, "ample pools");
	}
	cfg.limits.async = true;
	cfg.limits.policy = policy_find("vllm-0.33");
	cfg.limits.num_blocks = 40;
	cfg.host.ns[HOST_RECEIVE] = 3 * MS;
	cfg.host.ns[HOST_ADMIT] = MS / 2;
	cfg.host.ns[HOST_DELIVER] = 2 * MS;
	for (int i = 0; request_routers[i]; i++)
		test_alone(request_routers[i], &cfg, 3, "short pools, planned ahead");
	test_one();
	test_stuck(false);
	test_stuck(true);
	for (int i = 0; i < 4; i++)
		test_apart_random(i & 1 ? "vllm" : "least", i & 1, i & 2);
	test_faults((struct replay_apart){ 0 });
	test_faults((struct replay_apart){ 2, 2, 1e6, MS, 1000 });
	return done_testing();
}
