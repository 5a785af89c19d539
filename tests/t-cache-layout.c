/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts of the KV cache, and the bytes that follow from them. */
#include "config.h"

#include <string.h>

#include "base/bf16.h"
#include "model/layer_size.h"
#include "tests/tap.h"

static void test_table(void)
{
	unsigned bits = 0;

	for (const struct cache_layout *l = cache_layouts; l->name; l++) {
		const struct cache_layout *same = cache_layouts;

		while (same != l && strcmp(same->name, l->name) != 0)
			same++;
		ok(same == l && l->bit && !(l->bit & (l->bit - 1)) && !(l->bit & bits) &&
			   l->n_plane > 0 && l->n_plane <= CACHE_PLANES,
		   "layout %s has a name and a bit of its own, and planes", l->name);
		bits |= l->bit;
	}
	ok(cache_layout(NULL) == cache_layouts && !strcmp(cache_layouts->name, "kv-bf16"),
	   "the usual layout is kv-bf16");
}

static void test_bytes(void)
{
	static const struct cache_layout latent = { "latent", 2, 1, { { 1, 576, ELEM_BF16 } } };
	/* Llama 3.1 8B has 32 of these layers: 131072, 65536 and 67584 bytes a token. */
	static const struct {
		const char *name;
		int64_t bytes;
	} named[] = { { "kv-bf16", 131072 / 32 },
		      { "kv-e4m3", 65536 / 32 },
		      { "kv-e5m2", 65536 / 32 },
		      { "kv-e4m3-th", 67584 / 32 } };
	static const struct {
		const char *name;
		int64_t bytes, index;
	} latents[] = { { "latent-bf16", 1152, 0 },
			{ "latent-index-bf16", 1284, 132 },
			{ "latent-fp8", 656, 0 },
			{ "latent-index-fp8", 788, 132 },
			{ "latent-e4m3", 576, 0 } };
	struct layer_spec l = { .q_heads = 32, .kv_heads = 8, .head_dim = 128 };

	is_int(layer_cache_bytes(&l), 2 * 8 * 128 * sizeof(bf16_t), "keys and values of a token");
	is_int(cache_plane_bytes(cache_layouts, 1, 8, 128), 8 * 128 * sizeof(bf16_t), "values");
	for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
		l.cache = cache_layout_find(named[i].name);
		is_int(layer_cache_bytes(&l), named[i].bytes, "%s: a token of 8 heads of 128",
		       named[i].name);
	}
	ok(!cache_layout_find("kv-int8"), "no layout has a name that is not in the table");
	l.cache = NULL;
	l.v_dim = 64;
	is_int(layer_cache_bytes(&l), 8 * (128 + 64) * sizeof(bf16_t), "values of another size");
	l.cache = &latent;
	is_int(layer_cache_bytes(&l), 576 * sizeof(bf16_t), "a plane may have sizes of its own");
	l = (struct layer_spec){ .mixer = MIX_LATENT,
				 .q_heads = 16,
				 .kv_heads = 1,
				 .head_dim = 192,
				 .rotary_dim = 64,
				 .mla = { .kv_lora = 512 } };
	for (size_t i = 0; i < sizeof latents / sizeof *latents; i++) {
		l.cache = cache_layout_find(latents[i].name);
		is_int(layer_cache_bytes(&l), latents[i].bytes, "%s: a token of 512 + 64",
		       latents[i].name);
		is_int(layer_index_bytes(&l), latents[i].index, "... of an indexer");
	}
}

int main(void)
{
	plan(0);
	test_table();
	test_bytes();
	return done_testing();
}
