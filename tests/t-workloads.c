/* SPDX-License-Identifier: Apache-2.0 */
/* Policies under random workloads: invariants of every iteration and of the end. */
#include "config.h"
#include "tests/policy-case.h"

#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "base/rng.h"
#include "tests/tap.h"

struct kind {
	const char *name;
	bool tight, cap, cache;
	const char *policy;
	int order, chunks;
	bool async;
};

/* Is p the policy, or a variant of it? */
static bool is_a(const struct policy *p, const char *name)
{
	return !strncmp(p->name, name, strlen(name));
}

/* Prompts in blocks of 8 that often begin alike. */
static void random_blocks(struct trace *t, struct rng *r)
{
	for (size_t i = 0; i < t->n; i++) {
		uint64_t id = 0;

		t->req[i].run = t->n_run;
		for (uint32_t k = 0; k < (t->req[i].prompt_tok + 7) / 8; k++)
			trace_put_block(t, &t->req[i], id = rng_mix(id + rng_below(r, 5) / 4));
	}
	t->block_tok = 8;
}

static void random_trace(struct trace *t, struct request *req, struct block_run *run, struct rng *r)
{
	int64_t now = 0;

	t->req = req;
	t->run = run;
	t->cap_run = (size_t)60 * 12;
	t->n = 1 + rng_below(r, 60);
	t->name = (char *)(uintptr_t) "random";
	for (size_t i = 0; i < t->n; i++) {
		now += (int64_t)rng_below(r, 3 * MS) * (int64_t)rng_below(r, 2);
		req[i] = (struct request){ .arrival_ns = now + (int64_t)i, /* no two are equal */
					   .prompt_tok = 1 + (uint32_t)rng_below(r, 90),
					   .output_tok = 1 + (uint32_t)rng_below(r, 40),
					   .line = i + 1 };
	}
	for (size_t i = 0; i < t->n; i++)
		req[i].priority = (int32_t)rng_below(r, 3) - 1;
	if (rng_below(r, 2))
		random_blocks(t, r);
}

static struct sched_limits random_limits(const struct trace *t, struct rng *r,
					 const struct kind *kind)
{
	const struct policy *p = policy_find(kind->policy);
	struct sched_limits l = { .max_seqs = 1 + (int64_t)rng_below(r, 16),
				  .prefix_cache = kind->cache,
				  .order = kind->order,
				  .chunks = kind->chunks,
				  .async = kind->async,
				  .watermark = p->watermark,
				  .survives = true,
				  .policy = p };
	int64_t most = 0;

	l.max_batched_tok = l.max_seqs + (int64_t)rng_below(r, 60) + 90 * is_a(p, "orca");
	l.block_tok = 1 + (int64_t)rng_below(r, 16);
	if (p->check && l.max_batched_tok < l.block_tok)
		l.max_batched_tok = l.block_tok;
	if (l.chunks == SCHED_CHUNKS_NONE)
		l.max_batched_tok += 130;
	l.long_prefill_tok = kind->cap ? 1 + (int64_t)rng_below(r, 12) : 0;
	if (!kind->tight) {
		if (sched_ample_blocks(t, &l, &l.num_blocks, NULL))
			bail_out("out of memory");
		return l;
	}
	for (size_t i = 0; i < t->n; i++) {
		int64_t slots = t->req[i].prompt_tok + t->req[i].output_tok - !is_a(p, "trtllm");
		int64_t need = (slots + l.block_tok - 1) / l.block_tok;

		most = need > most ? need : most;
	}
	most += is_a(p, "sglang") * 3; /* and the last output, and none is cut */
	if (l.watermark > 0)	       /* 1 %: nobody is rejected for it */
		most += most / 50 + 1;
	l.num_blocks = 1 + most + (int64_t)rng_below(r, (uint64_t)most + 1);
	return l;
}

enum { MOST_ITERATIONS = 100000 };

