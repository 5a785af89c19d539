/* SPDX-License-Identifier: Apache-2.0 */
/* Run preparation: layers and captures that are assigned, runs that are refused, and each
 * allocation failing in turn. */
#include "config.h"
#include "model/cache_layout.h"
#include "replay/engine/prepare.h"

#include <stdio.h>
#include <string.h>

#include "replay/sched/policy.h"
#include "tests/alloc_fault.h"
#include "tests/tap.h"

static const struct policy plain = { .name = "plain",
				     .slots = sched_slots_computed,
				     .unfit = sched_unfit_pool };
static char text_trace[] = "trace";
static struct request one = { .prompt_tok = 10, .output_tok = 3, .line = 2 };
static const struct trace trace1 = { .req = &one, .n = 1, .name = text_trace };

static char cap_a[] = "a.arc", cap_b[] = "b.arc";
static int layers_a[] = { 0, 4, 8, 9 };
static struct capture_info info_a = { .name = cap_a,
				      .n_layers = 4,
				      .layer = layers_a,
				      .q_heads = 8,
				      .kv_heads = 2,
				      .head_dim = 64,
				      .n_tok = 100 };
static struct capture_info info_b = { .name = cap_b,
				      .n_layers = 4,
				      .layer = layers_a,
				      .q_heads = 8,
				      .kv_heads = 2,
				      .head_dim = 64,
				      .n_tok = 50 };
static const struct capture_info *const both[] = { &info_a, &info_b };
static const struct sched_limits no_limits = { .policy = &plain, .block_tok = 16 };
#define LAYER \
	{ \
		.mixer = MIX_FULL, .q_heads = 8, .kv_heads = 2, .head_dim = 64, .ffn = 96 \
	}
static struct layer_spec layer8[] = { LAYER, LAYER, LAYER, LAYER, LAYER, LAYER, LAYER, LAYER };
static const struct model model8 = { .name = "m", .n_layers = 8, .layer = layer8, .tp = 1 };

static struct prepare_in input(const struct trace *t)
{
	return (struct prepare_in){ .trace = t,
				    .limits = &no_limits,
				    .model = &model8,
				    .whole_q_heads = 8,
				    .whole_kv_heads = 2,
				    .info = both,
				    .n_capture = 2 };
}

static void is_layers(const struct prepare_in *in, const char *want_map, const char *want_run,
		      const char *what)
{
	char map[128] = "", run[128] = "";
	struct ar_err err = { 0 };
	struct prepared p;

	if (prepare_run(&p, in, &err)) {
		ok(0, "%s: %s", what, err.msg);
		return;
	}
	for (int i = 0; i < in->model->n_layers; i++)
		sprintf(map + strlen(map), "%d ", in->info[0]->layer[p.captured_layer[i]]);
	for (int i = 0; i < p.n_run_layers; i++)
		sprintf(run + strlen(run), "%d ", p.run_layer[i]);
	is_str(map, want_map, "%s: captured layers", what);
	is_str(run, want_run, "%s: executed layers", what);
	prepared_release(&p);
}

static void test_layers(void)
{
	static int all[] = { 0, 1, 2, 3, 4, 5, 6, 7 };
	struct capture_info drawn = info_a;
	struct prepare_in in = input(&trace1);

	is_layers(&in, "0 0 4 4 8 8 9 9 ", "0 1 2 3 4 5 6 7 ", "all");
	in.layers = "8,0";
	in.sample_layers = 2;
	is_layers(&in, "8 8 8 8 0 0 0 0 ", "2 6 ", "a list and a sample");
	in.layers = "8-9,4";
	in.sample_layers = 3;
	is_layers(&in, "8 8 8 9 9 9 4 4 ", "1 4 6 ", "a range and an uneven sample");
	in.sample_layers = 1;
	is_layers(&in, "8 8 8 9 9 9 4 4 ", "4 ", "a sample of one");
	in = input(&trace1);
	in.n_capture = 1;
	drawn.random = true;
	drawn.n_layers = 8;
	drawn.layer = all;
	in.info = (const struct capture_info *const[]){ &drawn };
	is_layers(&in, "0 0 1 1 2 2 3 3 ", "0 1 2 3 4 5 6 7 ", "four random layers for all");
	in.layers = "7,2";
	is_layers(&in, "7 7 7 7 2 2 2 2 ", "0 1 2 3 4 5 6 7 ", "random layers of a list");
}

