/* Ragged batches for the tests of selectors and methods: whole sequences of random
 * queries, keys and values on shuffled pages, from which batches of chunks are cut. */
#ifndef AR_SELECT_CASE_H
#define AR_SELECT_CASE_H

#include "kernels/attn.h"
#include "src/base/rng.h"

struct select_case {
	struct attn_batch b;		/* after case_cut */
	struct kv_cache kv;		/* [n_page] pages; 3e38 past a sequence's end */
	bf16_t *q;			/* of the batch */
	bf16_t *state;			/* [n_page][kv_heads][head_dim] */
	uint32_t *mask;			/* of the batch, every word set before */
	int n_page;

	int n_seq;
	int *len;			/* [n_seq] tokens */
	size_t *at;			/* [n_seq + 1] first row in all_q */
	bf16_t *all_q;			/* [token][q_heads][head_dim] */
	int32_t *row0, *ctx, *qblk0, *page0, *page;
	uint8_t *last;
};

/* Blocks have directions of their own, so that a threshold separates them. */
void case_make(struct select_case *c, struct rng *rng, struct attn_shape s, int n_seq,
	       const int *len);
void case_release(struct select_case *c);

/* Sequence r brings rows[r] tokens on top of ctx[r]; a chunk that ends its sequence is the last. */
void case_cut(struct select_case *c, const int *ctx, const int *rows);

size_t case_mask_words(const struct select_case *c);	/* of the whole batch */
size_t case_page_elements(const struct select_case *c);	/* K of a page, all KV heads */

#endif
