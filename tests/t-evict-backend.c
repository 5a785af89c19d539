/* SPDX-License-Identifier: Apache-2.0 */
/* Events of evictors in backend cpu: what is left in the cache, whatever the chunks are and after a
 * preemption, and comparisons with dense attention over all tokens. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "replay/engine/backend_cpu.h"
#include "tests/alloc_fault.h"
#include "tests/backend-case.h"
#include "tests/tap.h"

enum { PROMPT = 300, PAGE = 128 };

static const char snapkv[] = "snapkv:budget=100,window=32";

static struct evict *parsed(const char *text)
{
	struct ar_err err;
	struct evict *e;

	if (evict_parse(&e, text, &err))
		bail_out("%s", err.msg);
	return e;
}

/* A backend with one request of PROMPT tokens. */
static void open_with(struct backend_case *c, const struct evict *e)
{
	struct ar_err err;

	if (case_open(c, &backend_cpu, &(struct case_how){ .method = "dense", .evict = e }, &err))
		bail_out("%s", err.msg);
	c->req[0].prompt_tok = PROMPT;
}

static struct iter_cost run_entry(struct backend_case *c, struct batch_entry e)
{
	struct iter_cost cost;

	e.n_emit = e.start + e.n_tok == e.known;
	case_run(c, &e, 1, &cost);
	return cost;
}

/* Run tokens [0, known), the prompt in the chunks chunk[0], ... (0: the rest).  n_evict leave. */
static struct iter_cost run_prompt(struct backend_case *c, const int *chunk, uint32_t known,
				   uint32_t n_evict)
{
	struct batch_entry e = { .known = known };
	struct iter_cost cost;

	for (; e.start < known; e.start += e.n_tok) {
		e.n_tok = *chunk ? (uint32_t)*chunk++ : known - e.start;
		e.evict = e.start + e.n_tok >= PROMPT ? n_evict : 0;
		cost = run_entry(c, e);
	}
	return cost;
}

static struct batch_entry decode_entry(uint32_t at, uint32_t gone, uint32_t n_evict)
{
	return (struct batch_entry){ .start = at,
				     .n_tok = 1,
				     .known = at + 1,
				     .kind = ROW_DECODE,
				     .gone = gone,
				     .evict = n_evict };
}

/* K of a slot of the request. */
static const bf16_t *slot_of(const struct backend_case *c, int layer, int h, int slot)
{
	const struct cpu *x = c->self;
	const struct cache_group *g = attn_engine_group(&x->engine, layer);
	const int32_t *page = blocks_table(&c->blocks, g->no, 0);
	size_t at = (size_t)((page[slot / PAGE] * CASE_KV_HEADS + h) * PAGE + slot % PAGE);

	return x->kv[layer].k + at * CASE_DIM;
}

static uint64_t digest_of(const struct backend_case *c, int n)
{
	uint64_t x = 0;

	for (int i = 0; i < CASE_RUN_LAYERS; i++)
		for (int h = 0; h < CASE_KV_HEADS; h++)
			for (int t = 0; t < n; t++)
				for (int d = 0; d < CASE_DIM; d++)
					x = rng_mix(x ^ slot_of(c, i, h, t)[d]);
	return x;
}

/* The token whose key is in a slot, by the cache of a run in which all stay; -1: none. */
static int token_of(const struct backend_case *c, const struct backend_case *all, int layer, int h,
		    int slot, int from)
{
	size_t bytes = CASE_DIM * sizeof(bf16_t);

	for (int t = from; t < blocks_len(&all->blocks, 0, 0); t++)
		if (!memcmp(slot_of(c, layer, h, slot), slot_of(all, layer, h, t), bytes))
			return t;
	return -1;
}

/* A run in which all tokens stay. */
static void open_all(struct backend_case *all, uint32_t n_decode)
{
	open_with(all, NULL);
	run_prompt(all, (int[]){ 0 }, PROMPT, 0);
	for (uint32_t t = PROMPT; t < PROMPT + n_decode; t++)
		run_entry(all, decode_entry(t, 0, 0));
}

/* ---- prompts ---- */

/* The digest of what stays of a prompt in chunks. */
static uint64_t kept_of(const char *text, const int *chunk)
{
	struct evict *e = parsed(text);
	struct backend_case c;
	uint64_t x;

	open_with(&c, e);
	run_prompt(&c, chunk, PROMPT, 200);
	x = digest_of(&c, 100);
	case_close(&c);
	evict_free(e);
	return x;
}

static void test_chunks(const char *text)
{
	uint64_t whole = kept_of(text, (int[]){ 0 });

	ok(kept_of(text, (int[]){ 150, 0 }) == whole && kept_of(text, (int[]){ 290, 0 }) == whole &&
		   kept_of(text, (int[]){ 64, 64, 150, 21, 0 }) == whole,
	   "%s: what stays does not depend on chunks", text);
}

