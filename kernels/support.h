/* SPDX-License-Identifier: Apache-2.0 */
/* The table of devices, sizes and layouts that each family of CUDA kernels runs.  It is asked
 * before anything is allocated. */
#ifndef AR_SUPPORT_H
#define AR_SUPPORT_H

#include <stdbool.h>

#include "base/status.h"
#include "kernels/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SUPPORT_ANY = 0 }; /* every size */

/* The function that runs a row.  It has the type of the function that calls support_dispatch() for
 * the family. */
typedef void support_fn(void);

/* A family has one row or more.  On a GPU it runs the sizes of all rows that name the GPU.  The
 * first row that has a size runs it.  Kernels that the build lacks have no row; a build without
 * CUDA has all rows, without functions. */
struct support {
	const char *kernel; /* the family: a selector, executor->kernel, "decode", "delta"... */
	int cc_min, cc_max; /* compute capability, 90 for 9.0; cc_max 0: no limit */
	unsigned head_dims; /* 64 | 128: sizes are powers of two, or SUPPORT_ANY */
	unsigned page_toks; /* likewise, tokens of a page */
	unsigned layouts;   /* of the cache: bits of cache_layouts, or SUPPORT_ANY */
	support_fn *fn;	    /* NULL: the family has one function, and no dispatcher */
	bool parts;	    /* attention: runs tiles in parts, see attn_batch.n_sm */
};
extern const struct support supports[]; /* ends with kernel == NULL */

/* Check that the kernels of this family run the shape, over a cache of this layout (NULL: kv-bf16),
 * on GPUs of compute capability cc; cc 0: on at least one GPU.  AR_USAGE: they do not; the message
 * lists the supported values. */
enum ar_status support_check(const char *kernel, const struct attn_shape *s,
			     const struct cache_layout *layout, int cc, struct ar_err *err);

/* The same with other rows than supports[]. */
enum ar_status support_check_in(const struct support *rows, const char *kernel,
				const struct attn_shape *s, const struct cache_layout *layout,
				int cc, struct ar_err *err);

/* The rows of a family together. */
struct support_sum {
	int cc_min; /* the least of all rows; 0: the family has none */
	bool found; /* a row is for GPUs of capability cc; the sizes come from such rows */
	unsigned head_dims, page_toks, layouts;
};
struct support_sum support_sum(const struct support *rows, const char *kernel, int cc);

/* Write "64, 128" for sizes of a row, and "kv-bf16" for its layouts; "any".  Return buf. */
const char *support_sizes(unsigned sizes, char *buf, size_t n);
const char *support_layouts(unsigned bits, char *buf, size_t n);

/* The row that runs the shape over this layout on GPUs of compute capability cc; cc 0: on any GPU.
 * NULL: none does. */
const struct support *support_find(const char *kernel, const struct attn_shape *s,
				   const struct cache_layout *layout, int cc);

/* Set *fn to the function that runs the shape over this layout on the current GPU.  Fails as
 * support_check() and gpu_current() do. */
enum ar_status support_dispatch(support_fn **fn, const char *kernel, const struct attn_shape *s,
				const struct cache_layout *layout, struct ar_err *err);

#ifdef __cplusplus
}
#endif
#endif
