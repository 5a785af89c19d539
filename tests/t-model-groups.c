/* SPDX-License-Identifier: Apache-2.0 */
/* KV cache groups of models, as vLLM 0.16.0 makes them, and of runs. */
#include "config.h"
#include "replay/sched/model_groups.h"

#include <stdlib.h>
#include <string.h>

#include "src/run/run.h"
#include "tests/alloc_fault.h"
#include "tests/tap.h"

static const struct layer_spec full = {
	.mixer = MIX_FULL, .q_heads = 16, .kv_heads = 8, .head_dim = 256
};
static const struct layer_spec window = {
	.mixer = MIX_WINDOW, .q_heads = 16, .kv_heads = 8, .head_dim = 256, .window = 1024
};
static const struct layer_spec linear = {
	.mixer = MIX_LINEAR,
	.delta = { .k_heads = 16, .v_heads = 32, .k_dim = 128, .v_dim = 128, .conv = 4 }
};
static const struct layer_spec wide = {
	.mixer = MIX_FULL, .q_heads = 16, .kv_heads = 2, .head_dim = 256
};

/* Layers by letters: f full, w window, l linear, W another window; b and B full, with half and
 * three quarters of the bytes; q as wide, beside linear layers. */
static struct model model_of(const char *layers)
{
	struct model m = { .name = "m" };

	if (model_set_layers(&m, (int)strlen(layers), &full, NULL))
		bail_out("out of memory");
	for (int l = 0; l < m.n_layers; l++) {
		struct layer_spec *x = &m.layer[l];
		char c = layers[l];

		*x = c == 'w' || c == 'W' ? window : c == 'l' ? linear : c == 'q' ? wide : full;
		if (c == 'W')
			x->window = 512;
		if (c == 'b')
			x->kv_heads = 4;
		if (c == 'B')
			x->kv_heads = 6;
	}
	return m;
}

static struct model_groups groups_by(const char *layers, const struct kv_rules *rules,
				     int64_t block_tok, bool cache)
{
	struct model m = model_of(layers);
	struct model_groups g;
	struct ar_err err = { 0 };

	if (model_groups_init(&g, &m, block_tok, rules, cache, &err))
		bail_out("%s", err.msg);
	model_release(&m);
	return g;
}

static struct model_groups groups_of(const char *layers, double spread)
{
	const struct kv_rules rules = { .spread = spread };

	return groups_by(layers, &rules, 16, false);
}

/* The groups of layers, such as "w5 w5 f2|0 1 2": kinds with their layers; the group of a layer. */
static void is_grouped(const char *layers, double spread, const char *want, const char *what)
{
	static const char letter[] = { [MIX_FULL] = 'f', [MIX_WINDOW] = 'w', [MIX_LINEAR] = 'l' };
	struct model_groups g = groups_of(layers, spread);
	char text[400] = "";
	size_t n = 0;

	for (size_t i = 0; i < g.n; i++)
		n += (size_t)snprintf(text + n, sizeof text - n, "%s%c%d", i ? " " : "",
				      letter[g.group[i].mixer], g.group[i].n_layers);
	for (size_t l = 0; l < strlen(layers); l++)
		n += (size_t)snprintf(text + n, sizeof text - n, "%s%d", l ? " " : "|", g.of[l]);
	is_str(text, want, "%s", what);
	model_groups_release(&g);
}

#define GEMMA "wwwwwf"

static void test_groups(void)
{
	is_grouped("fff", 1.25, "f3|0 0 0", "equal layers are one group");
	is_grouped("www", 1.25, "w3|0 0 0", "... of windows, too");
	is_grouped("wfwf", 1.25, "w2 f2|0 1 0 1", "as many of each kind: a group each");
	is_grouped(GEMMA GEMMA, 1.25, "w2 w2 w2 w2 w2 f2|0 1 2 3 4 5 0 1 2 3 4 5",
		   "five windows to one: five groups of windows, dealt in turn");
	is_grouped("lllflllf", 1.25, "l2 l2 l2 f2|0 1 2 3 0 1 2 3", "three linear layers to one");
	is_grouped("wwwffwwwffwww", 1.25, "w3 w3 w3 f4|0 1 2 3 3 0 1 2 3 3 0 1 2",
		   "what a group lacks is padding");
	is_grouped("wwwwwffff", 1.25, "w3 w2 f4|0 1 0 1 0 2 2 2 2",
		   "5 is not less than 1.25 times 4");
	is_grouped("wwwwwffff", 1.5, "w5 f4|0 0 0 0 0 1 1 1 1",
		   "... but it is less than 1.5 times");
	is_grouped("wWf", 1.25, "w1 w1 f1|0 1 2", "windows of two sizes are two types");
	is_grouped("fbf", 1.25, "f3|0 0 0", "full attention of two shapes is one group");
}

