/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of bench method and bench paper: samples of chunks, inputs, published figures. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "kernels/methods/method.h"
#include "kernels/methods/selection_count.h"
#include "src/bench/bench_case.h"
#include "src/bench/bench_papers.h"
#include "src/bench/bench_sample.h"
#include "src/bench/bench_input.h"
#include "tests/alloc_fault.h"
#include "tests/file.h"
#include "tests/tap.h"

/* ---- samples ---- */

static void test_samples(void)
{
	struct bench_sample s = bench_sample_at(8, 2, 0), t = bench_sample_at(8, 2, 1);
	int bad = 0, out = 0;

	is_int(bench_samples(8, 0), 8, "no number of samples means every chunk");
	is_int(bench_samples(8, 20), 8, "a number above the number of chunks means every chunk");
	ok(s.chunk == 1 && s.weight == 4 && t.chunk == 6 && t.weight == 4,
	   "two samples of eight chunks are one of the middle ones of each half");
	s = bench_sample_at(1, 8, 0);
	ok(s.chunk == 0 && s.weight == 1, "one chunk stands for itself");
	for (int n_chunk = 1; n_chunk < 70; n_chunk++)
		for (int n = 0; n < 12; n++) {
			int sum = 0, last = -1;

			for (int i = 0; i < bench_samples(n_chunk, n); i++) {
				s = bench_sample_at(n_chunk, n, i);
				out += s.chunk <= last || s.chunk >= n_chunk || s.weight < 1;
				last = s.chunk;
				sum += s.weight;
			}
			bad += sum != n_chunk;
		}
	is_int(bad, 0, "weights add up to all chunks");
	is_int(out, 0, "and samples ascend within them");
}

static void test_estimate(void)
{
	double sum = 0, want = 0;

	for (int i = 0; i < 128; i++)
		want += 5 + 3.0 * i;
	for (int i = 0; i < 8; i++) {
		struct bench_sample s = bench_sample_at(128, 8, i);

		sum += s.weight * (5 + 3.0 * s.chunk);
	}
	ok(fabs(sum - want) < 1e-9, "the sum of what grows evenly with the context is exact");
}

static void test_counts(void)
{
	struct selection_count x, sum;
	int n = 0, bad = 0;

#define X(name, doc) x.name = ++n;
	SELECTION_COUNTS(X)
#undef X
	sum = x;
	selection_add(&sum, &x, 3);
#define X(name, doc) bad += sum.name != 4 * x.name;
	SELECTION_COUNTS(X)
#undef X
	is_int(bad, 0, "all %d counts are added by weight", n);
	ok(bench_ratio(1, 4) == 0.25 && isnan(bench_ratio(0, 0)),
	   "a share of 0 out of 0 is undefined");
}

/* ---- inputs ---- */

static const struct attn_shape heads = { 4, 2, 64, 0 };

static double norm(const double *x, int n)
{
	double sum = 0;

	for (int i = 0; i < n; i++)
		sum += x[i] * x[i];
	return sqrt(sum);
}

/* How long the mean of tokens is: leaning ones do not cancel out. */
static double mean_length(const struct bench_input *s, int head, int64_t tok, int64_t n)
{
	double mean[64] = { 0 };

	for (int64_t t = tok; t < tok + n; t++)
		for (int d = 0; d < 64; d++)
			mean[d] += bf16_to_f32(s->data[(head * s->n_tok + t) * 64 + d]) / (double)n;
	return norm(mean, 64);
}