/* Does every running sequence own the blocks that it needs, and nobody the rest? */
static bool blocks_add_up(const struct sched *s, const struct policy *p)
{
	/* Of a prompt whole. */
	bool whole = is_a(p, "sarathi") || is_a(p, "vidur-sarathi") || is_a(p, "trtllm-max-util") ||
		     is_a(p, "trtllm-prefill-first");
	bool all = is_a(p, "trtllm-no-evict") || is_a(p, "trtllm-static-batch");
	int64_t owned = 0, used = s->pool.n_usable - s->pool.n_free;

	for (size_t i = 0; i < s->n_running; i++) {
		const struct sched_seq *q = &s->seq[s->running[i]];
		uint32_t tok = is_a(p, "orca")		      ? s->longest :
			       all			      ? q->goal :
			       whole && q->comp < q->admitted ? q->admitted :
								q->comp;

		if (q->n_block != block_pool_need(&s->pool, tok))
			return false;
		owned += q->n_block;
	}
	return s->cache || s->radix ? owned >= used : owned == used; /* shared: several owners */
}

/* The scheduler alone, without clock: all blocks come back. */
static bool blocks_come_back(const struct trace *t, const struct sched_limits *l,
			     const struct policy *p)
{
	struct sched *s;
	char why[160];
	bool back;

	if (sched_open(&s, t, l, NULL))
		bail_out("out of memory");
	for (size_t i = 0; i < t->n; i++)
		if (!sched_rejects(l, &t->req[i], why, sizeof why))
			sched_arrive(s, (uint32_t)i, t->req[i].arrival_ns);
	for (int i = 0; i < MOST_ITERATIONS && (s->n_waiting || s->n_running); i++) {
		sched_begin(s);
		p->compose(s);
		if (!blocks_add_up(s, p) || s->n_running > (size_t)l->max_seqs)
			break;
		if (!l->async)
			sched_emit(s);
		sched_retire(s);
		if (l->async)
			sched_emit(s);
	}
	back = !s->n_waiting && !s->n_running && s->pool.n_free == s->pool.n_usable &&
	       s->pool.n_usable == l->num_blocks - 1;
	sched_close(s);
	return back;
}

struct totals {
	int64_t bad_tokens, bad_outputs, unfinished, not_same, leaked, preempted, iterations,
		failed, cached;
	struct witness sum;
};

static void one_workload(struct rng *r, const struct kind *kind, struct totals *sum)
{
	struct request req[60];
	struct block_run run[60 * 12];
	struct trace t = { 0 };
	struct sched_limits lim;
	struct cost_formula cost = { MS, 20000 };
	struct witness s[2] = { { .quiet = true }, { .quiet = true } };
	struct replay_result res;
	int64_t want = 0, outputs = 0;

	random_trace(&t, req, run, r);
	lim = random_limits(&t, r, kind);
	for (size_t i = 0; i < t.n; i++) {
		want += req[i].prompt_tok + req[i].output_tok - 1;
		outputs += req[i].output_tok;
	}
	for (int k = 0; k < 2; k++) {
		struct replay cfg = replay_of(&t, &lim, kind->policy, &cost, &s[k]);

		sum->failed += replay_run(&cfg, &res, NULL) != AR_OK;
		sum->unfinished += res.ok != (int64_t)t.n;
		sum->bad_tokens += res.recomputed_tok != s[k].recomputed;
		replay_result_release(&res);
	}
	sum->bad_tokens += s[0].n_tok - s[0].recomputed + res.cached_tok != want + s[0].overrun ||
			   (s[0].overrun > 0) != (lim.async && lim.policy->overruns) ||
			   (!kind->tight && s[0].recomputed) || (!kind->cache && res.cached_tok);
	sum->cached += res.cached_tok;
	sum->bad_outputs += s[0].n_emit != outputs;
	sum->not_same += s[0].digest != s[1].digest;
	sum->leaked += !blocks_come_back(&t, &lim, policy_find(kind->policy));
	sum->preempted += s[0].preempted;
	sum->iterations += s[0].n_iter;
	sum->sum.bad_clock += s[0].bad_clock;
	sum->sum.bad_partial += s[0].bad_partial;
	sum->sum.starved += s[0].starved;
	sum->sum.over_budget += s[0].over_budget;
	sum->sum.empty += s[0].empty;
	sum->sum.bad_blocks += s[0].bad_blocks;
	sum->sum.bad_chunk += s[0].bad_chunk;
	sum->sum.bad_outcome += s[0].bad_outcome;
	sum->sum.bad_mark += s[0].bad_mark;
	sum->sum.gaps |= s[0].gaps;
}

