/* SPDX-License-Identifier: Apache-2.0 */
/* Backend cpu with weights: whole tiny models of each architecture, against the forward pass. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/available.h"
#include "replay/engine/act_weights.h"
#include "replay/engine/backend_cpu.h"
#include "replay/engine/tokens.h"
#include "replay/forward/forward.h"
#include "tests/alloc_fault.h"
#include "tests/tap.h"
#include "tests/tiny_model.h"

enum { REQS = 3, LEN = 400, OUTS = 12, BUDGET = 300 };

static char dir[] = "/tmp/t-backend-weights-XXXXXX";
static struct request requests[REQS] = { { .prompt_tok = 290, .output_tok = 5 },
					 { .prompt_tok = 40, .output_tok = 6 },
					 { .prompt_tok = 131, .output_tok = 1 } };
static const struct trace trace = { .req = requests, .n = REQS };
static int32_t prompt[LEN];
static const struct tokens_text text[REQS] = { { .prompt = prompt, .n_prompt = LEN },
					       { .prompt = prompt + 7, .n_prompt = 23 },
					       { .prompt = prompt + 100, .n_prompt = LEN - 100 } };

/* The logits and tokens of all outputs. */
struct outputs {
	float logit[REQS][OUTS][TINY_VOCAB];
	int32_t token[REQS][OUTS];
	int n[REQS];
};

static enum ar_status see(void *ctx, const struct tokens_row *row, struct ar_err *err)
{
	struct outputs *o = ctx;

	(void)err;
	memcpy(o->logit[row->req][row->out], row->logits, sizeof o->logit[0][0]);
	o->token[row->req][row->out] = row->next;
	o->n[row->req]++;
	return AR_OK;
}

/* ---- models ---- */

/* The tiny model, for as many tokens as the test needs. */
static void load(struct weights *w, const struct tiny *m)
{
	struct tiny_weights tw;
	struct ar_err err = { 0 };

	tiny_make(&tw, m);
	tiny_config(dir, m);
	tiny_write(dir, &tw, 1);
	tiny_free(&tw);
	if (weights_open(w, dir, &err))
		bail_out("no model: %s", err.msg);
	w->model.max_len = LEN;
}

static int best_of(const float *x)
{
	int best = 0;

	for (int i = 1; i < TINY_VOCAB; i++)
		best = x[i] > x[best] ? i : best;
	return best;
}

/* Greedy decoding of one request by the forward pass. */
static void decode_alone(const struct weights *w, int q, struct outputs *o)
{
	int n = (int)requests[q].prompt_tok;
	struct ar_err err = { 0 };
	int32_t id[LEN];
	struct forward *f;

	for (int i = 0; i < n; i++)
		id[i] = text[q].prompt[i % (int)text[q].n_prompt];
	if (forward_open(&f, w, LEN, NULL, NULL, &err) || forward_run(f, id, n, &err))
		bail_out("%s", err.msg);
	for (int k = 0; k < (int)requests[q].output_tok; k++) {
		if (k && forward_run(f, &o->token[q][k - 1], 1, &err))
			bail_out("%s", err.msg);
		if (forward_logits(f, k ? 0 : n - 1, 1, o->logit[q][k], &err))
			bail_out("%s", err.msg);
		o->token[q][k] = best_of(o->logit[q][k]);
		o->n[q]++;
	}
	forward_close(f);
}

static void decode_all(const struct weights *w, struct outputs *o)
{
	memset(o, 0, sizeof *o);
	for (int q = 0; q < REQS; q++)
		decode_alone(w, q, o);
}

/* ---- the backend ---- */

struct world {
	const struct weights *w;
	struct plan *plan;
	struct tokens *tokens;
	struct backend_env env;
	int layer[TINY_LAYERS];
	void *self;
	uint32_t have[REQS], known[REQS]; /* tokens in the cache, tokens known */
	uint32_t chunks[REQS];
};

struct how {
	const char *method;
	double temperature;
	uint64_t seed;
	int64_t num_blocks; /* 0: enough */
};

static enum ar_status open_world(struct world *x, const struct weights *w, const struct how *how,
				 struct outputs *o, struct ar_err *err)
{
	enum ar_status st = plan_parse(&x->plan, how->method, err);