static void refuses_as(enum ar_status want, const struct prepare_in *in, const char *message)
{
	struct ar_err err = { 0 };
	struct prepared p;
	enum ar_status st = prepare_run(&p, in, &err);

	ok(st == want && !p.capture_of && !p.captured_layer && !p.run_layer, "refused: %s",
	   message);
	is_str(err.msg, message, "... in these words");
}

static void refuses(const struct prepare_in *in, const char *message)
{
	refuses_as(AR_USAGE, in, message);
}

static void test_kernels(void)
{
	static const struct cache_layout odd = { "odd", 1u << 31, 1, { { 1, 8, ELEM_BF16 } } };
	static const int sizes[] = { 64, 128, 256 };
	struct layer_spec layer = LAYER, two[] = { LAYER, LAYER };
	struct model m = model8;
	struct ar_err err = { 0 };
	int bad = 0;

	two[1].head_dim = 96;
	m.layer = &layer;
	m.n_layers = 1;
	for (int i = 0; i < 3; i++) {
		layer.head_dim = sizes[i];
		bad += prepare_check_kernels(&m, &err) != AR_OK;
	}
	ok(!bad, "there are kernels for heads of 64, 128 and 256");
	layer.head_dim = 96;
	is_int(prepare_check_kernels(&m, &err), AR_USAGE, "not for heads of 96");
	is_str(err.msg, "model m, backend cuda: decode: head size 96; supported 64, 128, 256",
	       "... in these words");
	layer.head_dim = 64;
	layer.cache = &odd;
	is_int(prepare_check_kernels(&m, &err), AR_USAGE, "nor for another layout of the cache");
	is_str(err.msg, "model m, backend cuda: decode: cache odd; supported kv-bf16",
	       "... in these words");
	layer.cache = NULL;
	layer.rotary_dim = 24;
	is_int(prepare_check_kernels(&m, &err), AR_USAGE, "nor for 24 channels that rotate");
	is_str(err.msg,
	       "model m, backend cuda: layer 0: RoPE rotates 24 channels of a head, but its kernel "
	       "needs a multiple of 16; use --backend cpu",
	       "... in these words");
	layer.rotary_dim = 48;
	is_int(prepare_check_kernels(&m, &err), AR_OK, "but for 48");
	m.layer = two;
	m.n_layers = 2;
	is_int(prepare_check_kernels(&m, &err), AR_USAGE, "nor if they are of a later layer");
	two[1] = (struct layer_spec){ .mixer = MIX_LINEAR };
	is_int(prepare_check_kernels(&m, &err), AR_OK, "but a linear one has none");
}

