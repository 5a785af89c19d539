/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The work of a selector in one layer, for one chunk of n rows, after which the request has len
 * keys.  A selector multiplies rows by keys, some of them pooled or left out:
 *
 *   FLOPs  2 head_dim * heads * passes * products
 *   bytes  Q of the chunk; the keys, once a pass; the mask
 *
 * products: (row, key) pairs, of all rows, or of the last ones with all keys; divided by how many
 * rows and keys stand behind one.  A selector without products writes its mask only.
 */
#ifndef AR_ROOFLINE_SELECT_H
#define AR_ROOFLINE_SELECT_H

#include "replay/cost/roofline.h"

/* Add the work of m's selector for entry e to *w; its launches are set, not added. */
void roofline_select(const struct roofline_subject *s, const struct layer_spec *l,
		     const struct batch_entry *e, struct roofline_work *w);

/* Bytes of the mask of e: a bit for each block of each query block and head. */
double roofline_mask_bytes(const struct roofline_subject *s, const struct layer_spec *l,
			   const struct batch_entry *e);

#endif
