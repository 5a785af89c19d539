/* SPDX-License-Identifier: Apache-2.0 */
/* How the KV cache of a layer lies in memory.  A layout NULL is kv-bf16, in all of these
 * functions. */
#ifndef AR_CACHE_LAYOUT_H
#define AR_CACHE_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum elem { ELEM_BF16, ELEM_E4M3, ELEM_E5M2, ELEM_F32, ELEM_BYTE };
enum { CACHE_PLANES = 4 };

/* A plane is an array [page][heads][page_tok][dim].  Heads and dim are the layer's KV heads and
 * head size where they are 0 here. */
struct cache_plane {
	int heads, dim;
	enum elem elem;
};

/* Bits of layouts, for sets of layouts.  The 8-bit layouts have one scale for K and one for V of a
 * layer, outside of the pages; kv-e4m3-th has one for each token and head, in further planes. */
enum {
	CACHE_KV_BF16 = 1 << 0,
	CACHE_KV_E4M3 = 1 << 1,
	CACHE_KV_E5M2 = 1 << 2,
	CACHE_KV_E4M3_TH = 1 << 3,
	CACHE_LATENT_BF16 = 1 << 4,
	CACHE_LATENT_INDEX_BF16 = 1 << 5,
	CACHE_LATENT_FP8 = 1 << 6,
	CACHE_LATENT_INDEX_FP8 = 1 << 7,
	CACHE_LATENT_E4M3 = 1 << 8
};

struct cache_layout {
	const char *name; /* "kv-bf16" */
	unsigned bit;
	int n_plane;
	struct cache_plane plane[CACHE_PLANES];
};
extern const struct cache_layout cache_layouts[]; /* ends with name == NULL */

static inline const struct cache_layout *cache_layout(const struct cache_layout *l)
{
	return l ? l : cache_layouts;
}

/* NULL: there is no layout of this name. */
const struct cache_layout *cache_layout_find(const char *name);

/* The layout of latents in the format of kv: a layout of K and V, or latent-fp8.  lists: rows
 * attend to lists; index: with an indexer's keys.  NULL: there is none. */
const struct cache_layout *cache_layout_latent(const struct cache_layout *kv, bool lists,
					       bool index);

/* Whether keys and values are in bf16, as without an option. */
static inline bool cache_is_bf16(const struct cache_layout *l)
{
	return cache_layout(l)->bit & (CACHE_KV_BF16 | CACHE_LATENT_BF16 | CACHE_LATENT_INDEX_BF16);
}

/* Heads of a plane. */
int cache_plane_heads(const struct cache_layout *l, int plane, int kv_heads);
/* Bytes of a token in a plane, and in all planes together.  A page has page_tok times as many
 * bytes.  v_dim: the head size of plane 1, the values. */
size_t cache_plane_bytes(const struct cache_layout *l, int plane, int kv_heads, int head_dim);
size_t cache_token_bytes(const struct cache_layout *l, int kv_heads, int head_dim, int v_dim);

#ifdef __cplusplus
}
#endif
#endif
