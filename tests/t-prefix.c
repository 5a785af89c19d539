/* SPDX-License-Identifier: Apache-2.0 */
/* The prefix cache under vLLM's policies: first schedules and block tables that were observed on
 * the engine. Then random operations against a slow model cache that compares texts.  Then each
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

/* ---- scenarios ---- */

struct scenario {
	const char *name, *policy;
	int64_t budget, n_block;
	struct {
		int64_t us;
		const char *text;
		uint32_t output;
	} req[8];
	const char *log;
	uint32_t cached[8];
	const char *free_order; /* at the end, or NULL */
};

#define X "abcdefghijkl"
#define Q "mnopqrstuvwx"

/* clang-format off */
static const struct scenario scenarios[] = {
{ "hits", "vllm-0.16", 16, 19,
  { { 0, X, 2 }, { 5000, X, 2 }, { 10000, "abcdefghMNOPQR", 1 }, { 15000, X "Z", 1 } },
  "0-1 A:12@0 [1 2 3]\n"
  "1-2 A:1@12 [1 2 3 4]\n"
  "5-6 B:4@8 [1 2 5]\n"
  "6-7 B:1@12 [1 2 5 6]\n"
  "10-11 C:6@8 [1 2 7 8]\n"
  "15-16 D:1@12 [1 2 3 9]\n",
  { 0, 8, 8, 12 }, NULL },

{ "hits within an iteration", "vllm-0.16", 64, 99, { { 0, X, 2 }, { 0, X, 2 }, { 0, X "XYZ", 2 } },
  "0-1 A:12@0 [1 2 3] B:4@8 [1 2 4] C:3@12 [1 2 3 5]\n"
  "1-2 A:1@12 [1 2 3 6] B:1@12 [1 2 4 7] C:1@15 [1 2 3 5]\n",
  { 0, 8, 12 }, NULL },

{ "hits of a prompt that still runs", "vllm-0.16", 10, 99, { { 0, X, 2 }, { 0, X, 2 } },
  "0-1 A:10@0 [1 2 3]\n"
  "1-2 A:2@10 [1 2 3] B:4@8 [1 2 4]\n"
  "2-3 A:1@12 [1 2 3 5] B:1@12 [1 2 4 6]\n",
  { 0, 8 }, NULL },

{ "eviction", "vllm-0.16", 32, 7,
  { { 0, X, 1 }, { 2000, Q, 1 }, { 4000, "ABCDEFGH", 1 }, { 6000, X "Z", 1 },
    { 8000, Q "Z", 1 } },
  "0-1 A:12@0 [1 2 3]\n"
  "2-3 B:12@0 [4 5 6]\n"
  "4-5 C:8@0 [7 3]\n"
  "6-7 D:5@8 [1 2 6 5]\n"
  "8-9 E:9@4 [4 3 7 5]\n",
  { 0, 0, 0, 8, 4 }, "6 2 1 5 7 3 4" },

{ "a block without a name waits its turn", "vllm-0.16", 32, 7,
  { { 0, X "Z", 1 }, { 2000, Q "Z", 1 }, { 4000, "ABCDE", 1 }, { 6000, X "YZ", 1 },
    { 8000, Q "Z", 2 } },
  "0-1 A:13@0 [1 2 3 4]\n"
  "2-3 B:13@0 [5 6 7 4]\n"
  "4-5 C:5@0 [3 2]\n"
  "6-7 D:10@4 [1 4 7 6]\n"
  "8-9 E:9@4 [5 2 3 6]\n"
  "9-10 E:1@13 [5 2 3 6]\n",
  { 0, 0, 0, 4, 4 }, "7 4 1 6 3 2 5" },

{ "a block without a name goes first", "vllm-0.24", 32, 7,
  { { 0, X "Z", 1 }, { 2000, Q "Z", 1 }, { 4000, "ABCDE", 1 }, { 6000, X "YZ", 1 },
    { 8000, Q "Z", 2 } },
  "0-1 A:13@0 [1 2 3 4]\n"
  "2-3 B:13@0 [4 5 6 7]\n"
  "4-5 C:5@0 [7 3]\n"
  "6-7 D:6@8 [1 2 3 6]\n"
  "8-9 E:5@8 [4 5 6 7]\n"
  "9-10 E:1@13 [4 5 6 7]\n",
  { 0, 0, 0, 8, 8 }, "7 3 2 1 6 5 4" },

{ "a preempted request finds its blocks", "vllm-0.16", 16, 6,
  { { 0, "abcdefgh", 6 }, { 0, "ABCDEFG", 6 }, { 1500, "mnop", 2 } },
  "0-1 A:8@0 [1 2] B:7@0 [3 4]\n"
  "1-2 A:1@8 [1 2 5] B:1@7 [3 4]\n"
  "2-3 A:1@9 [1 2 5] B:1@8 [3 4 6]\n"
  "3-4 A:1@10 [1 2 5] B:1@9 [3 4 6]\n"
  "4-5 A:1@11 [1 2 5] B:1@10 [3 4 6]\n"
  "5-6 A:1@12 [1 2 5 6]\n"
  "6-7 B:4@8 [3 4 6] C:4@0 [5]\n"
  "7-8 C:1@4 [5 2]\n",
  { 0 }, NULL },
};
/* clang-format on */