static void test_blocks(void)
{
	struct model_groups g = groups_of(GEMMA GEMMA, 1.25);

	is_int(g.block_bytes, (int64_t)2 * 16 * 2 * 8 * 256 * 2,
	       "a block has 16 tokens in the 2 layers of a group");
	ok(g.group[0].type == g.group[4].type && g.group[5].type != g.group[0].type &&
		   g.group[0].window == 1024 && !g.group[5].window,
	   "groups of one kind are of one type");
	ok(!model_groups_plain(&g), "they are not plain");
	model_groups_release(&g);
	g = groups_of("fbf", 1.25);
	is_int(g.block_bytes, (int64_t)16 * 2 * (8 + 4 + 8) * 256 * 2, "a block has all shapes");
	ok(model_groups_plain(&g), "... and is plain");
	model_groups_release(&g);
	g = groups_of("wbw", 1.25);
	ok(g.n == 3 && g.group[0].block_tok == 16 && g.group[2].block_tok == 32 &&
		   g.block_bytes == (int64_t)16 * 2 * 8 * 256 * 2,
	   "a layer of half the bytes has twice the tokens in a block");
	model_groups_release(&g);
}

/* Qwen3-Next: a state of 3 x 8192 and 32 x 128 x 128 elements; a token has 2048 bytes. */
static void test_states(void)
{
	struct model_groups g = groups_of("lllqlllq", 1.25);

	is_int(g.block_tok, 544, "blocks of attention have so many tokens that a state fits");
	is_int(g.block_bytes, (int64_t)2 * 544 * 2048, "... and states are padded to them");
	ok(!g.group[0].block_tok && g.group[3].block_tok == 544, "a state is no tokens");
	model_groups_release(&g);
	g = groups_of("ll", 1.25);
	ok(g.n == 1 && g.block_tok == 16 && g.block_bytes == 2 * (3 * 8192 + 32 * 128 * 128) * 2,
	   "without attention a block is the states of all layers");
	model_groups_release(&g);
}

/* The rules of newer versions. */
static void test_newer(void)
{
	const struct kv_rules *r24 = policy_find("vllm-0.24")->groups;
	const struct kv_rules *r33 = policy_find("vllm-0.33")->groups;
	struct model_groups g = groups_by("lllq", r33, 16, true);

	is_int(g.block_tok, 576, "kept states: blocks are a multiple of what a kernel saves after");
	ok(g.group[0].block_tok == 576 && g.block_bytes == (int64_t)576 * 2048,
	   "... and states are at their ends");
	model_groups_release(&g);
	g = groups_by("lllq", r33, 16, false);
	ok(g.block_tok == 544 && !g.group[0].block_tok, "... without a prefix cache they are not");
	model_groups_release(&g);
	g = groups_by("lllq", r24, 32, true);
	ok(g.block_tok == 544 && g.group[0].block_tok == 544, "0.24: a multiple of --block-size");
	model_groups_release(&g);
	g = groups_by("lllq", r24, 64, true);
	is_int(g.block_tok, 576, "... of 64");
	model_groups_release(&g);
	g = groups_by("wBw", r24, 16, false);
	ok(g.group[1].block_tok == 16 && g.block_bytes == (int64_t)16 * 2 * 8 * 256 * 2,
	   "a block of attention that does not divide the largest is padded");
	model_groups_release(&g);
	g = groups_by("lqf", r33, 16, false);
	ok(g.group[0].mixer == MIX_LINEAR && g.group[1].block_tok == 544 * 4 &&
		   g.block_bytes == (int64_t)544 * 2 * 8 * 256 * 2,
	   "0.33 pads states as well");
	model_groups_release(&g);
}

