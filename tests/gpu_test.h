/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory for tests and measurements; one call frees all of it.  Any failure bails out,
 * because later results cannot be trusted. */
#ifndef AR_TESTS_GPU_TEST_H
#define AR_TESTS_GPU_TEST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "kernels/attn.h"

/* Return whether a GPU of compute capability 8.0 or later is usable.  Bails out without one when
 * ATTNREPLAY_REQUIRE_GPU=1. */
bool gpu_usable(void);

/* main() of a GPU test: plan n tests and call run_all(), or skip them without a usable GPU. */
int gpu_main(int n, void (*run_all)(void));

/* Number in the environment variable name, such as a number of cases; usual: its default. */
long gpu_test_number(const char *name, long usual);

void gpu_must(enum ar_status st, const struct ar_err *err); /* bail out unless AR_OK */

void *gpu_host(size_t bytes);	       /* on the host; owned by the caller */
void *gpu_new(size_t bytes, int fill); /* every byte set to fill */
void *gpu_copy(const void *host, size_t bytes);
void gpu_fill(void *device, size_t bytes, int fill);
void gpu_write(void *device, const void *host, size_t bytes);
void gpu_read(void *host, const void *device, size_t bytes); /* after all launches */
void gpu_free_all(void);

/* The n_sm of batches for the current device. */
int gpu_n_sm(void);

/* Whether attention runs on it with this head size. */
bool gpu_attends(int head_dim);

/* The same with the arrays on the device. */
struct attn_batch gpu_batch(const struct attn_batch *host);
struct kv_cache gpu_kv(const struct kv_cache *host, size_t len);  /* elements of k */
struct block_lists gpu_lists(const struct block_lists *l, int n); /* l->block NULL: none */
struct piece_lists gpu_pieces(const struct piece_lists *l, int n);

#endif
