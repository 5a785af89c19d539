/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real weights on the cuda backend, against the forward pass on the CPU: tiny models of each
 * architecture, with heads of sizes that kernels have.
 *
 * Bounds are relative distances, the square root of the sum of squared differences over that of
 * squares.  Both passes round at the same places, to 8 bits.  t-forward.c bounds the distance of
 * the one on the CPU from the formulas by 0.02; two passes with independent errors of that size are
 * at most sqrt(2) times as far from each other.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/gpu_test.h"
#include "tests/tap.h"
#include "tests/tiny_model.h"

enum { N_TEXT = 3, PROMPT = 520, OUT = 6, MAX = PROMPT + OUT, ROWS = 700, N_MODEL = 5 };

#if HAVE_CUDA

#include "replay/engine/backend_cuda.h"
#include "replay/forward/forward.h"
#include "tests/watch_gpu.h"
#include "tests/whole_model.h"

#define BOUND 0.028

static const int prompt_len[N_TEXT] = { PROMPT, 33, 150 };
static const int head_dim[N_MODEL] = { 64, 128, 64, 128, 256 };

static struct prof *prof;
static char dir[] = "/tmp/t-weights-gpu-XXXXXX";
static int32_t ids[N_TEXT][MAX];

/* ---- models ---- */

struct net {
	struct tiny m;
	struct weights w;
	/* Of the forward pass on the CPU, for each text: */
	bf16_t x[N_TEXT][TINY_LAYERS + 1][MAX][TINY_HIDDEN];
	float logit[N_TEXT][MAX][TINY_VOCAB];
};
static struct net net;

static enum ar_status keep(void *ctx, const struct forward_layer *l, struct ar_err *err)
{
	bf16_t(*x)[MAX][TINY_HIDDEN] = ctx;

	(void)err;
	memcpy(x[l->layer], l->x, (size_t)l->n_row * sizeof x[0][0]);
	return AR_OK;
}

static void refer(int text)
{
	int n = prompt_len[text] + OUT;
	struct forward *f;
	struct ar_err err;

	gpu_must(forward_open(&f, &net.w, n, keep, net.x[text], &err), &err);
	gpu_must(forward_run(f, ids[text], n, &err), &err);
	memcpy(net.x[text][TINY_LAYERS], forward_hidden(f), (size_t)n * sizeof net.x[0][0][0]);
	gpu_must(forward_logits(f, 0, n, net.logit[text][0], &err), &err);
	forward_close(f);
}

static void net_open(int i)
{
	struct ar_err err;

	net.m = tiny_models[i];
	net.m.dim = head_dim[i];
	tiny_folder(dir, &net.m);
	gpu_must(weights_open(&net.w, dir, &err), &err);
	net.w.model.max_len = MAX;
	for (int t = 0; t < N_TEXT; t++)
		refer(t);
}

static void net_close(void)
{
	weights_release(&net.w);
}

/* ---- runs ---- */

static struct request requests[N_TEXT] = {
	{ .prompt_tok = PROMPT, .output_tok = OUT },
	{ .prompt_tok = 33, .output_tok = OUT },
	{ .prompt_tok = 150, .output_tok = OUT },
};
static const struct trace trace = { .req = requests, .n = N_TEXT };
static const struct tokens_text texts[N_TEXT] = {
	{ .prompt = ids[0], .n_prompt = PROMPT, .answer = ids[0] + PROMPT },
	{ .prompt = ids[1], .n_prompt = 33, .answer = ids[1] + 33 },
	{ .prompt = ids[2], .n_prompt = 150, .answer = ids[2] + 150 },
};

/* The logits of a run. */
struct got {
	float logit[N_TEXT][OUT][TINY_VOCAB];
	int n[N_TEXT]; /* outputs, each once */
};

static enum ar_status see(void *ctx, const struct tokens_row *row, struct ar_err *err)
{
	struct got *g = ctx;

