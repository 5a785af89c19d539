/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules with an evictor: what is stored, which blocks come back and when, what policies
 * reserve, and that an evictor that takes nothing changes nothing. */
#include "config.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "replay/sched/policy.h"
#include "tests/tap.h"

#define POOL(n) .block_tok = 4, .num_blocks = (n) + 1
#define LIMITS(t, s) .max_batched_tok = (t), .max_seqs = (s)

enum { MOST = 400 /* iterations */ };

/* ---- runs ---- */

struct log {
	char text[4096];
	size_t n;
};

__attribute__((format(printf, 2, 3))) static void put(struct log *l, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	l->n += (size_t)vsnprintf(l->text + l->n, sizeof l->text - l->n, fmt, ap);
	va_end(ap);
	if (l->n >= sizeof l->text)
		bail_out("the text of a schedule is too long");
}

struct run {
	struct sched_limits lim;
	struct trace t;
	struct sched *s;
	struct evict *evict;
	struct log *log; /* NULL: none */
	uint64_t digest; /* of all entries */
	int64_t n_event, n_wrong, preempted, cached, waits;
	int n_iter;
};

static void run_open(struct run *x, const char *policy, const char *evictor)
{
	struct ar_err err = { 0 };
	char why[160];

	x->lim.policy = policy_find(policy);
	if (!x->lim.policy || (evictor && evict_parse(&x->evict, evictor, &err)))
		bail_out("%s: %s", policy, err.msg);
	x->lim.evict = x->evict;
	if (sched_open(&x->s, &x->t, &x->lim, &err))
		bail_out("%s: %s", policy, err.msg);
	for (size_t i = 0; i < x->t.n; i++)
		if (!sched_rejects(&x->lim, &x->t.req[i], why, sizeof why))
			sched_arrive(x->s, (uint32_t)i, 0);
}

static void run_close(struct run *x)
{
	sched_close(x->s);
	evict_free(x->evict);
}

static int64_t div_up(int64_t a, int64_t b)
{
	return (a + b - 1) / b;
}

static struct sched_owned other_of(const struct sched *s, uint32_t id)
{
	return s->other ? s->other[id] : (struct sched_owned){ 0 };
}

/* Blocks are of the pool, and enough for what is stored. */
static void check_blocks(struct run *x)
{
	const struct sched *s = x->s;
	int64_t owned = 0;

	for (size_t i = 0; i < s->n_running; i++) {
		const struct sched_seq *q = &s->seq[s->running[i]];
		bool runs = x->lim.async && q->planned == s->n_plan;
		uint32_t other = other_of(s, s->running[i]).n_block;

		owned += q->n_block + other;
		x->n_wrong += q->n_block < div_up(sched_stored(q) + (runs ? q->n_evict : 0), 4) &&
			      !(runs && other);
	}
	x->n_wrong += !x->lim.prefix_cache && owned + s->pool.n_free != s->pool.n_usable;
}

static void see_plan(struct run *x)
{
	const struct sched *s = x->s;

	x->preempted += (int64_t)s->n_preempted;
	for (size_t i = 0; i < s->batch.n; i++) {
		const struct batch_entry *e = &s->batch.entry[i];

		x->digest = rng_mix(x->digest ^ ((uint64_t)e->req << 32 | e->n_tok));
		x->digest = rng_mix(x->digest ^ e->start);
		x->n_event += e->evict > 0;
		if (x->log)
			put(x->log, "%c+%" PRIu32 " ", 'A' + (int)e->req, e->n_tok);
	}
	for (size_t i = 0; i < s->n_preempted && x->log; i++)
		put(x->log, "%c out ", 'A' + (int)s->preempted[i]);
}

