/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running a batch again whose time is not the GPU's.
 *
 * A host that enqueues too slowly makes the GPU wait, which is no cost of the batch.  Then the
 * batch runs once more.  All ranks do so, as one that did it alone would wait for ever.
 */
#ifndef AR_AGAIN_H
#define AR_AGAIN_H

#include <stdbool.h>

#include "base/status.h"
#include "replay/ranks/world.h"

/* Run a batch.  whole: all of it is enqueued before the GPU starts.  *late: its time may have that
 * of the host. */
typedef enum ar_status again_fn(void *ctx, bool whole, bool *late, struct ar_err *err);

/* Run a batch, and if a rank was late, once more as a whole.  *slow: all ranks know that the batch
 * before was late twice; if so, this one is not repeated.  *again: it was.  w NULL: there are no
 * other ranks. */
enum ar_status again_if_late(struct world *w, again_fn *run, void *ctx, bool *slow, bool *again,
			     struct ar_err *err);

#endif
