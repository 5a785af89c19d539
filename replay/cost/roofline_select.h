/* SPDX-License-Identifier: Apache-2.0 */
/* The work of the method's selector in one layer: the work that its descriptor counts
 * (selector.work), and the mask that it writes. */
#ifndef AR_ROOFLINE_SELECT_H
#define AR_ROOFLINE_SELECT_H

#include "replay/cost/roofline.h"

/* Add the work of the selector for entry e to *w; its launches are set, not added. */
void roofline_select(const struct roofline_subject *s, const struct layer_spec *l,
		     const struct batch_entry *e, struct roofline_work *w);

/* Add the work of the selector of decodes for entry e, one row, and of its pruner to *w, as above.
 * The decodes of the method are not dense.
 * Returns the keys that attention reads for a KV head: those of the longest list that there may be,
 * before a pruner. */
double roofline_listed(const struct roofline_subject *s, const struct layer_spec *l,
		       const struct batch_entry *e, struct roofline_work *w);

/* Add the work of making the states of decodes for n rows to *w. */
void roofline_meta(const struct roofline_subject *s, const struct layer_spec *l, double n,
		   struct roofline_work *w);

/* Bytes of the mask of e: a bit for each block of each query block and head. */
double roofline_mask_bytes(const struct roofline_subject *s, const struct layer_spec *l,
			   const struct batch_entry *e);

#endif
