/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AR_COLUMNS_H
#define AR_COLUMNS_H

#include "kernels/exec/executor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* CUDA: executor->enqueue of "columns".  It calls the kernel for the current device. */
executor_fn columns_enqueue;
executor_fn columns_sm80_enqueue; /* mma.sync; whole tiles; no work memory */
executor_fn columns_sm90_enqueue; /* wgmma; 9.0; whole tiles and parts */

#ifdef __cplusplus
}
#endif
#endif
