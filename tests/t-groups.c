/* SPDX-License-Identifier: Apache-2.0 */
/* KV cache groups.  First schedules and block tables that were observed on vLLM 0.16.0.  Then
 * properties on random workloads, also that one group of full attention changes nothing.  Then each
 * allocation failing in turn. */
#include "config.h"
#include "replay/sched/policy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tests/letters.h"
#include "tests/tap.h"

#define FULL(t, b) \
	{ \
		.mixer = MIX_FULL, .type = (t), .n_layers = 1, .block_tok = (b) \
	}
#define WINDOW(t, w, b) \
	{ \
		.mixer = MIX_WINDOW, .type = (t), .n_layers = 1, .window = (w), .block_tok = (b) \
	}
#define CHUNK(t, w, b) \
	{ \
		.mixer = MIX_CHUNK, .type = (t), .n_layers = 1, .window = (w), .block_tok = (b) \
	}
#define LINEAR(t) \
	{ \
		.mixer = MIX_LINEAR, .type = (t), .n_layers = 1 \
	}

/* ---- as observed on the engine ---- */

struct scenario {
	const char *name;
	struct kv_group group[3];
	int64_t budget, n_block;
	bool cache;
	struct {
		int64_t us;
		const char *text; /* a letter is a token */
		uint32_t output;
	} req[3];
	const char *log, *free_order;
};

#define X "abcdefghijkl"
#define XQ X "mnopqrstuvwx"