static void test_random(void)
{
	struct bench_input a, b, c;
	struct ar_err err;
	int same = 0, other = 0;

	if (bench_input_random(&a, &heads, 2048, 3, &err) ||
	    bench_input_random(&b, &heads, 1024, 3, &err) ||
	    bench_input_random(&c, &heads, 1024, 4, &err))
		bail_out("%s", err.msg);
	for (int h = 0; h < 8; h++) {
		size_t bytes = 1024 * 64 * sizeof *a.data;
		const bf16_t *x = b.data + (size_t)h * 1024 * 64;

		same += !memcmp(a.data + (size_t)h * 2048 * 64, x, bytes);
		other += !memcmp(c.data + (size_t)h * 1024 * 64, x, bytes);
	}
	is_int(same, 8, "a longer drawn sequence begins with the shorter one");
	is_int(other, 0, "another seed draws another one");
	ok(a.rope_applied && a.layer == 0 && a.n_layers == 1, "it is one layer after RoPE");
	ok(mean_length(&a, 0, 0, 1024) > 5, "the queries of a head lean one way");
	ok(mean_length(&a, 4, 128, 128) > 6 && mean_length(&a, 4, 0, 2048) < 6,
	   "its keys do so within a block");
	ok(mean_length(&a, 6, 128, 128) < 2, "values do not");
	bench_input_release(&a);
	bench_input_release(&a);
	bench_input_release(&b);
	bench_input_release(&c);
}

static struct capture *sample(void)
{
	const char *data = getenv("srcdir");
	struct capture *c;
	struct ar_err err;
	char path[4096];

	snprintf(path, sizeof path, "%s/traces/samples/niah-2k.arc", data ? data : ".");
	if (capture_open(&c, path, &err))
		bail_out("%s", err.msg);
	return c;
}

/* Heads of a tensor that are not as in the capture. */
static int differ(struct capture *c, const struct bench_input *s, enum capture_tensor t, int n,
		  int first)
{
	const struct capture_info *info = capture_info(c);
	int all = t == CAPTURE_Q ? info->q_heads : info->kv_heads, bad = 0;
	size_t head = (size_t)s->n_tok * (size_t)info->head_dim;
	bf16_t *x = malloc((size_t)all * head * sizeof *x);
	struct ar_err err;

	if (!x || capture_read(c, 0, t, 0, s->n_tok, x, &err))
		bail_out("no reference");
	for (int h = 0; h < n; h++)
		bad += memcmp(x + (size_t)h * head, s->data + (size_t)(first + h) * head,
			      head * sizeof *x) != 0;
	free(x);
	return bad;
}

static void test_capture(void)
{
	const struct attn_shape half = { 4, 1, 128, 0 };
	struct capture *c = sample();
	struct bench_input s;
	struct ar_err err;

	if (bench_input_capture(&s, c, 0, &half, 1000, &err))
		bail_out("%s", err.msg);
	is_int(s.n_tok, 1000, "the first tokens of a capture are read");
	is_int(s.layer, 5, "the layer has its number in the model");
	is_int(s.n_layers, 6, "the model has at least as many layers");
	is_int(differ(c, &s, CAPTURE_Q, 4, 0), 0, "the first query heads are a rank's");
	is_int(differ(c, &s, CAPTURE_K, 1, 4), 0, "the first KV heads as well");
	is_int(differ(c, &s, CAPTURE_V, 1, 5), 0, "values follow keys");
	bench_input_release(&s);
	if (bench_input_capture(&s, c, 0, &half, 1 << 20, &err))
		bail_out("%s", err.msg);
	is_int(s.n_tok, 2112, "of a capture that is shorter there is all of it");
	is_int(differ(c, &s, CAPTURE_Q, 4, 0), 0, "as it was captured");
	bench_input_release(&s);
	capture_close(c);
}

/* Whether heads [n, 2n) of a tensor equal heads [0, n).  first: the tensor's first head in data. */
static bool again(const struct bench_input *s, int first, int n)
{
	size_t head = (size_t)s->n_tok * (size_t)s->shape.head_dim;
	const bf16_t *x = s->data + (size_t)first * head;

	return !memcmp(x, x + (size_t)n * head, (size_t)n * head * sizeof *x);
}