	x->w = w;
	for (int i = 0; i < TINY_LAYERS; i++)
		x->layer[i] = i;
	if (!st)
		st = tokens_open(&x->tokens,
				 &(struct tokens_env){ .trace = &trace,
						       .text = text,
						       .vocab = TINY_VOCAB,
						       .temperature = how->temperature,
						       .seed = how->seed,
						       .see = see,
						       .ctx = o },
				 err);
	x->env = (struct backend_env){ .trace = &trace,
				       .model = &w->model,
				       .weights = w,
				       .tokens = x->tokens,
				       .run_layer = x->layer,
				       .n_run_layers = TINY_LAYERS,
				       .plan = x->plan,
				       .max_batched_tok = BUDGET,
				       .max_seqs = REQS,
				       .max_len = LEN,
				       .num_blocks = how->num_blocks ? how->num_blocks : 120,
				       .block_tok = 16 };
	if (!st)
		st = backend_cpu.open(&x->self, NULL, &x->env, err);
	return st ? st : backend_cpu.start(x->self, x->env.num_blocks, err);
}

static void close_world(struct world *x)
{
	backend_cpu.close(x->self);
	tokens_close(x->tokens);
	plan_free(x->plan);
	*x = (struct world){ 0 };
}

static void open_or_bail(struct world *x, const struct weights *w, const struct how *how,
			 struct outputs *o)
{
	struct ar_err err = { 0 };

	*x = (struct world){ 0 };
	memset(o, 0, sizeof *o);
	if (open_world(x, w, how, o, &err))
		bail_out("%s: %s", how->method, err.msg);
	for (int q = 0; q < REQS; q++)
		x->known[q] = requests[q].prompt_tok;
}

/* The next entry of request q, of at most budget tokens; n_tok 0: it has finished. */
static struct batch_entry next_entry(const struct world *x, uint32_t q, uint32_t budget)
{
	uint32_t goal = requests[q].prompt_tok + requests[q].output_tok;
	uint32_t left = x->known[q] - x->have[q];
	struct batch_entry e = { .req = q, .start = x->have[q], .known = x->known[q] };

	e.n_tok = x->known[q] == goal ? 0 : left < budget ? left : budget;
	e.decode = e.n_tok == 1 && e.start >= requests[q].prompt_tok;
	e.emit = e.n_tok && e.start + e.n_tok == e.known;
	e.chunk_no = x->chunks[q];
	return e;
}

static enum ar_status step(struct world *x, struct batch_entry *e, size_t n, struct iter_cost *cost,
			   struct ar_err *err)
{
	enum ar_status st = backend_cpu.run(x->self, &(struct batch){ .entry = e, .n = n }, cost,
					    err);

	for (size_t i = 0; i < n && !st; i++) {
		x->have[e[i].req] = e[i].start + e[i].n_tok;
		x->known[e[i].req] += e[i].emit;
		x->chunks[e[i].req]++;
	}
	return st;
}

/* Serve the requests of mask to their ends, with chunks of at most chunk tokens. */
static void serve(struct world *x, unsigned mask, uint32_t chunk)
{
	for (;;) {
		struct batch_entry e[REQS];
		struct ar_err err = { 0 };
		struct iter_cost cost;
		uint32_t left = BUDGET;
		size_t n = 0;

		for (uint32_t q = 0; q < REQS && left; q++) {
			e[n] = next_entry(x, q, chunk < left ? chunk : left);
			if (!(mask & 1u << q) || !e[n].n_tok)
				continue;
			left -= e[n++].n_tok;
		}
		if (!n)
			return;
		if (step(x, e, n, &cost, &err))
			bail_out("%s", err.msg);
	}
}

static void serve_by(const struct weights *w, const struct how *how, uint32_t chunk,
		     struct outputs *o)
{
	struct world x;

	open_or_bail(&x, w, how, o);
	serve(&x, 7, chunk);
	close_world(&x);
}

static double farthest(const struct outputs *a, const struct outputs *b)
{
	double most = 0;

	for (int q = 0; q < REQS; q++)
		for (int k = 0; k < (int)requests[q].output_tok; k++)
			for (int i = 0; i < TINY_VOCAB; i++)
				most = fmax(most, fabs((double)a->logit[q][k][i] -
						       (double)b->logit[q][k][i]));
	return most;
}

static double largest(const struct outputs *a)
{
	static const struct outputs zero;

	return farthest(a, &zero);
}

static bool same_tokens(const struct outputs *a, const struct outputs *b)
{
	return !memcmp(a->token, b->token, sizeof a->token);
}

static bool same(const struct outputs *a, const struct outputs *b)
{
	return same_tokens(a, b) && !memcmp(a->n, b->n, sizeof a->n) &&
	       !memcmp(a->logit, b->logit, sizeof a->logit);
}

/* ---- dense ---- */

