/* SPDX-License-Identifier: Apache-2.0 */
/* The roofline model of latent attention and its indexer: work counted by hand, the form that a
 * chunk takes, and times at published rates. */
#include "config.h"
#include "replay/cost/roofline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/layer_size.h"
#include "tests/a_model.h"
#include "tests/tap.h"

static struct method *dense_method;

enum { CHUNK = 8192 };

/* Count one layer of m for the batch, of which it adds to w. */
static void add_count(const struct model *m, int layer, struct batch_entry *entry, size_t n,
		      struct roofline_work *w)
{
	static const double density[64] = { 0 };
	const struct roofline_subject s = { .model = m,
					    .method = dense_method,
					    .attention_only = true };
	struct roofline_work one[PHASE_COUNT];

	roofline_count(&s, layer, &(struct batch){ .entry = entry, .n = n }, density, one);
	for (int p = 0; p < PHASE_COUNT; p++) {
		w[p].flops += one[p].flops;
		w[p].fp8_flops += one[p].fp8_flops;
		w[p].bytes += one[p].bytes;
		w[p].kernels += one[p].kernels;
	}
}

/* What attention of a chunk takes in a form. */
static void count_as(const struct model *m, enum roofline_latent form, struct batch_entry e,
		     struct roofline_work *w)
{
	const struct roofline_subject s = {
		.model = m, .method = dense_method, .attention_only = true, .latent = form
	};
	const double density = 1;

	roofline_count(&s, 0, &(struct batch){ .entry = &e, .n = 1 }, &density, w);
}

static void count(const struct model *m, int layer, struct batch_entry *entry, size_t n,
		  struct roofline_work *w)
{
	memset(w, 0, PHASE_COUNT * sizeof *w);
	add_count(m, layer, entry, n, w);
}

static void is_near(double got, double want, double share, const char *what)
{
	ok(fabs(got - want) <= share * want, "%s: %.6g, want %.6g", what, got, want);
}

/* ---- terms ---- */

static void test_terms(void)
{
	static const struct {
		const char *name;
		double pair, absorbed, expand;
	} cases[] = {
		{ "deepseek-v3", 81920, 278528, 33554432 },
		{ "kimi-k2", 40960, 139264, 16777216 },
		{ "glm-5", 65536, 139264, 29360128 },
		{ "deepseek-v2-lite", 10240, 34816, 4194304 },
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct model m = a_model(cases[i].name);

		is_near(layer_pair_flops(m.layer), cases[i].pair, 0, cases[i].name);
		is_near(layer_absorbed_flops(m.layer), cases[i].absorbed, 0, "... absorbed");
		is_near(layer_expand_flops(m.layer), cases[i].expand, 0, "... a key expanded");
		model_release(&m);
	}
}