/* Tokens that a prefix cache had are filled in, and add to sums as others do. */
static void test_found(const char *text)
{
	struct evict *e = parsed(text);
	struct backend_case c;

	open_with(&c, e);
	run_entry(&c, (struct batch_entry){
			      .start = 150, .n_tok = PROMPT - 150, .known = PROMPT, .evict = 200 });
	ok(digest_of(&c, 100) == kept_of(text, (int[]){ 0 }),
	   "%s: the same stays where half of the prompt was found", text);
	case_close(&c);
	evict_free(e);
}

static void test_chunk_rule(void)
{
	static const char rule[] = "snapkv:budget=100,window=32,window-rule=chunk";

	ok(kept_of(rule, (int[]){ 0 }) == kept_of(snapkv, (int[]){ 0 }),
	   "window-rule=chunk: a chunk with all rows of the window is enough");
	ok(kept_of(rule, (int[]){ 290, 0 }) != kept_of(snapkv, (int[]){ 0 }),
	   "... and a shorter one chooses alone");
}

static void test_left(void)
{
	struct evict *e = parsed(snapkv);
	struct backend_case c, all;
	int64_t free_pages;
	int n_wrong = 0, n_last = 0;

	open_with(&c, e);
	open_all(&all, 1);
	free_pages = blocks_free(&c.blocks, 0);
	ok(run_prompt(&c, (int[]){ 0 }, PROMPT, 200).phase_ns[PHASE_EVICT] > 0,
	   "the event takes time");
	is_int(blocks_len(&c.blocks, 0, 0), 100, "100 tokens are left");
	is_int(blocks_free(&c.blocks, 0), free_pages - 1, "... and two of three pages are free");
	for (int i = 0; i < CASE_RUN_LAYERS; i++)
		for (int h = 0; h < CASE_KV_HEADS; h++)
			for (int s = 0, t = -1; s < 100; s++) {
				t = token_of(&c, &all, i, h, s, t + 1);
				n_wrong += t < 0;
				n_last += s >= 68 && t == 200 + s;
			}
	is_int(n_wrong, 0, "they are tokens of the prompt, in order");
	is_int(n_last, 32 * CASE_RUN_LAYERS * CASE_KV_HEADS, "the window is the end of them");
	run_entry(&c, decode_entry(PROMPT, 200, 0));
	is_int(token_of(&c, &all, 0, 0, 100, 0), PROMPT, "a decode is stored behind them");
	case_close(&c);
	case_close(&all);
	evict_free(e);
}

/* Five tokens are generated, then the request is preempted. */
static void test_preempted(void)
{
	struct evict *e = parsed(snapkv);
	struct backend_case c;
	uint64_t before;

	open_with(&c, e);
	run_prompt(&c, (int[]){ 250, 0 }, PROMPT, 200);
	for (uint32_t t = PROMPT; t < PROMPT + 5; t++)
		run_entry(&c, decode_entry(t, 200, 0));
	before = digest_of(&c, 105);
	case_drop(&c, 0);
	run_prompt(&c, (int[]){ 120, 0 }, PROMPT + 5, 200);
	is_int(blocks_len(&c.blocks, 0, 0), 105, "after a preemption as many tokens are left");
	ok(digest_of(&c, 105) == before, "... the same ones, bit for bit");
	case_drop(&c, 0);
	run_prompt(&c, (int[]){ 120, 182, 0 }, PROMPT + 5, 200);
	case_drop(&c, 0);
	run_prompt(&c, (int[]){ 290, 0 }, PROMPT, 200);
	case_close(&c);
	evict_free(e);
}

/* ---- decodes ---- */

/* Prompt and decodes: each decode lets one token leave, before the next one runs. */
static void test_decodes(const char *text, bool recent)
{
	struct evict *e = parsed(text);
	struct backend_case c, all;
	int n_wrong = 0;

	open_with(&c, e);
	open_all(&all, 4);
	run_prompt(&c, (int[]){ 100, 0 }, PROMPT, 200);
	for (uint32_t t = 0; t < 4; t++) {
		run_entry(&c, decode_entry(PROMPT + t, 200 + t, 1));
		n_wrong += blocks_len(&c.blocks, 0, 0) != 101;
	}
	is_int(n_wrong, 0, "%s: 101 tokens are stored while a decode runs", text);
	for (int s = 41; s < 101 && recent; s++)
		n_wrong += token_of(&c, &all, 1, 1, s, 0) != 203 + s;
	is_int(n_wrong, 0, "... the last ones among them");
	case_close(&c);
	case_close(&all);
	evict_free(e);
}

