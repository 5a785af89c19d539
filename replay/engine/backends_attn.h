/* SPDX-License-Identifier: Apache-2.0 */
/* The backends that run attention: rows of the list in backends.c. */
#ifndef AR_BACKENDS_ATTN_H
#define AR_BACKENDS_ATTN_H

#include "replay/engine/backend.h"

extern const struct backend backend_cpu;
extern const struct backend backend_cuda; /* in builds with CUDA */

#endif
