/* SPDX-License-Identifier: Apache-2.0 */
/* The cuda backend, alone and against the cpu backend. */
#include "config.h"
#include "tests/backend-case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu_test.h"
#include "tests/mixed-case.h"
#include "tests/reuse-case.h"
#include "tests/tap.h"
#include "tests/verify-case.h"

#if HAVE_CUDA

#include "kernels/delta/delta.h"
#include "replay/engine/act_capture.h"
#include "replay/engine/backend_cuda.h"

enum { N_OWN = 40 };

/* ---- against the references ---- */

static void run_both(const char *method, struct case_result *cpu, struct case_result *gpu)
{
	const struct backend *backend[] = { &backend_cpu, &backend_cuda };
	struct case_result *out[] = { cpu, gpu };

	for (int i = 0; i < 2; i++) {
		struct batch_entry e[] = {
			{ .n_tok = 400 },
			{ .start = 400, .n_tok = 310, .n_emit = 1 },
			{ .req = 1, .n_tok = 130 },
			{ .req = 1, .start = 130, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1 }
		};
		struct iter_cost cost;
		struct backend_case c;
		struct ar_err err;

		if (case_open(&c, backend[i], &(struct case_how){ .method = method }, &err))
			bail_out("%s", err.msg);
		case_run(&c, &e[0], 1, &cost);
		case_run(&c, &e[1], 2, &cost);
		case_compare(&c, &e[1], out[i]);
		case_run(&c, &e[3], 1, &cost);
		case_close(&c);
	}
}

static void test_agreement(void)
{
	static const char *const method[] = {
		"flashprefill:alpha=1,sink=0,window=1,dense-first=0",
		"flashprefill:alpha=0.7,sink=1,window=1,dense-first=0",
	};

	for (int i = 0; i < 2; i++) {
		struct case_result cpu, gpu;

		run_both(method[i], &cpu, &gpu);
		ok(case_same_counts(&cpu, &gpu), "%s: device and reference select the same",
		   method[i]);
		ok(case_distance(&cpu, &gpu) < 0.01, "%s: and are as far from dense: %g apart",
		   method[i], case_distance(&cpu, &gpu));
	}
}

/* Random captures: the device holds the host's values. */
static void test_random(void)
{
	const struct attn_shape shape = { CASE_HEADS, CASE_KV_HEADS, 64, 128 };
	const struct activations *a = &activations_capture;
	const struct act_capture *host, *dev;
	struct backend_case c;
	struct ar_err err;
	void *self;
	bf16_t *x;

	if (case_open(&c, &backend_cuda, &(struct case_how){ .method = "dense", .random = true },
		      &err) ||
	    a->open(&self, &c.env, &shape, &err) || a->load_ref(self, &err))
		bail_out("%s", err.msg);
	host = self;
	dev = ((const struct cuda *)c.self)->engine.act_self;
	x = calloc(host->elems, sizeof *x);
	if (!x || dev->elems != host->elems ||
	    cudaMemcpy(x, dev->data, host->elems * sizeof *x, cudaMemcpyDeviceToHost) !=
		    cudaSuccess)
		bail_out("cannot read the device");
	ok(!memcmp(x, host->data, host->elems * sizeof *x),
	   "the device has the same random values as the host, bit for bit");
	free(x);
	a->close(self);
	case_close(&c);
}

/* ---- whole layers ---- */

/* Open, or a bail-out where the whole layer is required and cuBLAS is missing. */
static bool open_or_skip(struct backend_case *c, const struct case_how *how)
{
	const char *must = getenv("ATTNREPLAY_REQUIRE_GPU");
	struct ar_err err;
	enum ar_status st = case_open(c, &backend_cuda, how, &err);

	if (st && (st != AR_NODEV || (must && !strcmp(must, "1"))))
		bail_out("%s", err.msg);
	if (st)
		diag("%s", err.msg);
	return st == AR_OK;
}

static bool open_whole(struct backend_case *c, int n_experts, bool eager, struct prof *prof)
{
	const struct case_how how = { .method = "dense",
				      .decoder = true,
				      .n_experts = n_experts,
				      .eager = eager,
				      .prof = prof };

	return open_or_skip(c, &how);
}