	if ((int)row->out != g->n[row->req] ||
	    row->next != ids[row->req][prompt_len[row->req] + (int)row->out])
		return ar_fail(err, AR_DATA, "request %u: output %u after %d", row->req, row->out,
			       g->n[row->req]);
	g->n[row->req]++;
	memcpy(g->logit[row->req][row->out], row->logits, sizeof g->logit[0][0]);
	return AR_OK;
}

static enum ar_status open_on(const struct backend *b, struct whole *c, const char *method,
			      bool eager, int chunk, struct got *g, struct ar_err *err)
{
	const struct whole_how how = {
		.method = method,
		.backend = b,
		.eager = eager,
		.trace = &trace,
		.text = texts,
		.max_batched_tok = chunk,
		.max_draft_tok = OUT - 2,
		.see = see,
		.ctx = g,
		.prof = prof,
	};

	memset(g, 0, sizeof *g);
	return whole_try(c, &net.w, how, err);
}

/* False: there is no cuBLAS. */
static bool is_open(struct whole *c, const char *method, bool eager, int chunk, struct got *g)
{
	struct ar_err err;
	enum ar_status st = open_on(&backend_cuda, c, method, eager, chunk, g, &err);

	if (st == AR_NODEV)
		whole_close(c);
	else if (st)
		bail_out("%s, %s: %s", net.m.what, method, err.msg);
	return !st;
}

struct distance {
	double off, size;
};

static void measure(struct distance *d, double got, double want)
{
	d->off += (got - want) * (got - want);
	d->size += want * want;
}

static double relative(const struct distance *d)
{
	return sqrt(d->off / d->size);
}

/* Distance of the logits of all outputs from other's; NULL: from the forward pass. */
static double far_from(const struct got *g, const struct got *other)
{
	struct distance d = { 0, 0 };

	for (int t = 0; t < N_TEXT; t++)
		for (int o = 0; o < g->n[t]; o++)
			for (int i = 0; i < TINY_VOCAB; i++)
				measure(&d, (double)g->logit[t][o][i],
					(double)(other ? other->logit[t][o] :
							 net.logit[t][prompt_len[t] - 1 + o])[i]);
	return relative(&d);
}

static double far(const struct got *g)
{
	return far_from(g, NULL);
}

static void check(const struct got *g, int n0, int n1, int n2, const char *what)
{
	double off = far(g);

	ok(g->n[0] == n0 && g->n[1] == n1 && g->n[2] == n2 && off < BOUND,
	   "%s, %s: %d, %d and %d outputs, logits %.4f off", net.m.what, what, g->n[0], g->n[1],
	   g->n[2], off);
}

static void run(struct whole *c, int req, int start, int n)
{
	struct batch_entry e = whole_entry(c, (uint32_t)req, (uint32_t)start, (uint32_t)n);

	whole_step(c, &e, 1);
}

/* ---- hidden states ---- */

static double far_hidden(const struct watch_gpu *w, int layer, int pos, int n)
{
	static bf16_t x[MAX][TINY_HIDDEN];
	struct distance d = { 0, 0 };

	watch_gpu_read(w, layer, n, x[0]);
	for (int r = 0; r < n; r++)
		for (int i = 0; i < TINY_HIDDEN; i++)
			measure(&d, (double)bf16_to_f32(x[r][i]),
				(double)bf16_to_f32(net.x[0][layer][pos + r][i]));
	return relative(&d);
}

static double far_logits(const struct watch_gpu *w, int pos, int n)
{
	static float x[MAX][TINY_VOCAB];
	struct distance d = { 0, 0 };

	watch_gpu_logits(w, n, x[0]);
	for (int r = 0; r < n; r++)
		for (int i = 0; i < TINY_VOCAB; i++)
			measure(&d, (double)x[r][i], (double)net.logit[0][pos + r][i]);
	return relative(&d);
}

