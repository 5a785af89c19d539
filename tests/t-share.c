/* SPDX-License-Identifier: Apache-2.0 */
/* Pages that requests share: what they read under each policy, the outputs of each method with and
 * without, and the pages of long prefixes. */
#include "config.h"
#include "replay/engine/backend_cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "kernels/methods/accuracy.h"
#include "replay/engine/replay.h"
#include "tests/tap.h"

enum { MOST_REQ = 48, ID_TOK = 8, MOST_RUN = MOST_REQ * 64 };

/* ---- workloads ---- */

struct load {
	struct trace trace;
	struct request req[MOST_REQ];
	struct block_run run[MOST_RUN];
};

/* Requests of some families.  Prompts of a family begin alike, and each id of the trace stands for
 * ID_TOK tokens and all before them. */
static void draw_load(struct load *x, struct rng *r, size_t n, uint32_t prompt, uint32_t output)
{
	*x = (struct load){ .trace = { .req = x->req,
				       .run = x->run,
				       .cap_run = MOST_RUN,
				       .n = n,
				       .block_tok = ID_TOK,
				       .name = (char *)(uintptr_t) "drawn" } };
	for (size_t i = 0; i < n; i++) {
		struct request *q = &x->req[i];
		uint64_t id = 1000 * (1 + rng_below(r, 3));

		*q = (struct request){ .arrival_ns = (int64_t)(i / 3) * 2000000,
				       .prompt_tok = prompt / 2 + (uint32_t)rng_below(r, prompt),
				       .output_tok = 1 + (uint32_t)rng_below(r, output),
				       .priority = (int32_t)rng_below(r, 3),
				       .run = x->trace.n_run };
		for (uint32_t k = 0; k * ID_TOK < q->prompt_tok; k++) {
			trace_put_block(&x->trace, q, id);
			id = rng_mix(id + !rng_below(r, prompt / ID_TOK));
		}
	}
}

/* Limits under which requests are preempted now and then. */
static struct sched_limits limits_of(const struct policy *p, int64_t block_tok, int64_t tokens)
{
	return (struct sched_limits){ .policy = p,
				      .max_batched_tok = 64 > block_tok ? 64 : block_tok,
				      .max_seqs = 8,
				      .block_tok = block_tok,
				      .num_blocks = 1 + (tokens + block_tok - 1) / block_tok,
				      .prefix_cache = true,
				      .watermark = p->watermark,
				      .survives = true };
}

/* ---- what requests read ---- */

enum { PAGE = 8, MOST_PAGES = 256, MOST_GROUPS = 2 };

/* A backend whose pages hold numbers that stand for a token and all tokens before it. */
struct reader {
	const struct load *load;
	struct blocks *blocks;
	uint64_t cell[MOST_GROUPS][MOST_PAGES][PAGE];
	uint64_t digest; /* of the schedule */
	int64_t n_copied, want_copied, n_late;
	bool shares, right;
};

/* The number of token pos of a request. */
static uint64_t token_of(const struct load *x, uint32_t req, int64_t pos)
{
	const struct request *q = &x->req[req];

	return pos < q->prompt_tok ? rng_mix(trace_block(&x->trace, q, (uint32_t)(pos / ID_TOK))) +
					     (uint64_t)(pos % ID_TOK) :
				     rng_mix(~(uint64_t)req) + (uint64_t)pos;
}

static void write_rows(struct reader *x, const struct batch_entry *e)
{
	for (int g = 0; g < x->blocks->n; g++)
		for (int64_t i = e->start; i < (int64_t)e->start + e->n_tok; i++)
			x->cell[g][blocks_table(x->blocks, g, e->req)[i / PAGE]][i % PAGE] =
				token_of(x->load, e->req, i);
}

static enum ar_status write_entry(struct reader *x, const struct batch_entry *e, struct ar_err *err)
{
	struct batch_entry piece;
	enum ar_status st = blocks_hit(x->blocks, e, err);

	while (!st && blocks_missing(x->blocks, e, 40, &piece)) {
		st = blocks_place(x->blocks, &piece, err);
		if (!st)
			write_rows(x, &piece);
	}
	st = st ? st : blocks_place(x->blocks, e, err);
	if (!st)
		write_rows(x, e);
	return st;
}

