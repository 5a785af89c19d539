#ifndef AR_COLUMNS_H
#define AR_COLUMNS_H

#include "kernels/executor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* CUDA: executor->enqueue of "columns"; it takes no work. */
enum ar_status columns_enqueue(const struct attn_batch *b, const struct executor_lists *lists,
			       const bf16_t *q, const struct kv_cache *kv, bf16_t *out, float *lse,
			       void *work, void *stream, struct ar_err *err);

#ifdef __cplusplus
}
#endif
#endif