static void properties(uint64_t seed, const struct kind *how)
{
	const char *kind = how->name;
	const struct policy *p = policy_find(how->policy);
	struct rng r = { seed };
	struct totals t = { 0 };
	int n = rounds(200);

	for (int i = 0; i < n; i++)
		one_workload(&r, how, &t);
	diag("%s: %d workloads, %" PRId64 " iterations, %" PRId64 " preemptions, %" PRId64
	     " tokens cached",
	     kind, n, t.iterations, t.preempted, t.cached);
	is_int(t.failed + t.unfinished, 0, "%s: every request finishes", kind);
	is_int(t.bad_tokens, 0,
	       "%s: tokens run are the sum of P + O - 1, and the recomputed, less "
	       "the cached; a policy that plans ahead without knowing who ends runs more",
	       kind);
	is_int(t.bad_outputs, 0, "%s: every request gets its outputs", kind);
	is_int(t.sum.bad_partial, 0, "%s: %s", kind,
	       how->cap ? "no chunk exceeds the cap" :
			  "at most one partial prefill, and it comes last");
	ok(!t.sum.starved || how->order == SCHED_PRIORITY || how->async,
	   "%s: every running sequence is in the batch but by priority or ahead of time", kind);
	is_int(t.sum.over_budget, 0, "%s: the token budget holds", kind);
	ok(!t.sum.empty || how->tight, "%s: no iteration is empty in an ample pool", kind);
	is_int(how->order == SCHED_FCFS && !strncmp(how->policy, "vllm", 4) && !how->async ?
		       t.sum.empty :
		       0,
	       0, "%s: nor at all in vLLM's order of arrival, in step", kind);
	is_int(t.sum.bad_clock, 0, "%s: the clock only moves forward", kind);
	is_int(t.leaked + t.sum.bad_blocks, 0, "%s: blocks are owned as needed and all come back",
	       kind);
	is_int(t.sum.bad_chunk, 0, "%s: chunks of a request are numbered in order", kind);
	is_int(t.sum.bad_outcome, 0,
	       "%s: a request's first entry starts behind what it found, and its "
	       "chunks are counted without decodes",
	       kind);
	is_int(t.sum.bad_mark, 0, "%s: what is computed again is marked", kind);
	ok(!t.sum.gaps, "%s: the gaps between tokens are those of the entries", kind);
	is_int(t.not_same, 0, "%s: a second run is the same", kind);
	ok((how->tight && !is_a(p, "trtllm-no-evict") && !is_a(p, "trtllm-static-batch") &&
	    !is_a(p, "orca")) == (t.preempted > 0),
	   "%s: preemptions happen where blocks are short and not all reserved", kind);
	ok(how->cache == (t.cached > 0), "%s: prefixes are found with a cache only", kind);
}

