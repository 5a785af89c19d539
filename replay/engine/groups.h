/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KV cache groups, as in vLLM: layers that share a page table.  Layers of a group have the same
 * mixer and window.  Their pages have the same shape and the same bytes of state.  A request has a
 * table in every group (blocks.h).
 *
 * Layers before and after a dropper are in different groups.  A layer after which it drops tokens
 * that may be revived has an aux cache: for each token of a page, the residual stream that it left
 * the layer with.
 *
 * Window layers give pages back that no later row sees.  Linear layers have no keys: the one page
 * of a request is its state.
 */
#ifndef AR_GROUPS_H
#define AR_GROUPS_H

#include "kernels/methods/plan.h"
#include "kernels/share/share.h"
#include "replay/sched/batch.h"
#include "replay/sched/blocks.h"

enum { STATE_PRUNE = ROW_KINDS, STATE_EVICT, STATES };
struct cache_group {
	enum mixer mixer;
	int window;		 /* keys that a row sees; 0: all before it */
	struct attn_shape shape; /* of its layers, with the page size; MIX_LINEAR: no heads, and
				  * pages of a token */
	const struct cache_layout *layout; /* of its layers */
	size_t kv_bytes;		   /* bytes of keys and values per page and layer */
	size_t part_bytes[STATES]; /* bytes of state per page and layer of the selector of each
				       * kind of rows, of the pruner of decodes, of the evictor */
	size_t state_bytes;	   /* all of them, or those of a linear layer */
	size_t aux_bytes;	   /* bytes per page of the aux cache, in one layer, */
	int aux_layer;		   /* this one of the model; aux_bytes 0: there is none */
	int no;			   /* its number: that of its tables */
	int64_t n_page;		   /* 0 before groups_open_blocks() */
	int64_t max_page;	   /* pages of the requests of a batch, if the pool had no end */
	int segment;		   /* of its layers, see drops.h */
	/* Of the batches that ran: rows of a layer; rows that go on after the segment; (row, key)
	 * pairs of dense attention over the keys in the cache. */
	int64_t n_row, n_on, n_pair;
};

struct cache_groups {
	struct cache_group *group; /* [n] */
	int n;
	int *of; /* [layers of the model] index of the layer's group */
	int64_t max_seqs;
};

/* The methods of the plan are open.  At most max_seqs requests run at once, and their entries have
 * at most max_tok tokens.  Release *g even after a failure. */
enum ar_status groups_init(struct cache_groups *g, const struct model *m,
			   const struct layer_plan *p, int64_t max_seqs, int64_t max_tok,
			   struct ar_err *err);
/* Give the groups room for the state of an evictor; NULL is fine.  All layers attend. */
void groups_add_evictor(struct cache_groups *g, const struct evict *e);
void groups_release(struct cache_groups *g);

static inline const struct cache_group *groups_of(const struct cache_groups *g, int layer)
{
	return &g->group[g->of[layer]];
}

/* The state of the selector of a kind of rows, or another one, in a layer's state, or NULL.  States
 * lie one after the other, each of all n_page pages of the memory. */
static inline void *groups_state(const struct cache_group *x, void *state, size_t n_page, int kind)
{
	char *at = state;

	for (int k = 0; k < kind; k++)
		at += n_page * x->part_bytes[k];
	return x->part_bytes[kind] ? at : NULL;
}

/* Bytes of a page in a plane of the layout. */
static inline size_t groups_plane_bytes(const struct cache_group *x, int plane)
{
	return (size_t)x->shape.page_tok *
	       cache_plane_bytes(x->layout, plane, x->shape.kv_heads, x->shape.head_dim);
}

/* What is copied with tokens of a shared page: the planes of a layer's kv, and behind them the
 * states in `state`, of n_page pages each.  Returns their number, at most GROUP_PLANES. */
enum { GROUP_PLANES = CACHE_PLANES + STATES };
int groups_share_planes(const struct cache_group *x, const struct kv_cache *kv, void *state,
			size_t n_page, struct share_plane *out);
/* The copy of x, as kernels want it. */
static inline struct share_copy groups_share_copy(const struct block_copy *x)
{
	return (struct share_copy){ x->g, x->from, x->to, x->n_tok };
}

/* Elements from the start of a layer's K or V to head h, place 0 of page. */
static inline size_t pages_offset(const struct attn_shape *s, int32_t page, int h)
{
	return ((size_t)page * (size_t)s->kv_heads + (size_t)h) * (size_t)s->page_tok *
	       (size_t)s->head_dim;
}

/* Bytes of layer[0 .. n) of the model together, aux caches included, where a full layer has n_page
 * pages; layer NULL: the first n layers. */
double groups_bytes(const struct cache_groups *g, const int *layer, int n, int64_t n_page);

/* Describe the contents of a group, for messages: "36 window layers of 1024 tokens, 0.42 GiB".
 * layer: [n] executed layers; the groups have their pages.  Returns buf; "" if none of the layers
 * is of the group, or they store nothing. */
char *groups_describe(const struct cache_groups *g, int group, const int *layer, int n, char *buf,
		      size_t size);

/* Bytes of all aux caches.  The groups have their pages. */
double groups_aux_bytes(const struct cache_groups *g);

/* Open b: tables in every group for a pool of num_blocks blocks of block_tok tokens.  A group gets
 * blocks_pages(), but at most max_page.  The caller releases b, even after a failure.  AR_USAGE:
 * too many or too few pages. */
enum ar_status groups_open_blocks(struct cache_groups *g, struct blocks *b, int64_t num_blocks,
				  int64_t block_tok, size_t n_req, struct ar_err *err);

#endif
