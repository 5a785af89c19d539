/* SPDX-License-Identifier: Apache-2.0 */
/* The roofline model of weights and KV caches in other formats than bf16: work counted by hand,
 * rates, and times against published measurements. */
#include "config.h"
#include "replay/cost/roofline.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/layer_size.h"
#include "replay/cost/roofline_count.h"
#include "tests/tap.h"

static const struct linear_format block = { .kind = FORMAT_FP8_BLOCK,
					    .rows = ROWS_GROUP,
					    .block = { 128, 128 } };
static const struct linear_format tensor = { .kind = FORMAT_FP8_TENSOR, .rows = ROWS_TOKEN };
static const struct linear_format mxfp4 = { .kind = FORMAT_MXFP4, .group = 32 };
static const struct linear_format bf16;

/* ---- counts ---- */

static struct layer_spec spec = {
	.q_heads = 4, .kv_heads = 2, .head_dim = 64, .rotary_dim = 64, .ffn = 512
};
static struct model small = { .n_layers = 1, .hidden = 256, .vocab = 1000, .layer = &spec };

static struct batch_entry entry[] = {
	{ .start = 128, .n_tok = 128 },
	{ .start = 255, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1 },
};
static const struct batch both = { entry, 2, 128, 1, NULL, { 0 } };

static void count(struct roofline_work *work)
{
	static const double density[] = { 1, 1 };
	struct method *m;
	struct ar_err err = { 0 };

	if (method_parse(&m, "dense", &err))
		bail_out("%s", err.msg);
	roofline_count(&(struct roofline_subject){ .model = &small, .method = m }, 0, &both,
		       density, work);
	method_free(m);
}

static void is_part(const struct roofline_work *w, int i, int64_t flops, int64_t bytes, int kernels,
		    const char *what)
{
	is_int((int64_t)w->part[i].flops, flops, "%s: FLOPs", what);
	is_int((int64_t)w->part[i].bytes, bytes, "... bytes");
	is_int(w->part[i].kernels, kernels, "... products");
}

static void test_counts(void)
{
	const struct cache_layout *fp8 = cache_layout_find("kv-e4m3");
	struct roofline_work plain[PHASE_COUNT], w[PHASE_COUNT];

	count(plain);
	for (int i = LINEAR_Q; i <= LINEAR_O; i++)
		spec.format[i] = block;
	count(w);
	/* 129 rows.  QKV 512 x 256 has 4 x 2 blocks, the output 256 x 256 has 2 x 2 */
	is_part(&w[PHASE_LINEAR], FORMAT_FP8_BLOCK, 33816576 + 16908288,
		129 * 256 + 2 * 129 * 512 + 131072 + 32 + 129 * 256 + 2 * 129 * 256 + 65536 + 16, 2,
		"attention in fp8 blocks");
	is_int((int64_t)w[PHASE_LINEAR].flops, 67633152 + 33816576, "the MLP stays in bf16");
	is_int(w[PHASE_LINEAR].kernels, plain[PHASE_LINEAR].kernels, "as many products");
	is_int(w[PHASE_DECODE].kind, 0, "decodes have the rate of their phase");

	small.head = mxfp4;
	spec.cache = fp8;
	count(w);
	/* 1000 x 256: 128000 bytes of codes and 8000 of scales; rows stay bf16 */
	is_part(&w[PHASE_HEAD], FORMAT_MXFP4, 512000, 2 * 256 + 2 * 1000 + 136000, 1,
		"the head in mxfp4");
	is_int((int64_t)(plain[PHASE_DECODE].bytes - w[PHASE_DECODE].bytes), 256 * 256,
	       "a decode reads half of the keys and values");
	is_int((int64_t)(plain[PHASE_CACHE].bytes - w[PHASE_CACHE].bytes), 129 * 256,
	       "... and each row writes half");
	is_int(w[PHASE_DECODE].kind, roofline_cache_kind(fp8), "... at the rate of the layout");
	small.head = bf16;
	spec.cache = NULL;
	memset(spec.format, 0, sizeof spec.format);

	spec.n_experts = 8;
	spec.experts_per_tok = 2;
	spec.shared_ffn = 128;
	spec.format[LINEAR_EXPERTS] = mxfp4;
	spec.format[LINEAR_SHARED] = tensor;
	count(w);
	/* eight experts of 33 rows: gate and up 1024 x 256, down 256 x 512 */
	is_part(&w[PHASE_LINEAR], FORMATS + FORMAT_MXFP4, 138412032 + 69206016,
		8 * (2 * 33 * (256 + 1024 + 512 + 256) + 17 * (262144 + 131072) / 32), 2,
		"experts");
	is_part(&w[PHASE_LINEAR], FORMAT_FP8_TENSOR, 129 * 6 * 256 * 128,
		129 * (256 + 128) + 2 * 129 * (256 + 256) + 98304 + 8, 2, "a shared expert");
	spec = (struct layer_spec){
		.q_heads = 4, .kv_heads = 2, .head_dim = 64, .rotary_dim = 64, .ffn = 512
	};
}