static void test_refusals(void)
{
	struct capture_info other = info_b;
	const struct capture_info *two[] = { &info_a, &other };
	int layers[] = { 0, 4, 8, 7 };
	struct layer_spec layer = LAYER, mixed[] = { LAYER, LAYER };
	struct model split = model8;
	struct prepare_in in = input(&trace1);

	in.layers = "0,3";
	refuses(&in, "layers '0,3': a.arc does not hold layer 3; "
		     "'attnreplay capture info' lists those it holds");
	in.layers = "0,x";
	refuses(&in, "layers '0,x': want numbers and ranges such as 0,4,8-11");
	in.layers = "9-8";
	refuses(&in, "layers '9-8': want numbers and ranges such as 0,4,8-11");
	in.layers = "0,0,0,0,0,0,0,0,0";
	refuses(&in, "layers '0,0,0,0,0,0,0,0,0': more than the model's 8 layers");
	in.layers = NULL;
	in.sample_layers = 9;
	refuses(&in, "sample-layers 9: m has 8 layers");
	in = input(&trace1);
	in.n_capture = 0;
	refuses(&in, "0 captures given; want 1 to 65535");
	in = input(&trace1);
	in.info = two;
	other.head_dim = 128;
	refuses(&in, "a.arc has 8/2 heads of 64, b.arc has 8/2 of 128; captures of one run come "
		     "from one model");
	other.head_dim = 64;
	other.layer = layers;
	refuses(&in, "a.arc and b.arc hold different layers; captures of one run hold the same");
	other.layer = layers_a;
	other.rope.theta = 5e5;
	refuses_as(AR_DATA, &in,
		   "b.arc and a.arc have different rotary embeddings; replay them in separate "
		   "runs");
	in = input(&trace1);
	in.model = &split;
	split.n_layers = 1;
	split.layer = &layer;
	layer.q_heads = in.whole_q_heads = 16;
	refuses(&in, "a.arc has 8/2 heads of 64, model m has 16/2 of 64; take the model it was "
		     "captured from, or --capture random:0");
	layer.q_heads = in.whole_q_heads = 32;
	layer.kv_heads = in.whole_kv_heads = 8;
	refuses(&in, "a.arc has 8/2 heads of 64, model m has 32/8 of 64; take the model it was "
		     "captured from, or --tp 4, whose ranks have such heads, or --capture "
		     "random:0");
	layer.ffn = 98;
	refuses(&in, "a.arc has 8/2 heads of 64, model m has 32/8 of 64; take the model it was "
		     "captured from, or --capture random:0");
	layer.ffn = 48;
	layer.shared_ffn = 98;
	refuses(&in, "a.arc has 8/2 heads of 64, model m has 32/8 of 64; take the model it was "
		     "captured from, or --capture random:0");
	layer.shared_ffn = 0;
	split.layer = mixed;
	split.n_layers = 2;
	mixed[0] = layer;
	mixed[1] = (struct layer_spec){ .mixer = MIX_LINEAR, .delta = { 2, 8, 64, 64, 4 } };
	refuses(&in, "a.arc has 8/2 heads of 64, model m has 32/8 of 64; take the model it was "
		     "captured from, or --capture random:0");
	mixed[1].delta.k_heads = 4;
	refuses(&in, "a.arc has 8/2 heads of 64, model m has 32/8 of 64; take the model it was "
		     "captured from, or --tp 4, whose ranks have such heads, or --capture "
		     "random:0");
	mixed[0] = mixed[1] = (struct layer_spec)LAYER;
	split.layer = &layer;
	split.n_layers = 1;
	layer.q_heads = 16;
	layer.kv_heads = 4;
	layer.shared_ffn = 2; /* of 4, each rank */
	split.tp = 2;
	refuses(&in, "a.arc has 8/2 heads of 64, model m has 16/4 of 64 on each rank; take the "
		     "model it was captured from, or --tp 4, whose ranks have such heads, or "
		     "--capture random:0");
	in.whole_q_heads = 16;
	in.whole_kv_heads = 2;
	layer.shared_ffn = 0;
	split.tp = 4;
	layer.q_heads = 2;
	layer.kv_heads = 1;
	refuses(&in, "a.arc has 8/2 heads of 64, model m has 2/1 of 64 on each rank; take the "
		     "model it was captured from, or --capture random:0");
	in.whole_q_heads = 8;
	is_layers(&in, "0 ", "0 ", "the whole model's heads");
	split.n_layers = 2;
	split.layer = mixed;
	mixed[1].kv_heads = 4;
	mixed[1].n_experts = 8;
	refuses(&in, "model m: layer 0 has 8/2 heads of 64, layer 1 has 8/4 of 64; captures have "
		     "one shape, so a run with them needs the same heads in all layers with "
		     "attention");
	mixed[1].kv_heads = 2;
	is_layers(&in, "0 4 ", "0 1 ", "layers that differ in their experts");
	in.sample_layers = 2;
	is_layers(&in, "0 4 ", "0 1 ", "a sample of all of them");
	in.sample_layers = 1;
	refuses(&in, "sample-layers 1: layers 0 and 1 of m differ, but the executed layers stand "
		     "for the others, which needs layers that are alike; leave it out");
	mixed[0] = mixed[1] = (struct layer_spec){ .mixer = MIX_LINEAR };
	refuses(&in, "model m has no layer with attention, but captures are of such layers; use "
		     "--backend roofline without --capture");
}

