/* SPDX-License-Identifier: Apache-2.0 */
/* Layers that no backend runs: each gap has a row here, and whoever runs layers refuses it. */
#include "config.h"
#include "model/layer_gap.h"

#include <stdio.h>

#include "replay/engine/prepare.h"
#include "tests/tap.h"

#define HEADS .q_heads = 8, .kv_heads = 2, .head_dim = 64, .rotary_dim = 64

static const struct layer_spec plain = { HEADS, .ffn = 96 };

static const struct {
	const char *gap;
	struct layer_spec spec;
} gaps[] = {
	{ "latent attention", { HEADS, .mixer = MIX_LATENT } },
	{ "attention within chunks", { HEADS, .mixer = MIX_CHUNK, .window = 8 } },
	{ "values of another size than keys", { HEADS, .v_dim = 32 } },
	{ "values from the product of keys", { HEADS, .k_is_v = 1 } },
	{ "norms of all heads together", { HEADS, .qk_norm = 1, .qk_norm_all = 1 } },
	{ "experts with norms of their own", { HEADS, .ffn = 96, .expert_norms = 1 } },
};

static void refuses(const char *gap, const struct layer_spec *spec)
{
	struct layer_spec layer[] = { plain, *spec };
	struct model m = { .name = "m", .n_layers = 2, .layer = layer, .tp = 1 };
	struct capture_info c = { .q_heads = 8, .kv_heads = 2, .head_dim = 64 };
	struct ar_err err = { 0 };
	char want[256];

	snprintf(want, sizeof want,
		 "model m, layer 1: %s: there are no kernels for it; use --backend roofline "
		 "without captures or weights, or --backend cost",
		 gap);
	is_int(model_check_gap(&m, &err), AR_USAGE, "a model with %s is refused", gap);
	is_str(err.msg, want, "... in these words");
	is_int(prepare_check_model(&c, &m, 8, 2, &err), AR_USAGE, "... with captures, too");
	is_str(err.msg, want, "... in the same words");
}

int main(void)
{
	struct layer_spec same = plain;
	struct model m = { .name = "m", .n_layers = 1, .layer = &same, .tp = 1 };
	struct ar_err err = { 0 };

	plan(0);
	ok(!layer_gap(&plain) && !model_check_gap(&m, &err), "a plain layer has no gap");
	same.v_dim = same.head_dim;
	ok(!layer_gap(&same), "nor has one whose values are as large as its keys");
	for (size_t i = 0; i < sizeof gaps / sizeof *gaps; i++) {
		const char *gap = layer_gap(&gaps[i].spec);

		is_str(gap ? gap : "none", gaps[i].gap, "a gap is named");
		refuses(gaps[i].gap, &gaps[i].spec);
	}
	return done_testing();
}