static void put_table(struct text *log, const struct sched *s, const struct sched_seq *q)
{
	for (uint32_t k = 0; k < q->n_block; k++)
		letters_put(log, "%s%" PRIu32, k ? " " : "",
			    prefix_cache_table(s->cache, q->row)[k]);
}

static void run_scenario(const struct scenario *c)
{
	struct request req[8];
	struct block_run run[64];
	struct trace t = { .req = req, .run = run, .cap_run = 64, .block_tok = 4 };
	struct sched_limits lim = { .policy = policy_find(c->policy),
				    .max_batched_tok = c->budget,
				    .max_seqs = 8,
				    .block_tok = 4,
				    .num_blocks = c->n_block + 1,
				    .prefix_cache = true };
	struct text log = { .n = 0 }, order = { .n = 0 };
	uint32_t wrong = 0;
	struct sched *s;

	for (int i = 0; i < 8 && c->req[i].text; i++)
		letters_add(&t, c->req[i].us, c->req[i].text, c->req[i].output);
	if (sched_open(&s, &t, &lim, NULL))
		bail_out("out of memory");
	letters_replay(s, &log, put_table);
	is_str(log.s, c->log, "%s: the schedule and the block tables are the engine's", c->name);
	for (size_t i = 0; i < t.n; i++)
		wrong += s->seq[i].cached != c->cached[i];
	is_int(wrong, 0, "%s: cached tokens are the engine's", c->name);
	for (uint32_t b = 0; (b = prefix_cache_next_free(s->cache, b));)
		letters_put(&order, "%s%" PRIu32, order.n ? " " : "", b);
	if (c->free_order)
		is_str(order.s, c->free_order, "%s: the order of eviction is the engine's",
		       c->name);
	is_int(s->pool.n_free, c->n_block, "%s: all blocks are free at the end", c->name);
	sched_close(s);
}

/* ---- beside a slow cache ---- */

enum { BLOCKS = 24, ROWS = 6, REQS = 12, LEN = 60, ROW = 30 };

/* Blocks carry texts; lists are arrays. */
struct slow {
	char text[BLOCKS + 1][LEN + 8]; /* "": no content */
	uint64_t entered[BLOCKS + 1], clock;
	int owners[BLOCKS + 1];
	uint32_t free[BLOCKS + 1], n_free;
};

struct live { /* a running sequence in both caches */
	uint32_t req, n_tok, row, owned, n_slow;
	uint32_t slow[ROW];
};

static char prompt[REQS][LEN + 1];

/* Write the content of block k of req, the trace's granularity included.  It is all text up to the
 * end of the trace's block.  Where no id covers the block, it is the request's name. */
static void content(char *out, const struct trace *t, uint32_t block_tok, uint32_t req, uint32_t k)
{
	uint32_t end = (k + 1) * block_tok, len = t->req[req].prompt_tok;

	if (end > len || !t->block_tok) {
		sprintf(out, "%u of %u", k, req);
		return;
	}
	end = (end + t->block_tok - 1) / t->block_tok * t->block_tok;
	sprintf(out, "%u:%.*s%s", k, (int)(end < len ? end : len), prompt[req],
		end <= len ? "" : "|");
}

static uint32_t slow_find(const struct slow *c, const char *text)
{
	uint32_t best = 0;

	for (uint32_t b = 1; b <= BLOCKS; b++)
		if (!strcmp(c->text[b], text) && (!best || c->entered[b] < c->entered[best]))
			best = b;
	return best;
}

static void slow_unlink(struct slow *c, uint32_t b)
{
	uint32_t i = 0;

	while (c->free[i] != b)
		i++;
	memmove(&c->free[i], &c->free[i + 1], (--c->n_free - i) * sizeof c->free[0]);
}