/* All rows of a prompt, step rows at a time. */
static void test_hidden(int step)
{
	struct whole c;
	struct watch_gpu w;
	struct got g;
	double worst = 0, logits = 0, embedded = 0;

	if (!is_open(&c, "dense", true, MAX, &g)) {
		skip(3, "no cuBLAS");
		return;
	}
	watch_gpu_open(&w, ((struct cuda *)c.self)->decoder);
	for (int at = 0; at < PROMPT; at += step) {
		int n = PROMPT - at < step ? PROMPT - at : step;

		run(&c, 0, at, n);
		embedded = fmax(embedded, far_hidden(&w, 0, at, n));
		for (int l = 1; l <= TINY_LAYERS; l++) {
			double off = far_hidden(&w, l, at, n);

			diag("%s, rows from %d on, behind layer %d: %.4f off", net.m.what, at,
			     l - 1, off);
			worst = fmax(worst, off);
		}
		logits = fmax(logits, far_logits(&w, at, n));
	}
	ok(embedded == 0, "%s: embeddings are the CPU's", net.m.what);
	ok(worst < BOUND && logits < BOUND,
	   "%s, %d rows at a time: hidden states %.4f off, logits %.4f", net.m.what, step, worst,
	   logits);
	check(&g, 1, 0, 0, "the last row's");
	watch_gpu_close(&w);
	whole_close(&c);
}

/* ---- batches ---- */

/* Three requests: parts of prompts beside decodes, then decodes only. */
static void play(struct whole *c, int more)
{
	struct batch_entry a[] = { whole_entry(c, 0, 3, 97), whole_entry(c, 1, 0, 33) }, b[3];

	run(c, 0, 0, 3); /* so few are padded, unless eager */
	whole_step(c, a, 2);
	b[0] = whole_entry(c, 1, 33, 1);
	b[1] = whole_entry(c, 2, 0, 150);
	b[2] = whole_entry(c, 0, 100, PROMPT - 100);
	whole_step(c, b, 3);
	for (int i = 0; i < more; i++) {
		for (int t = 0; t < N_TEXT; t++)
			b[t] = whole_next(c, (uint32_t)t, 1);
		whole_step(c, b, 3);
	}
}

static void test_batches(const char *method, bool eager, const char *what)
{
	struct whole c;
	struct got g;

	if (!is_open(&c, method, eager, ROWS, &g)) {
		skip(1, "no cuBLAS");
		return;
	}
	play(&c, 4);
	check(&g, 5, 6, 5, what);
	whole_close(&c);
}

/* Tokens of the prefix cache, and tokens of a request that was preempted, are run again. */
static void test_again(const char *method)
{
	struct whole c;
	struct got g;

	if (!is_open(&c, method, false, ROWS, &g)) {
		skip(2, "no cuBLAS");
		return;
	}
	run(&c, 0, 300, PROMPT - 300);
	run(&c, 0, PROMPT, 1);
	check(&g, 2, 0, 0, "a prefix that was never run");
	whole_drop(&c, 0);
	run(&c, 1, 0, 33);
	run(&c, 0, 0, PROMPT + 2);
	run(&c, 0, PROMPT + 2, 1);
	check(&g, 4, 1, 0, "preempted and recomputed");
	whole_close(&c);
}

/* All outputs after the first at once, beside a decode. */
static void test_verify(const char *method)
{
	struct batch_entry e[] = {
		{ .start = PROMPT,
		  .n_tok = OUT - 1,
		  .known = PROMPT + OUT - 1,
		  .kind = ROW_VERIFY,
		  .n_emit = OUT - 1 },
		{ .req = 1, .start = 33, .n_tok = 1, .known = 34, .kind = ROW_DECODE, .n_emit = 1 }
	};
	struct whole c;
	struct got g;

	if (!is_open(&c, method, false, ROWS, &g)) {
		skip(1, "no cuBLAS");
		return;
	}
	run(&c, 0, 0, PROMPT);
	run(&c, 1, 0, 33);
	whole_step(&c, e, 2);
	check(&g, OUT, 2, 0, "drafts that are verified");
	whole_close(&c);
}

/* Pages that decodes filled: the layers run once more for the selector's state, which the next
 * chunk reads. */