/* The iteration before, or this one if none is in flight, has ended. */
static void retire(struct run *x)
{
	struct sched *s = x->s;
	size_t n = s->n_running, n_done = s->n_finished;
	uint32_t id[64], had[64], done[64];

	for (size_t i = 0; i < n; i++) {
		id[i] = s->running[i];
		had[i] = s->seq[id[i]].n_block;
	}
	memcpy(done, s->finished, n_done * sizeof *done);
	sched_retire(s);
	for (size_t i = 0; i < n && x->log; i++)
		if (s->seq[id[i]].n_block != had[i] && s->seq[id[i]].n_block)
			put(x->log, "%c %" PRIu32 "-%" PRIu32 " ", 'A' + (int)id[i], had[i],
			    s->seq[id[i]].n_block);
	for (size_t i = 0; i < n_done && x->log; i++)
		put(x->log, "%c ends ", 'A' + (int)done[i]);
}

/* One iteration, as the engine's loop has it.  False: there is nothing to do. */
static bool iterate(struct run *x)
{
	struct sched *s = x->s;
	bool flies = x->lim.async && x->n_iter;

	if (!s->n_running && !s->n_waiting)
		return false;
	x->n_iter++;
	sched_begin(s);
	s->lim.policy->compose(s);
	sched_evict(s);
	see_plan(x);
	if (!x->lim.async)
		sched_emit(s);
	if (flies || !x->lim.async)
		retire(x);
	if (x->lim.async)
		sched_emit(s);
	check_blocks(x);
	if (x->log)
		put(x->log, "free %" PRId64 "\n", s->pool.n_free);
	return x->n_iter < MOST;
}

/* The text of a run of requests {prompt, output}. */
static const char *schedule(const char *policy, const char *evictor, struct sched_limits lim,
			    const uint32_t req[][2])
{
	static struct log log;
	struct request r[8] = { 0 };
	struct run x = { .lim = lim,
			 .t = { .req = r, .name = (char *)(uintptr_t) "t" },
			 .log = &log };

	log.n = 0;
	for (; req[x.t.n][0]; x.t.n++) {
		r[x.t.n].prompt_tok = req[x.t.n][0];
		r[x.t.n].output_tok = req[x.t.n][1];
	}
	run_open(&x, policy, evictor);
	while (iterate(&x))
		;
	is_int(x.n_wrong, 0, "%s, %s: blocks are of the pool, and enough", policy,
	       evictor ? evictor : "no evictor");
	run_close(&x);
	return log.text;
}

/* ---- worked schedules ---- */

static const uint32_t two[][2] = { { 24, 8 }, { 16, 8 }, { 0 } };

static void test_worked(void)
{
	const struct sched_limits lim = { LIMITS(16, 8), POOL(10) };

	is_str(schedule("vllm-0.16", NULL, lim, two),
	       "A+16 free 6\n"
	       "A+8 B+8 free 2\n"
	       "A+1 B out free 3\n"
	       "A+1 free 3\nA+1 free 3\nA+1 free 3\nA+1 free 2\nA+1 free 2\n"
	       "A+1 A ends free 10\n"
	       "B+16 free 6\n"
	       "B+1 free 5\nB+1 free 5\nB+1 free 5\nB+1 free 5\nB+1 free 4\nB+1 free 4\n"
	       "B+1 B ends free 10\n",
	       "no evictor: the second request is preempted");
	is_str(schedule("vllm-0.16", "snapkv:budget=8,window=4", lim, two),
	       "A+16 free 6\n"
	       "A+8 B+8 A 6-2 free 6\n"
	       "A+1 B+8 B 4-2 free 5\n"
	       "A+1 B+1 free 4\nA+1 B+1 free 4\nA+1 B+1 free 4\n"
	       "A+1 B+1 free 3\nA+1 B+1 free 2\n"
	       "A+1 B+1 A ends free 6\n"
	       "B+1 B ends free 10\n",
	       "8 tokens stay: none is preempted");
}

/* The second iteration is planned while the blocks of the whole prompt are held. */
static void test_async(void)
{
	const struct sched_limits lim = { LIMITS(16, 8), POOL(10), .async = true };
	static const uint32_t one[][2] = { { 16, 4 }, { 0 } };

	is_str(schedule("vllm-0.16", "snapkv:budget=8,window=4", lim, one),
	       "A+16 free 6\n"
	       "A+1 A 4-3 free 7\n"
	       "A+1 free 7\n"
	       "A+1 free 7\n"
	       "A ends free 10\n",
	       "an iteration that still runs keeps the blocks of the event for its time");
}

