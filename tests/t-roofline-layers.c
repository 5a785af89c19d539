/* SPDX-License-Identifier: Apache-2.0 */
/* The roofline model of layers that differ: windows, gated DeltaNets, gates, norms, biases and
 * shared experts, counted by hand, and an iteration of several kinds. */
#include "config.h"
#include "replay/cost/roofline.h"

#include <string.h>

#include "model/layer_size.h"
#include "tests/roofline_work.h"
#include "tests/tap.h"

enum { H = 256 };

static const struct layer_spec full = {
	.q_heads = 4, .kv_heads = 2, .head_dim = 64, .rotary_dim = 64, .ffn = 512
};
static const struct layer_spec linear = { .mixer = MIX_LINEAR,
					  .delta = { 2, 4, 32, 16, 4 },
					  .ffn = 512 };

/* A chunk of 128 rows on 128 keys, and a decode with 256. */
static struct batch_entry entry[] = {
	{ .start = 128, .n_tok = 128 },
	{ .start = 255, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1 },
};
static const struct batch both = { entry, 2, 128, 1, NULL, { 0 } };

static struct method *parse(const char *name)
{
	struct method *m;
	struct ar_err err = { 0 };

	if (method_parse(&m, name, &err))
		bail_out("%s", err.msg);
	return m;
}

static void count(struct layer_spec l, const char *method, bool attention_only,
		  const struct batch *b, struct roofline_work *work)
{
	const struct model model = { .n_layers = 1, .hidden = H, .vocab = 1000, .layer = &l };
	struct method *m = parse(method);
	const double of[] = { 0.5, 0.5 };
	struct roofline_subject s = { .model = &model,
				      .method = m,
				      .attention_only = attention_only };

	roofline_count(&s, 0, b, of, work);
	method_free(m);
}

/* How the layer that `change` makes of a full one differs in its products and norms. */
static void is_more(const struct layer_spec *changed, int64_t linear_bytes, int64_t norm_bytes,
		    int norm_kernels, const char *what)
{
	struct roofline_work a[PHASE_COUNT], b[PHASE_COUNT];

	count(full, "dense", false, &both, a);
	count(*changed, "dense", false, &both, b);
	is_int((int64_t)(b[PHASE_LINEAR].bytes - a[PHASE_LINEAR].bytes), linear_bytes,
	       "%s: bytes of products", what);
	is_int((int64_t)(b[PHASE_NORM].bytes - a[PHASE_NORM].bytes), norm_bytes, "... of norms");
	is_int(b[PHASE_NORM].kernels - a[PHASE_NORM].kernels, norm_kernels, "... and launches");
}

static void test_members(void)
{
	struct layer_spec l = full;

	l.qkv_bias = l.o_bias = l.mlp_bias = 1;
	is_more(&l, 2 * (512 + 256 + 1024 + 256), 0, 0, "biases");
	l = full;
	l.qk_norm = 1;
	/* six heads of 64 in each of 129 rows, in and out, and two weights of 64 */
	is_more(&l, 0, 2 * 2 * (129 * 6 * 64 + 64), 1, "norms of Q and K");
	l = full;
	l.out_gate = 1;
	/* 256 more columns of QKV: weights and product; attention, gate and output of 256 */
	is_more(&l, 2 * (256 * 256 + 129 * 256), 2 * 3 * 129 * 256, 1, "an output gate");
	l = full;
	l.post_norms = 1;
	is_more(&l, 0, 2 * 2 * 256, 0, "four norms in two kernels");
}