/* A minus is a block that was released; a bar is between groups. */
/* clang-format off */
static const struct scenario scenarios[] = {
{ "blocks before the window come back", { FULL(0, 4), WINDOW(1, 5, 4) }, 4, 12, false,
  { { 0, X, 6 } },
  "0-1 A:4@0 [1|2]\n"
  "1-2 A:4@4 [1 3|2 4]\n"
  "2-3 A:4@8 [1 3 5|- 4 6]\n"
  "3-4 A:1@12 [1 3 5 7|- - 6 8]\n"
  "4-5 A:1@13 [1 3 5 7|- - 6 8]\n"
  "5-6 A:1@14 [1 3 5 7|- - 6 8]\n"
  "6-7 A:1@15 [1 3 5 7|- - 6 8]\n"
  "7-8 A:1@16 [1 3 5 7 9|- - - 8 10]\n", "11 12 2 4 6 9 7 5 3 1 10 8" },

/* by the rules of ChunkedLocalAttentionManager, not observed */
{ "blocks before the chunk come back", { FULL(0, 4), CHUNK(1, 8, 4) }, 4, 12, false,
  { { 0, X, 6 } },
  "0-1 A:4@0 [1|2]\n"
  "1-2 A:4@4 [1 3|2 4]\n"
  "2-3 A:4@8 [1 3 5|- - 6]\n"
  "3-4 A:1@12 [1 3 5 7|- - 6 8]\n"
  "4-5 A:1@13 [1 3 5 7|- - 6 8]\n"
  "5-6 A:1@14 [1 3 5 7|- - 6 8]\n"
  "6-7 A:1@15 [1 3 5 7|- - 6 8]\n"
  "7-8 A:1@16 [1 3 5 7 9|- - - - 10]\n", "11 12 4 2 8 6 9 7 5 3 1 10" },

{ "a hit needs the blocks of its last chunk", { FULL(0, 4), CHUNK(1, 8, 4) }, 16, 20, true,
  { { 0, XQ, 2 }, { 4000, X "mnopqrstABCD", 1 } },
  "0-1 A:16@0 [1 2 3 4|5 6 7 8]\n"
  "1-2 A:8@16 [1 2 3 4 9 10|- - - - 11 12]\n"
  "2-3 A:1@24 [1 2 3 4 9 10 13|- - - - - - 14]\n"
  "4-5 B:4@20 [1 2 3 4 9 15|- - - - 11 16]\n",
  "17 18 19 20 8 7 6 5 12 13 10 14 15 9 4 3 2 1 16 11" },

{ "a window alone needs fewer blocks than tokens fill", { WINDOW(0, 6, 4) }, 8, 6, false,
  { { 0, XQ, 5 } },
  "0-1 A:8@0 [1 2]\n"
  "1-2 A:8@8 [1 2 3 4]\n"
  "2-3 A:8@16 [- - 3 4 5 6]\n"
  "3-4 A:1@24 [- - - - 5 6 2]\n"
  "4-5 A:1@25 [- - - - - 6 2]\n"
  "5-6 A:1@26 [- - - - - 6 2]\n"
  "6-7 A:1@27 [- - - - - 6 2]\n", "1 4 3 5 2 6" },

{ "a state takes a block", { FULL(0, 4), LINEAR(1), LINEAR(1) }, 16, 9, false,
  { { 0, X, 3 }, { 0, X, 2 } },
  "0-1 A:12@0 [1 2 3|4|5] B:4@0 [6|7|8]\n"
  "1-2 A:1@12 [1 2 3 9|4|5]\n"
  "2-3 A:1@13 [1 2 3 9|4|5]\n"
  "3-4 B:12@0 [6 7 8|9|3]\n"
  "4-5 B:1@12 [6 7 8 2|9|3]\n", "1 4 5 2 8 7 6 9 3" },

{ "a hit needs the window's blocks only", { FULL(0, 4), WINDOW(1, 5, 4) }, 16, 17, true,
  { { 0, XQ, 2 }, { 4000, "ABCDEFGHIJKL", 2 }, { 8000, XQ "yz", 2 } },
  "0-1 A:16@0 [1 2 3 4|5 6 7 8]\n"
  "1-2 A:8@16 [1 2 3 4 9 10|- - - 8 11 12]\n"
  "2-3 A:1@24 [1 2 3 4 9 10 13|- - - - - 12 14]\n"
  "4-5 B:12@0 [15 16 17|7 6 5]\n"
  "5-6 B:1@12 [15 16 17 11|- - 5 8]\n"
  "8-9 C:2@24 [1 2 3 4 9 10 13|- - - - - 12 14]\n"
  "9-10 C:1@26 [1 2 3 4 9 10 13|- - - - - 12 14]\n",
  "6 7 11 17 16 15 8 5 13 10 9 4 3 2 1 14 12" },

{ "a hit ends where blocks of both sizes do", { FULL(0, 4), WINDOW(1, 7, 8) }, 16, 18, true,
  { { 0, XQ, 2 }, { 3000, XQ "y", 2 }, { 6000, X "0123456", 1 } },
  "0-1 A:16@0 [1 2 3 4|5 6]\n"
  "1-2 A:8@16 [1 2 3 4 7 8|- 6 9]\n"
  "2-3 A:1@24 [1 2 3 4 7 8 10|- - 9 11]\n"
  "3-4 B:1@24 [1 2 3 4 7 8 12|- - 9 13]\n"
  "4-5 B:1@25 [1 2 3 4 7 8 12|- - 9 13]\n"
  "6-7 C:11@8 [1 2 14 15 16|5 17 18]\n",
  "6 10 11 12 8 7 4 3 13 9 16 15 14 2 1 18 17 5" },

{ "a window ends where no block of full attention does",
  { FULL(0, 8), WINDOW(1, 6, 4) }, 12, 14, true,
  { { 0, XQ, 2 }, { 4000, "ABCDEFGHIJ", 2 }, { 8000, X "mnopqyz", 1 } },
  "0-1 A:12@0 [1 2|3 4 5]\n"
  "1-2 A:12@12 [1 2 6|- 4 5 7 8 9]\n"
  "2-3 A:1@24 [1 2 6 10|- - - - 8 9 11]\n"
  "4-5 B:10@0 [12 13|14 3 7]\n"
  "5-6 B:1@10 [12 13|- 3 7]\n"
  "8-9 C:12@0 [5 4|10 6 2]\n"
  "9-10 C:7@12 [5 4 1|- 6 2 11 9]\n",
  "8 14 13 12 7 3 10 1 4 5 9 11 2 6" },

{ "a hit of two windows", { WINDOW(0, 5, 4), WINDOW(1, 13, 4), FULL(2, 4) }, 32, 24, true,
  { { 0, XQ, 2 }, { 4000, "ABCDEFGHIJKLMNOP", 1 }, { 8000, XQ "yz", 1 } },
  "0-1 A:24@0 [1 2 3 4 5 6|7 8 9 10 11 12|13 14 15 16 17 18]\n"
  "1-2 A:1@24 [- - - - - 6 19|- - - 10 11 12 20|13 14 15 16 17 18 21]\n"
  "4-5 B:16@0 [22 23 24 5|4 3 2 1|9 8 7 19]\n"
  "8-9 C:2@24 [- - - - - 6 20|- - - 10 11 12 21|13 14 15 16 17 18 5]\n",
  "24 23 22 1 2 3 4 19 7 8 9 20 6 21 12 11 10 5 18 17 16 15 14 13" },

{ "one window lost a block, so nobody has a hit",
  { WINDOW(0, 5, 4), WINDOW(1, 13, 4), FULL(2, 4) }, 32, 23, true,
  { { 0, XQ, 2 }, { 4000, "ABCDEFGHIJKLMNOP", 1 }, { 8000, XQ "yz", 1 } },
  "0-1 A:24@0 [1 2 3 4 5 6|7 8 9 10 11 12|13 14 15 16 17 18]\n"
  "1-2 A:1@24 [- - - - - 6 19|- - - 10 11 12 20|13 14 15 16 17 18 21]\n"
  "4-5 B:16@0 [22 23 5 4|3 2 1 9|8 7 19 6]\n"
  "8-9 C:26@0 [20 12 11 10 21 18 17|16 15 14 13 4 5 23|22 9 1 2 3 6 19]\n",
  "7 8 17 18 21 10 11 12 20 23 5 4 13 14 15 16 19 6 3 2 1 9 22" },

{ "preemption", { FULL(0, 4), WINDOW(1, 5, 4) }, 16, 10, true,
  { { 0, "abcdefgh", 6 }, { 0, "ABCDEFG", 6 }, { 1500, "mnop", 2 } },
  "0-1 A:8@0 [1 2|3 4] B:7@0 [5 6|7 8]\n"
  "1-2 A:1@8 [1 2 9|- 4 10] B:1@7 [5 6|7 8]\n"
  "2-3 A:1@9 [1 2 9|- 4 10] B:1@8 [5 6 3|- 8 7]\n"
  "3-4 A:1@10 [1 2 9|- 4 10] B:1@9 [5 6 3|- 8 7]\n"
  "4-5 A:1@11 [1 2 9|- 4 10] B:1@10 [5 6 3|- 8 7]\n"
  "5-6 A:1@12 [1 2 9 4|- - 10 3]\n"
  "6-7 B:4@8 [5 6 7|- 8 4] C:4@0 [9|2]\n"
  "7-8 C:1@4 [9 1|2 3]\n", "10 7 6 5 4 8 1 9 3 2" },
};
/* clang-format on */