/* Layers 0, 1, 3 and 4 of eight are linear, layer 5 sees a window. */
static void test_mixers(void)
{
	struct layer_spec layer[] = { LAYER, LAYER, LAYER, LAYER, LAYER, LAYER, LAYER, LAYER };
	struct model m = model8;
	struct prepare_in in = input(&trace1);
	struct prepared p;
	int want[] = { -1, -1, 0, -1, -1, 1, 2, 3 };

	for (int i = 0; i < 5; i++)
		if (i != 2)
			layer[i] = (struct layer_spec){ .mixer = MIX_LINEAR };
	layer[5].mixer = MIX_WINDOW;
	layer[5].window = 100;
	m.layer = layer;
	in.model = &m;
	if (prepare_run(&p, &in, NULL))
		bail_out("layers that differ");
	ok(!memcmp(p.captured_layer, want, sizeof want) && p.n_run_layers == 8,
	   "captured layers go to layers with attention");
	prepared_release(&p);
	is_int(prepare_all_layers(&p, &m, NULL), AR_OK, "without captures");
	is_int(p.n_run_layers, 8, "... all are executed");
	prepared_release(&p);
}

static void test_captures(void)
{
	static struct block_run run[] = { { 77, 0 }, { 88, 0 }, { 99, 0 }, { 77, 0 } };
	static struct request req[64];
	struct trace t = { .req = req, .n = 64, .name = text_trace, .run = run, .n_run = 4 };
	struct prepare_in in = input(&t);
	struct prepared p, q;
	size_t in_b = 0, same = 0;

	for (size_t i = 0; i < 64; i++)
		req[i] = (struct request){ .prompt_tok = 40, .output_tok = 11, .line = i + 1 };
	if (prepare_run(&p, &in, NULL))
		bail_out("out of memory");
	in.seed = 5;
	if (prepare_run(&q, &in, NULL))
		bail_out("out of memory");
	for (size_t i = 0; i < 64; i++) {
		in_b += p.capture_of[i];
		same += p.capture_of[i] == q.capture_of[i];
	}
	ok(in_b > 16 && in_b < 48, "requests spread over the captures");
	ok(same < 60, "another seed assigns other captures");
	prepared_release(&p);
	prepared_release(&q);

	for (size_t i = 0; i < 64; i++) {
		req[i].n_block = req[i].n_run = 1;
		req[i].run = i & 1 ? 3 : 0;
	}
	in_b = 0;
	if (prepare_run(&p, &in, NULL))
		bail_out("out of memory");
	for (size_t i = 0; i < 64; i++)
		in_b += p.capture_of[i];
	ok(in_b == 0 || in_b == 64, "requests that share their first block share a capture");
	prepared_release(&p);

	req[9].prompt_tok = 50;
	req[9].output_tok = 2;
	if (prepare_run(&p, &in, NULL))
		bail_out("out of memory");
	is_int(p.capture_of[9], 0, "a request takes a capture that is long enough");
	prepared_release(&p);

	req[9].output_tok = 52;
	refuses(&in, "trace:10: request runs 101 tokens, the longest capture has 100; clip it with "
		     "--max-prompt-tokens and --max-output-tokens, or repeat captures with "
		     "--extend tile");
	in.tile = true;
	is_int(prepare_run(&p, &in, NULL), AR_OK, "tiling accepts any length");
	prepared_release(&p);
	in.tile = false;
	in.limits = &(struct sched_limits){ .policy = &plain, .block_tok = 16, .max_len = 50 };
	is_int(prepare_run(&p, &in, NULL), AR_OK,
	       "a request that is rejected anyway needs no capture");
	prepared_release(&p);
}

static void test_faults(void)
{
	struct prepare_in in = input(&trace1);
	struct ar_err err = { 0 };
	struct prepared p;
	enum ar_status st;
	bool fired;
	int bad = 0;
	long k = 0;

	in.layers = "0,8";
	do {
		fault_arm(k++);
		st = prepare_run(&p, &in, &err);
		fired = fault_disarm();
		bad += fired && (st != AR_NOMEM || p.capture_of || p.captured_layer || p.run_layer);
		prepared_release(&p);
	} while (fired);
	ok(!bad && !st && k > 3, "prepare: each of %ld allocations can fail", k - 1);
}

int main(void)
{
	plan(0);
	test_layers();
	test_kernels();
	test_refusals();
	test_mixers();
	test_captures();
	test_faults();
	return done_testing();
}