static void compare_models(const struct tiny *m, const struct weights *w, const char *what)
{
	static const uint32_t chunk[] = { 1, 7, 129, BUDGET };
	static struct outputs want, got;

	decode_all(w, &want);
	for (size_t k = 0; k < sizeof chunk / sizeof *chunk; k++) {
		serve_by(w, &(struct how){ .method = "dense" }, chunk[k], &got);
		ok(same(&got, &want), "%s%s, chunks of %u: the bits of the forward pass", m->what,
		   what, chunk[k]);
	}
}

/* The forward pass shows Q before the scale of scores, and rounds it again.  So only a scale that
 * rounds nothing, a power of two, gives the same bits. */
static void test_models(void)
{
	static struct outputs want, got;
	struct weights w;

	for (int i = 0; i < TINY_MODELS; i++) {
		const struct tiny *m = &tiny_models[i];

		load(&w, m);
		if (m->scale) {
			decode_all(&w, &want);
			serve_by(&w, &(struct how){ .method = "dense" }, 129, &got);
			ok(same_tokens(&got, &want) &&
				   farthest(&got, &want) < 0.02 * largest(&want),
			   "%s: off the forward pass by %g of %g", m->what, farthest(&got, &want),
			   largest(&want));
		}
		for (int l = 0; l < TINY_LAYERS && m->scale; l++)
			w.model.layer[l].score_scale = 0.5 / sqrt(m->dim);
		compare_models(m, &w, m->scale ? ", half the usual scale" : "");
		weights_release(&w);
	}
}

/* ---- methods and droppers ---- */

#define SPARSE \
	"select=flashprefill,alpha=0.9,sink=1,window=1,dense-first=0/union=none/exec=blocksparse"
#define LAZY "+lazyllm:layers=0:0.4+1:0.3"

static void test_methods(const struct weights *w)
{
	static const char *const all[] = {
		"compact-fp:alpha=0",
		"select=flashprefill,alpha=0/union=none/exec=blocksparse",
		"dense+lazyllm:layers=0:0+1:0",
		"dense+sliminfer:layers=1:100",
		"dense+uniprefill:layers=0+1,p=1,mode=append,min-tokens=0",
	};
	static const char *const some[] = {
		SPARSE,
		"dense" LAZY,
		SPARSE LAZY,
		"dense+sliminfer:layers=0:0.3,window=16,sinks=16,block=16",
		"dense+uniprefill:layers=0,p=0.2,mode=append,min-tokens=0,sinks=16,last-q=16,block=16",
	};
	static struct outputs dense, got, again;

	serve_by(w, &(struct how){ .method = "dense" }, 129, &dense);
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		serve_by(w, &(struct how){ .method = all[i] }, 129, &got);
		ok(same(&got, &dense), "%s: all is selected or kept: dense", all[i]);
	}
	for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
		serve_by(w, &(struct how){ .method = some[i] }, 129, &got);
		serve_by(w, &(struct how){ .method = some[i] }, 129, &again);
		ok(farthest(&got, &dense) > 0.01 && same(&got, &again),
		   "%s: not dense: off by %g, the same in each run", some[i],
		   farthest(&got, &dense));
	}
}

/* ---- samples ---- */

enum { HEADS_MAX = 8 };

/* Serve the prompts, and compare the last chunk of request 0 in the given order of layers.  Q of the
 * last layer is that of the iteration. */
static void sample(const struct weights *w, const char *method, const int *order,
		   struct accuracy acc[TINY_LAYERS][HEADS_MAX], struct outputs *o)
{
	struct batch_entry e[] = {
		{ .n_tok = 150, .known = 290 },
		{ .start = 150, .n_tok = 140, .known = 290, .emit = true, .chunk_no = 1 }
	};
	struct selection_count count[HEADS_MAX];
	const struct cpu *c;
	struct ar_err err = { 0 };
	struct iter_cost cost;
	struct world x;
	bf16_t *q;
	size_t bytes;

	open_or_bail(&x, w, &(struct how){ .method = method }, o);
	if (step(&x, &e[0], 1, &cost, &err) || step(&x, &e[1], 1, &cost, &err))
		bail_out("%s", err.msg);
	c = x.self;
	bytes = (size_t)row_set_of(&c->set, TINY_LAYERS - 1)->n_row *
		(size_t)(w->model.layer->q_heads * w->model.layer->head_dim) * sizeof *q;
	q = malloc(bytes);
	if (!q)
		bail_out("out of memory");
	memcpy(q, c->q, bytes);
	for (int i = 0; i < TINY_LAYERS; i++) {
		if (backend_cpu.compare(x.self, &e[1], order[i], acc[order[i]], count, NULL, &err))
			bail_out("%s", err.msg);
		if (order[i] == TINY_LAYERS - 1)
			ok(!memcmp(q, c->q, bytes), "%s: a sample has the Q of the iteration",
			   method);
	}
	free(q);
	serve(&x, 7, BUDGET);
	close_world(&x);
}