/* Four query heads and two KV heads, whose values have 16 channels of 64. */
static void test_values(void)
{
	struct roofline_work w[PHASE_COUNT];
	struct layer_spec l = full;

	l.k_is_v = 1;
	is_more(&l, -2 * (256 * 128 + 129 * 128), 0, 0, "values from the product of keys");
	l = full;
	l.v_dim = 16;
	/* 192 fewer columns: two KV heads in QKV, and four heads that the output product reads */
	is_more(&l, -2 * (256 * 96 + 129 * 96 + 256 * 192 + 129 * 192), 0, 0, "short values");
	count(l, "dense", true, &both, w);
	is_work(&w[PHASE_CACHE], 0, 2 * 129 * 2 * 2 * 80, 1, "K and V are read and written");
	is_work(&w[PHASE_DECODE], 2 * 4 * 80 * 256, 2 * 80 * (4 + 256 * 2), 1, "a decode");
	l.out_gate = 1;
	count(l, "dense", false, &both, w);
	is_int((int64_t)w[PHASE_NORM].bytes - 2 * 129 * (2 * 4 * 256 + 3 * 512) - 2 * 2 * 256,
	       2 * 3 * 129 * 64, "a gate of values, not of keys");
}

static void test_rotary(void)
{
	struct roofline_work w[PHASE_COUNT];
	struct layer_spec l = full;

	l.rotary_dim = 16;
	count(l, "dense", true, &both, w);
	is_work(&w[PHASE_ROPE], 0, 129 * (2 * 768 + 64), 1, "RoPE of a quarter of a head");
}

static void test_shared_expert(void)
{
	struct roofline_work a[PHASE_COUNT], b[PHASE_COUNT];
	struct layer_spec l = full;

	l.n_experts = 8;
	l.experts_per_tok = 2;
	count(l, "dense", false, &both, a);
	l.shared_ffn = 128;
	l.shared_gate = 1;
	count(l, "dense", false, &both, b);
	is_int((int64_t)(b[PHASE_LINEAR].flops - a[PHASE_LINEAR].flops),
	       2 * 129 * 256 * (256 + 128 + 1), "a shared expert and its gate: FLOPs");
	is_int((int64_t)(b[PHASE_LINEAR].bytes - a[PHASE_LINEAR].bytes),
	       2 * (129 * 256 + 256 * 256 + 129 * 256) + 2 * (129 * 128 + 128 * 256 + 129 * 256) +
		       2 * (129 * 256 + 256 + 129),
	       "... bytes of products");
	/* the activation; two experts' rows, the shared one's and the sum, and a gate for each row;
	 * the next norm has one residual, not two */
	is_int((int64_t)(b[PHASE_NORM].bytes - a[PHASE_NORM].bytes),
	       2 * 3 * 129 * 128 + 2 * 129 * (4 * 256 + 1) - 2 * 129 * 256,
	       "... of activation and sum");
	is_int(b[PHASE_NORM].kernels - a[PHASE_NORM].kernels, 2, "... their launches");
	is_int(b[PHASE_LINEAR].kernels - a[PHASE_LINEAR].kernels, 3, "... and of products");
	is_int((int64_t)(a[PHASE_HEAD].bytes - b[PHASE_HEAD].bytes), 2 * 129 * 256,
	       "the head's norm has one residual as well");
}

/* ---- windows ---- */