/* Nine tokens need a block that eight do not: it comes and goes with each decode. */
static void test_decodes(void)
{
	const struct sched_limits lim = { LIMITS(16, 8), POOL(10) };
	struct sched_limits async = lim;
	static const uint32_t one[][2] = { { 7, 5 }, { 0 } };

	async.async = true;
	is_str(schedule("vllm-0.16", "streaming:sink=2,recent=6", lim, one),
	       "A+7 free 8\n"
	       "A+1 free 8\n"
	       "A+1 A 3-2 free 8\n"
	       "A+1 A 3-2 free 8\n"
	       "A+1 A ends free 10\n",
	       "a decode that overflows evicts");
	is_str(schedule("vllm-0.16", "streaming:sink=2,recent=6", async, one),
	       "A+7 free 8\n"
	       "A+1 free 8\n"
	       "A+1 free 7\n"
	       "A+1 free 7\n"
	       "A+1 free 7\n"
	       "A ends free 10\n",
	       "the block of the iteration in flight stays");
}

/* ---- policies ---- */

static void test_policies(void)
{
	static const uint32_t one[][2] = { { 16, 5 }, { 0 } };
	static const uint32_t few[][2] = { { 16, 2 }, { 0 } };
	static const uint32_t many[][2] = { { 16, 4 }, { 16, 4 }, { 0 } };
	static const char evictor[] = "snapkv:budget=8,window=4";
	const struct sched_limits lim = { LIMITS(16, 8), POOL(10) };

	is_str(schedule("orca", evictor, lim, one),
	       "A+16 free 5\nA+1 free 5\nA+1 free 5\nA+1 free 5\nA+1 A ends free 10\n",
	       "orca reserves whatever is stored: nothing comes back");
	is_str(schedule("sarathi", evictor, lim, one),
	       "A+16 A 4-2 free 8\n"
	       "A+1 free 7\nA+1 free 7\nA+1 free 7\nA+1 A ends free 10\n",
	       "sarathi gives back what it reserved at admission");
	is_str(schedule("trtllm-no-evict", evictor, lim, one),
	       "A+16 free 6\nA+1 free 6\nA+1 free 6\nA+1 free 6\nA+1 A ends free 10\n",
	       "trtllm-no-evict keeps the blocks of 8 tokens and 5 outputs");
	is_str(schedule("trtllm-no-evict", evictor, lim, few),
	       "A+16 A 4-3 free 7\nA+1 A ends free 10\n", "... and of 2 outputs");
	is_str(schedule("trtllm-max-util", evictor, lim, few),
	       "A+16 A 4-2 free 8\nA+1 A ends free 10\n", "trtllm-max-util keeps what is stored");
	is_str(schedule("sglang-0.5.23", evictor, lim, many),
	       "A+16 A 4-2 free 8\nB+16 B 4-2 free 6\n"
	       "A+1 B+1 free 4\nA+1 B+1 free 4\nA+1 B+1 A ends B ends free 10\n",
	       "sglang admits a request whose outputs go where its prompt was");
}

/* A preempted request computes prompt and outputs as one prompt.  Its event comes with the prompt,
 * and takes none of the outputs. */
static void test_preempted(void)
{
	const struct sched_limits lim = { LIMITS(16, 8), POOL(6) };
	static const uint32_t req[][2] = { { 9, 9 }, { 9, 9 }, { 0 } };

	is_str(schedule("vllm-0.16", "snapkv:budget=8,window=4", lim, req),
	       "A+9 B+7 A 3-2 free 2\n"
	       "A+1 B+2 B 3-2 free 1\n"
	       "A+1 B+1 free 0\nA+1 B+1 free 0\nA+1 B+1 free 0\n"
	       "A+1 B out free 2\n"
	       "A+1 free 2\nA+1 free 2\nA+1 A ends free 6\n"
	       "B+13 B 4-3 free 3\n"
	       "B+1 free 2\nB+1 free 2\nB+1 free 2\nB+1 B ends free 6\n",
	       "8 tokens of its prompt and 4 outputs stay");
}

