/* SPDX-License-Identifier: Apache-2.0 */
/* Decode attention from captured graphs: batches of any size on one set of device addresses.  Of a
 * layer; then of two, of which the second takes the lists of the first; then of a layer that skips
 * tiles. */
#include "config.h"
#include "tests/gpu_test.h"

#include "tests/tap.h"

enum { N_TEST = 22 };

#if HAVE_CUDA
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/gpu.h"
#include "base/rng.h"
#include "kernels/methods/method.h"
#include "kernels/prim/cuda.h"
#include "kernels/support.h"
#include "replay/engine/act_capture.h"
#include "replay/engine/graph_sizes.h"
#include "replay/engine/graphs.h"
#include "replay/engine/rows.h"

enum {
	MAX_REQ = 20,
	MAX_LEN = 3000,
	N_PAGE = 480,
	Q_HEADS = 8,
	KV_HEADS = 2,
	DIM = 64,
	PAGE_TOK = 128,
	TOUCHED = N_PAGE + 1,
	ROW = Q_HEADS * DIM,
	SKIPS = 2 * KV_HEADS
};

static struct capture_seq seq = { .n_tok = MAX_LEN, .rope_applied = true, .name = "a" };
static const uint16_t capture_of[MAX_REQ];
static const struct act_capture act = {
	.shape = { Q_HEADS, KV_HEADS, DIM, PAGE_TOK },
	.seq = &seq,
	.n_seq = 1,
	.capture_of = capture_of,
	.ropes.n_rotation = 1,
};

static struct state {
	cudaStream_t stream;
	struct graphs graphs;
	struct graph_sizes sizes;
	struct rows_env env;
	struct cache_group group;
	struct blocks tables;
	void *dev; /* the rows */
	struct kv_cache kv;
	bf16_t *q, *other_q, *out; /* other_q: of the second layer */
	void *work, *lists;
	int64_t *skips;		       /* [KV_HEADS][2], of attn_skip.count */
	struct method *method;	       /* NULL: dense decodes of one layer */
	bf16_t host[3][MAX_REQ * ROW]; /* from the graph, padded without it, not padded */
} s;

static void must(enum ar_status st, const struct ar_err *err)
{
	if (st)
		bail_out("%s", err->msg);
}

static void check(cudaError_t e, const char *what)
{
	if (e != cudaSuccess)
		bail_out("%s: %s", what, cudaGetErrorString(e));
}

static bf16_t *random_values(size_t n, struct rng *r)
{
	bf16_t *x = malloc(n * sizeof *x), *dev;

	if (!x)
		bail_out("out of memory");
	for (size_t i = 0; i < n; i++)
		x[i] = bf16_from_f32(rng_normal(r));
	dev = gpu_copy(x, n * sizeof *x);
	free(x);
	return dev;
}

static void open_all(struct rng *r)
{
	size_t page = pages_offset(&act.shape, 1, 0);
	struct ar_err err;

	s.group.shape = act.shape;
	s.group.n_page = N_PAGE;
	must(rows_env_init(&s.env, 1, &err), &err);
	rows_env_add(&s.env, 0, &(struct row_view){ .group = &s.group });
	s.env.act = &activations_capture;
	s.env.act_self = &act;
	s.env.limit[ROW_PREFILL] = (struct attn_limits){ MAX_REQ, MAX_REQ, MAX_LEN / PAGE_TOK + 1,
							 0, 0 };
	s.env.limit[ROW_DECODE] = s.env.limit[ROW_PREFILL];
	s.env.bytes = rows_bytes(&s.env);
	s.env.mem = malloc(s.env.bytes);
	if (!s.env.mem)
		bail_out("out of memory");
	must(blocks_open(&s.tables, &(struct block_group){ .page_tok = PAGE_TOK, .n_page = N_PAGE },
			 1, MAX_REQ, &err),
	     &err);
	blocks_begin(&s.tables);
	must(graphs_init(&s.graphs, MAX_REQ, &err), &err);
	must(graph_sizes_open(&s.sizes, NULL, MAX_REQ, 0, MAX_LEN, &err), &err);
	check(cudaStreamCreate(&s.stream), "cudaStreamCreate");
	s.dev = gpu_new(s.env.bytes, 0);
	s.kv.k = random_values(TOUCHED * page, r);
	s.kv.v = random_values(TOUCHED * page, r);
	s.q = random_values(MAX_REQ * ROW, r);
	s.other_q = random_values(MAX_REQ * ROW, r);
	s.out = gpu_new(sizeof s.host[0], 0);
	s.skips = gpu_new(SKIPS * sizeof *s.skips, 0);
	s.work = gpu_new(decode_work_bytes(&act.shape, &s.env.limit[ROW_DECODE]), 0);
}