static void test_layers(int n_experts)
{
	const char *what = n_experts ? "experts" : "a dense MLP";
	struct batch_entry e[] = {
		{ .n_tok = 600, .n_emit = 1 },
		{ .req = 1, .start = 20, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1 }
	};
	struct iter_cost cost;
	struct backend_case c;

	if (!open_whole(&c, n_experts, false, NULL)) {
		skip(2, "no cuBLAS");
		case_close(&c);
		return;
	}
	case_run(&c, e, 2, &cost);
	ok(cost.event_ns > 0 && cost.cost_ns > cost.event_ns && cost.cost_ns < 2 * cost.event_ns,
	   "%s: the layers that were run count twice, the head once", what);
	ok(cost.span_ns == -1 && cost.n_kernel == 0, "%s: without tracing there is no span", what);
	case_close(&c);
}

static void check_trace(const struct iter_cost *cost)
{
	int64_t sum = 0, kernels = 0;
	bool core = true;

	for (int p = 0; p < PHASE_COUNT; p++) {
		sum += cost->phase_ns[p];
		kernels += cost->phase_kernels[p];
	}
	for (int p = PHASE_LINEAR; p <= PHASE_CACHE; p++)
		core &= cost->phase_kernels[p] >= CASE_RUN_LAYERS;
	is_int(kernels, (long long)cost->n_kernel, "every kernel has a phase");
	is_int(cost->phase_kernels[PHASE_NONE], 0, "and it is known");
	ok(core && cost->phase_kernels[PHASE_ATTEND] >= CASE_RUN_LAYERS &&
		   cost->phase_kernels[PHASE_DECODE] >= CASE_RUN_LAYERS &&
		   cost->phase_kernels[PHASE_HEAD] >= 3,
	   "a mixed batch has kernels of all phases");
	ok(cost->busy_ns > 0 && cost->busy_ns <= cost->span_ns && cost->busy_ns <= sum &&
		   cost->span_ns <= cost->event_ns + 20000,
	   "busy is no more than the span, the span no more than "
	   "the time between the events");
}

/* A comparison runs kernels of its own between two iterations. */
static void check_apart(struct backend_case *c)
{
	struct batch_entry chunk = { .req = 2, .n_tok = 90 };
	struct case_result unused;
	size_t n[2];

	for (uint32_t i = 0; i < 2; i++) {
		struct batch_entry e = {
			.start = 600 + i, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1
		};
		struct iter_cost cost;

		case_run(c, &chunk, 1, &cost);
		if (i)
			case_compare(c, &chunk, &unused);
		case_run(c, &e, 1, &cost);
		n[i] = cost.n_kernel;
		chunk.start += chunk.n_tok;
	}
	is_int((long long)n[1], (long long)n[0], "kernels of a comparison are of no iteration");
}

static void test_trace(struct prof *prof)
{
	struct batch_entry e[] = {
		{ .n_tok = 600, .n_emit = 1 },
		{ .req = 1, .start = 20, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1 }
	};
	struct iter_cost cost;
	struct backend_case c;

	if (!prof || !open_whole(&c, 0, false, prof)) {
		skip(5, prof ? "no cuBLAS" : "no tracing");
		return;
	}
	case_run(&c, e, 2, &cost);
	check_trace(&cost);
	check_apart(&c);
	case_close(&c);
}

/* ---- graphs ---- */

enum { STEPS = 60, FIRST = 370 };

static void step(struct backend_case *c, int i, uint32_t *len)
{
	struct batch_entry e[CASE_REQ];
	size_t n = 1 + (size_t)i % CASE_REQ;
	struct iter_cost cost;

	for (size_t q = 0; q < n; q++) {
		uint32_t req = (uint32_t)(q + (size_t)i) % CASE_REQ;

		e[q] = (struct batch_entry){
			.req = req, .start = len[req]++, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1
		};
	}
	case_run(c, e, n, &cost);
}

/* Prompts, then decodes of one, two and three requests in turn, past the end of a page.  One is
 * preempted on the way.  Or the same tokens all as prompts.  out: the results of the next chunk of
 * each request, which show the cache. */
