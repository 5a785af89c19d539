/* SPDX-License-Identifier: Apache-2.0 */
/* The blocks of the largest mean attention: shared by the reference and the CUDA file. */
#ifndef AR_ORACLE_H
#define AR_ORACLE_H

#include "base/both.h"
#include "kernels/select/selector.h"

#ifdef __cplusplus
extern "C" {
#endif

struct oracle {
	double share;
	int block; /* index into 64, 128 */
};

/* A cell is a (query block, query head, block) of a request, up to the diagonal; cells are numbered
 * in this order.  Returns the number of cells of n query blocks, the first at block qa. */
AR_BOTH static inline int64_t oracle_cells(int q_heads, int qa, int n)
{
	return (int64_t)q_heads * ((int64_t)n * (qa + 1) + (int64_t)n * (n - 1) / 2);
}

AR_BOTH static inline int64_t oracle_count(const struct oracle *p, int64_t cells)
{
	return (int64_t)(p->share * (double)cells + 0.5);
}

/* Pairs of a row and a key that it sees: rows [lo, hi) of a query block, keys of one block.  tok:
 * tokens of a block before the query block, which rows see whole; 0: the query block's own. */
AR_BOTH static inline int oracle_pairs(int lo, int hi, int tok)
{
	return tok ? (hi - lo) * tok : (hi * (hi + 1) - lo * (lo + 1)) / 2;
}

selector_work_fn oracle_work_bytes;
selector_fn oracle_enqueue;

#ifdef __cplusplus
}
#endif
#endif