static void test_repeated(void)
{
	static const struct {
		struct attn_shape shape;
		int repeats; /* 0: does not fit */
	} cases[] = {
		{ { 8, 2, 128, 0 }, 1 },  { { 4, 1, 128, 0 }, 1 },  { { 16, 4, 128, 0 }, 2 },
		{ { 32, 8, 128, 0 }, 4 }, { { 16, 2, 128, 0 }, 0 }, { { 12, 3, 128, 0 }, 0 },
		{ { 16, 4, 64, 0 }, 0 },  { { 0, 0, 128, 0 }, 0 },
	};
	const struct attn_shape *twice = &cases[2].shape;
	struct capture *c = sample();
	const struct capture_info *info = capture_info(c);
	struct bench_input s;
	struct ar_err err;
	int bad = 0;

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		bool fits = bench_input_fits(info, &cases[i].shape);

		bad += fits != (cases[i].repeats > 0);
		bad += fits && bench_input_repeats(info, &cases[i].shape) != cases[i].repeats;
	}
	is_int(bad, 0, "heads fit that the capture has, or repeated, with as many to a KV head");
	if (bench_input_capture(&s, c, 0, twice, 300, &err))
		bail_out("%s", err.msg);
	is_int(s.repeats, 2, "twice as many heads are those of the capture twice");
	is_int(differ(c, &s, CAPTURE_Q, 8, 0) + differ(c, &s, CAPTURE_K, 2, 16) +
		       differ(c, &s, CAPTURE_V, 2, 20),
	       0, "the first are as captured");
	ok(again(&s, 0, 8) && again(&s, 16, 2) && again(&s, 20, 2),
	   "the second half of the heads repeats the capture's");
	bench_input_release(&s);
	capture_close(c);
}

/* The sample as safetensors whose metadata has no rope_theta. */
static void test_no_rope(void)
{
	const struct attn_shape half = { 4, 1, 128, 0 };
	char dir[] = "/tmp/t-bench-paper.XXXXXX", path[sizeof dir + 16];
	struct capture *c = sample();
	struct bench_input s;
	struct ar_err err;
	unsigned char *x, *at;
	size_t n;

	if (!mkdtemp(dir))
		bail_out("no folder for files");
	snprintf(path, sizeof path, "%s/a.safetensors", dir);
	if (capture_unpack(c, path, &err))
		bail_out("%s", err.msg);
	capture_close(c);
	x = file_read(path, &n);
	at = memmem(x, n, "rope_theta", 10);
	if (!at)
		bail_out("no rope_theta to take away");
	memcpy(at, "xope_theta", 10);
	file_write(path, x, n);
	free(x);
	if (capture_open(&c, path, &err))
		bail_out("%s", err.msg);
	is_int(bench_input_capture(&s, c, 0, &half, 2112, &err), AR_OK,
	       "turned keys that need not be repeated need no RoPE");
	bench_input_release(&s);
	is_int(bench_input_capture(&s, c, 0, &half, 2113, &err), AR_DATA,
	       "to repeat them its RoPE must be known");
	ok(strstr(err.msg, "does not state its RoPE, which a context longer"),
	   "and the message says so");
	capture_close(c);
	remove(path);
	remove(dir);
}

static void test_faults(void)
{
	const struct attn_shape half = { 4, 1, 128, 0 };
	struct capture *c = sample();
	struct bench_input s;
	int bad = 0;
	long k = 0;

	for (;; k++) {
		struct ar_err err = { 0 };
		enum ar_status st;

		fault_arm(k);
		st = bench_input_capture(&s, c, 0, &half, 1 << 20, &err);
		if (!fault_disarm())
			break;
		bad += st != AR_NOMEM || s.data;
		bench_input_release(&s);
	}
	ok(k >= 2, "reading a capture needs memory more than once");
	is_int(bad, 0, "and each time that there is none it says so and keeps nothing");
	bench_input_release(&s);
	capture_close(c);
	fault_arm(0);
	is_int(bench_input_random(&s, &heads, 128, 1, NULL), AR_NOMEM,
	       "a sequence that finds no memory is not drawn");
	fault_disarm();
}

/* ---- papers ---- */