static const struct kind kinds[] = {
	{ "ample pool", false, false, false, "vllm-0.16", SCHED_FCFS, 0, false },
	{ "tight pool", true, false, false, "vllm-0.16", SCHED_FCFS, 0, false },
	{ "ample pool, capped", false, true, false, "vllm-0.16", SCHED_FCFS, 0, false },
	{ "tight pool, capped", true, true, false, "vllm-0.16", SCHED_FCFS, 0, false },
	{ "ample pool, cache", false, false, true, "vllm-0.16", SCHED_FCFS, 0, false },
	{ "tight pool, cache", true, false, true, "vllm-0.16", SCHED_FCFS, 0, false },
	{ "tight pool, capped, cache", true, true, true, "vllm-0.16", SCHED_FCFS, 0, false },
	{ "0.19, tight pool", true, false, false, "vllm-0.19", SCHED_FCFS, 0, false },
	{ "0.19, tight pool, capped, cache", true, true, true, "vllm-0.19", SCHED_FCFS, 0, false },
	{ "orca, ample pool", false, false, false, "orca", SCHED_FCFS, 0, false },
	{ "orca, tight pool", true, false, false, "orca", SCHED_FCFS, 0, false },
	{ "trtllm, ample pool", false, false, false, "trtllm-no-evict", SCHED_FCFS, 0, false },
	{ "trtllm, tight pool", true, false, false, "trtllm-no-evict", SCHED_FCFS, 0, false },
	{ "trtllm, tight pool, equal chunks", true, false, false, "trtllm-no-evict", SCHED_FCFS,
	  SCHED_CHUNKS_EQUAL, false },
	{ "sglang, ample pool", false, false, false, "sglang", SCHED_FCFS, 0, false },
	{ "sglang, tight pool", true, false, false, "sglang", SCHED_FCFS, 0, false },
	{ "sglang-mixed, ample pool", false, false, false, "sglang-mixed", SCHED_FCFS, 0, false },
	{ "sglang-mixed, tight pool", true, false, false, "sglang-mixed", SCHED_FCFS, 0, false },
	{ "sglang, ample pool, cache", false, false, true, "sglang", SCHED_FCFS, 0, false },
	{ "sglang, tight pool, cache", true, false, true, "sglang", SCHED_FCFS, 0, false },
	{ "sglang-mixed, tight pool, cache", true, false, true, "sglang-mixed", SCHED_FCFS, 0,
	  false },
	{ "sglang-0.5.21, tight pool", true, false, false, "sglang-0.5.21", SCHED_FCFS, 0, false },
	{ "sglang-mixed-0.5.21, tight pool", true, false, false, "sglang-mixed-0.5.21", SCHED_FCFS,
	  0, false },
	{ "trtllm-max-util, ample pool", false, false, false, "trtllm-max-util", SCHED_FCFS, 0,
	  false },
	{ "trtllm-max-util, tight pool", true, false, false, "trtllm-max-util", SCHED_FCFS, 0,
	  false },
	{ "trtllm-max-util, tight pool, equal chunks", true, false, false, "trtllm-max-util",
	  SCHED_FCFS, SCHED_CHUNKS_EQUAL, false },
	{ "trtllm-max-util, tight pool, no chunks", true, false, false, "trtllm-max-util",
	  SCHED_FCFS, SCHED_CHUNKS_NONE, false },
	{ "trtllm-static-batch, tight pool", true, false, false, "trtllm-static-batch-1.2",
	  SCHED_FCFS, 0, false },
	{ "trtllm-prefill-first, ample pool", false, false, false, "trtllm-prefill-first-02a10fe",
	  SCHED_FCFS, 0, false },
	{ "trtllm-prefill-first, tight pool", true, false, false, "trtllm-prefill-first-02a10fe",
	  SCHED_FCFS, 0, false },
	{ "async, sglang, ample pool", false, false, false, "sglang", SCHED_FCFS, 0, true },
	{ "async, sglang, tight pool", true, false, false, "sglang", SCHED_FCFS, 0, true },
	{ "async, sglang-mixed, ample pool", false, false, false, "sglang-mixed", SCHED_FCFS, 0,
	  true },
	{ "async, sglang-mixed, tight pool", true, false, false, "sglang-mixed", SCHED_FCFS, 0,
	  true },
	{ "async, sglang, tight pool, cache", true, false, true, "sglang", SCHED_FCFS, 0, true },
	{ "async, sglang-mixed, tight pool, cache", true, false, true, "sglang-mixed", SCHED_FCFS,
	  0, true },
	{ "async, sglang-0.5.21, tight pool", true, false, false, "sglang-0.5.21", SCHED_FCFS, 0,
	  true },
	{ "async, sglang-mixed-0.5.21, tight pool", true, false, false, "sglang-mixed-0.5.21",
	  SCHED_FCFS, 0, true },
	{ "sarathi, ample pool", false, false, false, "sarathi", SCHED_FCFS, 0, false },
	{ "sarathi, tight pool", true, false, false, "sarathi", SCHED_FCFS, 0, false },
	{ "vidur-sarathi, tight pool", true, false, false, "vidur-sarathi", SCHED_FCFS, 0, false },
	{ "priority, tight pool", true, false, false, "vllm-0.16", SCHED_PRIORITY, 0, false },
	{ "priority, tight pool, capped, cache", true, true, true, "vllm-0.16", SCHED_PRIORITY, 0,
	  false },
	{ "0.19, priority, tight pool", true, false, false, "vllm-0.19", SCHED_PRIORITY, 0, false },
	{ "async, ample pool", false, false, false, "vllm-0.16", SCHED_FCFS, 0, true },
	{ "async, tight pool", true, false, false, "vllm-0.16", SCHED_FCFS, 0, true },
	{ "async, tight pool, capped, cache", true, true, true, "vllm-0.16", SCHED_FCFS, 0, true },
	{ "async, 0.19, tight pool", true, false, false, "vllm-0.19", SCHED_FCFS, 0, true },
	{ "async, priority, tight pool", true, false, false, "vllm-0.16", SCHED_PRIORITY, 0, true },
	{ "0.24, tight pool, cache", true, false, true, "vllm-0.24", SCHED_FCFS, 0, false },
	{ "async, 0.24, tight pool, cache", true, false, true, "vllm-0.24", SCHED_FCFS, 0, true },
	{ "0.33, tight pool, capped, cache", true, true, true, "vllm-0.33", SCHED_FCFS, 0, false },
	{ "0.33, priority, tight pool", true, false, false, "vllm-0.33", SCHED_PRIORITY, 0, false },
	{ "async, 0.33, priority, tight pool, cache", true, false, true, "vllm-0.33",
	  SCHED_PRIORITY, 0, true },
};

