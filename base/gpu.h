/* SPDX-License-Identifier: Apache-2.0 */
/* The current GPU.  Its driver is asked once for each device and process, not at every launch. */
#ifndef AR_GPU_H
#define AR_GPU_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gpu {
	char name[256];
	int cc;		   /* compute capability: 90 for 9.0 */
	int n_sm;	   /* multiprocessors */
	size_t smem_bytes; /* the most shared memory of a thread block */
	size_t l2_bytes, mem_bytes;
	bool exclusive; /* one process at a time may use it */
};

/* The calling thread's current device; *out lives as long as the process.  AR_CUDA: the driver
 * fails.  AR_NODEV: a build without CUDA. */
enum ar_status gpu_current(const struct gpu **out, struct ar_err *err);

/* Ask for a device in a process of its own, so that this one stays without CUDA: it may fork, or
 * open a profiler first.  Each device is asked for once.  AR_NODEV: there is none. */
enum ar_status gpu_ask(int device, struct gpu *out, struct ar_err *err);

#ifdef __cplusplus
}
#endif
#endif