static void put_tables(struct text *log, const struct sched *s, const struct sched_seq *q)
{
	for (size_t g = 0; g < s->lim.n_group; g++) {
		uint32_t n;
		const uint32_t *b = kv_groups_table(s->groups, q->row, g, &n);

		letters_put(log, g ? "|" : "");
		for (uint32_t k = 0; k < n; k++)
			if (b[k])
				letters_put(log, "%s%" PRIu32, k ? " " : "", b[k]);
			else
				letters_put(log, "%s-", k ? " " : "");
	}
}

static size_t count_groups(const struct kv_group *group, size_t most)
{
	size_t n = 0;

	while (n < most && group[n].n_layers)
		n++;
	return n;
}

static void run_scenario(const struct scenario *c)
{
	struct request req[3];
	struct block_run run[32];
	struct trace t = { .req = req, .run = run, .cap_run = 32, .block_tok = 4 };
	struct sched_limits lim = { .policy = policy_find("vllm-0.16"),
				    .max_batched_tok = c->budget,
				    .max_seqs = 8,
				    .block_tok = 4,
				    .group = c->group,
				    .n_group = count_groups(c->group, 3),
				    .num_blocks = c->n_block + 1,
				    .prefix_cache = c->cache };
	struct text log = { .n = 0 }, order = { .n = 0 };
	struct sched *s;

	for (int i = 0; i < 3 && c->req[i].text; i++)
		letters_add(&t, c->req[i].us, c->req[i].text, c->req[i].output);
	if (sched_open(&s, &t, &lim, NULL))
		bail_out("out of memory");
	letters_replay(s, &log, put_tables);
	is_str(log.s, c->log, "%s: the schedule and the block tables are the engine's", c->name);
	for (uint32_t b = 0; (b = kv_groups_next_free(s->groups, b));)
		letters_put(&order, "%s%" PRIu32, order.n ? " " : "", b);
	is_str(order.s, c->free_order, "%s: the order of eviction is the engine's", c->name);
	sched_close(s);
}

/* ---- random workloads ---- */

enum { REQS = 24, GROUPS = 4, MOST_ITERATIONS = 20000 };

