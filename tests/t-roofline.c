/* SPDX-License-Identifier: Apache-2.0 */
/* The roofline model: the work of a layer counted by hand, times, files of GPUs, densities, and the
 * backend. */
#include "config.h"
#include "replay/cost/backend_roofline.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/exec/executor.h"
#include "replay/cost/roofline_select.h"
#include "tests/alloc_fault.h"
#include "tests/backend-case.h"
#include "tests/roofline_work.h"
#include "tests/tap.h"

static char path[] = "t-roofline.XXXXXX";

/* ---- the work of a layer ---- */

static struct layer_spec spec = {
	.q_heads = 4, .kv_heads = 2, .head_dim = 64, .rotary_dim = 64, .ffn = 512
};
static const struct model small = { .n_layers = 1, .hidden = 256, .vocab = 1000, .layer = &spec };

/* A chunk of 128 rows on 128 keys, and a decode that emits and attends to 256. */
static struct batch_entry entry[] = {
	{ .start = 128, .n_tok = 128 },
	{ .start = 255, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1 },
};
static const struct batch both = { entry, 2, 128, 1, NULL, { 0 } };
static const struct batch decode_only = { entry + 1, 1, 0, 1, NULL, { 0 } };

static struct method *parse(const char *name)
{
	struct method *m;
	struct ar_err err = { 0 };

	if (method_parse(&m, name, &err))
		bail_out("%s", err.msg);
	return m;
}

static void count(const struct model *model, const char *method, bool attention_only,
		  const struct batch *b, double density, struct roofline_work *work)
{
	struct method *m = parse(method);
	const double of[] = { density, density };
	struct roofline_subject s = { .model = model,
				      .method = m,
				      .attention_only = attention_only };

	roofline_count(&s, 0, b, of, work);
	method_free(m);
}

static void test_dense_layer(void)
{
	struct roofline_work w[PHASE_COUNT];

	count(&small, "dense", false, &both, 0.5, w);
	/* 129 rows.  QKV 256 x 512, output 256 x 256, gate and up 256 x 1024, down 512 x 256 */
	is_work(&w[PHASE_LINEAR], 33816576 + 16908288 + 67633152 + 33816576,
		460288 + 263168 + 854528 + 460288, 4, "linear");
	/* twice x, y, the residual and x again, and the weights; SiLU reads two and writes one */
	is_work(&w[PHASE_NORM], 0, 2 * 264704 + 396288, 3, "norm");
	/* six heads of 64 read and written, and 64 cosines and sines of 4 bytes */
	is_work(&w[PHASE_ROPE], 0, 129 * (2 * 768 + 256), 1, "rope");
	/* two heads of K and of V read and written */
	is_work(&w[PHASE_CACHE], 0, 129 * 4 * 256, 1, "cache");
	/* 128 * 128 + 128 * 129 / 2 pairs of four heads; a density is no matter of dense */
	is_work(&w[PHASE_ATTEND], 256 * 4 * 24640, 256 * (128 * 4 + 256 * 2), 1, "attend");
	is_work(&w[PHASE_DECODE], 256 * 4 * 256, 256 * (4 + 256 * 2), 1, "decode");
	/* a norm of 129 rows; one row is copied, multiplied by 1000 x 256, and searched */
	is_work(&w[PHASE_HEAD], 512000, 264704 + 1024 + 514512 + 2000, 4, "head");
	is_work(&w[PHASE_SELECT], 0, 0, 0, "select");
	is_work(&w[PHASE_METADATA], 0, 0, 0, "metadata");
	is_work(&w[PHASE_COPY], 0, 0, 0, "copy");

	count(&small, "dense", true, &both, 1, w);
	is_int(w[PHASE_LINEAR].kernels + w[PHASE_NORM].kernels + w[PHASE_HEAD].kernels, 0,
	       "attention alone has no products");
	is_int(w[PHASE_ROPE].kernels + w[PHASE_ATTEND].kernels, 2, "... but attention");
	count(&small, "dense", false, &(struct batch){ entry, 1, 128, 0, NULL, { 0 } }, 1, w);
	is_work(&w[PHASE_HEAD], 0, 2 * 256 * (128 * 4 + 1), 1, "head without a row that emits");
	is_int(w[PHASE_DECODE].kernels, 0, "no decodes, no work");
}

/* A chunk of 100 rows ends a prompt of 1000 tokens; 128 stay. */
static void test_events(void)
{
	struct batch_entry e = { .start = 900, .n_tok = 100, .evict = 872 };
	const struct batch b = { &e, 1, 100, 0, NULL, { 0 } };
	struct roofline_work w[PHASE_COUNT];

	count(&small, "dense/evict=snapkv,budget=128", false, &b, 1, w);
	/* 32 rows of four heads and all keys; rows written and read; keys, and four numbers of
	 * each under two heads; K and V of two heads, of what stays */
	is_work(&w[PHASE_EVICT], 128 * 4 * 32 * 1000,
		2 * 128 * 128 + 2000 * (128 + 16) + 2 * 128 * 512, 4, "snapkv");
	count(&small, "dense/evict=h2o,heavy=64,recent=64", false, &b, 1, w);
	/* all pairs; rows, keys and their state, once more to rank it, and what stays */
	is_work(&w[PHASE_EVICT], 128 * 4 * (100 * 900 + 5050),
		100 * 512 + 2000 * (128 + 16) + 2000 * 8 + 2 * 128 * (512 + 32), 3, "h2o");
	e.evict = 0;
	count(&small, "dense/evict=snapkv,budget=128", false, &b, 1, w);
	is_work(&w[PHASE_EVICT], 0, 0, 0, "a chunk without an event");
	e = (struct batch_entry){
		.start = 1000, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1, .gone = 872
	};
	count(&small, "dense/evict=snapkv,budget=128", false, &b, 1, w);
	is_work(&w[PHASE_DECODE], 256 * 4 * 129, 256 * (4 + 129 * 2), 1,
		"a decode behind it attends to what stays");
}

