/* SPDX-License-Identifier: Apache-2.0 */
/* The reference for executors that take single keys, not blocks: attention of some rows under one
 * head, over the keys at given positions. */
#ifndef AR_KEYS_H
#define AR_KEYS_H

#include "base/status.h"
#include "kernels/attn.h"

struct keys {
	int n;
	int32_t *pos; /* [n] of one request; room for all of its blocks and one more */
	int n_run;    /* the first n_run keys are of runs and seen under the band */
	struct attn_band band;
	int total;	/* tokens of the prompt, for the band */
	int ld, ld_dim; /* of scratch, padded for multiply() */
	float *q, *k, *v, *p, *out, *sum;
};

enum ar_status keys_init(struct keys *k, const struct attn_batch *b, struct ar_err *err);
void keys_release(struct keys *k);

/* Attention of rows [row, row + n_row) of request req, at most page_tok rows.  Each row attends to
 * the keys in k at positions up to its own. */
void keys_attend(struct keys *k, const struct attn_call *call, int req, int row, int n_row,
		 int head);

#endif