struct workload {
	struct request req[REQS];
	struct block_run run[REQS * 16];
	struct trace t;
	struct kv_group group[GROUPS];
	struct sched_limits lim;
};

static void random_requests(struct workload *w, struct rng *r)
{
	w->t = (struct trace){
		.req = w->req, .run = w->run, .cap_run = REQS * 16, .block_tok = 8, .n = REQS
	};
	for (uint32_t i = 0; i < REQS; i++) {
		struct request *q = &w->req[i];

		*q = request_none;
		q->prompt_tok = 1 + (uint32_t)rng_below(r, 120);
		q->output_tok = 1 + (uint32_t)rng_below(r, 30);
		q->run = w->t.n_run;
		/* one of two texts up to some place */
		for (uint32_t k = 0; k < (q->prompt_tok + 7) / 8; k++)
			trace_put_block(&w->t, q,
					rng_mix(k < 12 ? (uint64_t)k * 4 + i % 2 :
							 (uint64_t)i << 20 | k));
	}
}

/* n groups: of full attention, of windows and, where no cache keeps none, of states. */
static void random_groups(struct workload *w, struct rng *r, bool cache)
{
	int64_t block_tok = 1 + (int64_t)rng_below(r, 9);
	bool states = !cache || w->lim.policy->groups->states;

	w->lim.n_group = 1 + rng_below(r, GROUPS);
	w->lim.group = w->group;
	w->lim.block_tok = block_tok;
	for (int i = 0; i < (int)w->lim.n_group; i++) {
		struct kv_group *g = &w->group[i];
		uint64_t kind = rng_below(r, states ? 4 : 3);
		int64_t sizes = cache && states ? 1 : 1 + (int64_t)rng_below(r, 2);

		*g = (struct kv_group)FULL(i, block_tok * sizes);
		if (kind == 3)
			*g = (struct kv_group)LINEAR(i);
		if (kind == 3 && cache)
			g->block_tok = block_tok;
		if (kind == 1 || kind == 2)
			*g = (struct kv_group)WINDOW(i, 1 + (int64_t)rng_below(r, 60),
						     g->block_tok);
		if (i && rng_below(r, 2)) /* one more of the same type */
			*g = w->group[i - 1];
	}
}

static struct kv_groups_config config_of(const struct sched_limits *l)
{
	return (struct kv_groups_config){ .group = l->group,
					  .n_group = l->n_group,
					  .rules = l->policy->groups,
					  .max_tok = l->max_batched_tok,
					  .async = l->async };
}

static bool leaves_later(const struct sched_limits *l)
{
	return l->policy->groups->processed && l->async;
}

static void random_workload(struct workload *w, struct rng *r, const char *policy, bool tight,
			    bool cache)
{
	int64_t need = 0, most = 0;

	random_requests(w, r);
	w->lim = (struct sched_limits){ .policy = policy_find(policy),
					.max_seqs = 1 + (int64_t)rng_below(r, 12),
					.order = (int)rng_below(r, 2),
					.async = rng_below(r, 2),
					.prefix_cache = cache };
	w->lim.max_batched_tok = 9 + w->lim.max_seqs + (int64_t)rng_below(r, 60);
	w->lim.long_prefill_tok = rng_below(r, 3) ? 0 : 9 + (int64_t)rng_below(r, 16);
	random_groups(w, r, cache);
	if (!tight) {
		if (sched_ample_blocks(&w->t, &w->lim, &w->lim.num_blocks, NULL))
			bail_out("out of memory");
		return;
	}
	for (int i = 0; i < REQS; i++) {
		int64_t slots = w->req[i].prompt_tok + w->req[i].output_tok - 1;
		const struct kv_groups_config c = config_of(&w->lim);

		need = kv_groups_most(&c, slots);
		most = need > most ? need : most;
	}
	w->lim.num_blocks = 1 + most + (int64_t)rng_below(r, (uint64_t)most / 2 + 1);
}

struct marks {
	uint8_t owned[1 << 14]; /* by block */
	int64_t n_owned, n_group[GROUPS];
};

/* Mark the blocks of one table.  False: it is not as long as its tokens, or a window's owns more
 * than it needs. */
