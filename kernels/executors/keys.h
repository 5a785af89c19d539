/* The reference of executors whose keys are no blocks: one row after the other over the keys at
 * given positions. */
#ifndef AR_KEYS_H
#define AR_KEYS_H

#include "kernels/attn.h"
#include "src/base/status.h"

struct keys {
	int n;
	int32_t *pos;		/* [n] of one request; room for all of its blocks and one more */
	float *score, *sum;	/* [n] and [head_dim], scratch */
};

enum ar_status keys_init(struct keys *k, const struct attn_batch *b, struct ar_err *err);
void keys_release(struct keys *k);

/* Attention of one row and head of request req over those of the keys that it may see. */
void keys_attend(struct keys *k, const struct attn_batch *b, int req, int row, int head,
		 const bf16_t *q, const struct kv_cache *kv, bf16_t *out, float *lse);

#endif
