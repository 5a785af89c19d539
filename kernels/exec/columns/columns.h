#ifndef AR_COLUMNS_H
#define AR_COLUMNS_H

#include "kernels/exec/executor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* CUDA: executor->enqueue of "columns".  It checks the shape and takes the kernel for the current
 * device. */
typedef enum ar_status columns_enqueue_fn(const struct attn_batch *b,
					  const struct executor_lists *lists, const bf16_t *q,
					  const struct kv_cache *kv, bf16_t *out, float *lse,
					  void *work, void *stream, struct ar_err *err);
columns_enqueue_fn columns_enqueue;
columns_enqueue_fn columns_sm80_enqueue;	/* mma.sync; whole tiles, takes no work */
columns_enqueue_fn columns_sm90_enqueue;	/* wgmma; 9.0; parts as well */

#ifdef __cplusplus
}
#endif
#endif
