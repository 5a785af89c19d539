/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/calibrate/plan_search.h"

#include <math.h>

/* Of two points as cheap, the one with more recall. */
static bool is_better(const struct plan_point *a, const struct plan_point *b)
{
	return a->density < b->density || (a->density == b->density && a->recall > b->recall);
}

size_t plan_cheapest(const struct plan_table *t, size_t layer, double recall)
{
	size_t best = 0;

	for (size_t i = 1; i < t->n_setting; i++)
		if (plan_at(t, layer, i)->recall >= recall &&
		    is_better(plan_at(t, layer, i), plan_at(t, layer, best)))
			best = i;
	return best;
}

size_t plan_cheapest_uniform(const struct plan_table *t, double recall)
{
	struct plan_point least = plan_mean_uniform(t, 0);
	size_t best = 0;

	for (size_t i = 1; i < t->n_setting; i++) {
		struct plan_point x = plan_mean_uniform(t, i);

		if (x.recall >= recall && is_better(&x, &least)) {
			least = x;
			best = i;
		}
	}
	return best;
}

static void sum_point(struct plan_point *mean, const struct plan_point *x, size_t n)
{
	mean->density += x->density / (double)n;
	mean->recall += x->recall / (double)n;
	mean->selected += x->selected / (double)n;
	mean->rel_l2 += x->rel_l2 / (double)n;
}

struct plan_point plan_mean(const struct plan_table *t, const size_t *choice)
{
	struct plan_point mean = { 0 };

	for (size_t l = 0; l < t->n_layer; l++)
		sum_point(&mean, plan_at(t, l, choice[l]), t->n_layer);
	return mean;
}

struct plan_point plan_mean_uniform(const struct plan_table *t, size_t setting)
{
	struct plan_point mean = { 0 };

	for (size_t l = 0; l < t->n_layer; l++)
		sum_point(&mean, plan_at(t, l, setting), t->n_layer);
	return mean;
}

/* Density saved for each recall lost; infinite if none is lost. */
static double worth(const struct plan_point *from, const struct plan_point *to)
{
	return to->recall >= from->recall ?
		       INFINITY :
		       (from->density - to->density) / (from->recall - to->recall);
}

bool plan_step(const struct plan_table *t, double recall, size_t *choice)
{
	double spare = (plan_mean(t, choice).recall - recall) * (double)t->n_layer;
	double best = 0, most = 0;
	size_t layer = 0, setting = 0;

	for (size_t l = 0; l < t->n_layer; l++)
		for (size_t i = 0; i < t->n_setting; i++) {
			const struct plan_point *now = plan_at(t, l, choice[l]);
			const struct plan_point *to = plan_at(t, l, i);
			double saved = now->density - to->density, x = worth(now, to);

			if (saved <= 0 || now->recall - to->recall > spare || x < best ||
			    (x == best && saved <= most))
				continue;
			best = x;
			most = saved;
			layer = l;
			setting = i;
		}
	if (most > 0)
		choice[layer] = setting;
	return most > 0;
}

/* Take all steps from one setting in all layers. */
static struct plan_point walk(const struct plan_table *t, double recall, size_t from,
			      size_t *choice)
{
	for (size_t l = 0; l < t->n_layer; l++)
		choice[l] = from;
	while (plan_step(t, recall, choice))
		;
	return plan_mean(t, choice);
}

struct plan_point plan_greedy(const struct plan_table *t, double recall, size_t *choice)
{
	size_t uniform = plan_cheapest_uniform(t, recall);
	struct plan_point from_uniform = walk(t, recall, uniform, choice);
	struct plan_point from_dense = walk(t, recall, 0, choice);

	return is_better(&from_uniform, &from_dense) ? walk(t, recall, uniform, choice) :
						       from_dense;
}