static void copy_rows(struct reader *x)
{
	for (size_t i = 0; i < x->blocks->n_copy; i++) {
		const struct block_copy *c = &x->blocks->copy[i];

		memcpy(x->cell[c->g][c->to], x->cell[c->g][c->from],
		       (size_t)c->n_tok * sizeof x->cell[0][0][0]);
		x->n_copied += c->n_tok;
		x->n_late += c->fresh;
	}
}

/* Every key that the rows of e see is the one of their request. */
static void read_rows(struct reader *x, const struct batch_entry *e)
{
	for (int g = 0; g < x->blocks->n; g++) {
		int window = x->blocks->group[g].window;
		int64_t first = window && e->start >= (uint32_t)window ? e->start - window + 1 : 0;

		for (int64_t i = first; i < (int64_t)e->start + e->n_tok; i++)
			x->right &= x->cell[g][blocks_table(x->blocks, g, e->req)[i / PAGE]]
					   [i % PAGE] == token_of(x->load, e->req, i);
	}
}

static enum ar_status reader_run(void *self, const struct batch *b, struct iter_cost *cost,
				 struct ar_err *err)
{
	struct reader *x = self;
	enum ar_status st = AR_OK;

	blocks_begin(x->blocks);
	for (size_t i = 0; i < b->n && !st; i++) {
		const struct batch_entry *e = &b->entry[i];

		if (!blocks_len(x->blocks, 0, e->req))
			x->want_copied += e->start % PAGE;
		st = write_entry(x, e, err);
		x->digest = rng_mix(x->digest ^ e->req) + e->start * 1000ull + e->n_tok;
	}
	copy_rows(x);
	for (size_t i = 0; i < b->n && !st; i++)
		read_rows(x, &b->entry[i]);
	blocks_end(x->blocks);
	*cost = (struct iter_cost){ .cost_ns = 1000000 };
	return st;
}

static void reader_drop(void *self, uint32_t req)
{
	(void)self, (void)req;
}

static const struct backend reader = { .name = "reader", .run = reader_run, .drop = reader_drop };

/* Replay a load with pages for the pool and spare more, at most one for each request. */
static void read_load(struct reader *x, const struct load *load, struct sched_limits l, int spare,
		      const int *window, int n_group, struct replay_result *res)
{
	struct block_group group[MOST_GROUPS];
	struct blocks blocks;
	struct replay cfg = { .trace = &load->trace, .backend = &reader, .self = x };
	struct ar_err err;

	for (int g = 0; g < n_group; g++)
		group[g] = (struct block_group){ .page_tok = PAGE,
						 .n_page = blocks_pages(l.num_blocks, l.block_tok,
									spare, PAGE),
						 .window = window[g] };
	if (blocks_open(&blocks, group, n_group, load->trace.n, &err))
		bail_out("%s", err.msg);
	*x = (struct reader){ .load = load, .blocks = &blocks, .right = true };
	l.blocks = &blocks;
	cfg.limits = l;
	if (replay_run(&cfg, res, &err))
		bail_out("%s: %s", l.policy->name, err.msg);
	blocks_begin(&blocks);
	for (int g = 0; g < n_group; g++)
		x->right &= blocks_free(&blocks, g) == group[g].n_page;
	blocks_release(&blocks);
}

struct totals {
	int64_t cached, preempted, copied, late, refilled;
	int runs;
};

/* Blocks of some sizes.  Their schedules do not depend on who shares pages. */
static void read_policy(const struct policy *p, bool async, struct totals *sum)
{
	static const int64_t sizes[] = { 1, 4, 8, 16, 12 };
	static struct load load;
	struct rng r = { 11 };
	bool right = true, same = true, whole = true, counted = true;

	for (int i = 0; i < 15; i++) {
		const int64_t tok = sizes[i % 5];
		struct sched_limits l = limits_of(p, tok, 480);
		struct reader off, on;
		struct replay_result a, b;

		draw_load(&load, &r, MOST_REQ, 100, 50);
		l.async = async;
		if (p->can & POLICY_ORDER && i % 2)
			l.order = SCHED_PRIORITY;
		read_load(&off, &load, l, 8 + 200, (int[]){ 0 }, 1, &a);
		l.share_pages = true;
		read_load(&on, &load, l, tok % PAGE ? 6 : 0, (int[]){ 0 }, 1, &b);
		right &= off.right && on.right && !off.n_copied;
		same &= off.digest == on.digest && a.iterations == b.iterations;
		whole &= tok % PAGE || !b.kv_refilled;
		counted &= b.kv_refilled || on.n_copied == on.want_copied;
		sum->cached += b.cached_tok;
		sum->preempted += b.preemptions;
		sum->copied += on.n_copied;
		sum->late += on.n_late;
		sum->refilled += b.kv_refilled;
		sum->runs++;
		replay_result_release(&a);
		replay_result_release(&b);
	}
	ok(right, "%s%s: requests read their own tokens", p->name, async ? ", async" : "");
	ok(same, "... in the same schedule");
	ok(whole, "... where blocks are pages, each that is found is on a page");
	ok(counted, "... and the rest of a page is copied for each hit");
}