static bool check_table(const struct sched *s, const struct sched_seq *q, size_t g, struct marks *m)
{
	const struct kv_group *x = &s->lim.group[g];
	uint32_t n, owned = 0;
	const uint32_t *b = kv_groups_table(s->groups, q->row, g, &n);
	int64_t want = x->block_tok ? (q->comp + x->block_tok - 1) / x->block_tok : 1;
	bool later = leaves_later(&s->lim);
	int64_t seen = x->window - 1 + s->lim.max_batched_tok * (1 + later);

	for (uint32_t k = 0; k < n; k++) {
		owned += b[k] != 0;
		if (b[k] && !m->owned[b[k]]++) {
			m->n_owned++;
			m->n_group[g]++;
		}
	}
	if (x->mixer == MIX_LINEAR && x->block_tok)
		return n == want && owned && b[n - 1] &&
		       owned <= 2u + s->lim.policy->groups->saves + later;
	if (n != want || (x->mixer != MIX_WINDOW && owned != n))
		return false;
	return x->mixer != MIX_WINDOW || owned <= (seen + x->block_tok - 1) / x->block_tok + 1;
}

/* Whether every running sequence owns the blocks that it needs, and nobody the rest. */
static bool tables_add_up(const struct sched *s)
{
	struct marks m = { .n_owned = 0 };
	bool right = true;

	for (size_t i = 0; i < s->n_running; i++) {
		const struct sched_seq *q = &s->seq[s->running[i]];

		for (size_t g = 0; q->row && g < s->lim.n_group; g++)
			right = check_table(s, q, g, &m) && right;
	}
	for (size_t g = 0; g < s->lim.n_group; g++)
		right = right && m.n_group[g] == kv_groups_used(s->groups, g) &&
			kv_groups_used(s->groups, g) <= kv_groups_peak(s->groups, g);
	return right && m.n_owned == s->pool.n_usable - s->pool.n_free && s->pool.n_free >= 0;
}

struct totals {
	int64_t n_tok, wrong, unfinished, leaked, preempted, cached, slid;
	uint64_t digest;
};

/* The scheduler alone, without a clock. */
static void run_workload(const struct workload *w, struct totals *sum)
{
	struct sched *s;
	char why[160];

	if (sched_open(&s, &w->t, &w->lim, NULL))
		bail_out("out of memory");
	for (uint32_t i = 0; i < REQS; i++)
		if (!sched_rejects(&w->lim, &w->req[i], why, sizeof why))
			sched_arrive(s, i, i);
	for (int i = 0; i < MOST_ITERATIONS && (s->n_waiting || s->n_running); i++) {
		sched_begin(s);
		w->lim.policy->compose(s);
		sum->wrong += s->groups && !tables_add_up(s);
		sum->preempted += (int64_t)s->n_preempted;
		for (size_t k = 0; k < s->batch.n; k++) {
			const struct batch_entry *e = &s->batch.entry[k];

			sum->n_tok += e->n_tok;
			sum->digest = rng_mix(sum->digest ^
					      rng_mix((uint64_t)e->req << 40 ^
						      (uint64_t)e->start << 20 ^ e->n_tok));
		}
		if (!w->lim.async)
			sched_emit(s);
		sched_retire(s);
		if (w->lim.async)
			sched_emit(s);
	}
	sum->unfinished += s->n_waiting || s->n_running;
	sum->leaked += s->pool.n_free != s->pool.n_usable;
	for (int i = 0; i < REQS; i++)
		sum->cached += (int64_t)s->seq[i].cached;
	sched_close(s);
}

static void test_random(const char *policy, bool tight, bool cache)
{
	struct totals sum = { .n_tok = 0 };
	struct rng r = { 7 + 2u * tight + cache };
	static struct workload w;

	for (int i = 0; i < 60; i++) {
		random_workload(&w, &r, policy, tight, cache);
		run_workload(&w, &sum);
	}
	is_int(sum.wrong, 0, "%s, %s pool%s: tables hold what their group needs, no block is lost",
	       policy, tight ? "tight" : "ample", cache ? ", cache" : "");
	ok(!sum.unfinished && !sum.leaked, "... all finish, and all blocks come back");
	ok(tight ? sum.preempted > 0 : !sum.preempted, "... %s: %" PRId64 " preemptions",
	   tight ? "blocks ran out" : "nobody waited for a block", sum.preempted);
	ok(cache == (sum.cached > 0), "... %" PRId64 " tokens of %" PRId64 " found", sum.cached,
	   sum.n_tok);
}

