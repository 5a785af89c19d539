/* SPDX-License-Identifier: Apache-2.0 */
/* Events of evictors in backend cuda: what is left is what backend cpu has left. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "replay/engine/backend_cpu.h"
#include "tests/backend-case.h"
#include "tests/gpu_test.h"
#include "tests/tap.h"

enum { PROMPT = 300, PAGE = 128, LEFT = 105, N_METHOD = 8, N_TEST = N_METHOD * 5 + 2 };

#if HAVE_CUDA
#include "replay/engine/backend_cuda.h"

/* The first page of request 0 in every executed layer. */
struct left {
	bf16_t k[CASE_RUN_LAYERS][CASE_KV_HEADS * PAGE * CASE_DIM];
	struct case_result result;
	int64_t n_tok, ns;
};

static void read_page(const struct backend_case *c, struct left *x)
{
	const int32_t page = blocks_table(&c->blocks, 0, 0)[0];

	for (int i = 0; i < CASE_RUN_LAYERS; i++) {
		size_t n = sizeof x->k[i] / sizeof *x->k[i], at = (size_t)page * n;

		if (c->backend == &backend_cpu)
			memcpy(x->k[i], ((struct cpu *)c->self)->kv[i].k + at, sizeof x->k[i]);
		else if (cudaMemcpy(x->k[i], ((struct cuda *)c->self)->pass.kv[i].k + at,
				    sizeof x->k[i], cudaMemcpyDeviceToHost) != cudaSuccess)
			bail_out("cannot read the device");
	}
}

static int64_t run_prompt(struct backend_case *c, uint32_t chunk, uint32_t known)
{
	struct batch_entry e = { .known = known };
	int64_t ns = 0;

	for (; e.start < known; e.start += e.n_tok) {
		struct batch_entry one;
		struct iter_cost cost;

		e.n_tok = chunk < known - e.start ? chunk : known - e.start;
		one = e;
		one.n_emit = e.start + e.n_tok == known;
		one.gone = e.start < PROMPT ? 0 : 200;
		one.evict = e.start < PROMPT && e.start + e.n_tok >= PROMPT ? 200 : 0;
		case_run(c, &one, 1, &cost);
		ns += cost.cost_ns;
	}
	return ns;
}

/* A prompt in chunks, then decodes; each of them lets n_evict tokens leave. */
static void run(const struct backend *b, const char *method, const struct evict *e, uint32_t chunk,
		uint32_t n_evict, bool eager, struct left *x)
{
	struct backend_case c;
	struct ar_err err;

	if (case_open(&c, b, &(struct case_how){ .method = method, .evict = e, .eager = eager },
		      &err))
		bail_out("%s", err.msg);
	c.req[0].prompt_tok = PROMPT;
	x->ns = run_prompt(&c, chunk, PROMPT);
	for (uint32_t t = 0; t < 5; t++) {
		struct batch_entry d = { .start = PROMPT + t,
					 .n_tok = 1,
					 .known = PROMPT + t + 1,
					 .kind = ROW_DECODE,
					 .n_emit = 1,
					 .gone = 200 + t * n_evict,
					 .evict = n_evict };
		struct iter_cost cost;

		case_run(&c, &d, 1, &cost);
		if (t == 4)
			case_compare(&c, &d, &x->result);
	}
	x->n_tok = blocks_len(&c.blocks, 0, 0);
	read_page(&c, x);
	case_close(&c);
}

/* Keys that the backends round differently are near. */
static int other_slots(const struct left *a, const struct left *b, int n)
{
	int n_other = 0;

	for (int i = 0; i < CASE_RUN_LAYERS * CASE_KV_HEADS; i++)
		for (int s = 0; s < n; s++) {
			size_t at = (size_t)((i % CASE_KV_HEADS) * PAGE + s) * CASE_DIM;
			float most = 0;

			for (int d = 0; d < CASE_DIM; d++)
				most = fmaxf(most,
					     fabsf(bf16_to_f32(a->k[i / CASE_KV_HEADS][at + d]) -
						   bf16_to_f32(b->k[i / CASE_KV_HEADS][at + d])));
			n_other += !(most < 0.1F);
		}
	return n_other;
}

static int64_t skipped(const struct case_result *r)
{
	int64_t n = 0;

	for (int i = 0; i < CASE_RUN_LAYERS * CASE_KV_HEADS; i++)
		n += r->count[i / CASE_KV_HEADS][i % CASE_KV_HEADS].skip_sel;
	return n;
}