/* Dense attention in comparisons is over all tokens, those that have left included. */
static void test_compare(const char *text, int n_evict)
{
	struct evict *e = parsed(text);
	struct batch_entry d = decode_entry(PROMPT, 200, (uint32_t)n_evict);
	struct batch_entry dense = decode_entry(PROMPT, 0, 0);
	struct backend_case c, all;
	struct case_result got, none;
	size_t n = (size_t)CASE_HEADS * CASE_DIM;
	const struct cpu *x, *y;
	double most = 0, least = 1;

	open_with(&c, e);
	open_all(&all, 1);
	run_prompt(&c, (int[]){ 0 }, PROMPT, 200);
	run_entry(&c, d);
	case_compare(&c, &d, &got);
	case_compare(&all, &dense, &none);
	x = c.self;
	y = all.self;
	ok(!memcmp(x->out_dense, y->out_dense, n * sizeof *x->out_dense) &&
		   !memcmp(x->lse_dense, y->lse_dense, CASE_HEADS * sizeof *x->lse_dense),
	   "%s: a decode is compared with dense attention over all tokens, bit for bit", text);
	for (int i = 0; i < CASE_RUN_LAYERS * CASE_HEADS; i++) {
		const struct accuracy *a = &got.acc[i / CASE_HEADS][i % CASE_HEADS];

		most = a->mass_recall > most ? a->mass_recall : most;
		least = a->rel_l2 < least ? a->rel_l2 : least;
	}
	ok(most < 1 && least > 0, "... from which it differs in all heads");
	case_close(&c);
	case_close(&all);
	evict_free(e);
}

/* ---- errors ---- */

static void test_refused(void)
{
	struct evict *e = parsed(snapkv);
	struct backend_case c;
	struct ar_err err;

	is_int(case_open(&c, &backend_cpu,
			 &(struct case_how){ .method = "dense", .evict = e, .mixed = true }, &err),
	       AR_USAGE, "layers without full attention are refused");
	is_str(err.msg,
	       "evictor 'snapkv': layer 1 of model 'small' is not of full attention; take a model "
	       "whose layers all are",
	       "... by name");
	case_close(&c);
	evict_free(e);
}

static enum ar_status life(const struct backend_env *like, const struct evict *e)
{
	struct batch_entry prompt = { .n_tok = PROMPT, .known = PROMPT, .n_emit = 1, .evict = 200 };
	struct batch_entry d = decode_entry(PROMPT, 200, e->evictor->decodes);
	struct backend_env env = *like;
	struct blocks blocks = { 0 };
	struct accuracy acc[CASE_HEADS];
	struct selection_count count[CASE_KV_HEADS];
	struct iter_cost cost;
	struct ar_err err;
	void *self = NULL;
	enum ar_status st;

	env.blocks = &blocks;
	env.evict = e;
	st = backend_open(&backend_cpu, &self, NULL, &env, &err);
	if (!st)
		st = backend_start(&backend_cpu, self, env.num_blocks, &err);
	if (!st)
		st = backend_run(&backend_cpu, self,
				 &(struct batch){ .entry = &prompt, .n = 1, .blocks = &blocks },
				 &cost, &err);
	if (!st)
		st = backend_run(&backend_cpu, self,
				 &(struct batch){ .entry = &d, .n = 1, .blocks = &blocks }, &cost,
				 &err);
	if (!st)
		st = backend_compare(&backend_cpu, self, &d, 0, acc, count, NULL, &err);
	backend_close(&backend_cpu, self);
	blocks_release(&blocks);
	return st;
}

static void test_faults(const char *text)
{
	struct evict *e = parsed(text);
	struct backend_case c;
	bool clean = true;
	long k;

	open_with(&c, NULL);
	for (k = 0;; k += fault_stride(3)) {
		enum ar_status st;

		fault_arm(k);
		st = life(&c.env, e);
		if (!fault_disarm()) {
			clean &= st == AR_OK;
			break;
		}
		clean &= st == AR_NOMEM;
	}
	ok(clean && k > 20, "%s: any of %ld allocations may fail", text, k);
	case_close(&c);
	evict_free(e);
}

int main(void)
{
	static const char *const text[] = { snapkv, "h2o:heavy=40,recent=60",
					    "streaming:sink=40,recent=60" };

	for (int i = 0; i < 3; i++) {
		test_chunks(text[i]);
		test_compare(text[i], i > 0);
		test_faults(text[i]);
	}
	test_found(text[1]);
	test_chunk_rule();
	test_left();
	test_preempted();
	test_decodes(text[1], true);
	test_decodes(text[2], true);
	test_refused();
	return done_testing();
}