static bool slow_grow(struct slow *c, struct live *q, const uint32_t *hit, uint32_t n_hit,
		      uint32_t want)
{
	uint32_t need = want - q->n_slow - n_hit;

	for (uint32_t i = 0; i < n_hit; i++)
		need += !c->owners[hit[i]];
	if (need > c->n_free)
		return false;
	for (uint32_t i = 0; i < n_hit; i++) {
		if (!c->owners[hit[i]]++)
			slow_unlink(c, hit[i]);
		q->slow[q->n_slow++] = hit[i];
	}
	while (q->n_slow < want) {
		uint32_t b = c->free[0];

		slow_unlink(c, b);
		c->text[b][0] = '\0';
		c->owners[b] = 1;
		q->slow[q->n_slow++] = b;
	}
	return true;
}

static void slow_release(struct slow *c, struct live *q, bool unnamed_first)
{
	uint32_t n_unnamed = 0;

	while (q->n_slow) {
		uint32_t b = q->slow[--q->n_slow], at = c->n_free;

		if (--c->owners[b])
			continue;
		if (unnamed_first && !*c->text[b])
			at = n_unnamed++;
		memmove(&c->free[at + 1], &c->free[at], (c->n_free++ - at) * sizeof c->free[0]);
		c->free[at] = b;
	}
}

struct pair {
	struct trace *t;
	struct block_pool pool;
	struct prefix_cache *fast;
	struct slow slow;
	struct live live[ROWS];
	uint32_t n_live;
	bool unnamed_first;
	int64_t hits, refused, bad;
};

static bool same_state(const struct pair *p)
{
	uint32_t b = 0;

	if (p->pool.n_free != p->slow.n_free)
		return false;
	for (uint32_t i = 0; i < p->slow.n_free; i++) {
		b = prefix_cache_next_free(p->fast, b);
		if (b != p->slow.free[i])
			return false;
	}
	for (uint32_t i = 0; i < p->n_live; i++) {
		const struct live *q = &p->live[i];

		if (q->owned != q->n_slow || memcmp(prefix_cache_table(p->fast, q->row), q->slow,
						    q->n_slow * sizeof q->slow[0]))
			return false;
	}
	return !prefix_cache_next_free(p->fast, b);
}

/* n more tokens for q, which has the hits if it is new. */
static bool grow(struct pair *p, struct live *q, uint32_t n_hit, const uint32_t *hit, uint32_t n)
{
	uint32_t bt = (uint32_t)p->pool.block_tok, want = (q->n_tok + n + bt - 1) / bt;
	bool done = prefix_cache_grow(p->fast, &q->row, &q->owned, n_hit, want);

	p->bad += done != slow_grow(&p->slow, q, hit, n_hit, want);
	p->refused += !done;
	if (!done)
		return false;
	prefix_cache_enter(p->fast, q->req, q->row, q->n_tok / bt, (q->n_tok + n) / bt);
	for (uint32_t k = q->n_tok / bt; k < (q->n_tok + n) / bt; k++) {
		content(p->slow.text[q->slow[k]], p->t, bt, q->req, k);
		p->slow.entered[q->slow[k]] = ++p->slow.clock;
	}
	q->n_tok += n;
	return true;
}

static bool is_live(const struct pair *p, uint32_t req)
{
	uint32_t i = 0;

	while (i < p->n_live && p->live[i].req != req)
		i++;
	return i < p->n_live;
}

static void admit(struct pair *p, struct rng *r)
{
	struct live *q = &p->live[p->n_live];
	uint32_t bt = (uint32_t)p->pool.block_tok, hit[ROW], n_hit = 0, max;
	char text[LEN + 8];

	*q = (struct live){ .req = (uint32_t)rng_below(r, REQS) };
	if (is_live(p, q->req))
		return;
	max = (p->t->req[q->req].prompt_tok - 1) / bt;
	for (; n_hit < max; n_hit++) {
		content(text, p->t, bt, q->req, n_hit);
		hit[n_hit] = slow_find(&p->slow, text);
		if (!hit[n_hit])
			break;
	}
	p->bad += prefix_cache_match(p->fast, q->req, max) != n_hit;
	q->n_tok = n_hit * bt;
	p->hits += n_hit;
	p->n_live += grow(p, q, n_hit, hit,
			  1 + (uint32_t)rng_below(r, p->t->req[q->req].prompt_tok - q->n_tok));
}

static void step(struct pair *p, struct rng *r)
{
	uint32_t i = (uint32_t)rng_below(r, ROWS);

	if (i >= p->n_live) {
		admit(p, r);
	} else if (rng_below(r, 3)) {
		if (p->live[i].n_tok + 8 < LEN)
			grow(p, &p->live[i], 0, NULL, 1 + (uint32_t)rng_below(r, 8));
	} else {
		prefix_cache_list(p->fast, p->live[i].req, p->live[i].row,
				  p->live[i].n_tok / (uint32_t)p->pool.block_tok);
		prefix_cache_release(p->fast, p->live[i].row, &p->live[i].owned, p->unnamed_first);
		slow_release(&p->slow, &p->live[i], p->unnamed_first);
		p->live[i] = p->live[--p->n_live];
	}
	p->bad += !same_state(p);
}