static void run_decodes(bool eager, bool decodes, struct case_result out[CASE_REQ])
{
	const struct case_how how = {
		.method = "flashprefill:alpha=1,sink=0,window=1,dense-first=0", .eager = eager
	};
	uint32_t len[CASE_REQ];
	struct iter_cost cost;
	struct backend_case c;
	struct ar_err err;

	if (case_open(&c, &backend_cuda, &how, &err))
		bail_out("%s", err.msg);
	for (uint32_t q = 0; q < CASE_REQ; q++) {
		len[q] = decodes ? FIRST : FIRST + STEPS * 2 / CASE_REQ;
		case_run(&c, &(struct batch_entry){ .req = q, .n_tok = len[q] }, 1, &cost);
	}
	for (int i = 0; decodes && i < STEPS; i++) {
		step(&c, i, len);
		if (i != STEPS / 2)
			continue;
		case_drop(&c, 1);
		case_run(&c, &(struct batch_entry){ .req = 1, .n_tok = len[1] }, 1, &cost);
	}
	for (uint32_t q = 0; q < CASE_REQ; q++) {
		struct batch_entry e = { .req = q, .start = len[q], .n_tok = 200, .n_emit = 1 };

		case_run(&c, &e, 1, &cost);
		case_compare(&c, &e, &out[q]);
	}
	case_close(&c);
}

static bool same_results(const struct case_result *a, const struct case_result *b)
{
	bool same = true;

	for (int q = 0; q < CASE_REQ; q++)
		same = same && case_same_counts(&a[q], &b[q]) && case_distance(&a[q], &b[q]) == 0;
	return same;
}

static void test_graph_cache(void)
{
	struct case_result graph[CASE_REQ], eager[CASE_REQ], prompt[CASE_REQ];

	run_decodes(false, true, graph);
	run_decodes(true, true, eager);
	run_decodes(false, false, prompt);
	ok(case_largest_error(&graph[0]) > 0, "the chunk after decodes sees less than dense");
	ok(same_results(graph, eager), "decodes from graphs fill the cache as eager ones do");
	ok(same_results(graph, prompt), "and as the same tokens of a prompt do");
}

/* A batch of two decodes, which needs no padding. */
static void trace_decodes(struct backend_case *c, struct iter_cost *cost)
{
	for (uint32_t i = 0; i < 3; i++) {
		struct batch_entry e[] = {
			{ .start = 200 + i, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1 },
			{ .req = 1, .start = 20 + i, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1 }
		};

		case_run(c, e, 2, cost);
	}
}

static void check_graph_trace(const struct iter_cost *graph, const struct iter_cost *eager)
{
	int64_t layers[CASE_RUN_LAYERS + 1] = { 0 };
	bool nodes = true, same = true;
	int launches = 0;

	for (size_t i = 0; i < graph->n_kernel; i++) {
		const struct prof_kernel *k = &graph->kernel[i];

		nodes = nodes && k->graph_node;
		launches += !i || k->corr != graph->kernel[i - 1].corr;
		layers[k->layer == PHASE_NO_LAYER ? CASE_RUN_LAYERS : k->layer - 1]++;
	}
	for (int p = 0; p < PHASE_COUNT; p++)
		same = same && graph->phase_kernels[p] == eager->phase_kernels[p];
	ok(nodes && launches == 2, "all kernels of an iteration of decodes are of two launches");
	is_int(graph->phase_kernels[PHASE_NONE], 0, "and every one has a phase");
	ok(same, "there are as many of each phase as without the graph");
	ok(layers[0] && layers[0] == layers[1] && layers[CASE_RUN_LAYERS] >= 3,
	   "as many in each layer, and the head's in none");
	ok(graph->busy_ns > 0 && graph->busy_ns <= graph->span_ns &&
		   graph->span_ns <= graph->event_ns + 20000,
	   "the graph lies between the events");
}

static void test_graph_trace(struct prof *prof)
{
	struct iter_cost graph, eager;
	struct backend_case c;

	if (!prof || !open_whole(&c, 0, true, prof)) {
		skip(5, prof ? "no cuBLAS" : "no tracing");
		return;
	}
	trace_decodes(&c, &eager);
	case_close(&c);
	if (!open_whole(&c, 0, false, prof))
		bail_out("cuBLAS is gone");
	trace_decodes(&c, &graph);
	check_graph_trace(&graph, &eager);
	case_close(&c);
}

