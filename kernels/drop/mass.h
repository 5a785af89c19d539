/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mass: how much a chunk's last queries look at each block of keys.
 *
 *   s[h][a][x]  = q[h][a] . k[x], of the a-th of the last n rows and a key x that it sees
 *   w[h][x]     = sum over a of softmax over x of s[h][a] / sqrt(head_dim)
 *   mass[B]     = sum over all query heads and the keys x of block B of w[h][x]
 *
 * The keys x are all keys of the cache, or the chunk's keys only.  Block 0 begins at the first key.
 * A chunk with fewer than n rows takes part whole.  With `round`, s and w are rounded to bf16.
 */
#ifndef AR_MASS_H
#define AR_MASS_H

#include <stdbool.h>

#include "base/both.h"
#include "base/status.h"
#include "kernels/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MASS_BLOCK = 128 /* the largest */ };

struct mass_rule {
	int n;	    /* rows */
	int block;  /* keys, a power of two up to MASS_BLOCK */
	int least;  /* requests with at most this many rows have no mass */
	bool whole; /* nor have requests whose rows are not their whole prompt */
	bool chunk; /* keys of the chunk only */
	bool round;
	bool past;  /* CUDA: rows see the keys before all of them, and none of these has mass */
	int skip;   /* CUDA: this many last rows do not take part, nor does what only they see */
	bool heads; /* CUDA: query heads have masses of their own; blocks are keys, unrounded */
};

/* Rows of request r that take part; 0: the request has no mass. */
AR_BOTH static inline int mass_rows(const struct mass_rule *m, const struct attn_batch *b, int r)
{
	int n = b->rows.row0[r + 1] - b->rows.row0[r] - m->skip;

	if (n <= m->least || (m->whole && (b->rows.pos0[r] || b->rows.left[r])))
		return 0;
	return m->n < n ? m->n : n;
}

/* The first key, and the blocks from there on. */
AR_BOTH static inline int mass_base(const struct mass_rule *m, const struct attn_batch *b, int r)
{
	return m->chunk ? b->rows.pos0[r] : 0;
}

AR_BOTH static inline int mass_blocks(const struct mass_rule *m, const struct attn_batch *b, int r)
{
	return (b->keys.len[r] - m->skip - mass_base(m, b, r) + m->block - 1) / m->block;
}

/* Where the blocks of request r begin on the device, and room for the blocks of all requests. */
AR_BOTH static inline int64_t mass_first(const struct mass_rule *m, const struct attn_batch *b,
					 int r)
{
	return (int64_t)b->keys.page0[r] * b->shape.page_tok / m->block + r;
}

AR_BOTH static inline int64_t mass_room(const struct mass_rule *m, const struct attn_shape *s,
					int64_t n_page, int n_req)
{
	return n_page * s->page_tok / m->block + n_req;
}

/* The reference, for request r: mass[mass_blocks()]. */
enum ar_status mass_ref(const struct mass_rule *m, const struct attn_batch *b, int r,
			const bf16_t *q, const bf16_t *k, float *mass, struct ar_err *err);

/* CUDA: part[kv_head][mass_room()] at the beginning of work, each KV head's share of the mass.
 * Their sum, in order of heads, is the mass.  With `heads` a query head has a share. */
size_t mass_work_bytes(const struct mass_rule *m, const struct attn_shape *s,
		       const struct attn_limits *l);
enum ar_status mass_enqueue(const struct mass_rule *m, const struct attn_batch *b, const bf16_t *q,
			    const bf16_t *k, float **part, void *work, void *stream,
			    struct ar_err *err);

#ifdef __cplusplus
}
#endif
#endif
