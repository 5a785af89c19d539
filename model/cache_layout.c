/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "model/cache_layout.h"

#include <string.h>

#include "base/bf16.h"

/* The planes of an indexer: its key and the scale of that. */
#define INDEX \
	{ 1, 128, ELEM_E4M3 }, \
	{ \
		1, 1, ELEM_F32 \
	}

const struct cache_layout cache_layouts[] = {
	{ "kv-bf16", CACHE_KV_BF16, 2, { { 0, 0, ELEM_BF16 }, { 0, 0, ELEM_BF16 } } },
	{ "kv-e4m3", CACHE_KV_E4M3, 2, { { 0, 0, ELEM_E4M3 }, { 0, 0, ELEM_E4M3 } } },
	{ "kv-e5m2", CACHE_KV_E5M2, 2, { { 0, 0, ELEM_E5M2 }, { 0, 0, ELEM_E5M2 } } },
	{ "kv-e4m3-th",
	  CACHE_KV_E4M3_TH,
	  4,
	  { { 0, 0, ELEM_E4M3 }, { 0, 0, ELEM_E4M3 }, { 0, 1, ELEM_F32 }, { 0, 1, ELEM_F32 } } },
	/* A row of all heads: the latent and the rotated key. */
	{ "latent-bf16", CACHE_LATENT_BF16, 1, { { 1, 0, ELEM_BF16 } } },
	{ "latent-index-bf16", CACHE_LATENT_INDEX_BF16, 3, { { 1, 0, ELEM_BF16 }, INDEX } },
	/* A row as FlashMLA has it: 512 e4m3, 4 scales in fp32, and 64 bf16. */
	{ "latent-fp8", CACHE_LATENT_FP8, 1, { { 1, 656, ELEM_BYTE } } },
	{ "latent-index-fp8", CACHE_LATENT_INDEX_FP8, 3, { { 1, 656, ELEM_BYTE }, INDEX } },
	/* A row of codes, with one scale for a layer outside of the pages. */
	{ "latent-e4m3", CACHE_LATENT_E4M3, 1, { { 1, 0, ELEM_E4M3 } } },
	{ 0 }
};

static const size_t elem_bytes[] = {
	[ELEM_BF16] = sizeof(bf16_t), [ELEM_E4M3] = 1, [ELEM_E5M2] = 1,
	[ELEM_F32] = sizeof(float),   [ELEM_BYTE] = 1,
};

const struct cache_layout *cache_layout_find(const char *name)
{
	const struct cache_layout *l = cache_layouts;

	while (l->name && strcmp(l->name, name) != 0)
		l++;
	return l->name ? l : NULL;
}

const struct cache_layout *cache_layout_latent(const struct cache_layout *kv, bool lists,
					       bool index)
{
	const unsigned bit = cache_layout(kv)->bit;

	if (bit == CACHE_KV_BF16)
		return cache_layout_find(index ? "latent-index-bf16" : "latent-bf16");
	if (bit == CACHE_KV_E4M3 && !lists)
		return cache_layout_find("latent-e4m3");
	if (bit == CACHE_KV_E4M3 || bit == CACHE_LATENT_FP8)
		return cache_layout_find(index ? "latent-index-fp8" : "latent-fp8");
	return NULL;
}

int cache_plane_heads(const struct cache_layout *l, int plane, int kv_heads)
{
	const struct cache_plane *p = &cache_layout(l)->plane[plane];

	return p->heads ? p->heads : kv_heads;
}

size_t cache_plane_bytes(const struct cache_layout *l, int plane, int kv_heads, int head_dim)
{
	const struct cache_plane *p = &cache_layout(l)->plane[plane];

	return (size_t)cache_plane_heads(l, plane, kv_heads) *
	       (size_t)(p->dim ? p->dim : head_dim) * elem_bytes[p->elem];
}

size_t cache_token_bytes(const struct cache_layout *l, int kv_heads, int head_dim, int v_dim)
{
	size_t sum = 0;

	for (int i = 0; i < cache_layout(l)->n_plane; i++)
		sum += cache_plane_bytes(l, i, kv_heads, i == 1 ? v_dim : head_dim);
	return sum;
}