static void test_experts(void)
{
	struct layer_spec moe = spec;
	struct model m = small;
	struct roofline_work w[PHASE_COUNT];

	moe.n_experts = 8;
	moe.experts_per_tok = 2;
	m.layer = &moe;
	count(&m, "dense", false, &both, 1, w);
	/* 258 pairs of row and expert: eight experts of 33 rows; a router 256 x 8 */
	is_int((int64_t)w[PHASE_LINEAR].flops, 33816576 + 16908288 + 528384, "a router");
	is_int((int64_t)w[PHASE_LINEAR].part[FORMATS].flops, 138412032 + 69206016,
	       "experts: FLOPs of all rows, rounded up");
	is_int((int64_t)w[PHASE_NORM].bytes, 330752 + 264704 + 270336 + 811008,
	       "... two residuals in the first norm, rows gathered");
	is_int(w[PHASE_LINEAR].kernels + w[PHASE_NORM].kernels, 5 + 4, "... and their launches");
	count(&m, "dense", false, &decode_only, 1, w);
	/* QKV, output, router of one row; two experts of eight are read */
	is_int((int64_t)w[PHASE_LINEAR].bytes,
	       2 * (256 + 131072 + 512) + 2 * (256 + 65536 + 256) + 2 * (256 + 2048 + 8),
	       "... of one row");
	is_int((int64_t)w[PHASE_LINEAR].part[FORMATS].bytes,
	       4 * (256 + 262144 + 1024) + 4 * (512 + 131072 + 256),
	       "... which touches the experts that it needs");
}

/* Rows that draw 2 of 8 experts each. */
static void test_drawn_experts(void)
{
	static struct batch_entry decodes[] = {
		{ .start = 255, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1 },
		{ .start = 255, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1 },
	};
	struct layer_spec moe = spec;
	struct model m = small;
	struct method *dense = parse("dense");
	const struct roofline_subject s = { .model = &m, .method = dense, .draws = 1 };
	const double of[] = { 1, 1 };
	struct roofline_work w[PHASE_COUNT];
	const struct roofline_part *p = &w[PHASE_LINEAR].part[FORMATS];

	moe.n_experts = 8;
	moe.experts_per_tok = 2;
	m.layer = &moe;
	roofline_count(&s, 0, &(struct batch){ decodes, 1, 0, 1, NULL, { 0 } }, of, w);
	is_int((int64_t)p->flops, 2 * (2 * 256 * 1024 + 2 * 512 * 256), "one row, two experts");
	is_int((int64_t)p->edge_flops, (int64_t)p->flops, "... of one row each");
	is_int((int64_t)p->bytes, 4 * (256 + 262144 + 1024) + 4 * (512 + 131072 + 256),
	       "... are read");
	roofline_count(&s, 0, &(struct batch){ decodes, 2, 0, 2, NULL, { 0 } }, of, w);
	/* 8 (1 - (3 / 4)^2) = 3.5 experts, of 4 / 3.5 rows each */
	is_int(llround(p->flops), 4 * (2 * 256 * 1024 + 2 * 512 * 256), "two rows, two each");
	is_int(llround(p->edge_flops), 7 * (256 * 1024 + 512 * 256), "... of 3.5 experts");
	is_int(llround(p->bytes), 7 * (262144 + 131072) + 8 * (256 + 1024 + 512 + 256),
	       "... that are read");
	roofline_count(&s, 0, &both, of, w);
	is_int(llround(p->flops), 258 * (2 * 256 * 1024 + 2 * 512 * 256),
	       "129 rows, none rounded up");
	is_int(llround(p->edge_flops), 16 * (256 * 1024 + 512 * 256), "... touch all");
	method_free(dense);
}

/* Four ranks have two of eight experts each. */
static void test_spread_experts(void)
{
	const struct experts_shape shape = { 8, 2, 4, 1, (int[]){ 0 } };
	const int64_t one = 2 * 256 * 1024 + 2 * 512 * 256; /* FLOPs of a row of an expert */
	struct layer_spec moe = spec;
	struct model m = small;
	struct method *dense = parse("dense");
	struct roofline_subject s = { .model = &m, .method = dense };
	struct batch b = both;
	struct ar_err err = { 0 };
	const double of[] = { 1, 1 };
	struct roofline_work w[PHASE_COUNT];
	const struct roofline_part *p = &w[PHASE_LINEAR].part[FORMATS];
	FILE *f = fopen(path, "w");

	if (!f || fputs("token layer experts\n0 0 2 3\n", f) < 0 || fclose(f))
		bail_out("%s: cannot write", path);
	moe.n_experts = 8;
	moe.held_experts = 2;
	moe.experts_per_tok = 2;
	m.layer = &moe;
	roofline_count(&s, 0, &b, of, w);
	is_int((int64_t)p->flops, 2 * 33 * one, "a rank of four has two experts of 33 rows");
	b.step = (struct batch_step){ .rows = 258, .largest = 129 };
	roofline_count(&s, 0, &b, of, w);
	is_int((int64_t)p->flops, 2 * 65 * one, "... of 65, with the rows of another engine");
	s.draws = 1;
	roofline_count(&s, 0, &decode_only, of, w);
	is_int((int64_t)p->edge_flops, one, "a row that draws two of them has one on the slowest");
	if (experts_open(&s.experts, path, &shape, 0, &err))
		bail_out("%s", err.msg);
	roofline_count(&s, 0, &b, of, w);
	is_int((int64_t)p->flops, 2 * 258 * one, "all rows may draw the experts of one rank");
	is_int((int64_t)p->edge_flops, 2 * one, "... which has two");
	experts_close(s.experts);
	method_free(dense);
}