static void test_refused(void)
{
	const struct kv_rules rules = { .spread = 1.25 };
	struct model m = model_of("wBw");
	struct model_groups g;
	struct ar_err err = { 0 };

	ok(model_groups_init(&g, &m, 16, &rules, false, &err) == AR_USAGE,
	   "sizes that do not divide");
	is_str(err.msg,
	       "no KV block fits all layers: one of layer 1 has 98304 bytes, one of layer 0 "
	       "131072, and vLLM has no rule for it",
	       "... are refused by layer");
	model_groups_release(&g);
	model_release(&m);
	m = model_of("lqf");
	ok(model_groups_init(&g, &m, 16, &rules, false, &err) == AR_USAGE,
	   "so is attention of two shapes beside linear layers");
	model_groups_release(&g);
	model_release(&m);
}

/* ---- runs ---- */

/* Set the groups of a run.  *r has limits.policy, and the other members that the test sets. */
static enum ar_status set(struct run *r, const char *layers, struct ar_err *err)
{
	struct model m = model_of(layers);
	enum ar_status st;

	r->in.limits.block_tok = 16;
	st = run_set_groups(&r->in, &r->session.o, &m, err);
	model_release(&m);
	return st;
}

static void is_refused(struct run r, const char *layers, const char *why, const char *what)
{
	struct ar_err err = { 0 };

	is_int(set(&r, layers, &err), AR_USAGE, "%s: refused", what);
	ok(strstr(err.msg, why), "... %s", err.msg);
	model_groups_release(&r.in.groups);
}

static void test_runs(void)
{
	struct run vllm = { .in.limits = { .policy = policy_find("vllm-0.16") } }, r = vllm;
	struct run newest = { .in.limits = { .policy = policy_find("vllm-0.33"),
					     .prefix_cache = true } };
	struct run sglang = { .in.limits = { .policy = policy_find("sglang") } };
	struct ar_err err = { 0 };

	ok(!set(&r, "ff", &err) && !r.in.limits.group && r.in.limits.block_tok == 16,
	   "a run with equal layers has no groups");
	model_groups_release(&r.in.groups);
	r = sglang;
	ok(!set(&r, "ff", &err) && !r.in.limits.group, "... with any policy");
	model_groups_release(&r.in.groups);
	r = vllm;
	ok(!set(&r, "lq", &err) && r.in.limits.n_group == 2 && r.in.limits.block_tok == 544,
	   "where they differ, it has groups and their block size");
	model_groups_release(&r.in.groups);
	r = sglang;
	r.session.o.no_hybrid = true;
	ok(!set(&r, "wf", &err) && !r.in.limits.group && r.in.limits.block_tok == 16,
	   "without the hybrid manager all layers have the blocks of full attention");
	model_groups_release(&r.in.groups);
	is_refused(sglang, "wf", "policy 'sglang-0.5.23' has no rules",
		   "a policy of another engine");
	vllm.in.limits.prefix_cache = true;
	is_refused(vllm, "lq", "no prefix cache of linear layers", "a prefix cache with states");
	r = newest;
	ok(!set(&r, "lq", &err) && r.in.limits.n_group == 2 && r.in.limits.block_tok == 576 &&
		   r.in.limits.group[0].block_tok == 576,
	   "... but by newer policies, which keep them at the ends of blocks");
	model_groups_release(&r.in.groups);
	vllm.session.o.no_hybrid = true;
	is_refused(vllm, "lq", "disable-hybrid-kv-cache-manager", "states as full attention");
	is_refused(vllm, "ff", "has no effect with m,", "no hybrid manager where none is");
	is_refused(sglang, "wBw", "no KV block fits", "blocks of no size");
}

static void test_faults(void)
{
	const struct kv_rules rules = { .spread = 1.25 };
	struct model m = model_of(GEMMA);
	struct model_groups g;
	struct ar_err err = { 0 };
	enum ar_status st;
	bool fired;
	int bad = 0;
	long k = 0;

	do {
		fault_arm(k++);
		st = model_groups_init(&g, &m, 16, &rules, false, &err);
		fired = fault_disarm();
		bad += fired && st != AR_NOMEM;
		model_groups_release(&g);
	} while (fired);
	ok(!bad && !st && k == 4, "each of %ld allocations can fail", k - 1);
	model_release(&m);
}

int main(void)
{
	plan(0);
	test_groups();
	test_blocks();
	test_states();
	test_newer();
	test_refused();
	test_runs();
	test_faults();
	return done_testing();
}
