/* SPDX-License-Identifier: Apache-2.0 */
/* The counted work of a phase beside the work that a test expects. */
#ifndef AR_TESTS_ROOFLINE_WORK_H
#define AR_TESTS_ROOFLINE_WORK_H

#include "replay/cost/roofline.h"
#include "tests/tap.h"

static inline void is_work(const struct roofline_work *w, int64_t flops, int64_t bytes, int kernels,
			   const char *what)
{
	is_int((int64_t)w->flops, flops, "%s: FLOPs", what);
	is_int((int64_t)w->bytes, bytes, "%s: bytes", what);
	is_int(w->kernels, kernels, "%s: launches", what);
}

#endif
