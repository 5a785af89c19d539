/* SPDX-License-Identifier: Apache-2.0 */
/* What a run says whose GPU has no room for KV blocks. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "src/run/engine_defaults.h"
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

/* The requests of a command, set off by spaces, whose kernels a GPU of 85 GB runs or not. */
static int64_t requests(const char *command, bool real)
{
	const struct engine_gpu gpu = { "card", 85 * (int64_t)1000000000, "of a test", real };
	char *copy = strdup(command), *argv[16], *save = NULL;
	struct run_options o;
	struct ar_err err;
	int64_t n;
	int argc = 0;

	for (char *s = strtok_r(copy, " ", &save); s; s = strtok_r(NULL, " ", &save))
		argv[argc++] = s;
	if (run_options_parse(&o, NULL, argc, argv, &err) || run_engine_defaults(&o, &gpu, &err))
		bail_out("%s", err.msg);
	n = o.limits.max_seqs;
	run_options_release(&o);
	free(copy);
	return n;
}

/* Weights of 63.2 GB leave 15.0.  A state has 49 MB, and half as much on each of two ranks. */
static void test_default_requests(void)
{
	static const char nano[] = "--trace t --backend auto --model nemotron-3-nano-30b-a3b";
	char more[200];

	is_int(requests(nano, true), 153, "states of the default requests leave room");
	is_int(requests(nano, false), 1024, "... which a modelled GPU need not have");
	snprintf(more, sizeof more, "%s --tp 2", nano);
	is_int(requests(more, true), 949, "... on each rank");
	snprintf(more, sizeof more, "%s --max-num-seqs 1000", nano);
	is_int(requests(more, true), 1000, "what is given stays");
	snprintf(more, sizeof more, "%s --gpu-memory-utilization 0.6", nano);
	is_int(requests(more, true), 1024, "where weights leave nothing they are refused later");
	is_int(requests("--trace t --backend auto --model llama-3.1-8b", true), 1024,
	       "models without states take the engine's own");
}

int main(void)
{
	plan(0);
	test_no_room();
	test_default_requests();
	return done_testing();
}