static void test_policies(void)
{
	struct totals sum = { 0 };

	for (int i = 0; policies[i]; i++)
		for (int async = 0; async < 2; async++)
			if (policies[i]->can & POLICY_PREFIX_CACHE &&
			    (!async || policies[i]->can & POLICY_ASYNC))
				read_policy(policies[i], async, &sum);
	ok(sum.cached > 1000 && sum.preempted > 100 && sum.copied > 1000 && sum.late > 10 &&
		   sum.refilled > 0 && sum.refilled * 1000 < sum.cached,
	   "of %d tokens found, with %d preemptions, %d are copied, %d times in the batch that "
	   "writes them, and %d are filled again",
	   (int)sum.cached, (int)sum.preempted, (int)sum.copied, (int)sum.late, (int)sum.refilled);
}

/* Layers of full attention, and of windows that the policy has a group for. */
static void test_windows(void)
{
	static const struct kv_group group[] = {
		{ .mixer = MIX_FULL, .type = 0, .n_layers = 1, .block_tok = 4 },
		{ .mixer = MIX_WINDOW, .type = 1, .n_layers = 1, .block_tok = 4, .window = 21 }
	};
	static struct load load;
	struct rng r = { 3 };
	struct totals sum = { 0 };
	bool right = true, same = true;

	for (int i = 0; i < 20; i++) {
		struct sched_limits l = limits_of(policy_find("vllm-0.33"), 4, 700);
		struct reader off, on;
		struct replay_result a, b;

		draw_load(&load, &r, MOST_REQ, 100, 50);
		l.group = group;
		l.n_group = 2;
		read_load(&off, &load, l, 8 + 200, (int[]){ 0, 21 }, 2, &a);
		l.share_pages = true;
		read_load(&on, &load, l, 8, (int[]){ 0, 21 }, 2, &b);
		right &= off.right && on.right;
		same &= off.digest == on.digest;
		sum.cached += b.cached_tok;
		sum.copied += on.n_copied;
		sum.preempted += b.preemptions;
		replay_result_release(&a);
		replay_result_release(&b);
	}
	ok(right && same && sum.cached > 1000 && sum.copied > 100 && sum.preempted > 10,
	   "windows: requests read their own tokens, after %d found, %d copied, %d preemptions",
	   (int)sum.cached, (int)sum.copied, (int)sum.preempted);
}

/* ---- memory ---- */

/* A backend that makes room, and counts the pages that requests list. */
static enum ar_status counter_run(void *self, const struct batch *b, struct iter_cost *cost,
				  struct ar_err *err)
{
	struct blocks *blocks = ((struct reader *)self)->blocks;
	int64_t *most = &((struct reader *)self)->n_copied, used;
	enum ar_status st = AR_OK;

	blocks_begin(blocks);
	for (size_t i = 0; i < b->n && !st; i++) {
		st = blocks_hit(blocks, &b->entry[i], err);
		if (!st)
			st = blocks_place(blocks, &b->entry[i], err);
	}
	blocks_end(blocks);
	used = blocks->group->n_page - blocks_free(blocks, 0) - blocks_kept(blocks, 0);
	*most = used > *most ? used : *most;
	*cost = (struct iter_cost){ .cost_ns = 1000000 };
	return st;
}

