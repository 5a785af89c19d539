/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of an iteration from the times of its kernels on one GPU. */
#ifndef AR_KERNEL_COST_H
#define AR_KERNEL_COST_H

#include "replay/engine/backend.h"

/* Set all times of *cost from its kernels, of which there are some, in order of start.  n_run of
 * n_layers layers ran.  The head's time is from the end of the last layer kernel to the end of all
 * kernels.  It and the sum of embeddings are not scaled to all layers.  Only differences of times
 * count, so the clock of a GPU may be any. */
void kernel_cost(struct iter_cost *cost, int n_layers, int n_run);

#endif
