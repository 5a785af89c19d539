/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges of block ids that each prompt has all of, or nothing.  A trace has far fewer of them than
 * blocks. */
#ifndef AR_ID_RANGES_H
#define AR_ID_RANGES_H

#include "traces/trace.h"

/* Range i has the ids from[i] ... from[i + 1] - 1; the last one has no end. */
struct id_ranges {
	uint64_t *from;
	size_t n;
};

/* Find the ranges of t.  *r is owned by the caller. */
enum ar_status id_ranges_find(struct id_ranges *r, const struct trace *t, struct ar_err *err);
void id_ranges_release(struct id_ranges *r);

/* A walk over the ranges of a request, in order of its blocks.  Begin with t, r and q set. */
struct id_walk {
	const struct trace *t;
	const struct id_ranges *r;
	const struct request *q;
	size_t range; /* the current one: blocks [at, at + n) of the prompt */
	uint32_t at, n;
	uint32_t run; /* after the current one */
};

/* Go to the next range, at first to the first one.  False: there is none. */
bool id_walk_next(struct id_walk *w);

#endif