/* ---- all policies ---- */

static struct request drawn_request(struct rng *r)
{
	return (struct request){ .prompt_tok = 1 + (uint32_t)(rng_below(r, 40)),
				 .output_tok = 1 + (uint32_t)(rng_below(r, 20)) };
}

/* A run of requests drawn from the seed, on a small pool. */
static struct run random_run(uint64_t seed, const char *policy, const char *evictor, bool async)
{
	struct request r[12];
	struct rng rng = { seed };
	struct run x = { .lim = { LIMITS(24, 8), POOL(20), .async = async },
			 .t = { .req = r, .name = (char *)(uintptr_t) "t", .n = 12 } };

	for (size_t i = 0; i < x.t.n; i++)
		r[i] = drawn_request(&rng);
	run_open(&x, policy, evictor);
	while (iterate(&x))
		;
	x.n_wrong += x.s->pool.n_free != x.s->pool.n_usable;
	run_close(&x);
	return x;
}

/* ---- with a prefix cache ---- */

/* Count the blocks of a table that no table before it has. */
static int64_t see_table(struct run *x, uint32_t row, uint32_t n, bool seen[64], bool alone)
{
	const uint32_t *table = prefix_cache_table(x->s->cache, row);
	int64_t fresh = 0;

	for (uint32_t k = 0; k < n; k++) {
		fresh += !seen[table[k]];
		x->n_wrong += alone && seen[table[k]];
		seen[table[k]] = true;
	}
	return fresh;
}

/* Blocks of what an event left are in no table of another request, and all others are free. */
static void check_moved(struct run *x)
{
	const struct sched *s = x->s;
	bool seen[64] = { false };
	int64_t n = s->pool.n_free;

	for (size_t i = 0; i < s->n_running && s->cache; i++)
		if (!s->seq[s->running[i]].moved)
			n += see_table(x, s->seq[s->running[i]].row, s->seq[s->running[i]].n_block,
				       seen, false);
	for (size_t i = 0; i < s->n_running && s->cache; i++) {
		const struct sched_seq *q = &s->seq[s->running[i]];

		if (q->moved)
			n += see_table(x, q->row, q->n_block, seen, true);
	}
	for (size_t i = 0; i < s->n_running && s->cache; i++) {
		const struct sched_seq *q = &s->seq[s->running[i]];
		const struct sched_owned other = other_of(s, s->running[i]);

		n += see_table(x, other.row, other.n_block, seen, false);
		x->n_wrong += q->gone && !q->moved && !other.n_block;
	}
	x->n_wrong += s->cache && n != s->pool.n_usable;
}

static const uint64_t prefix[] = { 11, 12, 13, 14, 15, 16 };

/* Requests whose prompts begin alike, up to some block. */
static struct run shared_run(uint64_t seed, const char *policy, const char *evictor, int how,
			     bool async)
{
	struct request r[12];
	struct block_run ids[12 * 12];
	struct rng rng = { seed };
	struct run x = { .lim = { LIMITS(24, 8), POOL(20), .async = async, .prefix_cache = true,
				  .evict_cache = how },
			 .t = { .req = r,
				.run = ids,
				.cap_run = 12 * 12,
				.block_tok = 4,
				.name = (char *)(uintptr_t) "t" } };

	for (; x.t.n < 12; x.t.n++) {
		struct request *q = &r[x.t.n];
		uint64_t same = rng_below(&rng, 7);

		*q = drawn_request(&rng);
		q->run = x.t.n_run;
		for (uint32_t k = 0; k < (q->prompt_tok + 3) / 4; k++)
			trace_put_block(&x.t, q, k < same ? prefix[k] : 100 * (x.t.n + 1) + k);
	}
	run_open(&x, policy, evictor);
	while (iterate(&x))
		check_moved(&x);
	for (size_t i = 0; i < x.t.n; i++)
		x.cached += (int64_t)x.s->seq[i].cached;
	x.waits = x.s->n_evict_waits;
	x.n_wrong += x.s->pool.n_free != x.s->pool.n_usable;
	run_close(&x);
	return x;
}