static void test_agreement(const char *method, const char *text, uint32_t n_evict)
{
	struct left *cpu = gpu_host(sizeof *cpu), *gpu = gpu_host(sizeof *gpu);
	struct left *other = gpu_host(sizeof *other);
	struct evict *e;
	struct ar_err err;
	int n = n_evict ? 101 : LEFT;

	gpu_must(evict_parse(&e, text, &err), &err);
	run(&backend_cpu, method, e, 400, n_evict, false, cpu);
	run(&backend_cuda, method, e, 400, n_evict, false, gpu);
	run(&backend_cuda, method, e, 70, n_evict, true, other);
	is_int(gpu->n_tok, n, "%s, %s: tokens that are left", method, text);
	ok(other_slots(cpu, gpu, n) <= 2, "... %d others than on the host",
	   other_slots(cpu, gpu, n));
	ok(other_slots(gpu, other, n) <= 2, "... %d others with chunks, and without graphs",
	   other_slots(gpu, other, n));
	ok(case_distance(&cpu->result, &gpu->result) < 0.03,
	   "... whose decodes are as far from dense over all tokens: %g apart",
	   case_distance(&cpu->result, &gpu->result));
	ok(case_same_counts(&cpu->result, &gpu->result) &&
		   (skipped(&cpu->result) > 0) == (strstr(method, "skip=") != NULL),
	   "... and read as many keys, of which %lld tiles are skipped",
	   (long long)skipped(&cpu->result));
	free(cpu);
	free(gpu);
	free(other);
	evict_free(e);
}

/* Half of the prompt was found. */
static void test_found(void)
{
	struct left *whole = gpu_host(sizeof *whole), *half = gpu_host(sizeof *half);
	struct batch_entry e = {
		.start = 150, .n_tok = PROMPT - 150, .known = PROMPT, .n_emit = 1, .evict = 200
	};
	struct iter_cost cost;
	struct evict *h2o;
	struct backend_case c;
	struct ar_err err;

	gpu_must(evict_parse(&h2o, "h2o:heavy=40,recent=60", &err), &err);
	run(&backend_cuda, "dense", h2o, 400, 0, false, whole);
	if (case_open(&c, &backend_cuda, &(struct case_how){ .method = "dense", .evict = h2o },
		      &err))
		bail_out("%s", err.msg);
	c.req[0].prompt_tok = PROMPT;
	case_run(&c, &e, 1, &cost);
	read_page(&c, half);
	ok(other_slots(whole, half, 100) <= 2, "h2o: %d others where half of the prompt was found",
	   other_slots(whole, half, 100));
	case_close(&c);
	evict_free(h2o);
	free(whole);
	free(half);
}

/* The request is preempted, and computes five outputs again. */
static void test_preempted(void)
{
	struct left *before = gpu_host(sizeof *before), *after = gpu_host(sizeof *after);
	struct evict *e;
	struct backend_case c;
	struct ar_err err;

	gpu_must(evict_parse(&e, "snapkv:budget=100,window=32", &err), &err);
	if (case_open(&c, &backend_cuda, &(struct case_how){ .method = "dense", .evict = e }, &err))
		bail_out("%s", err.msg);
	c.req[0].prompt_tok = PROMPT;
	run_prompt(&c, 120, PROMPT);
	read_page(&c, before);
	case_drop(&c, 0);
	run_prompt(&c, 302, PROMPT + 5);
	read_page(&c, after);
	is_int(other_slots(before, after, 100), 0, "after a preemption the same tokens are left");
	case_close(&c);
	evict_free(e);
	free(before);
	free(after);
}

static void run_all(void)
{
	test_agreement("dense", "snapkv:budget=100,window=32", 0);
	test_agreement("dense", "streaming:sink=40,recent=60", 1);
	test_agreement("dense", "h2o:heavy=40,recent=60", 1);
	test_agreement("dense/decode=quest,budget=64", "h2o:heavy=40,recent=60,norm=1", 1);
	test_agreement("flashprefill:alpha=0.7", "snapkv:budget=100,variant=kvpress", 0);
	test_agreement("dense/decode=rocket,budget=32", "snapkv:budget=100,window=32", 0);
	test_agreement("dense/skip=softmax,decode=60,parts=1", "h2o:heavy=40,recent=60", 1);
	test_agreement("dense/skip=softmax,decode=100,parts=1", "streaming:sink=40,recent=60", 1);
	test_found();
	test_preempted();
}
#else
static void run_all(void)
{
}
#endif

int main(void)
{
	return gpu_main(N_TEST, run_all);
}
