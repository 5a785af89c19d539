/* SPDX-License-Identifier: Apache-2.0 */
/* StreamingLLM: its parameters, for the reference and the CUDA file. */
#ifndef AR_EVICT_STREAMING_H
#define AR_EVICT_STREAMING_H

#include "kernels/evict/evictor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct streaming {
	int64_t sink, recent;
};

evictor_fn evict_streaming_enqueue;

#ifdef __cplusplus
}
#endif
#endif