/* Limits that the command line accepts, with a pool that may be too small for most requests. */
static struct sched_limits any_limits(const struct policy *p, struct rng *r)
{
	struct sched_limits l = { .max_batched_tok = 1 + (int64_t)rng_below(r, 60),
				  .block_tok = 1 + (int64_t)rng_below(r, 9),
				  .num_blocks = 2 + (int64_t)rng_below(r, 30),
				  .watermark = p->watermark,
				  .policy = p };

	if (p->check && l.max_batched_tok < l.block_tok)
		l.max_batched_tok = l.block_tok;
	l.max_seqs = 1 + (int64_t)rng_below(r, (uint64_t)l.max_batched_tok);
	if (rng_below(r, 2))
		l.max_len = 1 + (int64_t)rng_below(r, 100);
	if (p->can & POLICY_LONG_PREFILL && rng_below(r, 2))
		l.long_prefill_tok = 1 + (int64_t)rng_below(r, 12);
	if (p->can & POLICY_ORDER && rng_below(r, 2))
		l.order = SCHED_PRIORITY;
	if (p->can & POLICY_CHUNKS)
		l.chunks = (int)rng_below(r, 3);
	if (p->can & POLICY_CHUNK_UNIT && rng_below(r, 2))
		l.chunk_unit = 1 + (int64_t)rng_below(r, (uint64_t)l.max_batched_tok);
	if (p->can & POLICY_PREFILL_TOKENS && rng_below(r, 2))
		l.max_prefill_tok = 1 + (int64_t)rng_below(r, 30);
	l.ignore_eos = p->can & POLICY_IGNORE_EOS && rng_below(r, 2);
	l.survives = true;
	if (p->can & POLICY_WATERMARK && rng_below(r, 2))
		l.watermark = 0.9 * rng_unit(r);
	l.prefix_cache = p->can & POLICY_PREFIX_CACHE && rng_below(r, 2);
	l.async = p->can & POLICY_ASYNC && rng_below(r, 2);
	return l;
}