static void test_graph_events(void)
{
	struct iter_cost cost;
	struct backend_case c;

	if (!open_whole(&c, 16, false, NULL)) {
		skip(2, "no cuBLAS");
		case_close(&c);
		return;
	}
	trace_decodes(&c, &cost);
	ok(cost.event_ns > 0 && cost.cost_ns > cost.event_ns && cost.cost_ns < 2 * cost.event_ns,
	   "an event in the graph parts the layers from the head");
	ok(cost.span_ns == -1 && cost.n_kernel == 0,
	   "without tracing there is no span and no kernel");
	case_close(&c);
}

/* Rows that RoPE runs for four tokens of a prompt and a decode: its thread blocks. */
static int rope_rows(bool eager, struct prof *prof)
{
	const struct case_how how = { .method = "dense", .eager = eager, .prof = prof };
	struct batch_entry e[] = {
		{ .n_tok = 4, .n_emit = 1 },
		{ .req = 1, .start = 20, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1 }
	};
	struct iter_cost cost;
	struct backend_case c;
	struct ar_err err;
	int rows = 0;

	if (case_open(&c, &backend_cuda, &how, &err))
		bail_out("%s", err.msg);
	case_run(&c, e, 2, &cost);
	for (size_t i = 0; i < cost.n_kernel; i++)
		if (cost.kernel[i].phase == PHASE_ROPE)
			rows = cost.kernel[i].grid[0];
	case_close(&c);
	return rows;
}

/* Four requests at most: the largest graph would have eight rows. */
static void test_padded_prompt(struct prof *prof)
{
	int graph, eager;

	if (!prof) {
		skip(1, "no tracing");
		return;
	}
	graph = rope_rows(false, prof);
	eager = rope_rows(true, prof);
	ok(graph == 8 && eager == 5,
	   "a small batch with a prompt is padded, if graphs are on: %d and %d rows", graph, eager);
}

/* ---- the device ---- */

static void test_device(void)
{
	void *opts = case_options(&backend_cuda, "device", "1000"), *self;
	void *sizes = case_options(&backend_cuda, "cudagraph-capture-sizes", "4,2");
	struct opt_group g[] = { { .opts = backend_cuda.opts, .base = sizes }, { 0 } };
	struct backend_case c;
	const struct store_gpu *gpu;
	struct ar_err err;

	if (case_open(&c, &backend_cuda, &(struct case_how){ .method = "dense" }, &err))
		bail_out("%s", err.msg);
	gpu = backend_gpu(c.backend, c.self);
	ok(gpu->cc_major >= 8 && gpu->sm_count > 0 && gpu->mem_bytes > 0 && gpu->name[0] &&
		   strlen(gpu->uuid) == 36,
	   "the device is described: %s", gpu->name);
	ok(backend_fit_blocks(c.backend, c.self) > c.env.num_blocks,
	   "blocks fit into what is free");
	is_int(backend_open(&backend_cuda, &self, opts, &c.env, &err), AR_NODEV,
	       "there is no device 1000");
	is_int(backend_open(&backend_cuda, &self, sizes, &c.env, &err), AR_USAGE,
	       "sizes of graphs are in ascending order");
	case_close(&c);
	opt_release(g);
	free(opts);
	free(sizes);
}

static void test_too_large(void)
{
	void *opts = case_options(&backend_cuda, NULL, NULL), *self;
	struct backend_case c;
	struct ar_err err;

	if (case_open(&c, &backend_cuda, &(struct case_how){ .method = "dense" }, &err) ||
	    backend_open(&backend_cuda, &self, opts, &c.env, &err))
		bail_out("%s", err.msg);
	is_int(backend_start(&backend_cuda, self, (int64_t)1 << 26, &err), AR_CUDA,
	       "a cache larger than the GPU is refused");
	ok(strstr(err.msg, "lower --num-gpu-blocks"), "with what to do: %s", err.msg);
	backend_close(&backend_cuda, self);
	case_close(&c);
	free(opts);
}

/* ---- layers that differ ---- */

static void read_out(void *self, size_t at, size_t n, bf16_t *out)
{
	const struct cuda *c = self;

	if (cudaMemcpy(out, c->pass.out + at, n * sizeof *out, cudaMemcpyDeviceToHost) !=
	    cudaSuccess)
		bail_out("cannot read the device");
}

enum { STATE_LAYER = 1 };