static void test_sparse_layer(void)
{
	static const struct {
		const char *method;
		int64_t flops, bytes;
	} want[] = {
		/* 24640 pairs of 4 heads of 64: 12615680 FLOPs; a query block and two blocks have 8
		 * bits; Q 65536 bytes; K of 256 tokens 65536 */
		{ "flashprefill", 12615680 / 128, 1 + 65536 + 128 * (128 + 2) * 2 },
		{ "flexprefill", 128 * 2 * 128 * 256 * 4, 1 + 65536 + 2 * 65536 },
		{ "xattention", 12615680 / 8, 1 + 65536 + 65536 },
		{ "xattention:stride=16", 12615680 / 16, 1 + 65536 + 65536 },
		{ "bfla", 12615680 / 64, 1 + 65536 + 65536 },
		{ "quoka", 12615680 / 2 / 4, 1 + 65536 + 65536 },
		{ "proxyattn:groups=2,q-stride=2", (12615680 / 2 + 16777216) / 2,
		  1 + 65536 + 65536 },
		{ "trishape", 0, 1 },
	};
	struct roofline_work w[PHASE_COUNT];

	for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
		count(&small, want[i].method, false, &both, 0.5, w);
		is_int((int64_t)w[PHASE_SELECT].flops, want[i].flops, "%s: FLOPs of selection",
		       want[i].method);
		is_int((int64_t)w[PHASE_SELECT].bytes, want[i].bytes, "... and bytes");
		ok(w[PHASE_SELECT].kernels > 0, "... and launches");
		is_int((int64_t)w[PHASE_ATTEND].flops, 12615680, "... and half of attention");
	}
	count(&small, "compact-fp-copy", false, &both, 0.5, w);
	is_work(&w[PHASE_METADATA], 0, 1 + 4 * 4, 2, "metadata: mask, and half of its lists");
	is_work(&w[PHASE_COPY], 0, 8 * 64 * 2 * 128, 1, "copy: half of K and V, in and out");
	count(&small, "flashprefill", false, &decode_only, 0.5, w);
	is_int(w[PHASE_SELECT].kernels + w[PHASE_METADATA].kernels, 0,
	       "decodes select nothing: they are dense");
	is_int((int64_t)w[PHASE_DECODE].flops, 256 * 4 * 256, "... and so is their work");
}

/* Lists of decodes, and the states that they are made from. */
static void test_lists(void)
{
	struct roofline_work w[PHASE_COUNT];

	count(&small, "dense/decode=streaming,sink=4,recent=12", false, &decode_only, 1, w);
	is_work(&w[PHASE_DECODE], 256 * 4 * 16, 256 * (4 + 16 * 2), 1, "16 of 256 keys");
	is_work(&w[PHASE_SELECT], 0, 0, 1, "lists by place");
	is_work(&w[PHASE_META], 0, 0, 0, "which have no state");
	count(&small, "dense/decode=streaming,sink=4,recent=12,min-tokens=257", false, &decode_only,
	      1, w);
	is_int((int64_t)w[PHASE_DECODE].flops, 256 * 4 * 256, "a short row sees every key");
	count(&small, "dense/decode=duo,sparsity=0.75,sink=16,recent=48", false, &decode_only, 1,
	      w);
	is_int((int64_t)w[PHASE_DECODE].flops, 256 * 4 * (64 + 48),
	       "a quarter of the heads sees every key, the others 64");
	count(&small, "dense/decode=rocket,budget=64", false, &both, 1, w);
	/* bounds of 64 pages of two heads, of a byte; a row of four heads */
	is_work(&w[PHASE_SELECT], 64 * 4 * 128, 64 * 2 * 128 + 512, 2, "rocket");
	is_int((int64_t)w[PHASE_DECODE].flops, 256 * 4 * 64, "... and its keys");
	/* keys of 129 rows of two heads; bounds of each, a quarter of 128 bytes a head */
	is_work(&w[PHASE_META], 0, 129 * (256 + 64), 1, "states, also of the chunk's rows");
	count(&small, "dense/decode=rocket,budget=64/prune=twilight", false, &both, 1, w);
	is_int(w[PHASE_META].kernels, 2, "a pruner has its own");
	is_int(w[PHASE_SELECT].kernels, 4, "... and launches");
}

/* ---- times ---- */

static struct roofline_gpu round_gpu(void)
{
	struct roofline_gpu g = { .tflops = 1, .gbps = 1, .launch_ns = 100, .graph_launch_ns = 10 };