static void test_shared(int how, const char *name)
{
	static const char *const evictor[] = { "snapkv:budget=9,window=2", "h2o:heavy=3,recent=4",
					       "streaming:sink=2,recent=9" };
	int64_t n_wrong = 0, n_event = 0, n_long = 0, n_other = 0, cached = 0, waits = 0;
	int64_t preempted = 0;

	for (int p = 0; policies[p]; p++)
		for (int k = 0; k < 24 && policies[p]->can & POLICY_PREFIX_CACHE; k++) {
			bool async = k & 1 && policies[p]->can & POLICY_ASYNC;
			uint64_t seed = (uint64_t)k + 1;
			struct run no, all, x;

			if (policies[p]->radix_tree && how == SCHED_EVICT_DROP)
				break;
			no = shared_run(seed, policies[p]->name, NULL, how, async);
			all = shared_run(seed, policies[p]->name, "snapkv:budget=999", how, async);
			x = shared_run(seed, policies[p]->name, evictor[k % 3], how, async);
			n_wrong += no.n_wrong + all.n_wrong + x.n_wrong;
			n_long += no.n_iter == MOST || all.n_iter == MOST || x.n_iter == MOST;
			n_other += no.digest != all.digest && !no.preempted;
			n_event += x.n_event;
			cached += x.cached;
			waits += x.waits;
			preempted += x.preempted;
		}
	is_int(n_wrong, 0, "%s: what stays is in blocks that no other request has", name);
	is_int(n_long, 0, "%s: all runs end", name);
	is_int(n_other, 0, "%s: an evictor that takes nothing changes nothing", name);
	ok(n_event > 1000 && cached > 1000 && waits > 10 && preempted > 10,
	   "%s: %" PRId64 " events, %" PRId64 " tokens found, %" PRId64 " events waited, %" PRId64
	   " preemptions",
	   name, n_event, cached, waits, preempted);
}

static void test_random(void)
{
	static const char *const evictor[] = { "snapkv:budget=9,window=2", "h2o:heavy=3,recent=4",
					       "streaming:sink=2,recent=9" };
	int64_t n_wrong = 0, n_event = 0, n_long = 0, n_other = 0, preempted = 0, without = 0;

	for (int p = 0; policies[p]; p++)
		for (int k = 0; k < 12; k++) {
			bool async = k & 1 && policies[p]->can & POLICY_ASYNC;
			const char *name = policies[p]->name;
			uint64_t seed = (uint64_t)k + 1;
			struct run no = random_run(seed, name, NULL, async);
			struct run all = random_run(seed, name, "snapkv:budget=999", async);
			struct run x = random_run(seed, name, evictor[k % 3], async);

			n_wrong += no.n_wrong + all.n_wrong + x.n_wrong;
			n_long += no.n_iter == MOST || all.n_iter == MOST || x.n_iter == MOST;
			n_other += no.digest != all.digest || no.n_event || all.n_event;
			n_event += x.n_event;
			without += no.preempted;
			preempted += x.preempted;
		}
	is_int(n_wrong, 0, "all policies: blocks are of the pool, and enough");
	is_int(n_long, 0, "all runs end");
	is_int(n_other, 0, "an evictor that takes nothing changes nothing");
	ok(n_event > 1000, "%" PRId64 " events", n_event);
	ok(preempted < without, "%" PRId64 " preemptions instead of %" PRId64, preempted, without);
}

int main(void)
{
	test_worked();
	test_async();
	test_decodes();
	test_policies();
	test_preempted();
	test_random();
	test_shared(SCHED_EVICT_KEEP, "keep");
	test_shared(SCHED_EVICT_DROP, "drop");
	return done_testing();
}