/* ---- rates ---- */

static struct roofline_gpu round_gpu(void)
{
	struct roofline_gpu g = { .tflops = 1, .gbps = 1 };

	for (int i = 1; i < ROOFLINE_KINDS; i++)
		g.rate[i] = (struct roofline_rate){ .compute = 0.5, .memory = 0.5, .fixed_ns = 8 };
	return g;
}

static int64_t linear_ns(const struct roofline_gpu *g, const struct roofline_work *w)
{
	struct roofline_work work[PHASE_COUNT] = { [PHASE_LINEAR] = *w };

	return roofline_time(g, NULL, work, true, 1).phase_ns[PHASE_LINEAR];
}

static void test_rates(void)
{
	struct roofline_gpu g = round_gpu();
	struct roofline_work w = { .flops = 5000, .kernels = 4 };
	const int kind = ROOFLINE_FORMATS + FORMAT_FP8_BLOCK;
	const int experts = ROOFLINE_EXPERTS + FORMAT_FP8_BLOCK;
	struct roofline_work decode[PHASE_COUNT] = {
		[PHASE_DECODE] = { .bytes = 50, .kernels = 1, .kind = ROOFLINE_CACHES + 1 }
	};

	is_int(linear_ns(&g, &w), 10 + 8, "without formats it is a phase as before");
	w.parts = 1 << FORMAT_FP8_BLOCK;
	w.part[FORMAT_FP8_BLOCK] =
		(struct roofline_part){ .flops = 5000, .bytes = 2, .kernels = 3, .fp8 = true };
	is_int(linear_ns(&g, &w), 10 + 2 + 10 + 6,
	       "a format without rates has those of the phase, and a share of its fixed time");
	g.rate[kind] = (struct roofline_rate){
		.compute = 0.25, .memory = 0.5, .fixed_ns = 5, .each = true
	};
	g.own[kind] = true;
	is_int(linear_ns(&g, &w), 10 + 2 + 20 + 15, "... or its own, fixed for each product");
	g.tflops_fp8 = 4;
	is_int(linear_ns(&g, &w), 10 + 2 + 5 + 15, "... of the peak of fp8 units");
	w.part[FORMAT_FP8_BLOCK].fp8 = false;
	is_int(linear_ns(&g, &w), 10 + 2 + 20 + 15, "... if rows are quantized, too");
	w.part[FORMATS + FORMAT_FP8_BLOCK] = w.part[FORMAT_FP8_BLOCK];
	w.parts = 1 << (FORMATS + FORMAT_FP8_BLOCK);
	is_int(linear_ns(&g, &w), 10 + 2 + 20 + 15, "experts have the rates of the format");
	g.rate[experts] = (struct roofline_rate){ .compute = 0.125, .memory = 0.5, .each = true };
	g.own[experts] = true;
	is_int(linear_ns(&g, &w), 10 + 2 + 40, "... or their own");

	is_int(roofline_time(&g, NULL, decode, false, 1).cost_ns, 100 + 8,
	       "decodes on a layout without rates have those of decodes");
	g.rate[ROOFLINE_CACHES + 1] =
		(struct roofline_rate){ .compute = 0.5, .memory = 0.25, .fixed_ns = 1 };
	g.own[ROOFLINE_CACHES + 1] = true;
	is_int(roofline_time(&g, NULL, decode, false, 1).cost_ns, 200 + 1, "... or its own");
}

/* ---- measurements ---- */

/* The largest error, in percent, and the sum of all and their number. */
struct errors {
	double worst, sum;
	int n;
};

static void compare(struct errors *e, const char *what, double us, double measured)
{
	double off = 100 * (us / measured - 1);

	diag("%-44s %9.1f us, measured %9.1f, %+4.0f %%", what, us, measured, off);
	if (fabs(off) > e->worst)
		e->worst = fabs(off);
	e->sum += fabs(off);
	e->n++;
}

static void is_near(const struct errors *e, double worst, double mean, const char *what)
{
	ok(e->worst <= worst && e->sum / e->n <= mean,
	   "%s: %d times are off by %.0f %% at most and by %.0f %% in the mean", what, e->n,
	   e->worst, e->sum / e->n);
}

static double product_us(const struct roofline_gpu *g, const struct linear_format *f, double m,
			 double n, double k)
{
	struct roofline_work w = { 0 };

	add_weights(&w, f, false, 1, m, n, k, 0);
	return (double)linear_ns(g, &w) / 1e3;
}

/* Products with rows quantized, on an H200: vLLM 0.24 (CUTLASS), and the mean of TensorRT-LLM 1.3
 * and SGLang 0.5.14 for blocks.  Source: tables of AIConfigurator, 21 August 2026. */
