/* SPDX-License-Identifier: Apache-2.0 */
/* The figures that methods can be tuned to. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "src/tune/tune.h"

#define FIGURE(name) offsetof(struct tune_figures, name)

const struct tune_target tune_targets[] = {
	{ .name = "recall",
	  .title = "share of the attention mass that the method's keys hold",
	  .figure = FIGURE(recall),
	  .max = 1,
	  .near = 0.002,
	  .measure = tune_measure_captures },
	{ .name = "rel-l2",
	  .title = "relative L2 distance of the output to that of dense attention",
	  .figure = FIGURE(rel_l2),
	  .max = 2,
	  .near = 0.002,
	  .measure = tune_measure_captures },
	{ .name = "density",
	  .title = "share of the (query, key) pairs that the method computes",
	  .figure = FIGURE(executed),
	  .max = 1,
	  .near = 0.002,
	  .measure = tune_measure_captures },
	{ 0 },
};

static enum ar_status unknown(const char *text, struct ar_err *err)
{
	char names[128] = "";
	size_t n = 0;

	for (const struct tune_target *t = tune_targets; t->name && n < sizeof names; t++)
		n += (size_t)snprintf(names + n, sizeof names - n, "%s%s=X", n ? ", " : "",
				      t->name);
	return ar_fail(err, AR_USAGE, "target '%.60s': want one of %s", text, names);
}

enum ar_status tune_goal_parse(struct tune_goal *g, const char *text, double near,
			       struct ar_err *err)
{
	const size_t n = strcspn(text, "=");
	const struct tune_target *t = tune_targets;

	while (t->name && (strncmp(t->name, text, n) || t->name[n]))
		t++;
	if (!t->name || !text[n])
		return unknown(text, err);
	*g = (struct tune_goal){ .target = t, .near = near > 0 ? near : t->near };
	if (!num_real(text + n + 1, &g->want) || !(g->want >= t->min && g->want <= t->max))
		return ar_fail(err, AR_USAGE, "target '%.60s': want a number from %g to %g", text,
			       t->min, t->max);
	return AR_OK;
}

double tune_figure(const struct tune_goal *g, const struct tune_figures *f)
{
	return *(const double *)((const char *)f + g->target->figure);
}