/* 2048 rows on 65536 keys before them: FLOPs and bytes of each phase. */
static void test_chunk(void)
{
	struct model dense = a_model("deepseek-v3"), dsa = a_model("deepseek-v3.2");
	struct batch_entry e = { .start = 65536, .n_tok = 2048 };
	const double pairs = 2048.0 * 65536 + 2048.0 * 2049 / 2, keys = 67584;
	struct roofline_work w[PHASE_COUNT];

	count(&dense, 0, &e, 1, w);
	is_near(w[PHASE_ATTEND].flops, 81920 * pairs, 0, "dense: pairs");
	is_near(w[PHASE_ATTEND].flops / 1e12, 11.17, 1e-3, "... in 1e12");
	is_near(w[PHASE_ATTEND].bytes, 2.0 * 2048 * 128 * (192 + 128) + 2 * keys * (32768 + 64), 0,
		"... Q and output, K and V of heads, and the one rotated key");
	is_near(w[PHASE_LATENT].flops, 33554432 * keys, 0, "... all keys are expanded");
	is_near(w[PHASE_LATENT].flops / 1e12, 2.27, 1e-3, "... in 1e12");
	is_near(w[PHASE_LATENT].bytes, 2 * (keys * 512 + 512.0 * 32768 + keys * 32768), 0,
		"... their latents, weights and results");
	ok(!w[PHASE_SELECT].kernels && !w[PHASE_METADATA].kernels && !w[PHASE_DECODE].kernels &&
		   w[PHASE_ATTEND].kernels == 1 && w[PHASE_LATENT].kernels == 1,
	   "... and no indexer");
	is_near(w[PHASE_ROPE].bytes, 2048 * (2 * 2 * 129 * 64 + 4 * 64.0), 0,
		"... Q's rotated channels, and a key's");
	is_near(w[PHASE_CACHE].bytes, 2048 * (2 * 576 + 1152.0), 0, "... a latent is kept");

	count(&dsa, 0, &e, 1, w);
	is_near(w[PHASE_ATTEND].flops, 278528.0 * 2048 * 2048, 0, "lists of 2048: pairs");
	is_near(w[PHASE_ATTEND].flops / 1e12, 1.17, 2e-3, "... in 1e12");
	is_near(w[PHASE_ATTEND].bytes,
		2.0 * 2048 * 128 * (576 + 512) + 1152 * keys + 2 * 4 * 2048.0 * 2048, 0,
		"... Q and output, latents once, and the lists");
	is_near(w[PHASE_LATENT].flops, 33554432.0 * 2048, 0, "... rows are absorbed");
	is_near(w[PHASE_LATENT].bytes, 2 * 128 * (2048.0 * (128 + 512) + 128 * 512) * 2, 0,
		"... Q's and output's, and weights");
	is_near(w[PHASE_SELECT].fp8_flops / 1e12, 2.23, 2e-3, "... the indexer's pairs in 1e12");
	is_near(w[PHASE_SELECT].fp8_flops, 16384 * pairs, 0, "... exactly");
	is_near(w[PHASE_SELECT].bytes, 132 * keys + 2048 * 64 * (128 + 4.0), 0,
		"... its keys, queries and weights");
	is_near(w[PHASE_METADATA].bytes, 8 * pairs, 0, "... scores written and read");
	is_near(w[PHASE_CACHE].bytes, 2048 * (2 * 576 + 1152 + 2 * 128 + 132.0), 0,
		"... a latent and an index key are kept");
	is_near(w[PHASE_ROPE].bytes, 2048 * (2 * 2 * 129 * 64 + 4 * 64 + 64 * 128 * 3.0), 0,
		"... the indexer's queries become fp8");
	model_release(&dense);
	model_release(&dsa);
}

/* Products and norms outside attention. */
static void test_rows(void)
{
	struct model m = a_model("deepseek-v3.2"), plain = a_model("deepseek-v3");
	struct batch_entry e = { .start = 0, .n_tok = 64 };
	const double density = 1;
	struct roofline_subject s = { .model = &m, .method = dense_method };
	struct roofline_work w[PHASE_COUNT], v[PHASE_COUNT];
	const double mlp = 2.0 * 64 * 3 * 18432 * 7168;

	roofline_count(&s, 0, &(struct batch){ .entry = &e, .n = 1 }, &density, w);
	s.model = &plain;
	roofline_count(&s, 0, &(struct batch){ .entry = &e, .n = 1 }, &density, v);
	is_near(v[PHASE_LINEAR].flops,
		2.0 * 64 * (7168 * 2112.0 + 1536.0 * 24576 + 16384.0 * 7168) + mlp, 0,
		"products of Q's rank and the latent, of Q, and of the output");
	is_near(w[PHASE_LINEAR].flops - v[PHASE_LINEAR].flops,
		2.0 * 64 * (1536.0 * 8192 + 7168 * 192.0), 0, "... and of an indexer");
	is_int(w[PHASE_LINEAR].kernels - v[PHASE_LINEAR].kernels, 2, "... in two launches");
	is_near(w[PHASE_NORM].bytes, v[PHASE_NORM].bytes, 0, "norms are the same");
	plain.layer[0].mla.q_lora = 0;
	roofline_count(&s, 0, &(struct batch){ .entry = &e, .n = 1 }, &density, w);
	is_near(w[PHASE_LINEAR].flops, 2.0 * 64 * 7168 * (24576.0 + 576 + 16384) + mlp, 0,
		"Q of one product");
	is_near(v[PHASE_NORM].bytes - w[PHASE_NORM].bytes, 2 * (2 * 64 + 1) * 1536.0, 0,
		"... without a norm of its rank");
	model_release(&m);
	model_release(&plain);
}

/* ---- forms ---- */

/* The least rows on n keys before them that are expanded. */
static int switch_at(const struct model *m, uint32_t n)
{
	struct batch_entry e = { .start = n, .n_tok = 1 };
	struct roofline_work w[PHASE_COUNT];

	for (; e.n_tok < 4096; e.n_tok++) {
		count(m, 0, &e, 1, w);
		if (w[PHASE_LATENT].kernels == 1) /* a product for keys, two for rows */
			break;
	}
	return (int)e.n_tok;
}