static void test_held(const char *method)
{
	struct whole c;
	struct got g;

	if (!is_open(&c, method, false, ROWS, &g)) {
		skip(1, "no cuBLAS");
		return;
	}
	run(&c, 0, 0, 300);
	for (int i = 300; i < 310; i++) {
		struct batch_entry e = whole_entry(&c, 0, i, 1);

		e.kind = ROW_DECODE;
		whole_step(&c, &e, 1);
	}
	run(&c, 0, 310, PROMPT - 310);
	run(&c, 0, PROMPT, 1);
	check(&g, 2, 0, 0, "a chunk after decodes");
	whole_close(&c);
}

/* Runs that are the same but for compare(), which must not change later results. */
static void test_compare(const char *method, double least, double most)
{
	static struct got with, without;
	struct accuracy acc[8];
	struct selection_count count[8];
	struct whole c, d;
	double worst = 0, low = 1;
	struct batch_entry e;
	struct ar_err err;

	if (!is_open(&c, method, false, ROWS, &with)) {
		skip(2, "no cuBLAS");
		return;
	}
	is_open(&d, method, false, ROWS, &without);
	e = whole_entry(&c, 0, 0, PROMPT);
	whole_step(&c, &e, 1);
	run(&d, 0, 0, PROMPT);
	for (int l = 0; l < TINY_LAYERS; l++) {
		if (net.w.model.layer[l].mixer != MIX_FULL)
			continue;
		gpu_must(backend_compare(c.backend, c.self, &e, l, acc, count, NULL, &err), &err);
		for (int h = 0; h < net.m.heads; h++) {
			worst = fmax(worst, acc[h].rel_l2);
			low = fmin(low, acc[h].rel_l2);
		}
	}
	ok(worst <= most && worst >= least, "%s, %s: %.4f to %.4f from dense", net.m.what, method,
	   low, worst);
	for (int i = 0; i < 2; i++) {
		run(&c, 0, PROMPT + i, 1);
		run(&d, 0, PROMPT + i, 1);
	}
	ok(with.n[0] == 3 && !memcmp(&with, &without, sizeof with), "... and no output changes");
	whole_close(&c);
	whole_close(&d);
}

/* ---- costs ---- */

/* Embeddings and the copies of logits are before and after an iteration.  The cost of an iteration
 * does not depend on the one before it. */
static void test_cost(void)
{
	struct iter_cost cost[3];
	struct whole c;
	struct got g;
	int same = 0;

	if (!prof || !is_open(&c, "dense", true, ROWS, &g)) {
		skip(2, "no cuBLAS or no CUPTI");
		return;
	}
	for (int i = 0; i < 3; i++) {
		struct batch_entry e = whole_entry(&c, 0, 128 * i, 128);

		cost[i] = whole_step(&c, &e, 1);
		same += cost[i].phase_kernels[PHASE_HEAD] == 1 &&
			!cost[i].phase_kernels[PHASE_NONE];
	}
	is_int(same, 3, "without an output the head is a norm, %d, %d and %d kernels",
	       cost[0].phase_kernels[PHASE_HEAD], cost[1].phase_kernels[PHASE_HEAD],
	       cost[2].phase_kernels[PHASE_HEAD]);
	is_int(cost[1].phase_kernels[PHASE_NORM], 3 * TINY_LAYERS,
	       "norms and activations of all layers");
	whole_close(&c);
}

/* ---- droppers ---- */

#define KEEPS "uniprefill:p=1,min-tokens=0,last-q=20,sinks=10,layers=0+1"
#define DROPS "uniprefill:p=0.3,block=16,last-q=20,sinks=10,min-tokens=0,layers=0+1"
#define PRUNES "lazyllm:layers=0:0.5+1:0.5"
#define REVIVES PRUNES ",aux-revival=1,revive-max=6"
#define REVIVES_ALL "lazyllm:layers=0:0+1:0,aux-revival=1"

/* The rows that a dropper keeps follow from the layers below: a chunk gives the same rows however
 * often it is run, and as the entry of a batch. */