static void test_window(void)
{
	struct layer_spec l = full;
	struct roofline_work w[PHASE_COUNT];
	int wrong = 0, n = 0;

	l.mixer = MIX_WINDOW;
	for (l.window = 1; l.window < 40; l.window += 3)
		for (int start = 0; start < 60; start += 5)
			for (uint32_t rows = 1; rows < 50; rows += 7, n++) {
				struct batch_entry e = { .start = (uint32_t)start, .n_tok = rows };
				int pairs = 0, last = start + (int)rows,
				    first = start + 1 - l.window;

				for (int i = start; i < last; i++)
					pairs += i + 1 < l.window ? i + 1 : l.window;
				count(l, "dense", true,
				      &(struct batch){ &e, 1, rows, 0, NULL, { 0 } }, w);
				wrong += w[PHASE_ATTEND].flops != 4.0 * 64 * 4 * pairs;
				wrong += w[PHASE_ATTEND].bytes !=
					 2.0 * 2 * 64 *
						 (4 * (int)rows +
						  2 * (last - (first > 0 ? first : 0)));
			}
	ok(n > 500 && !wrong, "%d chunks see the keys of their window", n);
	l.window = 100;
	count(l, "compact-fp-copy", false, &both, w);
	is_work(&w[PHASE_DECODE], 256 * 4 * 100, 256 * (4 + 100 * 2), 1, "so does a decode");
	is_int(w[PHASE_SELECT].kernels + w[PHASE_METADATA].kernels + w[PHASE_COPY].kernels, 0,
	       "a sparse method has nothing to do there");
	is_int((int64_t)w[PHASE_ATTEND].flops, 256 * 4 * 128 * 100, "... so it saves nothing");
	is_int(w[PHASE_CACHE].kernels + w[PHASE_ROPE].kernels, 2, "K and V are cached");
	is_int(w[PHASE_MIX].kernels, 0, "nothing is mixed otherwise");
	l.window = 1 << 30;
	count(l, "dense", true, &both, w);
	is_work(&w[PHASE_ATTEND], 256 * 4 * 24640, 256 * (128 * 4 + 256 * 2), 1,
		"a window longer than the request");
}

/* Each row sees the keys from the start of its chunk. */
static void test_chunks(void)
{
	struct layer_spec l = full;
	struct roofline_work w[PHASE_COUNT];
	int wrong = 0, n = 0;

	l.mixer = MIX_CHUNK;
	for (l.window = 1; l.window < 40; l.window += 3)
		for (int start = 0; start < 60; start += 5)
			for (uint32_t rows = 1; rows < 50; rows += 7, n++) {
				struct batch_entry e = { .start = (uint32_t)start, .n_tok = rows };
				int pairs = 0, last = start + (int)rows;

				for (int i = start; i < last; i++)
					pairs += i % l.window + 1;
				count(l, "dense", true,
				      &(struct batch){ &e, 1, rows, 0, NULL, { 0 } }, w);
				wrong += w[PHASE_ATTEND].flops != 4.0 * 64 * 4 * pairs;
				wrong += w[PHASE_ATTEND].bytes !=
					 2.0 * 2 * 64 *
						 (4 * (int)rows +
						  2 * (last - start / l.window * l.window));
			}
	ok(n > 500 && !wrong, "%d parts of prompts see the keys of their chunk", n);
	l.window = 100;
	count(l, "compact-fp-copy", false, &both, w);
	is_work(&w[PHASE_DECODE], 256 * 4 * 56, 256 * (4 + 56 * 2), 1, "so does a decode");
	is_int(w[PHASE_SELECT].kernels + w[PHASE_METADATA].kernels + w[PHASE_COPY].kernels, 0,
	       "a sparse method has nothing to do there");
}

/* ---- linear ---- */

static void test_linear(void)
{
	struct roofline_work w[PHASE_COUNT];
	/* q and k of 64, v and z of 64, 8 gates, 64 out; a state of 4 x 32 x 16 in fp32 and three
	 * rows of 192 channels, in and out, for each of two requests */
	const int row = 2 * (256 + 8 + 64), state = 2 * 4 * 2048 + 2 * 2 * 3 * 192;

	count(linear, "flashprefill", false, &both, w);
	is_work(&w[PHASE_MIX], 129 * 4 * 6 * 512 + 128 * 4 * 4 * 64 * 48, 129 * row + 2 * state, 5,
		"a gated DeltaNet");
	is_int(w[PHASE_ATTEND].kernels + w[PHASE_DECODE].kernels + w[PHASE_SELECT].kernels +
		       w[PHASE_ROPE].kernels + w[PHASE_CACHE].kernels,
	       0, "has no attention and no keys");
	/* 256 x (256 + 8), 64 x 256, and the MLP of 512 */
	is_int((int64_t)w[PHASE_LINEAR].flops, 2LL * 129 * 256 * (264 + 64 + 3 * 512),
	       "its products");
	is_int(w[PHASE_LINEAR].kernels, 5, "... are five");
	count(linear, "dense", true, &both, w);
	for (int p = 1; p < PHASE_COUNT; p++)
		is_int(w[p].kernels, 0, "attention alone skips it: phase %d", p);
}

