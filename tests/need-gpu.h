/* For tests that need a GPU: skip by name where there is none, unless it is required. */
#ifndef AR_NEED_GPU_H
#define AR_NEED_GPU_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#if HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

#include "tests/tap.h"

static inline bool gpu_there(void)
{
	const char *must = getenv("ATTNREPLAY_REQUIRE_GPU");
	bool there = false;

#if HAVE_CUDA
	int n = 0;

	there = cudaGetDeviceCount(&n) == cudaSuccess && n > 0;
#endif
	if (!there && must && !strcmp(must, "1"))
		bail_out("no usable GPU, and ATTNREPLAY_REQUIRE_GPU is set");
	return there;
}

#endif
