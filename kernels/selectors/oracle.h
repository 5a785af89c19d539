/* The blocks of largest attention mass: what the reference and the CUDA file share. */
#ifndef AR_ORACLE_H
#define AR_ORACLE_H

#include "kernels/selector.h"
#include "src/base/both.h"

#ifdef __cplusplus
extern "C" {
#endif

struct oracle {
	double share;
	int block;		/* index into 64, 128 */
};

/* Cells are the (query block, query head, block) of a request up to the diagonal, numbered in this
 * order.  Those of n query blocks, the first of them at block qa. */
AR_BOTH static inline int64_t oracle_cells(int q_heads, int qa, int n)
{
	return (int64_t)q_heads * ((int64_t)n * (qa + 1) + (int64_t)n * (n - 1) / 2);
}

AR_BOTH static inline int64_t oracle_count(const struct oracle *p, int64_t cells)
{
	return (int64_t)(p->share * (double)cells + 0.5);
}

size_t oracle_work_bytes(const void *self, const struct attn_shape *s,
			 const struct attn_limits *l);
enum ar_status oracle_enqueue(const struct attn_batch *b, const void *self, int layer,
			      const bf16_t *q, const struct kv_cache *kv, void *state,
			      const struct selection *out, void *work, void *stream,
			      struct ar_err *err);

#ifdef __cplusplus
}
#endif
#endif
