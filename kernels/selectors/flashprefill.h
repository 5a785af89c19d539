/* FlashPrefill: what the reference and the CUDA file share. */
#ifndef AR_FLASHPREFILL_H
#define AR_FLASHPREFILL_H

#include <stdbool.h>

#include "kernels/selector.h"

#ifdef __cplusplus
extern "C" {
#endif

struct flashprefill {
	double alpha;
	int64_t sink, window, last_n;	/* blocks */
	bool dense_first;
};

size_t flashprefill_work_bytes(const void *self, const struct attn_shape *s,
			       const struct attn_limits *l);
enum ar_status flashprefill_enqueue(const struct attn_batch *b, const void *self, int layer,
				    const bf16_t *q, const struct kv_cache *kv, void *state,
				    const struct selection *out, void *work, void *stream,
				    struct ar_err *err);

#ifdef __cplusplus
}
#endif
#endif
