/* SPDX-License-Identifier: Apache-2.0 */
/* Count what decodes with piece lists would miss in hot buffers (hot_list.h) of several sizes.
 * Each request has a buffer for every layer, list and size.  The newest piece of a list is on the
 * GPU already: it takes no part. */
#ifndef AR_HOT_ROWS_H
#define AR_HOT_ROWS_H

#include "base/status.h"
#include "kernels/attn.h"

/* Of a layer: rows, and sums over their lists, in tokens. */
struct hot_count {
	int64_t rows, listed, missed;
};

struct hot_rows {
	const int64_t *size; /* [n_size] tokens of a buffer; borrowed */
	int n_size, n_layer;
	struct hot_count *count; /* [n_layer][n_size] */
	struct hot_buffers **of; /* [n_req] NULL: none yet */
	size_t n_req;
};

/* Release *h even after a failure. */
enum ar_status hot_rows_init(struct hot_rows *h, const int64_t *size, int n_size, int n_layer,
			     size_t n_req, struct ar_err *err);
void hot_rows_release(struct hot_rows *h);

/* Row pos of request req reads the n_list lists l in layer i of n_layer.  On the host. */
enum ar_status hot_rows_read(struct hot_rows *h, uint32_t req, int i, const struct piece_lists *l,
			     int n_list, int pos, struct ar_err *err);

/* The request ended or was preempted. */
void hot_rows_forget(struct hot_rows *h, uint32_t req);

static inline const struct hot_count *hot_rows_count(const struct hot_rows *h, int i, int size)
{
	return &h->count[i * h->n_size + size];
}

#endif