static void test_linear(const struct roofline_gpu *g)
{
	static const struct {
		int n, k, m;
		double fp8, trtllm, sglang;
	} rows[] = {
		{ 6144, 4096, 16, 12.5, 12.2, 12.0 },	  { 6144, 4096, 256, 19.3, 18.5, 15.2 },
		{ 6144, 4096, 4096, 184, 203, 199 },	  { 10240, 8192, 16, 29.0, 28.3, 27.4 },
		{ 10240, 8192, 4096, 546, 603, 515 },	  { 7168, 16384, 1, 37.6, 37.6, 40.0 },
		{ 7168, 16384, 16384, 2939, 3519, 3233 },
	};
	struct errors by_token = { 0 }, by_block = { 0 };
	char what[64];

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		snprintf(what, sizeof what, "fp8 by token, %d x %d, %d rows", rows[i].n, rows[i].k,
			 rows[i].m);
		compare(&by_token, what, product_us(g, &tensor, rows[i].m, rows[i].n, rows[i].k),
			rows[i].fp8);
		snprintf(what, sizeof what, "fp8 blocks, %d x %d, %d rows", rows[i].n, rows[i].k,
			 rows[i].m);
		compare(&by_block, what, product_us(g, &block, rows[i].m, rows[i].n, rows[i].k),
			(rows[i].trtllm + rows[i].sglang) / 2);
	}
	is_near(&by_token, 21, 11, "fp8 by token");
	is_near(&by_block, 14, 8, "fp8 blocks");
}

/* Experts of a layer, all alike busy, vLLM 0.24 on an H200, same source.  Its times of few rows of
 * DeepSeek-V3 are left out: they are shorter than the bytes of all experts take. */
static void test_experts(const struct roofline_gpu *g)
{
	static const struct {
		const char *name;
		int hidden, ffn, experts, per_tok, rows;
		const struct linear_format *f;
		double us;
	} rows[] = {
		{ "qwen3-30b-a3b", 2048, 768, 128, 8, 64, &block, 186 },
		{ "qwen3-30b-a3b", 2048, 768, 128, 8, 1024, &block, 271 },
		{ "qwen3-30b-a3b", 2048, 768, 128, 8, 16384, &block, 2945 },
		{ "deepseek-v3", 7168, 2048, 256, 8, 16384, &block, 18670 },
		{ "gpt-oss-20b", 2880, 2880, 32, 4, 64, &mxfp4, 191 },
		{ "gpt-oss-20b", 2880, 2880, 32, 4, 1024, &mxfp4, 407 },
		{ "gpt-oss-20b", 2880, 2880, 32, 4, 16384, &mxfp4, 5754 },
	};
	struct errors e = { 0 };
	char what[64];

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		const struct layer_spec l = { .n_experts = rows[i].experts,
					      .experts_per_tok = rows[i].per_tok };
		const struct expert_load x = layer_experts(&l, rows[i].rows);
		struct roofline_work w = { 0 };

		add_weights(&w, rows[i].f, true, x.experts, x.rows, 2.0 * rows[i].ffn,
			    rows[i].hidden, 0);
		add_weights(&w, rows[i].f, true, x.experts, x.rows, rows[i].hidden, rows[i].ffn, 0);
		snprintf(what, sizeof what, "experts of %s in %s, %d rows", rows[i].name,
			 format_name(rows[i].f->kind), rows[i].rows);
		compare(&e, what, (double)linear_ns(g, &w) / 1e3, rows[i].us);
	}
	is_near(&e, 21, 13, "experts");
}

/* Decodes on a KV cache in e4m3, 32 heads over 8 of 128, vLLM 0.24 (FlashAttention 3) on an H200,
 * same source. */
static void test_decode(const struct roofline_gpu *g)
{
	static const struct {
		int requests, keys;
		double us;
	} rows[] = {
		{ 8, 8192, 61.2 }, { 8, 32768, 181.6 }, { 8, 65536, 345.3 }, { 64, 8192, 354.4 }
	};
	struct errors e = { 0 };
	char what[64];

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		const double n = (double)rows[i].requests * rows[i].keys;
		struct roofline_work w[PHASE_COUNT] = {
			[PHASE_DECODE] = { .flops = 4 * 128 * 32 * n,
					   .bytes = 2 * 8 * 128 * n,
					   .kernels = 1,
					   .kind = roofline_cache_kind(
						   cache_layout_find("kv-e4m3")) }
		};

		snprintf(what, sizeof what, "decode of %d x %d keys in e4m3", rows[i].requests,
			 rows[i].keys);
		compare(&e, what,
			(double)roofline_time(g, NULL, w, false, 1).phase_ns[PHASE_DECODE] / 1e3,
			rows[i].us);
	}
	is_near(&e, 14, 5, "decodes");
}

int main(void)
{
	struct roofline_gpu g;
	struct ar_err err = { 0 };

	plan(0);
	test_counts();
	test_rates();
	if (roofline_gpu_load(&g, "h200", &err))
		bail_out("%s", err.msg);
	test_linear(&g);
	test_experts(&g);
	test_decode(&g);
	return done_testing();
}