static void test_samples(const struct weights *w)
{
	static const char *const methods[] = { "dense", SPARSE, "dense" LAZY, SPARSE LAZY };
	static const int orders[2][TINY_LAYERS] = { { 0, 1, 2 }, { 2, 0, 1 } };
	static struct outputs first, second;

	for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
		struct accuracy a[TINY_LAYERS][HEADS_MAX] = { 0 },
				b[TINY_LAYERS][HEADS_MAX] = { 0 };
		double error = 0;

		sample(w, methods[i], orders[0], a, &first);
		sample(w, methods[i], orders[1], b, &second);
		for (int l = 0; l < TINY_LAYERS; l++)
			for (int h = 0; h < w->model.layer->q_heads; h++)
				error = fmax(error, a[l][h].rel_l2);
		ok(!memcmp(a, b, sizeof a), "%s: samples in any order are equal", methods[i]);
		ok(strncmp(methods[i], "dense", 5) ? error > 0 : error == 0,
		   "... and off dense attention by %g", error);
		ok(same(&first, &second), "... and change nothing of the run");
	}
}

/* ---- histories ---- */

/* Run request 0 as n entries. */
static void run_entries(struct world *x, struct batch_entry *e, size_t n)
{
	struct ar_err err = { 0 };
	struct iter_cost cost;

	for (size_t i = 0; i < n; i++)
		if (step(x, &e[i], 1, &cost, &err))
			bail_out("%s", err.msg);
}

static void test_histories(const struct weights *w, const char *method)
{
	const struct how how = { .method = method };
	struct batch_entry hit = { .start = 200, .n_tok = 90, .known = 290, .emit = true };
	struct batch_entry known = { .n_tok = 292, .known = 292, .emit = true, .recompute = true };
	static struct outputs want, got;
	struct world x;

	serve_by(w, &how, BUDGET, &want);
	open_or_bail(&x, w, &how, &got);
	serve(&x, 1, BUDGET);
	serve(&x, 6, BUDGET);
	ok(same(&got, &want), "%s: one request after the other", method);
	close_world(&x);

	open_or_bail(&x, w, &how, &got);
	for (int i = 0; i < 3; i++) {
		struct batch_entry e = next_entry(&x, 0, BUDGET);

		run_entries(&x, &e, 1);
	}
	backend_cpu.drop(x.self, 0);
	x.have[0] = 0;
	x.known[0] = 292;
	run_entries(&x, &known, 1);
	serve(&x, 7, BUDGET);
	ok(same_tokens(&got, &want), "%s: a request preempted and recomputed goes on as before",
	   method);
	close_world(&x);

	open_or_bail(&x, w, &how, &got);
	run_entries(&x, &hit, 1);
	serve(&x, 7, BUDGET);
	ok(same_tokens(&got, &want),
	   "%s: tokens of the prefix cache are computed through all layers", method);
	close_world(&x);
}

/* A policy that plans ahead runs one row more. */
static void test_ahead(const struct weights *w)
{
	struct batch_entry e[] = {
		{ .req = 2, .n_tok = 131, .known = 131, .emit = true },
		{ .req = 2, .start = 131, .n_tok = 1, .known = 132, .decode = true, .emit = true }
	};
	static struct outputs o;
	struct world x;

	open_or_bail(&x, w, &(struct how){ .method = "dense" }, &o);
	run_entries(&x, e, 2);
	is_int(o.n[2], 1, "a row past the last output gives none");
	close_world(&x);
}

static void test_draws(const struct weights *w)
{
	const struct how hot = { .method = "dense", .temperature = 1.5, .seed = 5 },
			 other = { .method = "dense", .temperature = 1.5, .seed = 6 };
	static struct outputs want, got, greedy;

	serve_by(w, &hot, BUDGET, &want);
	serve_by(w, &hot, 50, &got);
	ok(same(&got, &want), "drawn tokens are the same again, in other chunks, too");
	serve_by(w, &other, BUDGET, &got);
	serve_by(w, &(struct how){ .method = "dense" }, BUDGET, &greedy);
	ok(!same_tokens(&got, &want) && !same_tokens(&greedy, &want),
	   "... but not with another seed, nor without a temperature");
}

/* ---- times, refusals, memory ---- */