/* ---- several kinds ---- */

static struct roofline_gpu round_gpu(void)
{
	struct roofline_gpu g = { .tflops = 1, .gbps = 1, .launch_ns = 100, .graph_launch_ns = 10 };

	for (int i = 1; i < ROOFLINE_KINDS; i++) {
		g.rate[i] = (struct roofline_rate){ .compute = 0.5, .memory = 0.5, .fixed_ns = 7 };
		g.own[i] = true;
	}
	g.rate[PHASE_ATTEND].fixed_ns = 1000; /* of dense attention, and no executor's */
	return g;
}

static void test_iteration(void)
{
	const struct roofline_gpu g = round_gpu();
	struct layer_spec layer[6] = { linear, full, full, linear, full, full };
	const struct model m = { .n_layers = 6, .hidden = H, .vocab = 1000, .layer = layer };
	const double of[] = { 0.5, 1 };
	struct method *sparse = parse("flashprefill");
	struct roofline_work work[3][PHASE_COUNT];
	struct roofline_time want[3], got;
	struct roofline_subject s = { .model = &m, .method = sparse };
	int times[6], head;

	layer[2].mixer = MIX_WINDOW;
	layer[2].window = 32;
	roofline_kinds(&m, NULL, 6, times);
	ok(times[0] == 2 && times[1] == 3 && times[2] == 1 && !times[3] && !times[4] && !times[5],
	   "two linear layers, three full ones and a window");
	for (int i = 0; i < 3; i++) {
		roofline_count(&s, i, &both, of, work[i]);
		want[i] = roofline_time(&g, i == 1 ? sparse : NULL, work[i], true, times[i]);
	}
	got = roofline_iteration(&g, &s, times, &both, of);
	is_int(got.phase_ns[PHASE_MIX], want[0].phase_ns[PHASE_MIX], "each kind has its time");
	is_int(got.phase_ns[PHASE_ATTEND],
	       want[1].phase_ns[PHASE_ATTEND] + want[2].phase_ns[PHASE_ATTEND],
	       "attention is that of two kinds");
	ok(want[2].phase_ns[PHASE_ATTEND] >= 1000 && want[1].phase_ns[PHASE_ATTEND] > 0,
	   "of which the window is not the executor's");
	is_int(got.phase_ns[PHASE_SELECT], want[1].phase_ns[PHASE_SELECT],
	       "full layers alone select");
	is_int(got.phase_ns[PHASE_HEAD], want[0].phase_ns[PHASE_HEAD], "the head runs once");
	head = want[0].kernels[PHASE_HEAD];
	is_int(got.kernels[PHASE_HEAD], head, "... in %d launches", head);
	is_int(got.cost_ns,
	       want[0].cost_ns + want[1].cost_ns + want[2].cost_ns -
		       2 * (want[0].phase_ns[PHASE_HEAD] + 100 * head),
	       "all of it is the cost");
	roofline_kinds(&m, (const int[]){ 5, 1 }, 2, times);
	ok(!times[0] && times[1] == 2 && !times[2], "two executed layers of one kind");
	got = roofline_iteration(&g, &s, times, &both, of);
	want[1] = roofline_time(&g, sparse, work[1], true, 2);
	ok(!memcmp(&got, &want[1], sizeof got), "cost what layers that are alike cost");
	times[1] = 1;
	got = roofline_iteration(&g, &s, times, &(struct batch){ entry + 1, 1, 0, 1, NULL, { 0 } },
				 of + 1);
	roofline_count(&s, 1, &(struct batch){ entry + 1, 1, 0, 1, NULL, { 0 } }, of + 1, work[1]);
	want[1] = roofline_time(&g, sparse, work[1], false, 1);
	is_int(got.cost_ns, want[1].cost_ns, "decodes launch graphs");
	method_free(sparse);
}