static void compare_caches(uint32_t trace_tok, uint32_t block_tok, bool unnamed_first)
{
	struct rng r = { trace_tok * 100 + block_tok };
	struct request req[REQS];
	struct block_run run[REQS * LEN];
	struct trace t = { .req = req, .run = run, .cap_run = REQS * LEN, .block_tok = trace_tok };
	struct pair p = { .t = &t, .unnamed_first = unnamed_first };

	letters_draw(&t, &r, *prompt, REQS, LEN);
	block_pool_init(&p.pool, BLOCKS + 1, block_tok);
	if (prefix_cache_open(&p.fast, &p.pool, &t, trace_tok, ROWS, LEN, NULL))
		bail_out("out of memory");
	for (uint32_t b = 1; b <= BLOCKS; b++)
		p.slow.free[p.slow.n_free++] = b;
	for (int i = 0; i < 5000; i++)
		step(&p, &r);
	is_int(p.bad, 0,
	       "blocks of %u in traces of %u%s: 5000 random steps as a slow cache takes "
	       "them",
	       block_tok, trace_tok, unnamed_first ? ", without a name first" : "");
	diag("%" PRId64 " hits, %" PRId64 " refusals", p.hits, p.refused);
	ok(p.hits > 100 && p.refused > 0, "... with hits and without room at times");
	prefix_cache_close(p.fast);
}

/* How many of the blocks of two requests with one prompt have one name, under two roots. */
static int same_names(uint64_t root0, uint64_t root1)
{
	struct request req[2];
	struct block_run run[2 * LEN];
	struct trace t = { .req = req, .run = run, .cap_run = 2 * LEN, .block_tok = 4 };
	const uint64_t root[2] = { root0, root1 };
	struct prefix_cache *c[2];
	struct block_pool pool[2];
	int same = 0;

	for (int i = 0; i < 2; i++)
		letters_add(&t, 0, X, 1);
	for (int i = 0; i < 2; i++) {
		block_pool_init(&pool[i], BLOCKS + 1, 4);
		if (prefix_cache_open(&c[i], &pool[i], &t, root[i], ROWS, LEN, NULL))
			bail_out("out of memory");
	}
	for (uint32_t k = 0; k < strlen(X) / 4; k++)
		same += prefix_cache_hash(c[0], 0, k) == prefix_cache_hash(c[1], 1, k);
	prefix_cache_close(c[0]);
	prefix_cache_close(c[1]);
	return same;
}

static void test_roots(void)
{
	static const char *const params[] = {
		"{\"exec\":\"paged\",\"select\":\"none\",\"union\":\"none\"}",
		"{\"alpha\":0.06,\"exec\":\"paged\",\"select\":\"flashprefill\","
		"\"union\":\"group\"}",
		"{\"alpha\":0.07,\"exec\":\"paged\",\"select\":\"flashprefill\","
		"\"union\":\"group\"}",
	};
	uint64_t root[3];
	int blocks = (int)strlen(X) / 4;

	for (int i = 0; i < 3; i++)
		root[i] = prefix_cache_root(params[i]);
	is_int(same_names(root[1], root[1]), blocks,
	       "equal prompts under one method have equal names");
	is_int(same_names(root[0], root[1]), 0, "under two methods they have none in common");
	is_int(same_names(root[1], root[2]), 0, "... nor under two values of a parameter");
	is_int(same_names(prefix_cache_root(NULL), 0), blocks, "without a method the root is 0");
}

static void test_faults(void)
{
	struct request req[2];
	struct trace t = { .req = req };
	struct sched_limits lim = { .policy = policy_find("vllm-0.16"),
				    .max_batched_tok = 8,
				    .max_seqs = 8,
				    .block_tok = 4,
				    .num_blocks = 9,
				    .prefix_cache = true };

	letters_add(&t, 0, X, 1);
	letters_fail(&t, &lim, 10);
}

int main(void)
{
	plan(0);
	for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
		run_scenario(&scenarios[i]);
	for (int unnamed_first = 0; unnamed_first < 2; unnamed_first++) {
		compare_caches(4, 4, unnamed_first);
		compare_caches(8, 2, unnamed_first);
		compare_caches(6, 4, unnamed_first);
		compare_caches(2, 3, unnamed_first);
		compare_caches(0, 4, unnamed_first);
	}
	test_roots();
	test_faults();
	return done_testing();
}