static void any_workload(const struct policy *p, uint64_t seed)
{
	int64_t bad = 0, ok = 0, rejected = 0, preempted = 0, empty = 0;
	struct rng r = { seed };
	int n = rounds(400);

	for (int i = 0; i < n; i++) {
		struct request req[60];
		struct block_run run[60 * 12];
		struct trace t = { 0 };
		struct sched_limits lim;
		struct witness s = { .quiet = true, .most_iterations = MOST_ITERATIONS };
		struct replay_result res;
		struct replay cfg;

		random_trace(&t, req, run, &r);
		lim = any_limits(p, &r);
		cfg = replay_of(&t, &lim, p->name, &(struct cost_formula){ MS, 20000 }, &s);
		bad += replay_run(&cfg, &res, NULL) || res.ok + res.rejected != (int64_t)t.n ||
		       res.unfinished || s.n_rejected != res.rejected;
		bad += s.over_budget + s.over_seqs + s.bad_blocks + s.bad_clock + s.bad_chunk;
		bad += !blocks_come_back(&t, &lim, p);
		ok += res.ok;
		rejected += res.rejected;
		preempted += res.preemptions;
		empty += s.empty;
		replay_result_release(&res);
	}
	diag("%s: %" PRId64 " ok, %" PRId64 " rejected, %" PRId64 " preemptions, %" PRId64
	     " empty iterations",
	     p->name, ok, rejected, preempted, empty);
	is_int(bad, 0,
	       "%s: whatever the options, every request ends or is rejected with a reason, "
	       "within the limits, and all blocks come back",
	       p->name);
	ok(ok > rounds(1000) && rejected > rounds(1000), "%s: both happen", p->name);
}

/* Without pressure on the pool, caps and sharing, engines that mix chunks and decodes differ in
 * nothing. */
static void one_algorithm(void)
{
	static const char *const same[] = { "vllm-0.16", "vllm-0.19", "vllm-0.24", "vllm-0.33",
					    "vidur-sarathi" };
	enum { SAME = sizeof same / sizeof *same };
	int64_t differ = 0, n_iter = 0;
	struct rng r = { 55 };
	int n = rounds(200);

	for (int i = 0; i < n; i++) {
		struct request req[60];
		uint64_t digest[SAME];
		struct block_run run[60 * 12];
		struct trace t = { 0 };
		struct sched_limits lim;

		random_trace(&t, req, run, &r);
		lim = random_limits(&t, &r, &kinds[0]);
		lim.num_blocks *= 2;
		for (int k = 0; k < SAME; k++) {
			struct witness s = { .quiet = true };
			struct replay cfg = replay_of(&t, &lim, same[k],
						      &(struct cost_formula){ MS, 20000 }, &s);
			struct replay_result res;

			if (replay_run(&cfg, &res, NULL))
				bail_out("out of memory");
			replay_result_release(&res);
			digest[k] = s.digest;
			n_iter += s.n_iter;
			differ += digest[k] != digest[0];
		}
	}
	ok(!differ && n_iter > rounds(10000),
	   "in an ample pool all versions of vLLM and vidur-sarathi make the same schedule");
}

/* Who is known to finish is passed over, as who has finished is. */
static void planned_ahead(void)
{
	int64_t differ = 0, n_iter = 0;
	struct rng r = { 77 };
	int n = rounds(200);

	for (int i = 0; i < n; i++) {
		struct request req[60];
		uint64_t digest[2];
		struct block_run run[60 * 12];
		struct trace t = { 0 };
		struct sched_limits lim;

		random_trace(&t, req, run, &r);
		for (size_t k = 0; k < t.n; k++)
			req[k].arrival_ns = 0;
		lim = random_limits(&t, &r, &kinds[2 * (i % 2)]);
		lim.max_seqs = lim.max_batched_tok = 60 + (int64_t)rng_below(&r, 60);
		if (sched_ample_blocks(&t, &lim, &lim.num_blocks, NULL))
			bail_out("out of memory");
		for (int k = 0; k < 2; k++) {
			struct witness s = { .quiet = true };
			struct replay cfg = replay_of(&t, &lim, "vllm-0.16",
						      &(struct cost_formula){ MS, 20000 }, &s);
			struct replay_result res;

			cfg.limits.async = k;
			if (replay_run(&cfg, &res, NULL))
				bail_out("out of memory");
			replay_result_release(&res);
			digest[k] = s.digest;
			n_iter += s.n_iter;
		}
		differ += digest[0] != digest[1];
	}
	ok(!differ && n_iter > rounds(10000),
	   "planned ahead or in step, the schedule of what is there at the start is the same");
}

int main(void)
{
	plan(0);
	one_algorithm();
	planned_ahead();
	log_level = LOG_ERROR;
	for (size_t i = 0; policies[i]; i++)
		any_workload(policies[i], 100 + i);
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		properties(i + 1, &kinds[i]);
	return done_testing();
}
