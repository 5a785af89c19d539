/* SPDX-License-Identifier: Apache-2.0 */
/* The tokens with the largest logits: shared by the reference and the CUDA file. */
#ifndef AR_TOPK_H
#define AR_TOPK_H

#include "kernels/select/selector.h"

#ifdef __cplusplus
extern "C" {
#endif

struct topk {
	int64_t budget; /* tokens of a query head */
};

selector_work_fn topk_work_bytes;
selector_fn topk_enqueue;

#ifdef __cplusplus
}
#endif
#endif
