/* SPDX-License-Identifier: Apache-2.0 */
/* What each family of CUDA kernels can run.  It is asked before anything is allocated. */
#ifndef AR_SUPPORT_H
#define AR_SUPPORT_H

#include <stdbool.h>

#include "base/status.h"
#include "kernels/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SUPPORT_ANY = 0 }; /* every size */

/* What runs a row.  Its type is that of the function that calls support_dispatch() for the family. */
typedef void support_fn(void);

/* A family has one row or more.  On a GPU it runs the sizes of all rows that name the GPU, each by
 * the first row that has it.  Kernels that the build lacks have no row; a build without CUDA has all
 * rows, without functions. */
struct support {
	const char *kernel; /* the family: a selector, executor->kernel, "decode" or "delta" */
	int cc_min, cc_max; /* compute capability, 90 for 9.0; cc_max 0: no limit */
	unsigned head_dims; /* 64 | 128: sizes are powers of two, or SUPPORT_ANY */
	unsigned page_toks; /* likewise, tokens of a page */
	support_fn *fn;	    /* NULL: the family has one function, and no dispatcher */
	bool parts;	    /* attention: runs tiles in parts, see attn_batch.n_sm */
};
extern const struct support supports[]; /* ends with kernel == NULL */

/* Check that the kernels of this family run the shape on GPUs of compute capability cc; cc 0: on
 * at least one GPU.  AR_USAGE: they do not; the message lists the supported sizes. */
enum ar_status support_check(const char *kernel, const struct attn_shape *s, int cc,
			     struct ar_err *err);

/* The same with other rows than supports[]. */
enum ar_status support_check_in(const struct support *rows, const char *kernel,
				const struct attn_shape *s, int cc, struct ar_err *err);

/* The row that runs the shape on GPUs of compute capability cc; cc 0: on any GPU.  NULL: none does. */
const struct support *support_find(const char *kernel, const struct attn_shape *s, int cc);

/* Set *fn to the function that runs the shape on the current GPU.  Fails as support_check() does, and
 * as gpu_current(). */
enum ar_status support_dispatch(support_fn **fn, const char *kernel, const struct attn_shape *s,
				struct ar_err *err);

#ifdef __cplusplus
}
#endif
#endif