/* The state of the linear layer, its matrices and the rest of each slot. */
static float *read_state(const struct backend_case *c, size_t *n)
{
	const struct cuda *x = c->self;
	const struct cache_group *g = attn_engine_group(&x->engine, STATE_LAYER);
	float *host;

	*n = (size_t)(g->n_page + 1) * delta_state_len(&c->layer[STATE_LAYER].delta);
	host = malloc(*n * sizeof *host);
	if (!host || cudaMemcpy(host, x->pass.state[STATE_LAYER], *n * sizeof *host,
				cudaMemcpyDeviceToHost) != cudaSuccess)
		bail_out("cannot read the device");
	return host;
}

/* Number of slots whose state differs.  *finite: false if a state in b is not finite. */
static int changed_slots(const float *a, const float *b, size_t n, size_t slot, bool *finite)
{
	int changed = 0;

	for (size_t at = 0; at < n; at += slot) {
		bool same = true;

		for (size_t i = at; i < at + slot; i++) {
			same = same && a[i] == b[i];
			*finite = *finite && isfinite(b[i]);
		}
		changed += !same;
	}
	return changed;
}

/* Whole layers of every kind: a chunk, then decodes of two requests, from graphs unless eager. */
static void test_linear(bool eager, struct prof *prof)
{
	const struct case_how how = {
		.method = "dense", .mixed = true, .decoder = true, .eager = eager, .prof = prof
	};
	struct batch_entry chunk[] = {
		{ .n_tok = 300, .n_emit = 1 },
		{ .req = 1, .start = 20, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1 }
	};
	struct batch_entry decode[] = {
		{ .start = 300, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1 },
		{ .req = 1, .start = 21, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1 }
	};
	const char *what = eager ? "eager" : "graphs";
	float *first, *second, *third;
	struct iter_cost cost;
	struct backend_case c;
	bool finite = true;
	size_t n, slot;
	int after_chunk, after_decode;

	if (!open_or_skip(&c, &how)) {
		skip(3, "no cuBLAS");
		case_close(&c);
		return;
	}
	slot = delta_state_len(&c.layer[STATE_LAYER].delta);
	first = read_state(&c, &n);
	case_run(&c, chunk, 2, &cost);
	ok(cost.event_ns > 0 && cost.cost_ns > 0, "%s: a model with linear layers runs", what);
	ok(!prof || cost.phase_kernels[PHASE_MIX] >= 2, "%s: their kernels have a phase: %d", what,
	   cost.phase_kernels[PHASE_MIX]);
	second = read_state(&c, &n);
	case_run(&c, decode, 2, &cost);
	third = read_state(&c, &n);
	after_chunk = changed_slots(first, second, n, slot, &finite);
	after_decode = changed_slots(second, third, n, slot, &finite);
	ok(after_chunk == 2 && after_decode == 2 && finite,
	   "%s: both requests have a state, which goes on and stays finite: %d and %d slots differ",
	   what, after_chunk, after_decode);
	case_close(&c);
	free(first);
	free(second);
	free(third);
}

int main(void)
{
	struct prof *prof = NULL;
	struct ar_err err;
	struct backend_case c;

	plan(CASE_N_TEST + MIXED_N_TEST + VERIFY_N_TEST + REUSE_N_TEST + N_OWN);
	if (prof_open(&prof, &err)) /* before any call of CUDA */
		diag("%s", err.msg);
	if (!gpu_usable()) {
		is_int(case_open(&c, &backend_cuda, &(struct case_how){ .method = "dense" }, &err),
		       AR_NODEV, "without a GPU the backend says so");
		case_close(&c);
		skip(CASE_N_TEST + MIXED_N_TEST + VERIFY_N_TEST + REUSE_N_TEST + N_OWN - 1,
		     "no usable GPU");
		return done_testing();
	}
	case_test_all(&backend_cuda, 1e-6);
	mixed_test_all(&backend_cuda, read_out, 0.02);
	verify_test_all(&backend_cuda, read_out, 0.02);
	reuse_test_all(&backend_cuda, read_out);
	test_agreement();
	test_random();
	test_layers(0);
	test_layers(16);
	test_device();
	test_too_large();
	test_trace(prof);
	test_graph_cache();
	test_graph_events();
	test_graph_trace(prof);
	test_padded_prompt(prof);
	test_linear(true, prof);
	test_linear(false, NULL);
	prof_close(prof);
	return done_testing();
}

#else

int main(void)
{
	if (!gpu_usable())
		skip_all("no usable GPU");
}

#endif