static void test_drops(const char *method)
{
	static struct got alone, beside;
	struct whole c;
	double off;

	if (!is_open(&c, method, true, ROWS, &alone)) {
		skip(2, "no cuBLAS");
		return;
	}
	run(&c, 0, 0, PROMPT);
	run(&c, 0, PROMPT, 1);
	run(&c, 0, PROMPT + 1, 1);
	whole_close(&c);
	off = far(&alone);
	ok(off > BOUND && off < 2, "%s: rows that are missing are felt: %.4f off", method, off);
	is_open(&c, method, true, ROWS, &beside);
	run(&c, 1, 0, 33);
	run(&c, 0, 0, PROMPT);
	run(&c, 0, PROMPT, 1);
	run(&c, 0, PROMPT + 1, 1);
	whole_close(&c);
	ok(!memcmp(alone.logit[0], beside.logit[0], 2 * sizeof alone.logit[0][0]),
	   "... whatever ran before");
}

/* Decodes that revive tokens choose them by the same passes, with graphs and without.  Tokens that
 * were dropped are felt less then. */
static void test_revival(void)
{
	static struct got graph, eager, pruned;
	struct whole c;
	int n = 0;

	if (!is_open(&c, "dense+" REVIVES, false, ROWS, &graph)) {
		skip(1, "no cuBLAS");
		return;
	}
	play(&c, 0);
	for (int i = 0; i < 4; i++) {
		const struct drops *d = &((struct cuda *)c.self)->engine.drops;
		struct batch_entry b[N_TEXT];

		for (int t = 0; t < N_TEXT; t++)
			b[t] = whole_next(&c, (uint32_t)t, 1);
		whole_step(&c, b, N_TEXT);
		for (size_t t = 0; t < N_TEXT; t++)
			n += rows_n_back(&d->segment[1], t) + rows_n_back(&d->segment[2], t);
	}
	whole_close(&c);
	is_open(&c, "dense+" REVIVES, true, ROWS, &eager);
	play(&c, 4);
	whole_close(&c);
	is_open(&c, "dense+" PRUNES, false, ROWS, &pruned);
	play(&c, 4);
	whole_close(&c);
	ok(n > 20 && far_from(&graph, &eager) < BOUND && far_from(&graph, &pruned) > BOUND,
	   "%d rows revived, eager %.4f off graphs, without revival %.4f", n,
	   far_from(&graph, &eager), far_from(&graph, &pruned));
}

/* ---- both backends ---- */

/* A method has the same results on the device as its reference on the host.  Where a score is at a
 * threshold, they may choose differently.  That changes logits less than the method itself does. */
static void test_both(const char *method)
{
	static struct got cuda, cpu;
	struct whole c;
	double off, apart;
	struct ar_err err;

	if (!is_open(&c, method, false, ROWS, &cuda)) {
		skip(1, "no cuBLAS");
		return;
	}
	play(&c, 2);
	whole_close(&c);
	gpu_must(open_on(&backend_cpu, &c, method, false, ROWS, &cpu, &err), &err);
	play(&c, 2);
	whole_close(&c);
	off = far(&cpu);
	apart = far_from(&cuda, &cpu);
	ok(off > 2 * BOUND && apart < off / 2 && cuda.n[1] == cpu.n[1],
	   "%s: %.4f from dense on the host, the device %.4f from the host", method, off, apart);
}

/* ---- the model's own choice ---- */

struct choice {
	int32_t id[OUT];
	float lead[OUT]; /* over the second best, of logits with a deviation of about 1 */
};

static enum ar_status see_choice(void *ctx, const struct tokens_row *row, struct ar_err *err)
{
	struct choice *c = ctx;
	float second = -INFINITY;
	int32_t best = 0;

	for (int i = 1; i < row->n_logits; i++)
		if (row->logits[i] > row->logits[best])
			best = i;
	for (int i = 0; i < row->n_logits; i++)
		if (i != best)
			second = fmaxf(second, row->logits[i]);
	if (best != row->next)
		return ar_fail(err, AR_DATA, "%d instead of %d", row->next, best);
	c->id[row->out] = best;
	c->lead[row->out] = row->logits[best] - second;
	return AR_OK;
}