	for (int i = 1; i < ROOFLINE_KINDS; i++)
		g.rate[i] = (struct roofline_rate){ .compute = 0.5, .memory = 0.5, .fixed_ns = 7 };
	return g;
}

static void test_times(void)
{
	struct roofline_gpu g = round_gpu();
	struct roofline_work w[PHASE_COUNT] = { [PHASE_LINEAR] = { 5000, 2, 4 },
						[PHASE_NORM] = { 0, 50, 3 },
						[PHASE_HEAD] = { 1000, 1, 1 } };
	struct method *m = parse("flashprefill");
	struct roofline_time t = roofline_time(&g, m, w, true, 3);

	is_int(t.phase_ns[PHASE_LINEAR], 3 * (10 + 7), "FLOPs bind, in each layer");
	is_int(t.phase_ns[PHASE_NORM], 3 * (100 + 7), "bytes bind");
	is_int(t.phase_ns[PHASE_HEAD], 2 + 7, "the head runs once");
	is_int(t.phase_ns[PHASE_ROPE], 0, "what is not launched takes no time");
	is_int(t.kernels[PHASE_LINEAR] + t.kernels[PHASE_NORM] + t.kernels[PHASE_HEAD], 3 * 7 + 1,
	       "launches of all layers");
	is_int(t.cost_ns, 3 * 17 + 3 * 107 + 9 + 22 * 100, "each launch adds to the cost");
	is_int(roofline_time(&g, m, w, false, 3).cost_ns, 3 * 17 + 3 * 107 + 9 + 22 * 10,
	       "... less from a graph");
	ok(roofline_rate_of(&g, m, PHASE_SELECT) == &g.rate[PHASE_SELECT] &&
		   roofline_rate_of(&g, m, PHASE_ATTEND) == &g.rate[PHASE_ATTEND],
	   "a selector and an executor have the rates of their phases");
	g.own[roofline_selector_kind("flashprefill")] = true;
	g.own[roofline_executor_kind("blocksparse")] = true;
	ok(roofline_rate_of(&g, m, PHASE_SELECT) ==
			   &g.rate[roofline_selector_kind("flashprefill")] &&
		   roofline_rate_of(&g, m, PHASE_ATTEND) ==
			   &g.rate[roofline_executor_kind("blocksparse")],
	   "... or their own");
	w[PHASE_LINEAR].flops = 1e30;
	is_int(roofline_time(&g, m, w, true, 3).cost_ns, INT64_MAX, "a cost ends with the clock");
	method_free(m);
}

/* Edges, fixed times of each launch, and experts with rates of their own. */
static void test_kernels(void)
{
	struct roofline_gpu g = round_gpu();
	struct roofline_work w = {
		.flops = 5000, .bytes = 40, .kernels = 4, .edge_flops = 100, .edge_bytes = 2
	};
	struct roofline_rate r = { .compute = 0.5, .memory = 0.5, .fixed_ns = 7 };
	struct roofline_work all[PHASE_COUNT] = { 0 };

	is_int(roofline_ns(&g, &r, &w), 80 + 7, "bytes bind");
	r.each = true;
	is_int(roofline_ns(&g, &r, &w), 80 + 4 * 7, "a fixed time of each launch");
	r.edge = 10;
	is_int(roofline_ns(&g, &r, &w), 120 + 4 * 7, "an edge adds its bytes");
	w.bytes = 0;
	r.edge = 500;
	w.edge_bytes = 0;
	is_int(roofline_ns(&g, &r, &w), 110 + 4 * 7, "... or its FLOPs");

	all[PHASE_LINEAR] = (struct roofline_work){ .flops = 5000, .bytes = 2, .kernels = 4 };
	all[PHASE_LINEAR].parts = 1 << FORMATS;
	all[PHASE_LINEAR].part[FORMATS] =
		(struct roofline_part){ .flops = 1000, .bytes = 30, .kernels = 2, .edge_flops = 9 };
	is_int(roofline_time(&g, NULL, all, true, 1).phase_ns[PHASE_LINEAR], 64 + 7,
	       "experts in bf16 are like all products");
	g.rate[ROOFLINE_EXPERTS] = r;
	g.own[ROOFLINE_EXPERTS] = true;
	is_int(roofline_time(&g, NULL, all, true, 1).phase_ns[PHASE_LINEAR], 10 + 3 + 60 + 2 * 7,
	       "... unless they have rates: a share of the fixed time is the other products'");
}

static int64_t cost_of(const struct roofline_gpu *g, const struct model *model,
		       const struct method *m, const struct batch *b, double density)
{
	const double of[] = { density, density };
	struct roofline_work w[PHASE_COUNT];
	struct roofline_subject s = { .model = model, .method = m };

	roofline_count(&s, 0, b, of, w);
	return roofline_time(g, m, w, b->prefill_tok > 0, model->n_layers).cost_ns;
}

