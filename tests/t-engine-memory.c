/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of an engine: pools that vLLM reported, and what changes them. */
#include "config.h"
#include "replay/cost/engine_memory.h"

#include <math.h>
#include <stdio.h>

#include "model/params.h"
#include "replay/sched/model_groups.h"
#include "tests/tap.h"

static struct model load(const char *name, int tp)
{
	struct ar_err err = { 0 };
	struct model m;

	if (model_load(&m, name, &err) || model_split(&m, tp, &err))
		bail_out("%s", err.msg);
	return m;
}

static struct engine_memory memory_of(const struct model *m, double gib, double share,
				      int64_t tokens, int64_t requests, enum pool_rule rule)
{
	const struct kv_rules rules = { .spread = 1.25 };
	struct model_groups g;
	struct ar_err err = { 0 };
	struct engine_memory e;

	if (model_groups_init(&g, m, 16, &rules, false, &err))
		bail_out("%s", err.msg);
	e = engine_memory(&(struct engine_memory_in){ .model = m,
						      .block_bytes = g.block_bytes,
						      .max_batched_tok = tokens,
						      .max_seqs = requests,
						      .n_graph = 51,
						      .gpu_bytes = (int64_t)(gib * 0x1p30),
						      .share = share,
						      .rule = rule });
	model_groups_release(&g);
	return e;
}

/* GPUs, options and blocks of 16 tokens from logs of vLLM that people published. */
static void test_published(void)
{
	static const struct {
		const char *gpu, *model;
		double gib, share;
		int64_t tokens, requests, blocks;
		enum pool_rule rule;
		double percent;
	} cases[] = {
		{ "an H100", "llama-3.1-8b", 79.19, 0.92, 8192, 1024, 26700, POOL_PROFILED, 0.5 },
		{ "an H100, vLLM 0.30", "llama-3.1-8b", 79.19, 0.92, 8192, 1024, 26311,
		  POOL_PROFILED, 2 },
		{ "an A100, vLLM 0.6", "llama-3.1-8b", 79.14, 0.9, 8192, 256, 28124, POOL_GRAPHLESS,
		  0.5 },
		{ "an A100, vLLM 0.7", "llama-3.1-8b", 79.15, 0.9, 8192, 256, 27853, POOL_GRAPHLESS,
		  1 },
		{ "an RTX A6000, vLLM 0.15", "llama-3.1-8b", 47.38, 0.9, 2048, 256, 13586,
		  POOL_GRAPHLESS, 1 },
		{ "an RTX A6000, vLLM 0.15", "qwen3-8b", 47.38, 0.9, 2048, 256, 11804,
		  POOL_GRAPHLESS, 1 },
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct model m = load(cases[i].model, 1);
		struct engine_memory e = memory_of(&m, cases[i].gib, cases[i].share,
						   cases[i].tokens, cases[i].requests,
						   cases[i].rule);
		double off = 100 * ((double)e.num_blocks / (double)cases[i].blocks - 1);

		ok(fabs(off) < cases[i].percent, "%s, %s: %lld blocks, %.2f %% off", cases[i].gpu,
		   m.name, (long long)e.num_blocks, off);
		model_release(&m);
	}
}

static void test_terms(void)
{
	struct model m = load("llama-3.1-8b", 1), rank = load("llama-3.1-8b", 2);
	struct engine_memory few = memory_of(&m, 80, 0.9, 8192, 1, POOL_PROFILED);
	struct engine_memory many = memory_of(&m, 80, 0.9, 8192, 1024, POOL_PROFILED);
	struct engine_memory half = memory_of(&rank, 80, 0.9, 8192, 1024, POOL_PROFILED);
	struct engine_memory small = memory_of(&m, 16, 0.9, 8192, 1024, POOL_PROFILED);
	struct engine_memory bare = memory_of(&m, 80, 0.9, 8192, 1024, POOL_STATIC);
	struct engine_memory rest = memory_of(&m, 80, 0.9, 8192, 1024, POOL_OF_FREE);

	is_int(few.weights, 2 * 8030261248, "weights are in bf16");
	is_int(few.activations, 2 * 8192 * (2 * 4096 + 3 * 14336),
	       "a forward pass holds two streams, and gate, up and their product");
	is_int(many.activations, (int64_t)(38.7 * 1024 * 128256),
	       "sampling for many requests takes more");
	is_int(many.graphs, 2 * 51 * (8 << 20), "graphs are captured in two modes");
	is_int(many.cache,
	       (int64_t)(0.9 * 80 * 0x1p30) - many.weights - many.activations - many.graphs -
		       many.other,
	       "the rest is for KV blocks");
	is_int(many.num_blocks, many.cache / (16 * 131072), "... of 16 tokens");
	is_int(half.weights, model_weight_bytes(&rank), "a rank has its share of the weights");
	is_int(half.activations, many.activations, "... and samples from all of the vocabulary");
	is_int(half.other - many.other, 600000000, "... and needs memory for the others");
	is_int(half.num_blocks, half.cache / (16 * 65536), "... and has half of each block");
	ok(small.cache < 0 && !small.num_blocks, "a model that does not fit has no block");
	is_int(bare.cache, many.cache + many.activations + many.graphs,
	       "a share of weights and blocks alone");
	is_int(rest.cache,
	       (int64_t)(0.9 * (80 * 0x1p30 - (double)(many.weights + many.activations +
						       many.graphs + many.other))),
	       "a share of what is left");
	model_release(&m);
	model_release(&rank);
}

/* Experts: a token takes 8 of them, whose outputs have the model's width. */
static void test_experts(void)
{
	struct model m = load("qwen3-30b-a3b", 1), next = load("qwen3-next-80b-a3b", 4);
	struct engine_memory e = memory_of(&m, 80, 0.9, 8192, 1, POOL_PROFILED);
	struct engine_memory n = memory_of(&next, 80, 0.9, 8192, 1, POOL_PROFILED);

	is_int(e.activations, 2 * 8192 * (2 * 2048 + 128 + 8 * (2048 + 768)),
	       "activations of experts");
	is_int(n.activations, 2 * 8192 * (2 * 2048 + 512 + 3 * 128 + 10 * (2048 + 128)),
	       "... and of a shared one");
	ok(n.num_blocks > 1000, "layers that differ have a pool of %lld blocks",
	   (long long)n.num_blocks);
	model_release(&m);
	model_release(&next);
}

int main(void)
{
	plan(0);
	test_published();
	test_terms();
	test_experts();
	return done_testing();
}