static int64_t attention_ns(const struct roofline_time *t)
{
	return t->phase_ns[PHASE_ATTEND] + t->phase_ns[PHASE_DECODE] + t->phase_ns[PHASE_WALK];
}

/* Attention of a model in which layers 1 and 2 of 3 attend to all keys, without a walk and with one
 * of so many ns in each of the two. */
static void test_walk(void)
{
	struct roofline_gpu g = round_gpu();
	struct layer_spec layer[3] = { linear, full, full };
	const struct model m = { .n_layers = 3, .hidden = H, .vocab = 1000, .layer = layer };
	struct batch_entry e[] = { { .start = 1000, .n_tok = 64 },
				   { .start = 4000, .n_tok = 32 },
				   { .start = 100, .n_tok = 1, .kind = ROW_DECODE },
				   { .start = 99999, .n_tok = 1, .kind = ROW_DECODE } };
	const struct batch b = { e, 4, 96, 2, NULL, { 0 } };
	const double of[] = { 1, 1, 1, 1 };
	struct method *dense = parse("dense");
	const struct roofline_subject s = { .model = &m, .method = dense };
	const double pair = layer_pair_flops(&full) / (double)full.q_heads;
	struct roofline_time apart, got;
	int times[3], want;

	g.gbps = 1000;
	roofline_kinds(&m, NULL, 3, times);
	apart = roofline_iteration(&g, &s, times, &b, of);
	g.walk = (struct decode_walk){ .sms = 4, .tile_rows = 16 * full.q_heads, .compute = 0.25 };
	/* 64 rows fill the GPU: a block has 16 * q_heads rows.  It walks 100000 keys at a quarter
	 * of the rate of a multiprocessor, 0.25 TFLOP/s. */
	want = (int)(2 * pair * 16 * full.q_heads * 100000 / (1e3 * 0.25 * 0.25));
	got = roofline_iteration(&g, &s, times, &b, of);
	is_int(attention_ns(&got), want,
	       "attention beside a long decode lasts as long as the decode's walk");
	is_int(attention_ns(&got) - got.phase_ns[PHASE_WALK], attention_ns(&apart),
	       "... of which what is beyond the work is a phase");
	is_int(got.cost_ns - apart.cost_ns, got.phase_ns[PHASE_WALK], "... and in the cost");
	ok(!memcmp(got.kernels, apart.kernels, sizeof got.kernels), "... without another launch");
	e[0].n_tok = 16;
	e[1].n_tok = 21;
	apart = roofline_iteration(&g, &s, times, &b, of);
	is_int(attention_ns(&apart), want / 3,
	       "a third of the rows leaves room to split the keys into three parts");
	got = roofline_iteration(&g, &s, times, &(struct batch){ e + 2, 2, 0, 2, NULL, { 0 } }, of);
	g.walk.sms = 0;
	apart = roofline_iteration(&g, &s, times, &(struct batch){ e + 2, 2, 0, 2, NULL, { 0 } },
				   of);
	ok(!memcmp(&got, &apart, sizeof got), "decodes alone do not walk");
	g.walk.sms = 4;
	e[2].start = e[3].start = 1;
	got = roofline_iteration(&g, &s, times, &b, of);
	g.walk.sms = 0;
	apart = roofline_iteration(&g, &s, times, &b, of);
	ok(!memcmp(&got, &apart, sizeof got), "a short walk costs nothing");
	method_free(dense);
}

int main(void)
{
	plan(0);
	test_members();
	test_values();
	test_rotary();
	test_shared_expert();
	test_window();
	test_chunks();
	test_linear();
	test_iteration();
	test_walk();
	return done_testing();
}