static void test_forms(void)
{
	struct model v3 = a_model("deepseek-v3"), flash = a_model("glm-4.7-flash");
	struct batch_entry e = { .start = 0, .n_tok = 64 };
	struct roofline_work w[PHASE_COUNT];

	is_int(switch_at(&v3, 1 << 20), 171, "128/64/128: above 170 rows keys are expanded");
	is_int(switch_at(&flash, 1 << 20), 399, "192/64/256: above 398 rows");
	count(&v3, 0, &e, 1, w);
	is_near(w[PHASE_LATENT].flops, 33554432.0 * 64, 0, "a prompt alone is expanded");
	is_near(w[PHASE_ATTEND].flops, 81920 * 64.0 * 65 / 2, 0, "... and not absorbed");
	e = (struct batch_entry){ .start = 4095, .n_tok = 1, .kind = ROW_DECODE };
	count(&v3, 0, &e, 1, w);
	is_near(w[PHASE_DECODE].flops, 278528.0 * 4096, 0, "a decode is absorbed");
	is_near(w[PHASE_DECODE].bytes, 1152.0 * 4096 + 2 * 128 * 1088.0, 0,
		"... and reads each latent once for all heads");
	model_release(&v3);
	model_release(&flash);
}

static bool same(const struct roofline_work *w, const struct roofline_work *v, enum phase p)
{
	return w[p].flops == v[p].flops && w[p].bytes == v[p].bytes && w[p].kernels == v[p].kernels;
}

/* A form that is asked for is taken on both sides of the switch, but by decodes and lists. */
static void test_asked(void)
{
	struct model v3 = a_model("deepseek-v3"), dsa = a_model("deepseek-v3.2");
	const struct batch_entry few = { .start = 65536, .n_tok = 64 };
	const struct batch_entry many = { .start = 65536, .n_tok = 2048 };
	const struct batch_entry decode = { .start = 4095, .n_tok = 1, .kind = ROW_DECODE };
	const double pairs = 64.0 * 65536 + 64.0 * 65 / 2;
	struct roofline_work w[PHASE_COUNT], v[PHASE_COUNT];

	count_as(&v3, ROOFLINE_LATENT_EXPAND, few, w);
	is_near(w[PHASE_ATTEND].flops, 81920 * pairs, 0, "expand: few rows, too");
	is_near(w[PHASE_LATENT].flops, 33554432 * 65600.0, 0, "... all keys");
	count_as(&v3, ROOFLINE_LATENT_ABSORB, few, w);
	count_as(&v3, ROOFLINE_LATENT_AUTO, few, v);
	ok(same(w, v, PHASE_ATTEND) && same(w, v, PHASE_LATENT),
	   "absorb: few rows are as with auto");
	count_as(&v3, ROOFLINE_LATENT_ABSORB, many, w);
	is_near(w[PHASE_ATTEND].flops / 1e12, 37.97, 1e-3, "... many rows, in 1e12");
	is_near(w[PHASE_LATENT].flops / 1e12, 0.07, 2e-2, "... and their products");
	count_as(&v3, ROOFLINE_LATENT_EXPAND, decode, w);
	is_near(w[PHASE_DECODE].flops, 278528.0 * 4096, 0, "expand: a decode is absorbed");
	count_as(&dsa, ROOFLINE_LATENT_EXPAND, many, w);
	count_as(&dsa, ROOFLINE_LATENT_AUTO, many, v);
	ok(same(w, v, PHASE_ATTEND) && same(w, v, PHASE_LATENT), "... and so are lists");
	model_release(&v3);
	model_release(&dsa);
}

