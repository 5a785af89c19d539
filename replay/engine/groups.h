/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KV cache groups, as in vLLM: layers that share a page table.  Layers of a group have the same
 * mixer, the same shape of pages and the same bytes of selector state per page.  A request holds
 * pages in every group.
 */
#ifndef AR_GROUPS_H
#define AR_GROUPS_H

#include "kernels/methods/plan.h"
#include "replay/engine/pages.h"
#include "replay/sched/batch.h"

struct cache_group {
	enum mixer mixer;
	struct attn_shape shape; /* of its layers, with the page size */
	size_t kv_bytes;	 /* bytes of K, and of V, per page and layer */
	size_t state_bytes;	 /* bytes of selector state per page and layer */
	struct pages *pages;	 /* NULL before groups_open_pages() */
	int64_t n_page;
};

struct cache_groups {
	struct cache_group *group; /* [n] */
	int n;
	int *of; /* [layers of the model] index of the layer's group */
};

/* The methods of the plan are open.  Release *g even after a failure. */
enum ar_status groups_init(struct cache_groups *g, const struct model *m,
			   const struct layer_plan *p, struct ar_err *err);
void groups_release(struct cache_groups *g);

static inline const struct cache_group *groups_of(const struct cache_groups *g, int layer)
{
	return &g->group[g->of[layer]];
}

/* Bytes of one page in layer[0 .. n) of the model together; layer NULL: the first n layers. */
size_t groups_page_bytes(const struct cache_groups *g, const int *layer, int n);

/* Create the pages of every group for a pool of num_blocks blocks of block_tok tokens, as many as
 * pages_needed().  AR_USAGE: too many or too few. */
enum ar_status groups_open_pages(struct cache_groups *g, int64_t num_blocks, int64_t block_tok,
				 int64_t max_seqs, size_t n_req, struct ar_err *err);

/* Give the request of e pages for its tokens in every group, before e runs.  AR_NOMEM: the pages
 * run out. */
enum ar_status groups_grow(const struct cache_groups *g, const struct batch_entry *e,
			   struct ar_err *err);
/* True: the pages of the request already hold the tokens of e. */
bool groups_hold(const struct cache_groups *g, const struct batch_entry *e);
void groups_drop(const struct cache_groups *g, uint32_t req);

/* Find tokens below e->start that must be computed before e.  True: *piece is an entry of the next
 * ones, at most max_tok.  Missing are tokens that the request's pages do not hold, as when the
 * policy found them in its prefix cache.  If e is a chunk and a selector keeps state, tokens that
 * no chunk computed are missing too. */
bool groups_missing(const struct cache_groups *g, const struct batch_entry *e, int64_t max_tok,
		    struct batch_entry *piece);

#endif
