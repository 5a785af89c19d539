/* SPDX-License-Identifier: Apache-2.0 */
/* StreamingLLM: its parameters, for the reference and the CUDA file. */
#ifndef AR_EVICT_STREAMING_H
#define AR_EVICT_STREAMING_H

#include <stdint.h>

struct streaming {
	int64_t sink, recent;
};

#endif
