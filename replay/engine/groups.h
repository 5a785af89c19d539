/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KV cache groups, as vLLM calls them: layers that share a page table.  Layers of one group mix
 * tokens in the same way, have pages of one shape and keep as much beside a page.  A request holds
 * pages in every group.
 */
#ifndef AR_GROUPS_H
#define AR_GROUPS_H

#include "kernels/methods/plan.h"
#include "replay/engine/pages.h"
#include "replay/sched/batch.h"

struct cache_group {
	enum mixer mixer;
	struct attn_shape shape;	/* of its layers, with the page size */
	size_t kv_bytes;		/* of K, and of V, of a page in one layer */
	size_t state_bytes;		/* of the selector, beside a page in one layer */
	struct pages *pages;		/* NULL before groups_open_pages() */
	int64_t n_page;
};

struct cache_groups {
	struct cache_group *group;	/* [n] */
	int n;
	int *of;			/* [n_layers] of the model, which group each one is in */
};

/* The methods of the plan are open.  *g is to be released even after a failure. */
enum ar_status groups_init(struct cache_groups *g, const struct model *m,
			   const struct layer_plan *p, struct ar_err *err);
void groups_release(struct cache_groups *g);

static inline const struct cache_group *groups_of(const struct cache_groups *g, int layer)
{
	return &g->group[g->of[layer]];
}

/* Bytes that a page takes in n layers of the model; layer NULL: the first n. */
size_t groups_page_bytes(const struct cache_groups *g, const int *layer, int n);

/* Pages of every group for a pool of num_blocks blocks of block_tok tokens, see pages_needed(). */
enum ar_status groups_open_pages(struct cache_groups *g, int64_t num_blocks, int64_t block_tok,
				 int64_t max_seqs, size_t n_req, struct ar_err *err);

/* Room for an entry that is about to run. */
enum ar_status groups_grow(const struct cache_groups *g, const struct batch_entry *e,
			   struct ar_err *err);
/* The rows of the entry are in the pages of its request. */
bool groups_hold(const struct cache_groups *g, const struct batch_entry *e);
void groups_drop(const struct cache_groups *g, uint32_t req);

/* Tokens below e->start that the request's pages do not hold, as when the policy found them in
 * its prefix cache, or, before a chunk, that no chunk brought, where a selector keeps state: the
 * next piece of them, at most max_tok, as an entry to be run first. */
bool groups_missing(const struct cache_groups *g, const struct batch_entry *e, int64_t max_tok,
		    struct batch_entry *piece);

#endif
