/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of thread blocks in clusters. */
#ifndef AR_CLUSTER_H
#define AR_CLUSTER_H

#include <cuda_runtime_api.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A launch in clusters of n thread blocks along x.  The caller fills in the rest.  attribute is
 * part of the launch. */
cudaLaunchConfig_t cluster_launch(cudaLaunchAttribute *attribute, int n);

/* Count the clusters of n thread blocks that run at once on the current device.  The kernel gets as
 * much shared memory a thread block as it uses, bytes. */
enum ar_status cluster_count(int *count, const void *kernel, int n, int threads, int bytes,
			     struct ar_err *err);

#ifdef __cplusplus
}
#endif
#endif