/* One group of full attention takes another path through the code, and must schedule alike. */
static void test_one_full(const char *policy, bool cache)
{
	struct totals sum[2] = { { .n_tok = 0 }, { .n_tok = 0 } };
	struct rng r = { 99u + cache };
	static struct workload w;

	for (int i = 0; i < 60; i++) {
		const struct kv_group full = FULL(0, 1 + (int64_t)rng_below(&r, 9));

		random_workload(&w, &r, policy, true, cache);
		w.group[0] = full;
		w.lim.n_group = 1;
		w.lim.block_tok = full.block_tok;
		w.lim.num_blocks = 2 + 160 / full.block_tok + (int64_t)rng_below(&r, 40);
		run_workload(&w, &sum[0]);
		w.lim.group = NULL;
		run_workload(&w, &sum[1]);
	}
	ok(sum[0].digest == sum[1].digest && sum[0].cached == sum[1].cached && sum[0].n_tok &&
		   !sum[0].wrong && sum[0].preempted,
	   "%s%s: one group of full attention schedules as none given", policy,
	   cache ? ", cache" : "");
}

/* ---- the most blocks ---- */

static void test_most(void)
{
	static const struct kv_group g[] = { FULL(0, 16), WINDOW(1, 128, 16), LINEAR(2) };
	static const struct kv_group kept = { .mixer = MIX_LINEAR, .n_layers = 1, .block_tok = 16 };
	struct kv_groups_config c = {
		.group = g, .n_group = 1, .rules = policy_find("vllm-0.16")->groups, .max_tok = 100
	};

	is_int(kv_groups_most(&c, 1000), 63, "full attention keeps all tokens");
	c.group = g + 1;
	is_int(kv_groups_most(&c, 1000), 16,
	       "a window keeps 127 tokens and a chunk of 100, which may begin within a block");
	is_int(kv_groups_most(&c, 100), 7, "... but no more than there are");
	is_int(kv_groups_most(&c, 240), 15, "... in whole blocks");
	c.rules = policy_find("vllm-0.19")->groups;
	is_int(kv_groups_most(&c, 1000), 63, "... or all of them, where admission counts them");
	c.rules = policy_find("vllm-0.33")->groups;
	is_int(kv_groups_most(&c, 1000), 16, "... not in 0.33");
	c.async = true;
	is_int(kv_groups_most(&c, 1000), 22, "... but there two chunks are in flight");
	c.group = &kept;
	is_int(kv_groups_most(&c, 1000), 4, "of kept states a sequence has four at most");
	is_int(kv_groups_most(&c, 32), 2, "... but no more than blocks");
	c.async = false;
	is_int(kv_groups_most(&c, 1000), 3, "... three, where no plan is made ahead");
	c.rules = policy_find("vllm-0.24")->groups;
	is_int(kv_groups_most(&c, 1000), 2, "... and two, where no chunk saves one");
	c.group = g + 2;
	is_int(kv_groups_most(&c, 100000), 1, "a state that is not kept is one block");
	c.group = g;
	c.n_group = 3;
	is_int(kv_groups_most(&c, 1000), 63 + 16 + 1, "groups add up");
}

/* Of a window, 32 tokens and a chunk of 64 are 6 blocks, or 7 if the first is cut. */
static void test_need(void)
{
	static const struct kv_group g[] = { FULL(0, 16), WINDOW(1, 33, 16) };
	const struct kv_groups_config c = { .group = g,
					    .n_group = 2,
					    .rules = policy_find("vllm-0.33")->groups,
					    .max_tok = 64,
					    .n_row = 1,
					    .longest = 640 };
	const struct kv_progress none = { .prompt = 640, .known = 640 };
	struct request req = { .prompt_tok = 640, .output_tok = 1 };
	struct trace t = { .req = &req, .n = 1 };
	struct block_pool pool;
	struct kv_groups *k;

	block_pool_init(&pool, 100, 16);
	if (kv_groups_open(&k, &pool, &t, &c, NULL))
		bail_out("out of memory");
	is_int(kv_groups_need(k, 0, &none, 640, true), 40 + 7,
	       "admission counts what a window holds at a time");
	is_int(kv_groups_need(k, 0, &none, 640, false), 40 + 40,
	       "... and a chunk takes all of its blocks");
	kv_groups_close(k);
}