static void test_table(const struct paper_table *t)
{
	int bad = 0, n = 0;

	is_str(paper_find(t->name) ? paper_find(t->name)->name : "", t->name, "%s can be found",
	       t->name);
	for (const struct paper_row *r = t->row; r->label; r++, n++)
		for (int i = 0; i < t->n_column; i++)
			bad += r->figure[i] <= 0; /* not a number is none */
	ok(n > 0 && !bad, "%s has a figure for every row and column, or none", t->name);
	bad = !t->title || !t->source || t->n_column < 1 || t->n_column > PAPER_COLS ||
	      t->q_heads % t->kv_heads || (!t->model && t->kv_heads % t->tp);
	for (int i = 0; i < t->n_column; i++)
		bad += t->column[i].context % t->column[i].chunk || t->column[i].chunk % 128;
	ok(!bad, "%s has shapes of whole chunks and pages", t->name);
}

/* Rows of the table by their label. */
static const struct paper_row *row_of(const struct paper_table *t, const char *label)
{
	const struct paper_row *r = t->row;

	while (r->label && strcmp(r->label, label))
		r++;
	return r->label ? r : NULL;
}

static void test_figures(void)
{
	const struct paper_table *t = paper_find("ca-4"), *by_chunk = paper_find("ca-5");
	const struct paper_row *fp = row_of(t, "CompactAttention-FP");
	static const double speedup[] = { 2.85, 2.72, 2.38 }; /* as printed below Table 5 */
	int bad = 0;

	/* 20489.7 ms over 128 chunks and 32 layers */
	ok(fabs(paper_figure(t, fp, 4) - 5.00237) < 1e-5, "a call is a share of the prefill");
	ok(fabs(paper_speedup(t, fp, 4) - 2.7174) < 1e-4, "speedups are over the dense row");
	fp = row_of(by_chunk, "CompactAttention-FP");
	for (int i = 0; i < 3; i++)
		bad += fabs(paper_speedup(by_chunk, fp, i) - speedup[i]) > 0.006;
	is_int(bad, 0, "Table 5's speedups follow from its times");
	bad = paper_figure(t, row_of(t, "Dense"), 4) != paper_figure(by_chunk, by_chunk->row, 1);
	is_int(bad, 0, "Tables 4 and 5 agree where they meet");
	t = paper_find("ca-6");
	ok(paper_speedup(t, t->row, 3) == 1.15, "a speedup that is printed is taken as it is");
	t = paper_find("ca-1b");
	ok(paper_speedup(t, row_of(t, "FlashPrefill, own mask"), 1) == 7, "and so is a kernel's");
	t = paper_find("ca-2");
	ok(paper_figure(t, t->row, 0) == 83.76 && isnan(paper_speedup(t, t->row, 0)),
	   "other figures are as printed and have no speedup");
	t = paper_find("ca-7c");
	ok(isnan(paper_figure(t, t->row, 0)), "where the paper prints none there is none");
	t = paper_find("ca-calls");
	fp = row_of(t, "FlashPrefill");
	ok(fabs(paper_figure(t, row_of(t, "Dense"), 0) - 13.593) < 5e-4 &&
		   fabs(paper_figure(t, fp, 0) - 6.076) < 5e-4 &&
		   paper_printed(t, fp, 0) == 24886.5,
	   "the calls are Table 4's last column");
	fp = row_of(paper_find("bfla-5"), "b256 g256 rho.1 eta16");
	ok(strstr(fp->method, "group=256") && !strstr(fp->method, "pool="),
	   "a group of a block is a group, not a mean");
	ok(!paper_find("ca-1"), "a table that is not there is not found");
}

/* Stated sparsity of a row and column; *selected as in paper_sparsity(). */
static double stated(const char *table, const char *label, int col, bool *selected)
{
	const struct paper_table *t = paper_find(table);

	return paper_sparsity(t, row_of(t, label), col, selected);
}