/* Whether two runs chose the same, up to the first choice that rounding may decide. */
static bool same_choice(const struct choice *a, const struct choice *b)
{
	int n = 0;

	while (n < OUT && a->lead[n] > 0.2f)
		n++;
	return n > 0 && !memcmp(a->id, b->id, (size_t)n * sizeof *a->id);
}

/* The same model writes the same from graphs, without, and after a recomputation. */
static void test_choice(void)
{
	struct request request = { .prompt_tok = 150, .output_tok = OUT };
	const struct trace one = { .req = &request, .n = 1 };
	const struct tokens_text text = { .prompt = ids[2], .n_prompt = 150 };
	struct choice out[3];
	struct ar_err err;

	for (int i = 0; i < 3; i++) {
		const struct whole_how how = { .method = "dense",
					       .backend = &backend_cuda,
					       .eager = i == 1,
					       .trace = &one,
					       .text = &text,
					       .max_batched_tok = 200,
					       .see = see_choice,
					       .ctx = &out[i] };
		struct whole c;
		enum ar_status st = whole_try(&c, &net.w, how, &err);

		if (st == AR_NODEV) {
			whole_close(&c);
			skip(1, "no cuBLAS");
			return;
		}
		gpu_must(st, &err);
		run(&c, 0, 0, 150);
		for (int o = 1; o < OUT; o++) {
			if (i == 2 && o == 3) {
				whole_drop(&c, 0);
				run(&c, 0, 0, 150 + o);
				continue;
			}
			run(&c, 0, 150 + o - 1, 1);
		}
		whole_close(&c);
	}
	for (int o = 0; o < OUT; o++)
		diag("output %d is %d, %d and %d, by %.2f", o, out[0].id[o], out[1].id[o],
		     out[2].id[o], (double)out[0].lead[o]);
	ok(same_choice(&out[0], &out[1]) && same_choice(&out[0], &out[2]),
	   "%s: the model writes the same, whatever runs it", net.m.what);
}

/* Open a backend, and run request 1 up to a step that is refused. */
static void overflows(const struct backend *b, bool eager, const char *want)
{
	static struct got g;
	struct whole c;
	struct ar_err err = { 0 };
	struct iter_cost cost;
	struct batch_entry e;
	enum ar_status st = open_on(b, &c, "dense", eager, MAX, &g, &err);

	if (st == AR_NODEV) {
		skip(1, "no cuBLAS");
		whole_close(&c);
		return;
	}
	gpu_must(st, &err);
	e = whole_entry(&c, 1, 0, 33);
	while (!st && e.n_tok) {
		st = whole_try_step(&c, &e, 1, &cost, &err);
		e = whole_next(&c, 1, 1);
	}
	ok(st == AR_DATA && strstr(err.msg, want), "backend %s%s: %s", b->name,
	   eager ? ", eager" : "", err.msg);
	whole_close(&c);
}

/* Scores that overflow on a GPU, which sums them in 32 bits, and a token whose embedding is
 * infinite: the third one that request 1 outputs, in a graph of decodes. */
static void test_overflow(void)
{
	enum { EMBED = TINY_VOCAB * TINY_HIDDEN, WIDTH = 512 * TINY_HIDDEN };
	static const enum weight which[2] = { WEIGHT_Q, WEIGHT_K };
	static bf16_t embed[EMBED], product[2][WIDTH];
	const bf16_t *was = net.w.embed;
	const int rows[2] = { net.m.heads * net.m.dim, net.m.kv_heads * net.m.dim };
	char want[96];

	for (int l = 0; l < TINY_LAYERS; l += TINY_LAYERS - 1) {
		const bf16_t **w = net.w.layer[l], *old[2];

		for (int k = 0; k < 2; k++) {
			old[k] = w[which[k]];
			for (int i = 0; i < rows[k] * TINY_HIDDEN; i++)
				product[k][i] = bf16_from_f32(0x1p66F * bf16_to_f32(old[k][i]));
			w[which[k]] = product[k];
		}
		snprintf(want, sizeof want,
			 "request 1: layer %d is the first whose output is not finite", l);
		overflows(&backend_cuda, true, want);
		for (int k = 0; k < 2; k++)
			w[which[k]] = old[k];
	}
	memcpy(embed, was, sizeof embed);
	embed[ids[1][35] * TINY_HIDDEN] = 0x7f80;
	net.w.embed = embed;
	overflows(&backend_cpu, true, "request 1: the embedding of a token is not finite");
	overflows(&backend_cuda, true, "request 1: the embedding of a token is not finite");
	overflows(&backend_cuda, false, "request 1: the embedding of a token is not finite");
	net.w.embed = was;
}

