/* Device memory for tests and timings.  A CUDA failure bails out: nothing can be trusted
 * after it. */
#ifndef AR_SELECT_DEVICE_H
#define AR_SELECT_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/attn.h"

/* False after skipping n tests: no CUDA in this build, or no GPU.  With ATTNREPLAY_REQUIRE_GPU=1
 * that bails out instead. */
bool device_or_skip(unsigned n);

void *device_new(size_t bytes);				/* filled with 0xff */
void *device_copy(const void *host, size_t bytes);
void device_put(void *device, const void *host, size_t bytes);
void device_get(void *host, const void *device, size_t bytes);	/* waits for the device */
void device_free(void *device);

/* The batch with its arrays on the device. */
struct attn_batch device_batch(const struct attn_batch *host);
void device_batch_free(struct attn_batch *b);

#endif