/* More tokens, more keys and a higher density never cost less: every method, three models. */
static void test_monotonic(void)
{
	static const char *const names[] = { "llama-3.1-8b", "qwen3-30b-a3b", "mixtral-8x7b" };
	struct roofline_gpu g;
	struct ar_err err = { 0 };
	int wrong[3] = { 0 }, n = 0;

	if (roofline_gpu_load(&g, "h200", &err))
		bail_out("%s", err.msg);
	for (size_t k = 0; k < 3; k++) {
		struct model model;

		if (model_load(&model, names[k], &err))
			bail_out("%s", err.msg);
		for (const struct method_name *x = method_names; x->name; x++) {
			struct method *m = parse(x->name);
			int64_t last[3] = { 0 };

			for (uint32_t i = 1; i <= 4096; i *= 2, n++) {
				struct batch_entry e = { .start = 8192, .n_tok = i };
				struct batch b = { &e, 1, i, 0, NULL, { 0 } };
				int64_t cost[3] = { cost_of(&g, &model, m, &b, 0.3) };

				e = (struct batch_entry){ .start = 64 * i, .n_tok = 256 };
				b.prefill_tok = 256;
				cost[1] = cost_of(&g, &model, m, &b, 0.3);
				e.start = 65536;
				cost[2] = cost_of(&g, &model, m, &b, i / 4096.0);
				for (int c = 0; c < 3; c++) {
					wrong[c] += cost[c] < last[c];
					last[c] = cost[c];
				}
			}
			method_free(m);
		}
		model_release(&model);
	}
	ok(n > 1000 && !wrong[0], "more tokens are never cheaper, %d comparisons", n);
	ok(!wrong[1], "... nor are more keys");
	ok(!wrong[2], "... and a lower density is never dearer");
}

/* ---- files ---- */

static void put(const char *text)
{
	FILE *f = fopen(path, "w");

	if (!f || fputs(text, f) < 0 || fclose(f))
		bail_out("%s: cannot write", path);
}

static void test_presets(void)
{
	struct roofline_gpu g, again;
	struct ar_err err = { 0 };
	char name[64];
	int n = 0;

	for (; roofline_gpu_names[n]; n++) {
		is_int(roofline_gpu_load(&g, roofline_gpu_names[n], &err), AR_OK, "%s is there",
		       roofline_gpu_names[n]);
		ok(*g.about && *g.source, "... and says where its figures are from");
		ok(g.memory_bytes > (int64_t)16 << 30, "... and how much memory it has");
	}
	if (roofline_gpu_write(&g, path, &err) || roofline_gpu_load(&again, path, &err))
		bail_out("%s", err.msg);
	snprintf(again.name, sizeof again.name, "%s", g.name);
	ok(again.tflops == g.tflops && again.gbps == g.gbps && again.launch_ns == g.launch_ns &&
		   again.memory_bytes == g.memory_bytes && g.tflops_fp8 > 0 &&
		   again.tflops_fp8 == g.tflops_fp8 && !strcmp(again.about, g.about) &&
		   !memcmp(again.own, g.own, sizeof g.own) &&
		   !memcmp(again.rate, g.rate, sizeof g.rate),
	   "what is written is read again");
	is_str(roofline_kind_name(PHASE_LINEAR, name, sizeof name), "linear", "a phase is a kind");
	is_str(roofline_kind_name(roofline_selector_kind("bfla"), name, sizeof name), "select bfla",
	       "... and a selector");
	is_str(roofline_kind_name(roofline_executor_kind("copy"), name, sizeof name), "attend copy",
	       "... and an executor");
	is_str(roofline_kind_name(ROOFLINE_EXPERTS + FORMAT_MXFP4, name, sizeof name),
	       "experts mxfp4", "... and a format of experts");
	is_str(roofline_kind_name(roofline_cache_kind(cache_layout_find("kv-e4m3")), name,
				  sizeof name),
	       "decode kv-e4m3", "... and a layout of the KV cache");
	ok(!roofline_kind_name(ROOFLINE_KINDS - 1, name, sizeof name) &&
		   !roofline_kind_name(0, name, sizeof name),
	   "no other number is one");
	is_int(roofline_gpu_write(&g, "none/x.json", &err), AR_IO, "a file that cannot be written");
}

#define PEAKS "{\"tflops\": 1, \"gbps\": 2, \"launch_ns\": 3, \"graph_launch_ns\": 4, "
#define RATE "{\"compute\": 0.5, \"memory\": 0.6, \"fixed_ns\": 7}"
#define TIMES "\"launch_ns\": 30, \"graph_launch_ns\": 40"
#define PHASES_BUT_LINEAR \
	"\"norm\": " RATE ", \"rope\": " RATE ", \"cache\": " RATE ", \"select\": " RATE \
	", \"metadata\": " RATE ", \"copy\": " RATE ", \"attend\": " RATE ", \"decode\": " RATE \
	", \"head\": " RATE
#define PHASES "\"phases\": {\"linear\": " RATE ", " PHASES_BUT_LINEAR "}"