/* From here on the method runs, in two layers if lists pass between them. */
static void take_method(const char *text)
{
	const struct selector_env env = { .shape = act.shape, .n_layers = 2, .device = true };
	struct attn_limits limits = s.env.limit[ROW_DECODE];
	struct ar_err err;

	method_free(s.method);
	must(method_parse(&s.method, text, &err), &err);
	must(method_open(s.method, &env, &err), &err);
	if (s.method->later)
		must(method_open(s.method->later, &env, &err), &err);
	s.env.view[0].method = s.method;
	limits.max_page = N_PAGE;
	s.work = gpu_new(method_work_bytes(&s.method->part[ROW_DECODE], &act.shape, &limits), 0);
	s.lists = gpu_new(method_lists_bytes(&s.method->part[ROW_DECODE], &act.shape, &limits), 0);
	graphs_release(&s.graphs);
	must(graphs_init(&s.graphs, MAX_REQ, &err), &err);
}

static void close_all(void)
{
	graphs_release(&s.graphs);
	graph_sizes_release(&s.sizes);
	check(cudaStreamDestroy(s.stream), "cudaStreamDestroy");
	gpu_free_all();
	blocks_release(&s.tables);
	free(s.env.mem);
	rows_env_release(&s.env);
	method_free(s.method);
}

static void no_phase(void *ctx, int layer, enum phase phase)
{
	(void)ctx, (void)layer, (void)phase;
}

static enum ar_status enqueue(void *ctx, struct ar_err *err)
{
	const struct rows *r = ctx;
	struct attn_call call = { .b = &r->part[ROW_DECODE],
				  .q = s.q,
				  .kv = s.kv,
				  .lists = s.lists,
				  .out = s.out,
				  .work = s.work,
				  .stream = s.stream };
	enum ar_status st;

	if (!s.method)
		return decode_enqueue(&call, 0, NULL, err);
	st = method_enqueue(&s.method->part[ROW_DECODE], &call, no_phase, NULL, err);
	call.q = s.other_q;
	return st || !s.method->later ? st :
					method_enqueue(&s.method->later->part[ROW_DECODE], &call,
						       no_phase, NULL, err);
}

static enum ar_status fail(void *ctx, struct ar_err *err)
{
	(void)ctx;
	return ar_fail(err, AR_USAGE, "no");
}

/* The rows as they were built last, on the device. */
static struct rows stage(struct rows *host, size_t used)
{
	struct rows dev;

	check(cudaMemcpy(s.dev, s.env.mem, used, cudaMemcpyHostToDevice), "copy of the rows");
	check(cudaMemset(s.out, 0xff, sizeof s.host[0]), "cudaMemset");
	row_set_at(&(struct row_set){ .view = &dev }, &(struct row_set){ host, s.env.of, 1 },
		   s.env.mem, s.dev);
	dev.part[ROW_DECODE].skip.count = s.skips;
	return dev;
}

static void finish(bf16_t *to)
{
	check(cudaStreamSynchronize(s.stream), "cudaStreamSynchronize");
	gpu_read(to, s.out, sizeof s.host[0]);
}

static int padded_size(size_t n)
{
	int size = graph_sizes_fit(&s.sizes, (int64_t)n);

	return size < MAX_REQ ? size : MAX_REQ;
}

/* b from a graph, captured on the first use of its size, and twice without. */
static void run(const struct batch *b)
{
	int n = padded_size(b->n);
	struct rows host, dev;
	struct row_set set = { &host, s.env.of, 1 };
	struct ar_err err;
	size_t used;

	must(rows_build_decodes(&set, &s.env, b, NULL, n, &used, &err), &err);
	dev = stage(&host, used);
	must(enqueue(&dev, &err), &err);
	finish(s.host[1]);
	if (!s.graphs.exec[n])
		must(graphs_capture(&s.graphs, n, enqueue, &dev, s.stream, &err), &err);
	dev = stage(&host, used);
	must(graphs_launch(&s.graphs, n, s.stream, &err), &err);
	finish(s.host[0]);
	must(rows_build(&set, &s.env, b, NULL, NULL, 0, &used, &err), &err);
	dev = stage(&host, used);
	must(enqueue(&dev, &err), &err);
	finish(s.host[2]);
}