static void test_sparsity(void)
{
	static const struct paper_row dense = { "Dense", "dense", PAPER_CALL, { 0 } };
	bool selected;

	ok(stated("ca-4", "CompactAttention-FP", 4, &selected) == 70.2 && !selected,
	   "what unions leave out is stated by another table of the model");
	ok(stated("ca-calls", "CompactAttention-FP", 0, &selected) == 70.2,
	   "wherever the column stands");
	ok(stated("ca-3", "CompactAttention-FP", 4, &selected) == 89.8 && selected,
	   "at another chunk size it is what the selector leaves out");
	ok(stated("ca-9", "CA-FP (Copy)", 0, &selected) == 89.8 && selected,
	   "an executor of the same selection has its sparsity");
	ok(stated("ca-4", "FlashPrefill", 4, &selected) == 69.8,
	   "another method has its own sparsity");
	ok(isnan(stated("ca-4", "CompactAttention-FP", 3, &selected)),
	   "at another context nothing is stated");
	ok(stated("ca-6", "CompactAttention-FP", 1, &selected) == 57.82 && !selected,
	   "another model has its own table");
	ok(stated("ca-3", "QUOKA", 0, &selected) == 75 && !selected,
	   "a fixed budget is the same everywhere");
	ok(isnan(stated("ca-4", "Dense", 4, &selected)) &&
		   isnan(stated("ca-4", "XAttention", 4, &selected)),
	   "of others nothing is stated");
	ok(stated("ca-1b", "XAttention", 0, &selected) == 90 && selected &&
		   stated("ca-1b", "SeerAttention, own mask", 1, &selected) == 90 && selected,
	   "a figure at one sparsity states it for every mask");
	ok(isnan(paper_sparsity(paper_find("ca-1b"), &dense, 0, &selected)),
	   "dense attention has no sparsity");
	ok(!strcmp(paper_method("seer")->instead, "seer:gate=mean") && !paper_method("dense"),
	   "a method that wants a file has a stand-in");
}

/* Heads that every tile of a method packs, 0: they differ; *u: the union of its tables. */
static int packed(const char *method, const struct attn_batch *b, enum union_kind *u)
{
	struct method *m;
	struct ar_err err;
	struct attn_tile *tile;
	int n, n_head;

	if (method_parse(&m, method, &err))
		bail_out("%s", err.msg);
	n = method_plan(method_prefill(m), b, NULL);
	tile = aligned_alloc(alignof(struct attn_tile), (size_t)n * sizeof *tile);
	if (!tile)
		bail_out("no memory for tiles");
	method_plan(method_prefill(m), b, tile);
	n_head = tile->n_head;
	for (int i = 1; i < n; i++)
		n_head = tile[i].n_head == n_head ? n_head : 0;
	*u = method_prefill(m)->u;
	free(tile);
	method_free(m);
	return n_head;
}

static void test_packed(void)
{
	const struct paper_table *t = paper_find("ca-7c");
	struct bench_shape shape = { .q_heads = t->q_heads,
				     .kv_heads = t->kv_heads,
				     .head_dim = t->head_dim,
				     .page_tok = 128,
				     .batch = 1,
				     .chunk = 512,
				     .context = 4096 };
	enum union_kind alone, together;
	struct bench_case c;
	struct ar_err err;

	if (bench_case_make(&c, BENCH_DENSE, &shape, 1, 5, &err))
		bail_out("%s", err.msg);
	is_int(packed(row_of(t, "Block-sparse")->method, &c.b, &alone), 1,
	       "Figure 7(c): block-sparse runs a head at a time");
	is_int(packed(row_of(t, "CA-FP")->method, &c.b, &together), t->q_heads / t->kv_heads,
	       "... and CA-FP the heads of a group");
	ok(alone == together, "... under the same tables");
	bench_case_release(&c);
}

int main(void)
{
	plan(0);
	test_samples();
	test_estimate();
	test_counts();
	test_random();
	test_capture();
	test_repeated();
	test_no_rope();
	test_faults();
	for (const struct paper_table *t = paper_tables; t->name; t++)
		test_table(t);
	test_figures();
	test_sparsity();
	test_packed();
	return done_testing();
}
