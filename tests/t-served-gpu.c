/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests with real weights, served as by a run: skip-softmax, evictors and shared pages of
 * backend cuda, against the same run of backend cpu or against pages of one request each.
 *
 * Answers are given, so both backends run the same tokens.  Where a tile is near its threshold, one
 * of them may skip it; that changes logits less than the method itself does.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/gpu_test.h"
#include "tests/tap.h"

enum { N_REQ = 3, N_METHOD = 5, N_TEST = 2 * N_METHOD + 2 * 4 };

#if HAVE_CUDA

#include "kernels/support.h"
#include "replay/engine/backend_cuda.h"
#include "replay/engine/replay.h"
#include "tests/whole_model.h"
#include "traces/token_blocks.h"

/* The first two begin with as many tokens as are run at once, all three with FEW. */
enum { SHARED = 512, FEW = 300, OUT = 5, LONGEST = SHARED + 60 + OUT };

static char dir[] = "/tmp/t-served-gpu-XXXXXX";
static struct weights weights;
static int32_t ids[N_REQ][LONGEST];
static struct request request[N_REQ] = {
	{ .prompt_tok = SHARED, .output_tok = OUT, .arrival_ns = 0 },
	{ .prompt_tok = SHARED + 60, .output_tok = OUT, .arrival_ns = 1000000000000 },
	{ .prompt_tok = 400, .output_tok = OUT, .arrival_ns = 2000000000000 },
};
static struct trace trace = { .req = request, .n = N_REQ, .name = (char *)(uintptr_t) "drawn" };
static struct tokens_text text[N_REQ];

static void draw_texts(void)
{
	struct token_blocks *b;
	struct ar_err err;

	gpu_must(token_blocks_open(&b, &trace, &err), &err);
	for (int q = 0; q < N_REQ; q++) {
		for (int i = 0; i < LONGEST; i++)
			ids[q][i] = (i * 37 + i * i * (i < (q < 2 ? SHARED : FEW) ? 1 : q + 2)) %
				    TINY_VOCAB;
		text[q] = (struct tokens_text){ .prompt = ids[q],
						.n_prompt = request[q].prompt_tok,
						.answer = ids[q] + request[q].prompt_tok };
		gpu_must(token_blocks_add(b, ids[q], text[q].n_prompt, &err), &err);
	}
	token_blocks_close(b);
}

struct served {
	float logit[N_REQ][OUT][TINY_VOCAB];
	int n;
	struct replay_result res;
};

static enum ar_status see(void *ctx, const struct tokens_row *row, struct ar_err *err)
{
	struct served *o = ctx;

	(void)err;
	memcpy(o->logit[row->req][row->out], row->logits, sizeof o->logit[0][0]);
	o->n++;
	return AR_OK;
}

/* cached: with a prefix cache; share: requests list its pages. */
struct way {
	const struct backend *backend;
	const char *method;
	bool cached, share, eager;
};

static struct served dense; /* on the host */

/* Serve all requests.  False: there is no cuBLAS. */
static bool serve(const struct way *w, struct served *o)
{
	const struct whole_how how = { .method = w->method,
				       .backend = w->backend,
				       .eager = w->eager,
				       .trace = &trace,
				       .text = text,
				       .max_batched_tok = SHARED,
				       .see = see,
				       .ctx = o };
	struct replay cfg = { .trace = &trace,
			      .backend = w->backend,
			      .limits = { .policy = policy_find("vllm-0.24"),
					  .max_batched_tok = SHARED,
					  .max_seqs = N_REQ,
					  .block_tok = TOKEN_BLOCK,
					  .prefix_cache = w->cached,
					  .share_pages = w->share },
			      .accuracy = 1,
			      .accuracy_decode = 1,
			      .weights = true,
			      .model = &weights.model };
	struct whole x;
	struct ar_err err = { 0 };
	enum ar_status st;

	memset(o, 0, sizeof *o);
	st = whole_try(&x, &weights, how, &err);
	if (st && st != AR_NODEV)
		bail_out("%s: %s", w->method, err.msg);
	if (!st) {
		cfg.self = x.self;
		cfg.limits.num_blocks = x.env.num_blocks;
		cfg.limits.blocks = &x.blocks;
		cfg.limits.evict = x.env.evict;
		cfg.run_layer = x.env.run_layer;
		cfg.n_run_layers = x.env.n_run_layers;
		cfg.q_heads = weights.model.layer->q_heads;
		cfg.kv_heads = weights.model.layer->kv_heads;
		gpu_must(replay_run(&cfg, &o->res, &err), &err);
	}
	whole_close(&x);
	return !st;
}

static void forget(struct served *o)
{
	replay_result_release(&o->res);
}

