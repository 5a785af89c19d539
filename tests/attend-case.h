/* Ragged attention batches for tests and measurements, on the host. */
#ifndef AR_ATTEND_CASE_H
#define AR_ATTEND_CASE_H

#include "kernels/attend.h"
#include "src/base/rng.h"

struct attend_case {
	struct attn_batch b;		/* its arrays belong to the case */
	struct kv_cache kv;
	bf16_t *q;
	int n_page;
	size_t q_len, kv_len;		/* elements of q and of k */
};

enum attend_fill {
	FILL_NORMAL,		/* normal, variance 1 */
	FILL_HUGE,		/* q thirty times as large: softmax is nearly a maximum */
	FILL_EQUAL,		/* all keys equal, so all scores of a row are */
};

/* Request r has ctx[r] cached tokens and rows[r] new ones.  Pages are shuffled; whatever
 * is not a token of some request is NaN.  Aborts without memory. */
void case_make(struct attend_case *c, const struct attn_shape *s, int n_req, const int *ctx,
	       const int *rows, enum attend_fill fill, struct rng *rng);
void case_free(struct attend_case *c);

/* The batch alone, without keys, values and queries. */
void case_make_batch(struct attend_case *c, const struct attn_shape *s, int n_req, const int *ctx,
		     const int *rows, struct rng *rng);

/* Number of lists the tiles of plan index. */
int case_n_list(const struct attend_case *c, attend_plan_fn *plan, int heads);

/* n random ascending lists over blocks [0, max_kv_blk), each block kept with probability
 * density; about one list in eight is empty. */
void case_lists(const struct attend_case *c, int n, double density, struct block_lists *l,
		struct rng *rng);
void lists_free(struct block_lists *l);

#endif
