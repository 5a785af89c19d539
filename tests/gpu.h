/* Device memory for tests: everything taken is given back at once. */
#ifndef AR_TESTS_GPU_H
#define AR_TESTS_GPU_H

#include <stdbool.h>
#include <stddef.h>

#include "tests/attend-case.h"

/* Whether a GPU of compute capability 8.0 or later answers.  Bails out where there is none
 * although ATTNREPLAY_REQUIRE_GPU=1 says there must be. */
bool gpu_usable(void);

/* Any failure of the four bails out. */
void *gpu_new(size_t bytes, int fill);			/* every byte set to fill */
void *gpu_copy(const void *host, size_t bytes);
void gpu_read(void *host, const void *device, size_t bytes);
void gpu_free_all(void);

/* The case's batch with its arrays on the device, and the tiles of plan (NULL: none). */
struct attn_batch gpu_batch(const struct attend_case *c, attend_plan_fn *plan, int heads);
struct kv_cache gpu_kv(const struct attend_case *c);
struct block_lists gpu_lists(const struct block_lists *l, int n);	/* l->block NULL: none */

#endif