/* The square root of the sum of squared differences of logits, over that of squares of a's. */
static double apart(const struct served *a, const struct served *b)
{
	const float *x = a->logit[0][0], *y = b->logit[0][0];
	double off = 0, size = 0;

	for (size_t i = 0; i < sizeof a->logit / sizeof *x; i++) {
		off += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
		size += (double)x[i] * (double)x[i];
	}
	return sqrt(off / size);
}

static double mean_error(const struct served *o)
{
	const struct sample_sums *p = &o->res.sample[ROW_PREFILL], *d = &o->res.sample[ROW_DECODE];

	return (p->rel_l2_sum + d->rel_l2_sum) / (double)(p->n_heads + d->n_heads);
}

/* A method on the device, from graphs, against its reference on the host.  Decodes of requests that
 * lost keys have no samples. */
static void test_both(const char *method)
{
	static struct served cpu, cuda;

	if (!serve(&(struct way){ .backend = &backend_cuda, .method = method }, &cuda)) {
		skip(2, "no cuBLAS");
		return;
	}
	serve(&(struct way){ .backend = &backend_cpu, .method = method }, &cpu);
	ok(cpu.n == N_REQ * OUT && cuda.n == cpu.n && apart(&dense, &cpu) > 0.05 &&
		   apart(&cpu, &cuda) < apart(&dense, &cpu) / 2,
	   "%s: %.4f from dense on the host, the device %.4f from the host", method,
	   apart(&dense, &cpu), apart(&cpu, &cuda));
	ok((mean_error(&cpu) > 0) == !strstr(method, "evict=") &&
		   fabs(mean_error(&cuda) - mean_error(&cpu)) <= 0.1 * mean_error(&cpu),
	   "... samples of both have an error of %.4f and %.4f", mean_error(&cpu),
	   mean_error(&cuda));
	forget(&cpu);
	forget(&cuda);
}

/* The second request finds what the first one ran in one batch, and finds the same bits.  Pages of
 * its own are filled by such a batch.  The third one finds a part of these, which it copies. */
static void test_pages(const char *method, bool eager)
{
	static struct served own, one;
	struct way w = { .backend = &backend_cuda, .method = method, .cached = true };

	w.eager = eager;
	if (!serve(&w, &own)) {
		skip(4, "no cuBLAS");
		return;
	}
	w.share = true;
	serve(&w, &one);
	is_int(one.res.cached_tok, SHARED + FEW / TOKEN_BLOCK * TOKEN_BLOCK,
	       "%s: prompts begin with the same tokens", method);
	is_int(one.res.kv_refilled, 0, "... whose pages are shared");
	ok(!memcmp(own.logit, one.logit, 2 * sizeof *own.logit),
	   "... with the logits of pages of each request's own, to the last bit");
	ok(apart(&own, &one) < 0.028 && fabs(mean_error(&own) - mean_error(&one)) < 1e-3,
	   "... also where a page is copied: %g off, errors of %.5f and %.5f", apart(&own, &one),
	   mean_error(&own), mean_error(&one));
	forget(&own);
	forget(&one);
}

static void test_methods(void)
{
	static const char *const chunks[] = {
		"dense/skip=softmax,prefill=3000,clamp=0",
		"dense/skip=softmax,prefill=3000,decode=400,clamp=0,parts=1",
	};
	const struct attn_shape s = { 6, 2, 64, 128 };
	const struct gpu *gpu;
	struct ar_err err;

	gpu_must(gpu_current(&gpu, &err), &err);
	serve(&(struct way){ .backend = &backend_cpu, .method = "dense" }, &dense);
	for (int i = 0; i < 2; i++)
		if (support_find("attend-skip", &s, NULL, gpu->cc))
			test_both(chunks[i]);
		else
			skip(2, "chunks skip on compute capability 9.0");
	test_both("dense/skip=softmax,decode=400,parts=2");
	test_both("dense/evict=snapkv,budget=200,window=32/skip=softmax,decode=150,parts=1");
	test_both("dense/evict=streaming,sink=40,recent=200/skip=softmax,decode=150,parts=1");
	forget(&dense);
}

static void run_all(void)
{
	struct tiny m = tiny_models[0];
	struct ar_err err;

	if (!mkdtemp(dir))
		bail_out("no folder");
	m.dim = 64;
	tiny_folder(dir, &m);
	gpu_must(weights_open(&weights, dir, &err), &err);
	weights.model.max_len = LONGEST;
	draw_texts();
	test_methods();
	test_pages("dense/decode=quest,budget=128,page=16", false);
	test_pages("compact-fp:alpha=0.9,sink=1,window=1,dense-first=0", true);
	free(trace.run);
	weights_release(&weights);
	tiny_remove(dir);
	rmdir(dir);
}
#else
#define run_all NULL
#endif

int main(void)
{
	return gpu_main(N_TEST, run_all);
}