/* Eight requests of 100,000 tokens, of which 96,000 are common, in a cache of 150,000. */
static void test_memory(void)
{
	enum { TOK = 128, COMMON = 96000, PROMPT = 100000, N = 8 };
	static const struct backend counter = { .name = "counter",
						.run = counter_run,
						.drop = reader_drop };
	static struct load load;
	struct block_group group = { .page_tok = TOK, .n_page = blocks_pages(9375, 16, N, TOK) };
	struct blocks blocks;
	struct reader x = { .blocks = &blocks };
	struct replay cfg = { .trace = &load.trace,
			      .backend = &counter,
			      .self = &x,
			      .limits = { .policy = policy_find("vllm-0.24"),
					  .max_batched_tok = 8192,
					  .max_seqs = N,
					  .block_tok = 16,
					  .num_blocks = 9375,
					  .prefix_cache = true,
					  .share_pages = true,
					  .blocks = &blocks } };
	struct replay_result res;
	struct ar_err err;

	draw_load(&load, &(struct rng){ 1 }, 0, ID_TOK, 1);
	load.trace.n = N;
	load.trace.block_tok = 16;
	for (uint64_t i = 0; i < N; i++) {
		struct request *q = &load.req[i];

		*q = (struct request){ .arrival_ns = (int64_t)i,
				       .prompt_tok = PROMPT,
				       .output_tok = 90,
				       .run = load.trace.n_run };
		if (!trace_put_blocks(&load.trace, q, 1, COMMON / 16) ||
		    !trace_put_blocks(&load.trace, q, 100000 * (i + 1), (PROMPT - COMMON) / 16))
			bail_out("out of memory");
	}
	if (blocks_open(&blocks, &group, 1, N, &err) || replay_run(&cfg, &res, &err))
		bail_out("%s", err.msg);
	ok(res.ok == N && !res.preemptions && res.cached_tok == (N - 1) * COMMON,
	   "eight long requests with a common prefix run at once");
	is_int(x.n_copied, COMMON / TOK + N * ((PROMPT + 90 - COMMON + TOK - 1) / TOK),
	       "they list the pages of the prefix once, and their own");
	blocks_release(&blocks);
	replay_result_release(&res);
}

/* ---- outputs ---- */

enum { HEADS = 4, KV_HEADS = 2, DIM = 64, LEN = 420, FAMILIES = 3 };

/* Backend cpu with one layer.  Requests of a family replay one capture.  It notes what each row
 * gives. */
struct rower {
	struct model model;
	struct layer_spec layer;
	struct capture *capture[FAMILIES];
	struct plan *plan;
	struct blocks blocks;
	struct backend_env env;
	void *self;
	uint64_t digest;
	int64_t n_row, n_late, share_ns, n_bad;
	size_t copied; /* tokens */
};

static enum ar_status rower_run(void *self, const struct batch *b, struct iter_cost *cost,
				struct ar_err *err)
{
	struct rower *x = self;
	struct cpu *c = x->self;
	enum ar_status st = backend_run(&backend_cpu, c, b, cost, err);
	int64_t n = 0;

	if (st)
		return st;
	for (size_t i = 0; i < b->n; i++)
		n += b->entry[i].n_tok;
	for (int64_t i = 0; i < n * HEADS * DIM; i++) {
		x->digest = rng_mix(x->digest ^ c->out[i]);
		x->n_bad += (c->out[i] & 0x7f80) == 0x7f80; /* infinite, or no number */
	}
	x->n_row += n;
	x->share_ns += cost->phase_ns[PHASE_SHARE];
	cost->cost_ns = 1000000; /* the schedule is that of other runs */
	return st;
}

static void rower_drop(void *self, uint32_t req)
{
	backend_drop(&backend_cpu, ((struct rower *)self)->self, req);
}

/* Nothing reads what nobody wrote. */
static void poison(struct rower *x)
{
	struct cpu *c = x->self;
	const struct cache_group *g = attn_engine_group(&c->engine, 0);

	for (int p = 0; p < cache_layout(g->layout)->n_plane; p++)
		memset(c->kv[0].plane[p], 0xff, (size_t)g->n_page * groups_plane_bytes(g, p));
}