static void test_bad_files(void)
{
	static const struct {
		const char *text, *want;
	} cases[] = {
		{ "{\n\n\"tflops\": }", ":3: malformed JSON" },
		{ "[]", ": 'tflops': want a number from 0.001 to 1e9" },
		{ "{\"tflops\": 0}", ": 'tflops': want a number from 0.001 to 1e9" },
		{ "{\"tflops\": 1, \"gbps\": \"2\"}", ": 'gbps': want a number from 0.001 to 1e9" },
		{ "{\"tflops\": 1, \"gbps\": 2, \"launch_ns\": -1}",
		  ": 'launch_ns': want a whole number of ns, at most a second" },
		{ "{\"tflops\": 1, \"gbps\": 2, \"launch_ns\": 3}",
		  ": 'graph_launch_ns': want a whole number of ns, at most a second" },
		{ PEAKS "\"tflops_fp8\": 0}", ": 'tflops_fp8': want a number from 0.001 to 1e9" },
		{ PEAKS PHASES ", \"formats\": {\"bf16\": " RATE "}}",
		  ": 'formats.bf16': want a name that this program has" },
		{ PEAKS PHASES ", \"experts\": {\"fp6\": " RATE "}}",
		  ": 'experts.fp6': want a name that this program has" },
		{ PEAKS PHASES ", \"kv\": {\"kv-e4m3\": 1}}",
		  ": 'kv.kv-e4m3.compute': want a share of the peak from 0.0001 to 10" },
		{ PEAKS PHASES ", \"kv\": {\"kv-int8\": " RATE "}}",
		  ": 'kv.kv-int8': want a name that this program has" },
		{ PEAKS "\"memory_bytes\": 80}",
		  ": 'memory_bytes': want a whole number of bytes, from 2^20 to 2^50" },
		{ PEAKS "\"x\": 1}",
		  ": 'phases.linear': want an object with compute, memory and fixed_ns" },
		{ PEAKS "\"phases\": {\"linear\": 1}}",
		  ": 'phases.linear.compute': want a share of the peak from 0.0001 to 10" },
		{ PEAKS "\"phases\": {\"linear\": {\"compute\": 1, \"memory\": 11}}}",
		  ": 'phases.linear.memory': want a share of the peak from 0.0001 to 10" },
		{ PEAKS
		  "\"phases\": {\"linear\": {\"compute\": 1, \"memory\": 1, \"fixed_ns\": 0.5}}}",
		  ": 'phases.linear.fixed_ns': want a whole number of ns, at most a second" },
		{ PEAKS "\"phases\": {\"warp\": " RATE "}}",
		  ": 'phases.warp': want a name that this program has" },
		{ PEAKS PHASES ", \"selectors\": {\"topk\": " RATE "}}",
		  ": 'selectors.topk': want a name that this program has" },
		{ PEAKS PHASES ", \"executors\": {\"paged\": {}}}",
		  ": 'executors.paged.compute': want a share of the peak from 0.0001 to 10" },
		{ PEAKS "\"phases\": {\"linear\": {\"compute\": 1, \"memory\": 1, \"fixed_ns\": 0, "
			"\"edge\": -1}}}",
		  ": 'phases.linear.edge': want a number from 0 to 1e6" },
		{ PEAKS PHASES ", \"engines\": {\"x\": 1}}",
		  ": 'engines.x.launch_ns': want a whole number of ns, at most a second" },
		{ PEAKS PHASES ", \"engines\": {\"x\": {\"error\": -1}}}",
		  ": 'engines.x.error': want a share in percent, from 0 to 1000" },
		{ PEAKS PHASES ", \"engines\": {\"x\": {" TIMES ", \"phases\": {\"warp\": " RATE
			       "}}}}",
		  ": 'engines.x.phases.warp': want a name that this program has" },
		{ PEAKS PHASES ", \"engines\": {\"x\": {" TIMES ", \"kv\": {\"kv-e4m3\": 1}}}}",
		  ": 'engines.x.kv.kv-e4m3.compute': want a share of the peak from 0.0001 to 10" },
		{ PEAKS PHASES ", \"engines\": {\"x\": {" TIMES ", \"walk\": 1}}}",
		  ": 'engines.x.walk': want an object with sms and tile_rows, whole numbers from 1 "
		  "to 10000, and compute, from 0.001 to 10" },
		{ PEAKS PHASES ", \"engines\": {\"x\": {" TIMES
			       ", \"walk\": {\"sms\": 1, \"tile_rows\": 1, \"compute\": 0}}}}",
		  ": 'engines.x.walk': want an object with sms and tile_rows, whole numbers from 1 "
		  "to 10000, and compute, from 0.001 to 10" },
		{ PEAKS PHASES ", \"engines\": {\"a\": {" TIMES "}, \"b\": {" TIMES
			       "}, \"c\": {" TIMES "}, \"d\": {" TIMES "}, \"e\": {}}}",
		  ": 'engines': want at most 4 engines" },
	};
	struct roofline_gpu g;
	struct ar_err err = { 0 };

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char want[256];

		put(cases[i].text);
		snprintf(want, sizeof want, "%s%s", path, cases[i].want);
		is_int(roofline_gpu_load(&g, path, &err), AR_DATA, "bad file");
		is_str(err.msg, want, "... says so");
	}
	is_int(roofline_gpu_load(&g, "b9000", &err), AR_DATA, "an unknown GPU");
	is_str(err.msg,
	       "b9000: no such file and no GPU of this name; give one of a100, a100-40gb, h100, "
	       "h200, l40s, rtx-4090, rtx-pro-6000, "
	       "or a file of 'attnreplay calibrate roofline'",
	       "... lists those there are");
	is_int(roofline_gpu_load(&g, "/", &err), AR_DATA, "a folder is no file");
	put(PEAKS PHASES ", \"selectors\": {\"seer\": " RATE "}}");
	if (roofline_gpu_load(&g, path, &err))
		bail_out("%s", err.msg);
	ok(g.own[roofline_selector_kind("seer")] && !g.own[roofline_selector_kind("bfla")] &&
		   g.rate[PHASE_HEAD].fixed_ns == 7 && g.graph_launch_ns == 4,
	   "a good one is read");
	ok(!g.own[PHASE_MIX] && g.rate[PHASE_MIX].fixed_ns == 7 && g.rate[PHASE_DROP].memory == 0.6,
	   "phases that it lacks have the rates of attend and select");
	put(PEAKS "\"phases\": {\"linear\": " RATE ", " PHASES_BUT_LINEAR
		  ", \"mix\": {\"compute\": 0.5, \"memory\": 0.6, \"fixed_ns\": 8}}}");
	if (roofline_gpu_load(&g, path, &err))
		bail_out("%s", err.msg);
	ok(g.own[PHASE_MIX] && g.rate[PHASE_MIX].fixed_ns == 8, "or their own");
}