/* Chunks attend to lists if any prompt of the batch is longer than a list. */
static void test_lists(void)
{
	struct model m = a_model("deepseek-v3.2");
	struct batch_entry e[] = { { .start = 0, .n_tok = 1024 }, { .start = 0, .n_tok = 3072 } };
	struct batch_entry decode[] = { { .start = 1023, .n_tok = 1, .kind = ROW_DECODE },
					{ .start = 8191, .n_tok = 1, .kind = ROW_DECODE } };
	struct roofline_work w[PHASE_COUNT];

	count(&m, 0, e, 1, w);
	ok(!w[PHASE_SELECT].kernels && w[PHASE_ATTEND].flops == 81920 * 1024.0 * 1025 / 2,
	   "a prompt of 1024 alone is dense, and nothing is scored");
	e[0].n_tok = 2048;
	count(&m, 0, e, 1, w);
	is_int(w[PHASE_SELECT].kernels, 0, "so is one as long as a list");
	e[0].n_tok = 1024;
	count(&m, 0, e, 2, w);
	is_near(w[PHASE_ATTEND].flops,
		278528 * (1024.0 * 1025 / 2 + 2048.0 * 2049 / 2 + 1024 * 2048.0), 0,
		"beside one of 3072 both attend to lists");
	is_near(w[PHASE_SELECT].fp8_flops, 16384 * (1024.0 * 1025 / 2 + 3072.0 * 3073 / 2), 0,
		"... and score all pairs");
	count(&m, 0, decode, 2, w);
	is_near(w[PHASE_DECODE].flops, 278528.0 * (1024 + 2048), 0,
		"decodes attend to lists, of their keys if those are fewer");
	is_near(w[PHASE_SELECT].fp8_flops, 16384.0 * (1024 + 8192), 0, "... and score all keys");
	m.layer[0].index.own = 0;
	m.layer[0].cache = cache_layout_find("latent-bf16");
	count(&m, 0, decode, 2, w);
	ok(!w[PHASE_SELECT].kernels && !w[PHASE_METADATA].kernels &&
		   w[PHASE_DECODE].flops == 278528.0 * (1024 + 2048),
	   "a layer that takes another's list scores nothing");
	is_near(w[PHASE_CACHE].bytes, 2 * (2 * 576 + 1152.0), 0, "... and keeps no index key");
	model_release(&m);
}

/* ---- times ---- */

/* At TFLOP/s in bf16, of which fp8 has twice as many, and TB/s. */
static double ms(const struct roofline_work *w, double tflops, double tbps)
{
	const struct roofline_gpu g = { .tflops = 1000, .tflops_fp8 = 2000, .gbps = 1e3 * tbps };
	const struct roofline_rate r = { .compute = tflops / 1000, .memory = 1 };

	return (double)roofline_ns(&g, &r, w) / 1e6;
}

/* Without fp8 units the indexer runs at the rate of bf16. */
static void test_without_fp8(void)
{
	const struct roofline_gpu g = { .tflops = 100, .gbps = 1e9 };
	const struct roofline_rate r = { .compute = 1, .memory = 1 };
	const struct roofline_work w = { .fp8_flops = 1e9, .kernels = 1 };

	is_int(roofline_ns(&g, &r, &w), 10000, "1e9 FLOPs of fp8 at 100 TFLOP/s, in ns");
}

/* A prompt in chunks. */
static void count_prompt(const struct model *m, uint32_t n, struct roofline_work *w)
{
	memset(w, 0, PHASE_COUNT * sizeof *w);
	for (uint32_t at = 0; at < n; at += CHUNK) {
		struct batch_entry e = { .start = at, .n_tok = n - at < CHUNK ? n - at : CHUNK };

		add_count(m, 0, &e, 1, w);
	}
}

/* Whole prompts in one layer of 128 heads, in ms at the rates of kernels on Hopper: 600 TFLOP/s in
 * dense attention, 640 in lists, 700 in products, 820 in the indexer, 4.19 TB/s; the figures of
 * absorbing leave bytes out.  Figures are rounded: 1 % or half of the last digit may be off. */
static bool as_printed(double got, const char *text)
{
	const char *point = strchr(text, '.');
	double want = strtod(text, NULL), digit = point ? pow(10, -(double)strlen(point + 1)) : 1;

	return fabs(got - want) <= fmax(0.01 * want, digit / 2);
}

static void test_prompts(void)
{
	enum { COLUMNS = 6 };
	static const struct {
		uint32_t n;
		const char *column[COLUMNS];
	} rows[] = {
		{ 4096, { "1.15", "0.20", "2.74", "0.20", "0.17", "0.02" } },
		{ 8192, { "4.58", "0.39", "6.39", "0.39", "0.67", "0.06" } },
		{ 12288, { "10.31", "0.98", "10.04", "0.59", "1.51", "0.14" } },
		{ 16384, { "18.33", "1.18", "13.69", "0.79", "2.68", "0.26" } },
		{ 32768, { "73.3", "3.9", "28.3", "1.6", "10.7", "1.0" } },
		{ 65536, { "293", "14", "57.5", "3.1", "42.9", "4.1" } },
		{ 131072, { "1173", "53", "116", "6", "172", "16" } },
	};
	struct model dense = a_model("deepseek-v3"), dsa = a_model("deepseek-v3.2");

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct roofline_work a[PHASE_COUNT], b[PHASE_COUNT];
		double got[COLUMNS];
		int good = 0;

		count_prompt(&dense, rows[i].n, a);
		count_prompt(&dsa, rows[i].n, b);
		got[0] = ms(&a[PHASE_ATTEND], 600, 4.19);
		got[1] = ms(&a[PHASE_LATENT], 700, 4.19);
		got[2] = ms(&b[PHASE_ATTEND], 640, 4.19);
		got[3] = ms(&b[PHASE_LATENT], 700, INFINITY);
		got[4] = ms(&b[PHASE_SELECT], 820.0 / 2, 4.19);
		got[5] = ms(&b[PHASE_METADATA], 820, 4.19);
		for (int k = 0; k < COLUMNS; k++)
			good += as_printed(got[k], rows[i].column[k]);
		is_int(good, COLUMNS,
		       "%u: dense %.4g, expand %.3g; lists %.4g, absorb %.3g, index %.4g, "
		       "scores %.3g ms",
		       rows[i].n, got[0], got[1], got[2], got[3], got[4], got[5]);
	}
	model_release(&dense);
	model_release(&dsa);
}