static void test_unfit(void)
{
	static const struct kv_group g[] = { FULL(0, 16), WINDOW(1, 33, 16) };
	struct request r = { .prompt_tok = 160, .output_tok = 1 };
	struct sched_limits l = { .policy = policy_find("vllm-0.16"),
				  .max_batched_tok = 16,
				  .max_seqs = 4,
				  .block_tok = 16,
				  .group = g,
				  .n_group = 2,
				  .num_blocks = 15 };
	char why[160];

	ok(!sched_rejects(&l, &r, why, sizeof why), "10 blocks and 4 of a window fit into 14");
	l.num_blocks = 14;
	ok(sched_rejects(&l, &r, why, sizeof why), "... but not into 13");
	is_str(why, "needs 14 KV blocks, 13 are usable", "... and the reason says so");
	l.policy = policy_find("vllm-0.19");
	ok(sched_rejects(&l, &r, why, sizeof why), "vllm-0.19 counts all blocks of the window");
	is_str(why, "needs 20 KV blocks, 13 are usable", "... which are 20");
}

/* A block that leaves its window before its last token is known, as an output in flight can: it has
 * no name then, and the one that has it keeps it. */
static void test_nameless(void)
{
	static const struct kv_group g[] = { WINDOW(0, 1, 4) };
	struct request req[2];
	struct block_run run[4];
	struct trace t = { .req = req, .run = run, .cap_run = 4, .block_tok = 4 };
	uint32_t row[2] = { 0, 0 }, owned[2] = { 0, 0 };
	const struct kv_groups_config c = { .group = g,
					    .n_group = 1,
					    .rules = policy_find("vllm-0.16")->groups,
					    .max_tok = 8,
					    .n_row = 2,
					    .longest = 8 };
	const struct kv_progress first = { .req = 0, .prompt = 6, .known = 6 };
	const struct kv_progress second = { .req = 1, .prompt = 6, .known = 6 };
	const struct kv_progress later = { .req = 1, .comp = 4, .prompt = 6, .known = 6 };
	struct block_pool pool;
	struct kv_groups *k;
	uint32_t junction;

	letters_add(&t, 0, "abcdef", 1);
	letters_add(&t, 0, "abcdef", 1);
	block_pool_init(&pool, 5, 4);
	if (kv_groups_open(&k, &pool, &t, &c, NULL))
		bail_out("out of memory");
	ok(kv_groups_grow(k, &row[0], &owned[0], &first, 4), "a block is taken");
	kv_groups_enter(k, row[0], &first, 4);
	ok(kv_groups_grow(k, &row[1], &owned[1], &second, 4) &&
		   kv_groups_grow(k, &row[1], &owned[1], &later, 5),
	   "one like it leaves its window");
	kv_groups_enter(k, row[1], &later, 4);
	kv_groups_release(k, &row[1], &owned[1]);
	is_int(kv_groups_match(k, 1, 5, &junction), 4, "the first one is found");
	kv_groups_release(k, &row[0], &owned[0]);
	ok(kv_groups_grow(k, &row[1], &owned[1], &second, 8) && owned[1] == 2,
	   "both are free again");
	ok(kv_groups_grow(k, &row[0], &owned[0], &first, 8) && !pool.n_free,
	   "... and all are taken");
	kv_groups_release(k, &row[0], &owned[0]);
	is_int(kv_groups_match(k, 0, 5, &junction), 0, "then the name is gone");
	kv_groups_close(k);
}

static void test_faults(void)
{
	static const struct kv_group g[] = { FULL(0, 4), WINDOW(1, 5, 4) };
	struct request req[1];
	struct block_run run[8];
	struct trace t = { .req = req, .run = run, .cap_run = 8, .block_tok = 4 };
	struct sched_limits lim = { .policy = policy_find("vllm-0.16"),
				    .max_batched_tok = 8,
				    .max_seqs = 8,
				    .block_tok = 4,
				    .group = g,
				    .n_group = 2,
				    .num_blocks = 9 };

	letters_add(&t, 0, X, 1);
	letters_fail(&t, &lim, 14);
}

int main(void)
{
	static const char *const names[] = { "vllm-0.16", "vllm-0.19", "vllm-0.24", "vllm-0.33" };

	plan(0);
	for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
		run_scenario(&scenarios[i]);
	for (int i = 0; i < 4; i++)
		for (int cache = 0; cache < 2; cache++) {
			test_random(names[i], false, cache);
			test_random(names[i], true, cache);
			test_one_full(names[i], cache);
		}
	test_most();
	test_need();
	test_unfit();
	test_nameless();
	test_faults();
	return done_testing();
}
