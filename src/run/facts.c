/* SPDX-License-Identifier: Apache-2.0 */
/* What follows from the options and inputs of a run. */
#include "config.h"
#include "src/run/run.h"

bool run_needs_model(const struct run *r)
{
	return !r->session.backend || r->session.backend->needs_model;
}

bool run_is_left(const struct run *r, size_t i)
{
	return !r->session.o.resumed || !r->session.o.resumed->done[i];
}

int64_t run_longest_request(const struct run *r)
{
	int64_t max = 1;
	char why[160];

	for (size_t i = 0; i < r->in.trace->n; i++) {
		int64_t len = sched_goal(&r->in.limits, &r->in.trace->req[i]);

		if (len > max &&
		    !sched_rejects(&r->in.limits, &r->in.trace->req[i], why, sizeof why))
			max = len;
	}
	return max;
}
