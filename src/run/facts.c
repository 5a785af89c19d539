/* SPDX-License-Identifier: Apache-2.0 */
/* Facts that follow from the options and inputs of a run. */
#include "config.h"
#include "src/run/run.h"

bool run_needs_model(const struct run_session *s)
{
	return !s->backend || s->backend->needs_model;
}

bool run_is_left(const struct run_options *o, size_t i)
{
	return !o->resumed || !o->resumed->done[i];
}

const struct plugin *run_plugin(const struct run_inputs *in, size_t i)
{
	return in->plan ? plan_plugin(in->plan[i]) : NULL;
}

int64_t run_longest_request(const struct run_inputs *in)
{
	int64_t max = 1;
	char why[160];

	for (size_t i = 0; i < in->trace->n; i++) {
		int64_t len = sched_goal(&in->limits, &in->trace->req[i]);

		if (len > max && !sched_rejects(&in->limits, &in->trace->req[i], why, sizeof why))
			max = len;
	}
	return max;
}