static size_t random_batch(struct batch_entry *e, struct rng *r)
{
	size_t n = 1 + (size_t)rng_below(r, MAX_REQ);

	for (uint32_t i = 0; i < n; i++) {
		struct ar_err err;

		e[i] = (struct batch_entry){
			.req = i,
			.n_tok = 1,
			.kind = ROW_DECODE,
			.n_emit = 1,
			.start = (uint32_t)rng_below(r, rng_below(r, 4) ? 1000 : MAX_LEN)
		};
		must(blocks_grow(&s.tables, 0, i, e[i].start + 1, &err), &err);
	}
	return n;
}

/* Empty the tables of request q. */
static void drop(uint32_t q)
{
	blocks_end(&s.tables);
	blocks_leave(&s.tables, q);
	blocks_begin(&s.tables);
}

static float furthest(size_t n)
{
	float most = 0;

	for (size_t i = 0; i < n * ROW; i++) {
		float d = fabsf(bf16_to_f32(s.host[0][i]) - bf16_to_f32(s.host[2][i]));

		most = d > most || isnan(d) ? d : most; /* no number: it stays */
	}
	return most;
}

static void test_batches(struct rng *r)
{
	bool same = true, padded = true;
	float most = 0;
	int sizes = 0;

	for (int i = 0; i < 60; i++) {
		struct batch_entry e[MAX_REQ];
		const struct batch b = { .entry = e, .n = random_batch(e, r), .blocks = &s.tables };
		size_t n = (size_t)padded_size(b.n);

		run(&b);
		most = fmaxf(most, furthest(b.n));
		same = same && !memcmp(s.host[0], s.host[1], sizeof s.host[0]);
		for (size_t k = b.n * ROW; k < MAX_REQ * ROW; k++)
			padded = padded && (s.host[0][k] == 0xffff) == (k >= n * ROW);
		for (uint32_t q = 0; q < MAX_REQ; q++)
			if (rng_below(r, 3) == 0)
				drop(q);
	}
	ok(same, "a graph gives bit for bit what its kernels give on the same batch");
	ok(most < 0.02F, "and what the batch gives without padding: %g apart", (double)most);
	ok(padded, "rows that pad are run, rows past them are not touched");
	for (int i = 1; i <= MAX_REQ; i++)
		sizes += s.graphs.exec[i] != NULL;
	ok(sizes >= 4 && sizes <= 6, "batches of 1 to 20 make at most six graphs: %d", sizes);
}

static void test_skips(const char *text, struct rng *r)
{
	int64_t n[SKIPS];

	take_method(text);
	test_batches(r);
	gpu_read(n, s.skips, sizeof n);
	ok(n[1] > 0 && n[1] < n[0] && n[3] > 0, "%s: %lld of %lld tiles are skipped", text,
	   (long long)n[1], (long long)n[0]);
	gpu_fill(s.skips, sizeof n, 0);
}

static void test_capture(void)
{
	struct batch_entry e = { .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1 };
	const struct batch b = { .entry = &e, .n = 1, .blocks = &s.tables };
	struct graphs g;
	struct ar_err err;

	must(graphs_init(&g, 3, &err), &err);
	is_int(graphs_capture(&g, 3, fail, NULL, s.stream, &err), AR_USAGE,
	       "a failure while capturing is passed on");
	is_str(err.msg, "no", "with its message");
	ok(!g.exec[3], "a failed capture leaves no graph");
	graphs_release(&g);
	must(blocks_grow(&s.tables, 0, 0, 1, &err), &err);
	run(&b);
	ok(furthest(1) < 0.02F, "and the stream works on");
}

/* Whether the method's chunks can skip tiles: those for Hopper do. */
static bool chunks_skip(void)
{
	const struct gpu *gpu;
	struct ar_err err;

	must(gpu_current(&gpu, &err), &err);
	return support_find("attend-skip", &act.shape, NULL, gpu->cc);
}

static void run_all(void)
{
	struct rng r = { 11 };

	open_all(&r);
	test_capture();
	test_batches(&r);
	take_method("dense/decode=oracle,budget=64,reuse=2");
	test_batches(&r);
	if (chunks_skip()) {
		test_skips("dense/skip=softmax,threshold=0.6,parts=2", &r);
		test_skips("dense/skip=softmax,decode=600,parts=3", &r);
	} else {
		skip(10, "chunks skip on compute capability 9.0");
	}
	close_all();
}
#else
#define run_all NULL
#endif

int main(void)
{
	return gpu_main(N_TEST, run_all);
}
