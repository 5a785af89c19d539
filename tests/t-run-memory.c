/* SPDX-License-Identifier: Apache-2.0 */
/* What a run says whose GPU has no room for KV blocks. */
#include "config.h"

#include "src/run/run.h"
#include "tests/tap.h"

/* A gated DeltaNet: a state of 4 * 256 * 128 + 2 * 3 * (2 * 256 + 256) = 135680 bytes. */
static struct layer_spec layers[] = {
	{ .mixer = MIX_FULL, .q_heads = 8, .kv_heads = 2, .head_dim = 128 },
	{ .mixer = MIX_LINEAR,
	  .delta = { .k_heads = 2, .v_heads = 2, .k_dim = 128, .v_dim = 128, .conv = 4 } }
};

static void test_no_room(void)
{
	static const struct {
		int n_layers;
		int64_t seqs;
		const char *want;
	} cases[] = {
		{ 2, 1024,
		  "no room for KV blocks on the GPU beside 0.8 GB of weights and 0.1 GB of states "
		  "of 1024 sequences: card has 1.0 GB, of which 0.9 may be used; take "
		  "--max-num-seqs 368" },
		{ 2, 368,
		  "no room for KV blocks on the GPU beside 0.8 GB of weights: card has 1.0 GB, of "
		  "which 0.9 may be used; stop other programs there, lower "
		  "--max-num-batched-tokens or take a smaller model" },
		{ 1, 1024,
		  "no room for KV blocks on the GPU beside 0.8 GB of weights: card has 1.0 GB, of "
		  "which 0.9 may be used; stop other programs there, lower "
		  "--max-num-batched-tokens or take a smaller model" },
	};
	struct run_inputs in = { .memory = { .weight_bytes = 800000000,
					     .gpu = "card",
					     .gpu_bytes = 1000000000,
					     .share = 0.9 },
				 .model = { .layer = layers } };
	struct ar_err err;

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		in.model.n_layers = cases[i].n_layers;
		in.limits.max_seqs = cases[i].seqs;
		is_int(run_no_room(&in, &err), AR_USAGE, "no room is refused");
		is_str(err.msg, cases[i].want, "... with the sum and what would fit");
	}
}

int main(void)
{
	plan(0);
	test_no_room();
	return done_testing();
}
