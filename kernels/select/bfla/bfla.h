/* SPDX-License-Identifier: Apache-2.0 */
/* BFLA: shared by the reference and the CUDA file. */
#ifndef AR_BFLA_H
#define AR_BFLA_H

#include <math.h>

#include "base/both.h"
#include "kernels/select/selector.h"

#ifdef __cplusplus
extern "C" {
#endif

enum bfla_pool { BFLA_FLAT, BFLA_MEAN, BFLA_CENTER, BFLA_MAXABS };
enum bfla_anchor { BFLA_LAST, BFLA_FIRST };
enum bfla_grid { BFLA_CHUNK, BFLA_ABSOLUTE };
enum bfla_pad { BFLA_KEEP, BFLA_EXCLUDE };

struct bfla {
	int64_t block, group; /* tokens */
	int pool, anchor, grid, pad;
	bool mask_future;
	double score_div;
	double mass, threshold, ratio, random;
	int64_t least;		   /* blocks */
	int64_t local, min_tokens; /* tokens */
	int64_t sink;		   /* blocks */
	int64_t stride, seed;
};

/* The coarse query blocks of a chunk: number i covers the positions from origin + i * block on, as
 * far as they are the chunk's. */
struct bfla_rows {
	int origin;
	int ctx, end; /* positions of the chunk */
	int n;
	int number; /* of query block 0, for the rescues */
};

AR_BOTH static inline struct bfla_rows bfla_rows(const struct bfla *p, int ctx, int rows)
{
	struct bfla_rows q = { ctx, ctx, ctx + rows, 0, 0 };
	int b = (int)p->block;

	if (p->grid == BFLA_ABSOLUTE) {
		q.number = ctx / b;
		q.origin = q.number * b;
	}
	q.n = (q.end - q.origin + b - 1) / b;
	return q;
}

/* Whether a chunk sees everything, without scores.  total: prompt tokens of the batch. */
AR_BOTH static inline bool bfla_dense(const struct bfla *p, int rows, int total)
{
	return rows <= 1 || total < p->min_tokens || p->mass >= 1;
}

/* The last block of keys of which query block i sees any. */
AR_BOTH static inline int bfla_last(const struct bfla *p, const struct bfla_rows *q, int i)
{
	int b = (int)p->block, end = q->origin + (i + 1) * b;

	return ((end < q->end ? end : q->end) - 1) / b;
}

/* Whether the group of queries from position q on and the group of keys from k on have a score. */
AR_BOTH static inline bool bfla_offers(const struct bfla *p, const struct bfla_rows *rows, int q,
				       int k)
{
	if (p->pad == BFLA_EXCLUDE &&
	    (q + (int)p->group <= rows->ctx || q >= rows->end || k >= rows->end))
		return false;
	return !p->mask_future || k <= q;
}

/* The factor of scores in the exponent of the softmax. */
static inline double bfla_scale(const struct bfla *p, int head_dim)
{
	return 1 / (sqrt((double)head_dim) * p->score_div);
}

/* How many blocks of the largest scores are kept, at least one.  n: blocks of the request. */
AR_BOTH static inline int bfla_top(const struct bfla *p, int n)
{
	int top = (int)(n * p->ratio);

	top = p->least > top ? (int)(p->least < n ? p->least : n) : top;
	return top < 1 ? 1 : top;
}

/* Whether block j of KV head h, up to bfla_last(), is kept for its place: the local band, the
 * first blocks, or a rescue. */
AR_BOTH static inline bool bfla_placed(const struct bfla *p, const struct bfla_rows *q, int i,
				       int j, int h)
{
	int b = (int)p->block, from = q->origin + i * b;
	int first = (from > q->ctx ? from : q->ctx) / b, local = (int)((p->local + b - 1) / b);
	int number = q->number + i;
	uint64_t hash;

	if (j >= first - (local > 1 ? local : 1) && (j <= first || p->anchor == BFLA_LAST))
		return true;
	if (j < p->sink)
		return true;
	if (p->stride && (131 * (int64_t)number + 17 * (int64_t)j + p->seed) % p->stride == 0)
		return true;
	hash = ((uint64_t)number + 1) * 1103515245 + ((uint64_t)j + 1) * 12345 +
	       ((uint64_t)h + 1) * 2654435761u + (uint64_t)p->seed;
	return (int)((hash & 0x7fffffff) % 1000000) < (int)(p->random * 1000000);
}

selector_work_fn bfla_work_bytes;
selector_fn bfla_enqueue;

#ifdef __cplusplus
}
#endif
#endif