static void test_engines(void)
{
	struct roofline_gpu g, again;
	const struct roofline_engine *e;
	struct ar_err err = { 0 };

	put(PEAKS PHASES ", \"engines\": {\"a\": {" TIMES "}, \"bc\": {" TIMES
			 ", \"about\": \"x\", \"error\": 5.5, \"error_experts\": 9, "
			 "\"walk\": {\"sms\": 132, \"tile_rows\": 128, \"compute\": 0.7}, "
			 "\"phases\": {\"attend\": {\"compute\": 0.3, \"memory\": 0.4, "
			 "\"fixed_ns\": 9, \"edge\": 64}}, \"experts\": {\"bf16\": " RATE "}}}}");
	if (roofline_gpu_load(&g, path, &err) || roofline_gpu_write(&g, path, &err) ||
	    roofline_gpu_load(&again, path, &err))
		bail_out("%s", err.msg);
	ok(!memcmp(again.rate, g.rate, sizeof g.rate) && again.n_engines == 2 &&
		   !memcmp(again.engine, g.engine, sizeof g.engine),
	   "engines are written and read again");
	ok(!roofline_gpu_take(&g, "b-1") && g.launch_ns == 3, "an engine that it does not have");
	e = roofline_gpu_take(&g, "bc-0.24");
	ok(e && !strcmp(e->about, "x") && e->error == 5.5 && e->error_experts == 9,
	   "one that it has says what its rates are");
	ok(g.launch_ns == 30 && g.graph_launch_ns == 40 && g.rate[PHASE_ATTEND].edge == 64 &&
		   g.rate[PHASE_ATTEND].each && g.own[ROOFLINE_EXPERTS] &&
		   g.rate[ROOFLINE_EXPERTS].fixed_ns == 7,
	   "... which stand in place of the GPU's");
	ok(g.rate[PHASE_LINEAR].compute == 0.5 && !g.rate[PHASE_LINEAR].each,
	   "... where it has them");
	ok(g.walk.sms == 132 && g.walk.tile_rows == 128 && g.walk.compute == 0.7,
	   "... with the walk of its decodes");
	roofline_gpu_take(&g, "a");
	is_int(g.walk.sms, 0, "... which another may not have");
}

/* ---- densities ---- */

static enum ar_status check_density(const char *text, const char *method, bool capture,
				    struct ar_err *err)
{
	char copy[96], *list[] = { copy };
	struct roofline_options o = { .density = { list, text ? 1 : 0 } };
	struct plan *p[2];
	enum ar_status st;

	if (plan_parse(&p[0], "dense", err) || plan_parse(&p[1], method, err))
		bail_out("%s", err->msg);

	snprintf(copy, sizeof copy, "%s", text ? text : "");
	st = roofline_check_density(&o, p, 2, capture, err);
	plan_free(p[0]);
	plan_free(p[1]);
	return st;
}

static void test_densities(void)
{
	static const struct {
		const char *text, *method, *want;
	} bad[] = {
		{ "bfla", "bfla", "want METHOD=SHARE" },
		{ "=0.5", "bfla", "want METHOD=SHARE" },
		{ "bfla=", "bfla", "want METHOD=SHARE" },
		{ "bfla=1.5", "bfla", "a share from 0 to 1" },
		{ "bfla=nan", "bfla", "a share from 0 to 1" },
		{ "dense=0.5", "bfla", "no sparse method has this name" },
		{ "bfl=0.5", "bfla", "no sparse method has this name" },
		{ "bfla:mass=0.5=0.5", "bfla", "no sparse method has this name" },
		{ NULL, "bfla",
		  "the density of method 'bfla' is not known; give it with --density "
		  "bfla=SHARE, or a capture to select from with --capture FILE" },
		{ NULL, "dense+lazyllm",
		  "method 'dense+lazyllm': backend roofline models no dropper; run it with another "
		  "backend" },
		{ NULL, "dense/decode=streaming,dense-layers=2",
		  "its layers differ, and backend roofline models one method in all layers" },
		{ "dense=0.5", "dense/decode=streaming", "no sparse method has this name" },
		{ NULL, "0:dense;1-:bfla",
		  "method '0:dense;1-:bfla': its layers differ, and backend roofline models one "
		  "method in all layers; run it with another backend" },
	};
	struct ar_err err = { 0 };

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		is_int(check_density(bad[i].text, bad[i].method, false, &err), AR_USAGE,
		       "'%s' is refused", bad[i].text ? bad[i].text : "nothing");
		ok(strstr(err.msg, bad[i].want), "... %s", err.msg);
	}
	is_int(check_density("bfla=0", "bfla", false, &err), AR_OK, "a share of 0 is one");
	is_int(check_density("bfla=0.5", "bfla:mass=0.9", false, &err), AR_OK,
	       "a name without parameters is enough");
	is_int(check_density("bfla:mass=0.9=0.5", "bfla:mass=0.9", false, &err), AR_OK,
	       "... or with them");
	is_int(check_density(NULL, "select=density,density=0.2/union=none/exec=blocksparse", false,
			     &err),
	       AR_OK, "random masks have their density");
	is_int(check_density(NULL, "bfla", true, &err), AR_OK, "a capture tells the others");
	is_int(check_density(NULL, "dense/decode=streaming", false, &err), AR_OK,
	       "dense chunks have density 1, whatever decodes see");
	is_int(check_density("bfla=0.5", "0-1:bfla;2-:bfla", false, &err), AR_OK,
	       "a plan whose layers are alike is its method");
}

