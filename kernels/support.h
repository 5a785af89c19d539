/* SPDX-License-Identifier: Apache-2.0 */
/* What each family of CUDA kernels can run.  It is asked before anything is allocated. */
#ifndef AR_SUPPORT_H
#define AR_SUPPORT_H

#include "base/status.h"
#include "kernels/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SUPPORT_ANY = 0 }; /* every size */

/* A family has one row or more.  On a GPU it runs the sizes of all rows that name the GPU. */
struct support {
	const char *kernel; /* the family: a selector, executor->kernel, "decode" or "delta" */
	int cc_min, cc_max; /* compute capability, 90 for 9.0; cc_max 0: no limit */
	unsigned head_dims; /* 64 | 128: sizes are powers of two, or SUPPORT_ANY */
	unsigned page_toks; /* likewise, tokens of a page */
};
extern const struct support supports[]; /* ends with kernel == NULL */

/* Check that the kernels of this family run the shape on GPUs of compute capability cc; cc 0: on
 * at least one GPU.  AR_USAGE: they do not; the message lists the supported sizes. */
enum ar_status support_check(const char *kernel, const struct attn_shape *s, int cc,
			     struct ar_err *err);

#ifdef __cplusplus
}
#endif
#endif
