/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges begin where a run of a request begins, and after its end. */
#include "config.h"
#include "traces/algebra/id_ranges.h"

#include <stdlib.h>

#include "base/order.h"

enum ar_status id_ranges_find(struct id_ranges *r, const struct trace *t, struct ar_err *err)
{
	uint64_t *from = malloc((2 * t->n_run + 1) * sizeof *from);
	size_t n = 0, distinct = 0;

	*r = (struct id_ranges){ .from = from };
	if (!from)
		return ar_nomem(err);
	for (size_t i = 0; i < t->n; i++)
		for (uint32_t k = 0; k < t->req[i].n_run; k++) {
			const struct request *q = &t->req[i];
			const struct block_run *run = &t->run[q->run + k];

			from[n++] = run->id;
			from[n++] = run->id + (trace_run_end(t, q, k) - run->at);
		}
	qsort(from, n, sizeof *from, order_u64);
	for (size_t i = 0; i < n; i++)
		if (!i || from[i] != from[distinct - 1])
			from[distinct++] = from[i];
	r->n = distinct;
	return AR_OK;
}

void id_ranges_release(struct id_ranges *r)
{
	free(r->from);
	r->from = NULL;
}

/* The range that begins with id. */
static size_t range_from(const struct id_ranges *r, uint64_t id)
{
	size_t lo = 0, hi = r->n;

	while (hi - lo > 1) {
		size_t mid = lo + (hi - lo) / 2;

		*(r->from[mid] <= id ? &lo : &hi) = mid;
	}
	return lo;
}

bool id_walk_next(struct id_walk *w)
{
	const struct id_ranges *r = w->r;
	uint64_t n = UINT64_MAX;
	uint32_t end;

	w->at += w->n;
	if (w->at == w->q->n_block)
		return false;
	if (!w->run || w->at == trace_run_end(w->t, w->q, w->run - 1))
		w->range = range_from(r, w->t->run[w->q->run + w->run++].id);
	else
		w->range++;
	end = trace_run_end(w->t, w->q, w->run - 1);
	if (w->range + 1 < r->n)
		n = r->from[w->range + 1] - r->from[w->range];
	w->n = n < end - w->at ? (uint32_t)n : end - w->at;
	return true;
}