static void test_no_memory(void)
{
	const struct decoder_env env = { .model = &net.w.model,
					 .layer = (int[]){ 0 },
					 .n_layers = 1,
					 .max_row = 1 << 30,
					 .max_emit = 1,
					 .weights = &net.w };
	struct decoder *d;
	struct ar_err err = { 0 };
	enum ar_status st = decoder_open(&d, &env, &err);

	if (st == AR_NODEV)
		skip(1, "no cuBLAS");
	else
		ok(st == AR_CUDA && !d &&
			   strstr(err.msg, "GiB on the GPU; use a GPU with more memory, or fewer"),
		   "too little memory: %s", err.msg);
}

static void clean(void)
{
	tiny_remove(dir);
	rmdir(dir);
}

#define ALL_BLOCKS "compact-fp:alpha=0"
#define SOME_BLOCKS \
	"select=flashprefill,alpha=0.9,sink=1,window=1,dense-first=0/union=none/exec=blocksparse"

static void run_all(void)
{
	if (!mkdtemp(dir))
		bail_out("no folder");
	for (int t = 0; t < N_TEXT; t++)
		for (int i = 0; i < MAX; i++)
			ids[t][i] = (i * 37 + i * i * (t + 1) + t) % TINY_VOCAB;
	for (int i = 0; i < N_MODEL; i++) {
		if (!gpu_attends(head_dim[i])) {
			skip(1, "no kernel for the heads of a model");
			continue;
		}
		net_open(i);
		test_hidden(PROMPT);
		test_hidden(177);
		test_batches("dense", false, "graphs");
		test_batches("dense", true, "eager");
		test_again("dense");
		test_verify("dense");
		if (i == 0) {
			test_verify(ALL_BLOCKS);
			test_batches(ALL_BLOCKS, false, "a selector that keeps all blocks");
			test_again(ALL_BLOCKS);
			test_held(ALL_BLOCKS);
			test_batches("dense+" KEEPS, false, "a dropper that keeps all rows");
			test_batches("dense+" REVIVES_ALL, false, "where nothing is dropped");
			test_drops("dense+" DROPS);
			test_drops("dense+" PRUNES);
			test_compare("dense", 0, 0);
			test_compare(ALL_BLOCKS, 0, 5e-3);
			test_compare(SOME_BLOCKS, 0.01, 2);
			test_compare(SOME_BLOCKS "+" DROPS, 0.01, 2);
			test_both(SOME_BLOCKS);
			test_both("dense+" DROPS);
			test_both("dense+" PRUNES);
			test_both("dense+" REVIVES);
			test_both(SOME_BLOCKS "+" REVIVES);
			test_revival();
			test_both(SOME_BLOCKS "+" DROPS);
			test_choice();
			test_cost();
			test_overflow();
			test_no_memory();
		}
		net_close();
	}
	clean();
}
#endif

int main(void)
{
#if HAVE_CUDA
	struct ar_err err;

	if (prof_open(&prof, &err)) /* before any call of CUDA */
		diag("%s", err.msg);
#endif
	plan(0);
	if (!gpu_usable())
		skip_all("no usable GPU");
#if HAVE_CUDA
	run_all();
	prof_close(prof);
#endif
	return done_testing();
}
