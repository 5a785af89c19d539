/* SPDX-License-Identifier: Apache-2.0 */
/* The backends that run attention: rows of the list in backends.c. */
#ifndef AR_BACKENDS_ATTN_H
#define AR_BACKENDS_ATTN_H

#include "replay/engine/backend.h"

extern const struct backend backend_cpu;
extern const struct backend backend_cuda; /* in builds with CUDA */

/* Count the method's selection for prefill entry e, without attention.  count: [n_run_layers]
 * [kv_heads], 0 in layers that see no or not all keys.  self: of backend_cpu, started.  Each chunk
 * of a request follows the ones before. */
enum ar_status backend_cpu_count(void *self, const struct batch_entry *e,
				 struct selection_count *count, struct ar_err *err);

#endif
