/* SPDX-License-Identifier: Apache-2.0 */
/* Entries of batches on their way into request_span.  A request that decodes runs one token in
 * iteration after iteration: as long as each of its entries follows from the one before, a span
 * holds them all, and is one row of the database. */
#ifndef AR_STORE_SPANS_H
#define AR_STORE_SPANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "profiler/store/store.h"

/* The schema knows it, too: an entry's span begins less than so many iterations before it. */
enum { SPAN_MAX = 256 };

struct request_span {
	struct store_entry first;
	int64_t iter_no;		/* of the first; the others follow without a gap */
	uint32_t n, n_stored;		/* entries; as many are in the database */
};

struct request_spans {
	struct request_span *span;		/* by iter_no */
	size_t n, cap;
	uint32_t *last;			/* of each request: the place of its last span + 1, or 0 */
	size_t n_req;
};

/* Iterations come in order, with at most one entry of a request in each.  False: no memory. */
bool spans_add(struct request_spans *s, int64_t iter_no, const struct store_entry *e);
/* All are stored; forget those that end before iteration iter_no and so will not grow. */
void spans_stored(struct request_spans *s, int64_t iter_no);
void spans_clear(struct request_spans *s);
void spans_release(struct request_spans *s);

#endif