static void test_phases(const struct weights *w)
{
	static const enum phase all[] = { PHASE_LINEAR, PHASE_NORM, PHASE_ROPE, PHASE_ATTEND,
					  PHASE_HEAD };
	struct batch_entry e = { .n_tok = 290, .known = 290, .emit = true };
	struct ar_err err = { 0 };
	static struct outputs o;
	struct iter_cost cost;
	struct world x;
	int64_t sum = 0;
	int good = 0;

	open_or_bail(&x, w, &(struct how){ .method = "dense" }, &o);
	if (step(&x, &e, 1, &cost, &err))
		bail_out("%s", err.msg);
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		good += cost.phase_ns[all[i]] > 0;
	for (int p = 0; p < PHASE_COUNT; p++)
		sum += cost.phase_ns[p];
	is_int(good, sizeof all / sizeof *all, "all phases of a layer have a time");
	ok(cost.phase_ns[PHASE_NONE] == 0 && sum == cost.cost_ns, "... and the cost is their sum");
	close_world(&x);
}

static void test_refused(struct weights *w)
{
	static struct outputs o;
	struct ar_err err = { 0 };
	struct layer_row row[2];
	struct world x;

	open_or_bail(&x, w, &(struct how){ .method = "dense" }, &o);
	ok(activations_weights.begin(((const struct cpu *)x.self)->engine.act_self, 0, LEN - 1, 2,
				     row, &err) == AR_USAGE &&
		   strstr(err.msg, "position 400 is past the longest request of 400 tokens"),
	   "a position past the longest request: %s", err.msg);
	close_world(&x);

	x = (struct world){ 0 };
	w->model.rope.theta = 0;
	strcpy(w->model.rope_unknown, "rope type 'longrope'");
	ok(open_world(&x, w, &(struct how){ .method = "dense" }, &o, &err) == AR_DATA &&
		   strstr(err.msg, "the angles of rope type 'longrope' are not known"),
	   "no angles: %s", err.msg);
	close_world(&x);
	w->model.rope.theta = 500;
	*w->model.rope_unknown = 0;
}

/* 16 million pages of 16 KiB in three layers. */
static void test_room(const struct weights *w)
{
	struct ar_err err = { 0 };
	static struct outputs o;
	struct world x = { 0 };

	if (memory_available() > 7e11) {
		skip(1, "the machine has more memory");
		return;
	}
	ok(open_world(&x, w, &(struct how){ .method = "dense", .num_blocks = 130000000 }, &o,
		      &err) == AR_NOMEM &&
		   strstr(err.msg, "GiB for 130000000 KV blocks and"),
	   "a cache that the machine has no room for: %s", err.msg);
	close_world(&x);
}

/* Open a backend, run a chunk and compare it with allocation k failing.  True: none failed. */
static bool run_faulty(const struct weights *w, long k, int *bad)
{
	struct batch_entry e = { .n_tok = 290, .known = 290, .emit = true };
	struct selection_count count[HEADS_MAX];
	struct accuracy acc[HEADS_MAX];
	static struct outputs o;
	struct ar_err err = { 0 };
	struct iter_cost cost;
	struct world x = { 0 };
	enum ar_status st;
	bool failed;

	fault_arm(k);
	st = open_world(&x, w, &(struct how){ .method = SPARSE LAZY }, &o, &err);
	if (!st)
		st = step(&x, &e, 1, &cost, &err);
	if (!st)
		st = backend_cpu.compare(x.self, &e, 1, acc, count, NULL, &err);
	failed = fault_disarm();
	*bad += st != (failed ? AR_NOMEM : AR_OK);
	close_world(&x);
	return !failed;
}

static void test_faults(const struct weights *w)
{
	int bad = 0;
	long k = 0;

	while (!run_faulty(w, k, &bad))
		k += fault_stride(13);
	ok(!bad && k > 100, "each of %ld allocations fails cleanly, %d did not", k, bad);
}

static void clean(void)
{
	static const char *const names[] = { "config.json", "model.safetensors" };
	char path[96];

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		snprintf(path, sizeof path, "%s/%s", dir, names[i]);
		remove(path);
	}
	rmdir(dir);
}

int main(void)
{
	struct weights w;

	plan(0);
	if (!mkdtemp(dir))
		bail_out("cannot make a folder");
	for (int i = 0; i < LEN; i++)
		prompt[i] = (i * i + 3 * i + 1) % TINY_VOCAB;
	test_models();
	load(&w, &tiny_models[0]);
	test_methods(&w);
	test_samples(&w);
	test_histories(&w, "dense");
	test_histories(&w, SPARSE);
	test_ahead(&w);
	test_draws(&w);
	test_phases(&w);
	test_refused(&w);
	test_room(&w);
	test_faults(&w);
	weights_release(&w);
	clean();
	return done_testing();
}
