/* SPDX-License-Identifier: Apache-2.0 */
/* Measure how fast this host is. */
#ifndef AR_HOST_PROBE_H
#define AR_HOST_PROBE_H

#include "base/probe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In place of the index of a GPU: there is none. */
enum { HOST_PROBE_NO_GPU = -1 };

/* Measure the loop.  Unless there is no GPU, measure launches on it as well.  AR_NODEV: it is not
 * there, or this is a build without CUDA. */
enum ar_status host_probe(struct probe *p, int device, struct ar_err *err);

/* Start the process of host_probe_apart() early, so that the later call waits less.  A call for
 * another device drops the process of the call before. */
void host_probe_begin(int device);

/* The same in a process of its own, so that this one may fork, or open a profiler, which makes
 * launches slower.  Done once: later calls with this device give the same times. */
enum ar_status host_probe_apart(struct probe *p, int device, struct ar_err *err);

/* The process of host_probe_begin() waits for one of these calls, or for host_probe_apart(), before
 * it measures launches.  So the caller may start its driver meanwhile.
 * take: let the process measure, and wait for its result.
 * leave: the same, and wait until the memory of the process on the GPU is free.
 * Both do nothing if there is no such process. */
void host_probe_take(void);
void host_probe_leave(void);

/* Measure launches alone; of builds with CUDA.  wait(ctx) returns when launches may be measured;
 * NULL: at once. */
enum ar_status host_probe_launches(struct probe *p, int device, void (*wait)(void *ctx), void *ctx,
				   struct ar_err *err);
/* Give back the memory on the GPU; of builds with CUDA. */
void host_probe_reset(void);

#ifdef __cplusplus
}
#endif
#endif
