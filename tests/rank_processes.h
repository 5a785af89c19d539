/* SPDX-License-Identifier: Apache-2.0 */
/* What tests need that start ranks as processes. */
#ifndef AR_TESTS_RANK_PROCESSES_H
#define AR_TESTS_RANK_PROCESSES_H

#include <stdbool.h>

/* The path of the fake NCCL, which lies beside the program. */
const char *fake_nccl_path(void);

/* GPUs that the ranks have.  A library that lets ranks share a GPU needs one
 * (NCCL_MULTI_RANK_GPU_ENABLE=1). */
int rank_gpus(int ranks);
/* Whether the GPUs and NCCL are there.  Asked in a process of its own: one that has used CUDA must
 * not fork ranks. */
bool ranks_have_gpus(int ranks);

#endif
