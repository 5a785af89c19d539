/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The work of selectors that multiply rows by keys.  Rows and keys may be pooled or left out.  A
 * chunk has n rows, after which the request has len keys:
 *
 *   FLOPs  2 head_dim * heads * passes * products
 *   bytes  Q of the chunk; the keys, once a pass
 *
 * products: (row, key) pairs, of all rows, or of the last ones with all keys; divided by how many
 * rows and keys stand behind one.
 */
#ifndef AR_SELECT_WORK_H
#define AR_SELECT_WORK_H

#include "kernels/select/selector.h"

#ifdef __cplusplus
extern "C" {
#endif

enum selector_keys {
	SELECTOR_KEYS,	/* every key of the request, once a pass */
	SELECTOR_MEANS, /* a mean for each block and KV head, and the chunk's keys to make them */
	SELECTOR_GATE	/* the same, a vector for each block and query head */
};

/* A member that is 0: passes, row, key and share are 1, heads are the query heads. */
struct selector_form {
	enum selector_keys keys;
	int launches, passes;
	int last;      /* rows that are multiplied, from the chunk's end; 0: all */
	int row, key;  /* how many stand behind one product */
	double share;  /* of the products that are computed */
	int64_t heads; /* that multiply */
	int own;       /* rows at the end that each query head multiplies besides */
};

struct selector_work selector_products(const struct selector_form *f, const struct attn_shape *s,
				       const struct selector_chunk *c);

/* Of a selector that only looks at places: it has no products and is one launch. */
struct selector_work selector_places(const void *param, const struct attn_shape *s,
				     const struct selector_chunk *c);

#ifdef __cplusplus
}
#endif
#endif
