/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scores of rows, for selectors' references:
 *
 *   x[i][t] = q[i] . key t of a request, in fp32, as multiply() sums
 */
#ifndef AR_SCORES_H
#define AR_SCORES_H

#include "base/status.h"
#include "kernels/attn.h"

struct scores {
	float *q; /* [rows][head_dim] */
	float *k; /* [max_kv_blk][head_dim][ld_key], a block's keys side by side */
	float *x; /* [rows][ld] */
	int head_dim, page_tok, ld_key, ld;
};

/* Allocate room for `rows` rows and every key of a request of b. */
enum ar_status scores_init(struct scores *s, const struct attn_batch *b, int rows,
			   struct ar_err *err);
void scores_release(struct scores *s);

/* Where element 0 of a key is; the others are ld_key apart. */
float *scores_key(const struct scores *s, int t);

/* Load the keys of request r. */
void scores_keys(struct scores *s, const struct attn_batch *b, int r, int kv_head, const bf16_t *k);

/* Load the rows [row, row + n) of the batch. */
void scores_rows(struct scores *s, const struct attn_batch *b, int row, int n, int head,
		 const bf16_t *q);

/* Compute x of the first n_row rows and n_key keys. */
void scores_multiply(struct scores *s, int n_row, int n_key);

/* Replace the scores of row i and its first n keys by attention, a softmax over
 * score / sqrt(head_dim).  Returns the row. */
float *scores_soften(struct scores *s, int i, int n);

#endif