/* A step of decodes in one layer: dense in bf16, and lists in fp8.  us at 660 and 410 TFLOP/s and
 * 4.19 TB/s; bytes of keys alone. */
static void test_decodes(void)
{
	static const struct {
		int n, heads;
		uint32_t len;
		double mb, gflop, us, list_mb, list_gflop, list_us, index_mb, index_us, score_mb;
	} rows[] = {
		{ 64, 128, 4096, 302, 73.0, 111, 86, 36.5, 89, 34.6, 8.26, 1.05 },
		{ 64, 128, 65536, 4832, 1168, 1770, 86, 36.5, 89, 554, 132, 16.8 },
		{ 64, 16, 65536, 4832, 146, 1153, 86, 4.6, 20.5, 554, 132, 16.8 },
		{ 8, 128, 131072, 1208, 292, 443, 10.7, 4.6, 11, 138, 33, 4.2 },
	};
	struct model dense = a_model("deepseek-v3"), dsa = a_model("deepseek-v3.2");

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct batch_entry e[64];
		struct roofline_work a[PHASE_COUNT], b[PHASE_COUNT];
		double n = rows[i].n, q, keys;

		for (int k = 0; k < rows[i].n; k++)
			e[k] = (struct batch_entry){ .start = rows[i].len - 1,
						     .n_tok = 1,
						     .kind = ROW_DECODE };
		dense.layer[0].q_heads = dsa.layer[0].q_heads = rows[i].heads;
		dsa.layer[0].cache = cache_layout_find("latent-index-fp8");
		count(&dense, 0, e, (size_t)rows[i].n, a);
		count(&dsa, 0, e, (size_t)rows[i].n, b);
		q = 2 * n * rows[i].heads * 1088;
		is_near((a[PHASE_DECODE].bytes - q) / 1e6, rows[i].mb, 0.01, "MB of latents");
		is_near(a[PHASE_DECODE].flops / 1e9, rows[i].gflop, 0.01, "... GFLOP");
		is_near(ms(&a[PHASE_DECODE], 660, 4.19) * 1e3, rows[i].us, 0.01, "... us");
		keys = b[PHASE_DECODE].bytes - q - 2 * 4 * n * 2048;
		is_near(keys / 1e6, rows[i].list_mb, 0.01, "lists: MB of latents");
		is_near(b[PHASE_DECODE].flops / 1e9, rows[i].list_gflop, 0.01, "... GFLOP");
		b[PHASE_DECODE].bytes = keys;
		is_near(ms(&b[PHASE_DECODE], 410, 4.19) * 1e3, rows[i].list_us, 0.02, "... us");
		b[PHASE_SELECT].bytes -= n * 64 * 132;
		is_near(b[PHASE_SELECT].bytes / 1e6, rows[i].index_mb, 0.01,
			"... MB of index keys");
		is_near(ms(&b[PHASE_SELECT], 410, 4.19) * 1e3, rows[i].index_us, 0.01, "... us");
		is_near(b[PHASE_METADATA].bytes / 2e6, rows[i].score_mb, 0.01, "... MB of scores");
	}
	model_release(&dense);
	model_release(&dsa);
}

int main(void)
{
	plan(0);
	if (method_parse(&dense_method, "dense", NULL))
		bail_out("no dense method");
	test_terms();
	test_chunk();
	test_rows();
	test_forms();
	test_asked();
	test_lists();
	test_without_fp8();
	test_prompts();
	test_decodes();
	method_free(dense_method);
	return done_testing();
}