static void open_rower(struct rower *x, const struct load *load, const uint16_t *family,
		       const struct sched_limits *l, const char *method)
{
	static const int first[1];
	struct ar_err err;

	*x = (struct rower){ .layer = { .mixer = MIX_FULL,
					.q_heads = HEADS,
					.kv_heads = KV_HEADS,
					.head_dim = DIM,
					.ffn = 128 } };
	x->model = (struct model){ .name = "one",
				   .n_layers = 1,
				   .hidden = 64,
				   .layer = &x->layer,
				   .vocab = 100,
				   .max_len = LEN,
				   .tp = 1,
				   .rope = { .theta = 10000 } };
	for (int i = 0; i < FAMILIES; i++) {
		const struct capture_info shape = { .n_layers = 1,
						    .q_heads = HEADS,
						    .kv_heads = KV_HEADS,
						    .head_dim = DIM,
						    .n_tok = LEN };
		char name[16];

		snprintf(name, sizeof name, "random:%d", i + 1);
		if (capture_random(&x->capture[i], name, &shape, &err))
			bail_out("%s", err.msg);
	}
	if (plan_parse(&x->plan, method, &err))
		bail_out("%s", err.msg);
	x->env = (struct backend_env){ .trace = &load->trace,
				       .model = &x->model,
				       .capture = x->capture,
				       .n_capture = FAMILIES,
				       .capture_of = family,
				       .captured_layer = first,
				       .run_layer = first,
				       .n_run_layers = 1,
				       .plan = x->plan,
				       .max_batched_tok = l->max_batched_tok,
				       .max_seqs = l->max_seqs,
				       .max_len = LEN,
				       .num_blocks = l->num_blocks,
				       .block_tok = l->block_tok,
				       .blocks = &x->blocks,
				       .attention_only = true };
	if (backend_open(&backend_cpu, &x->self, NULL, &x->env, &err) ||
	    backend_start(&backend_cpu, x->self, 20 * l->num_blocks, &err))
		bail_out("%s", err.msg);
	poison(x);
}

static void close_rower(struct rower *x)
{
	backend_close(&backend_cpu, x->self);
	blocks_release(&x->blocks);
	plan_free(x->plan);
	for (int i = 0; i < FAMILIES; i++)
		capture_close(x->capture[i]);
}

/* Run a load; *res has the counts.  Returns what it noted. */
static struct rower run_rows(const struct load *load, const uint16_t *family, struct sched_limits l,
			     const char *method, struct replay_result *res)
{
	static const struct backend rower = { .name = "rower",
					      .run = rower_run,
					      .drop = rower_drop };
	struct rower x;
	struct replay cfg = { .trace = &load->trace, .backend = &rower, .self = &x };
	struct ar_err err;

	open_rower(&x, load, family, &l, method);
	l.blocks = &x.blocks;
	cfg.limits = l;
	if (replay_run(&cfg, res, &err))
		bail_out("%s: %s", method, err.msg);
	close_rower(&x);
	return x;
}

static void compare_rows(const struct load *load, const uint16_t *family, struct sched_limits l,
			 const char *method)
{
	struct replay_result a, b;
	struct rower off = run_rows(load, family, l, method, &a), on;

	l.share_pages = true;
	on = run_rows(load, family, l, method, &b);
	ok(on.digest == off.digest && on.n_row == off.n_row && !on.n_bad && !off.n_bad,
	   "%s%s: each row gives what it gives without shared pages", method,
	   l.async ? ", async" : "");
	ok(b.cached_tok > 500 && b.preemptions > 0 && !b.kv_refilled && !off.share_ns &&
		   on.share_ns > 0,
	   "... of %d tokens found, with %d preemptions", (int)b.cached_tok, (int)b.preemptions);
	replay_result_release(&a);
	replay_result_release(&b);
}

/* It needs a file, or takes keys away, which a prefix cache does not allow. */
static bool is_left_out(const struct method_name *m)
{
	return strstr(m->spec, "seer") || strstr(m->spec, "duo") || strstr(m->spec, "/evict=");
}

/* Each method and each decode part. */
static void test_outputs(void)
{
	static struct load load;
	uint16_t family[MOST_REQ];
	struct sched_limits l = limits_of(policy_find("vllm-0.33"), 16, 1300);
	char name[160];

	l.max_batched_tok = 256;
	draw_load(&load, &(struct rng){ 4 }, 12, 200, 60);
	for (size_t i = 0; i < load.trace.n; i++)
		family[i] = (uint16_t)(trace_block(&load.trace, &load.req[i], 0) / 1000 - 1);
	for (const struct method_name *m = method_names; m->name; m++)
		if (!strchr(m->name, '@') && !is_left_out(m))
			compare_rows(&load, family, l, m->name);
	for (const struct method_name *m = decode_parts + 1; m->name; m++) {
		snprintf(name, sizeof name, "dense/decode=%s", m->name);
		if (!is_left_out(m))
			compare_rows(&load, family, l, name);
	}
	compare_rows(&load, family, l, "compact-fp/decode=rocket,budget=48,page=16");
	l.async = true;
	compare_rows(&load, family, l, "compact-fp");
}

int main(void)
{
	plan(0);
	test_policies();
	test_windows();
	test_memory();
	test_outputs();
	return done_testing();
}
