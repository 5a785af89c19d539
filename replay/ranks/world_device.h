/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU of a rank: what world.c asks of it.  Exists where CUDA does. */
#ifndef AR_WORLD_DEVICE_H
#define AR_WORLD_DEVICE_H

#include <stddef.h>

#include "base/status.h"

/* A stream, and room on host and device for a message that ranks gather. */
struct world_device;

/* Use the device in this process.  AR_NODEV: it cannot be used.  Close it after success. */
enum ar_status world_device_open(struct world_device **out, int device, struct ar_err *err);
void world_device_close(struct world_device *d);		    /* NULL is fine */
enum ar_status world_device_select(int device, struct ar_err *err); /* in a further thread */
void *world_device_stream(const struct world_device *d);

/* Enqueue the copy of mine[bytes] to *from on the device; *to has room for what n ranks gather.
 * Then enqueue the copy of *to back, and get it as all[n * bytes] when the stream has ended. */
enum ar_status world_device_put(struct world_device *d, const void *mine, size_t bytes, int n,
				void **from, void **to, struct ar_err *err);
enum ar_status world_device_fetch(struct world_device *d, struct ar_err *err);
void world_device_get(const struct world_device *d, void *all);

/* AR_OK: all that was enqueued has ended; *busy: not yet.  AR_CUDA: the device failed. */
enum ar_status world_device_query(void *stream, int *busy, struct ar_err *err);

#endif
