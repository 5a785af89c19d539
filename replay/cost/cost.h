/* SPDX-License-Identifier: Apache-2.0 */
/* A cost model: it sets the cost of an iteration in place of the backend. */
#ifndef AR_COST_H
#define AR_COST_H

struct batch;
struct iter_cost;

struct cost {
	/* Set cost_ns of c, and source if it is no longer the backend's.  c: the backend's cost of
	 * batch b.  set is NULL if the costs of the backend stand. */
	void (*set)(const void *self, const struct batch *b, struct iter_cost *c);
	const void *self; /* borrowed, with all that it points to */
};

#endif
