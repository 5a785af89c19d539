/* SPDX-License-Identifier: Apache-2.0 */
/* Spans: rows of request_span, made from the entries of batches.  A decoding request runs one token
 * per iteration.  While each of its entries follows from the previous one, one span holds them
 * all. */
#ifndef AR_STORE_SPANS_H
#define AR_STORE_SPANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "profiler/store/store.h"

/* Most iterations of a span.  columns.def and views.sql repeat the number. */
enum { SPAN_MAX = 256 };

struct request_span {
	struct store_entry first;
	int64_t iter_no;      /* of first; one entry in each iteration from there */
	uint32_t n, n_stored; /* entries, and how many are in the database */
};

struct request_spans {
	struct request_span *span; /* in order of iter_no */
	size_t n, cap;
	uint32_t *last; /* [cap_last] by request: index of its last span + 1, or 0 */
	size_t cap_last;
};

/* Add an entry.  Calls come in order of iterations, at most one per request and iteration.  False:
 * no memory. */
bool spans_add(struct request_spans *s, int64_t iter_no, const struct store_entry *e);
/* Mark all spans as stored.  Forget spans that end before iteration iter_no: they cannot grow. */
void spans_stored(struct request_spans *s, int64_t iter_no);
void spans_clear(struct request_spans *s);
void spans_release(struct request_spans *s);

#endif
