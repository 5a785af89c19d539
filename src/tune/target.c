/* SPDX-License-Identifier: Apache-2.0 */
/* The figures that methods can be tuned to. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "src/tune/tune.h"

#define FIGURE(name) offsetof(struct tune_figures, name)

const struct tune_figures tune_unknown = {
#define X(name, key, heading) .name = NAN,
	TUNE_FIGURES(X)
#undef X
};

const struct tune_target tune_targets[] = {
	{ .name = "recall",
	  .title = "share of the attention mass that the method's keys hold",
	  .figure = FIGURE(recall),
	  .max = 1,
	  .near = 0.002,
	  .sample = TUNE_CAPTURES,
	  .measure = tune_measure_captures },
	{ .name = "rel-l2",
	  .title = "relative L2 distance of the output to that of dense attention",
	  .figure = FIGURE(rel_l2),
	  .max = 2,
	  .near = 0.002,
	  .sample = TUNE_CAPTURES,
	  .measure = tune_measure_captures },
	{ .name = "density",
	  .title = "share of the (query, key) pairs that the method computes",
	  .figure = FIGURE(executed),
	  .max = 1,
	  .near = 0.002,
	  .sample = TUNE_CAPTURES,
	  .measure = tune_measure_captures },
	{ .name = "logprob",
	  .title = "log-probability of a token of the answer, less that with dense attention",
	  .figure = FIGURE(logprob),
	  .min = -20,
	  .near = 0.002,
	  .sample = TUNE_PROMPTS,
	  .measure = tune_measure_prompts },
	{ .name = "exact",
	  .title = "share of the prompts that are answered exactly, at least",
	  .figure = FIGURE(exact),
	  .max = 1,
	  .near = 0.0005,
	  .least = true,
	  .sample = TUNE_PROMPTS,
	  .measure = tune_measure_prompts },
	{ 0 },
};

static enum ar_status unknown_target(const char *text, unsigned samples, struct ar_err *err)
{
	char names[128] = "";
	size_t n = 0;

	for (const struct tune_target *t = tune_targets; t->name && n < sizeof names; t++)
		if (t->sample & samples)
			n += (size_t)snprintf(names + n, sizeof names - n, "%s%s=X", n ? ", " : "",
					      t->name);
	return ar_fail(err, AR_USAGE, "target '%.60s': want one of %s", text, names);
}

enum ar_status tune_goal_parse(struct tune_goal *g, const char *text, unsigned samples, double near,
			       struct ar_err *err)
{
	const size_t n = strcspn(text, "=");
	const struct tune_target *t = tune_targets;

	while (t->name && (strncmp(t->name, text, n) || t->name[n]))
		t++;
	if (!t->name || !(t->sample & samples) || !text[n])
		return unknown_target(text, samples, err);
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