/* ---- the backend ---- */

/* The whole backend with a capture: selection gives the density that the cpu backend counts. */
static void test_capture(void)
{
	struct batch_entry first = { .n_tok = 300 };
	struct batch_entry second = { .start = 300, .n_tok = 200, .n_emit = 1 };
	struct batch_entry far = { .req = 1, .start = 256, .n_tok = 256, .n_emit = 1 };
	struct roofline_work work[PHASE_COUNT];
	double of[1], selected = 0, total = 0;
	struct roofline_gpu g;
	struct roofline_subject s;
	struct iter_cost cost;
	struct case_result want;
	struct backend_case c;
	struct ar_err err = { 0 };

	if (case_open(&c, &backend_cpu,
		      &(struct case_how){ .method = "flashprefill:alpha=0.9,sink=0,window=1" },
		      &err))
		bail_out("%s", err.msg);
	case_run(&c, &first, 1, &cost);
	case_run(&c, &second, 1, &cost);
	case_compare(&c, &second, &want);
	case_close(&c);
	for (int i = 0; i < CASE_RUN_LAYERS * CASE_KV_HEADS; i++) {
		selected += (double)want.count[i / CASE_KV_HEADS][i % CASE_KV_HEADS].exec_sel;
		total += (double)want.count[i / CASE_KV_HEADS][i % CASE_KV_HEADS].exec_total;
	}
	of[0] = selected / total;
	if (case_open(&c, &backend_roofline,
		      &(struct case_how){ .method = "flashprefill:alpha=0.9,sink=0,window=1" },
		      &err) ||
	    roofline_gpu_load(&g, "h200", &err))
		bail_out("%s", err.msg);
	s = (struct roofline_subject){ .model = &c.model,
				       .method = plan_single(c.plan),
				       .attention_only = c.env.attention_only };
	case_run(&c, &first, 1, &cost);
	case_run(&c, &second, 1, &cost);
	roofline_count(&s, 0, &(struct batch){ &second, 1, 200, 0, NULL, { 0 } }, of, work);
	ok(of[0] < 1, "the method leaves something out: density %g", of[0]);
	is_int(cost.cost_ns,
	       roofline_time(&g, plan_single(c.plan), work, true, CASE_LAYERS).cost_ns,
	       "the cost is that of all layers at the density that is selected");
	is_int(cost.phase_ns[PHASE_ATTEND],
	       roofline_time(&g, plan_single(c.plan), work, true, CASE_RUN_LAYERS)
		       .phase_ns[PHASE_ATTEND],
	       "... and a phase has the time of the executed ones");
	is_int(cost.source, COST_MODELLED, "... and is modelled");
	is_int(cost.span_ns, -1, "... without a span of kernels");
	is_int(backend_max_captured(c.backend, c.self) > 0, 1, "it has the sizes of graphs");
	case_run(&c, &far, 1, &cost);
	ok(cost.cost_ns > 0, "tokens that no chunk ran are made up for");
	case_drop(&c, 1);
	case_drop(&c, 0);
	case_close(&c);
}

static void test_no_memory(void)
{
	struct batch_entry e = { .n_tok = 130, .n_emit = 1 };
	struct backend_case c;
	struct ar_err err;
	int wrong = 0, n = 0;
	struct roofline_options *o = case_options(&backend_roofline, NULL, NULL);

	if (case_open(&c, &backend_cpu, &(struct case_how){ .method = "compact-fp" }, &err))
		bail_out("%s", err.msg);
	for (long k = 0;; k++, n++) {
		struct blocks blocks = { 0 };
		struct iter_cost cost;
		void *self;
		enum ar_status st;

		c.env.blocks = &blocks;
		fault_arm(k);
		st = backend_open(&backend_roofline, &self, o, &c.env, &err);
		if (!st)
			st = backend_start(&backend_roofline, self, c.env.num_blocks, &err);
		if (!st)
			st = backend_run(&backend_roofline, self,
					 &(struct batch){ &e, 1, 130, 0, NULL, { 0 } }, &cost,
					 &err);
		backend_close(&backend_roofline, self);
		blocks_release(&blocks);
		if (!fault_disarm())
			break;
		wrong += st != AR_NOMEM;
	}
	ok(n > 20 && !wrong, "each of %d failing allocations is reported", n);
	case_close(&c);
	case_options_free(&backend_roofline, o);
}

int main(void)
{
	int fd = mkstemp(path);

	plan(0);
	if (fd < 0)
		bail_out("cannot make a file");
	close(fd);
	test_dense_layer();
	test_events();
	test_experts();
	test_drawn_experts();
	test_spread_experts();
	test_sparse_layer();
	test_lists();
	test_times();
	test_kernels();
	test_monotonic();
	test_presets();
	test_bad_files();
	test_engines();
	test_densities();
	test_capture();
	test_no_memory();
	unlink(path);
	return done_testing();
}
