/* SPDX-License-Identifier: Apache-2.0 */
/* The query block of a batch that a thread block runs, one (query block, head) each. */
#ifndef AR_QBLK_CUH
#define AR_QBLK_CUH

#include "kernels/attn.h"

struct qblk {
	int req;
	int blk;	/* absolute block */
	int lo, hi;	/* rows [lo, hi) of the block are the chunk's */
	int row;	/* batch row of the block's row 0; negative rows are never read */
};

/* Query block at of the batch, if it is of request r. */
static __device__ __forceinline__ struct qblk qblk_in(const struct attn_batch &b, int at, int r)
{
	const int tok = b.shape.page_tok;
	const int ctx = b.rows.pos0[r], end = ctx + b.rows.row0[r + 1] - b.rows.row0[r];
	struct qblk s;

	s.req = r;
	s.blk = ctx / tok + at - b.rows.qblk0[r];
	s.lo = max(ctx - s.blk * tok, 0);
	s.hi = min(end - s.blk * tok, tok);
	s.row = b.rows.row0[r] + s.blk * tok - ctx;
	return s;
}

/* Query block at of the batch, at < n_qblk. */
static __device__ __forceinline__ struct qblk qblk_at(const struct attn_batch &b, int at)
{
	int r = 0, above = b.rows.n_req;

	while (above - r > 1) {		/* the last request with qblk0[r] <= at */
		int mid = (r + above) / 2;

		if (b.rows.qblk0[mid] <= at)
			r = mid;
		else
			above = mid;
	}
	return qblk_in(b, at, r);
}

#endif
