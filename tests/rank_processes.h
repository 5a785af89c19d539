/* SPDX-License-Identifier: Apache-2.0 */
/* What tests need that start ranks as processes. */
#ifndef AR_TESTS_RANK_PROCESSES_H
#define AR_TESTS_RANK_PROCESSES_H

#include <stdbool.h>

#include "replay/ranks/world.h"

/* The path of the fake NCCL, which lies beside the program. */
const char *fake_nccl_path(void);

/* GPUs that the ranks have.  A library that lets ranks share a GPU needs one
 * (NCCL_MULTI_RANK_GPU_ENABLE=1). */
int rank_gpus(int ranks);
/* Whether the GPUs and NCCL are there.  Asked in a process of its own: one that has used CUDA must
 * not fork ranks. */
bool ranks_have_gpus(int ranks);

/* Let the process join as a rank of `size`, with limits of 5 s; see world_open(). */
enum ar_status join_as_rank(struct world **w, struct rank_page *page, int rank, int size,
			    struct ar_err *err);
/* Fork n ranks that join by a new *id, and wait for all.  Each calls run(), which does not return.
 * *id: in shared memory.  The test ends if there is no NCCL. */
void fork_ranks(int n, struct nccl_id *id, void (*run)(int rank));

#endif
