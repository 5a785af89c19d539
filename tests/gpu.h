/* Device memory for tests and measurements: everything taken is given back at once.  Any
 * failure bails out, as nothing can be trusted after it. */
#ifndef AR_TESTS_GPU_H
#define AR_TESTS_GPU_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "kernels/attn.h"

/* Whether a GPU of compute capability 8.0 or later answers.  Bails out where there is none
 * although ATTNREPLAY_REQUIRE_GPU=1 says there must be. */
bool gpu_usable(void);

/* A test's main(): n tests, which run_all() does; they are skipped without a usable GPU. */
int gpu_main(int n, void (*run_all)(void));

/* What an environment variable says of how much is tested; usual where it is not set. */
long gpu_test_number(const char *name, long usual);

void gpu_must(enum ar_status st, const struct ar_err *err);	/* be AR_OK */

void *gpu_host(size_t bytes);				/* on the host; owned by the caller */
void *gpu_new(size_t bytes, int fill);			/* every byte set to fill */
void *gpu_copy(const void *host, size_t bytes);
void gpu_fill(void *device, size_t bytes, int fill);
void gpu_write(void *device, const void *host, size_t bytes);
void gpu_read(void *host, const void *device, size_t bytes);	/* after all launches */
void gpu_free_all(void);

/* The n_sm of batches for the current device. */
int gpu_n_sm(void);

/* The same with the arrays on the device. */
struct attn_batch gpu_batch(const struct attn_batch *host);
struct kv_cache gpu_kv(const struct kv_cache *host, size_t len);	/* elements of k */
struct block_lists gpu_lists(const struct block_lists *l, int n);	/* l->block NULL: none */

#endif
