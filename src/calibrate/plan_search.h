/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of a setting for each layer: the least density at a given recall. */
#ifndef AR_PLAN_SEARCH_H
#define AR_PLAN_SEARCH_H

#include <stdbool.h>
#include <stddef.h>

/* A setting measured in a layer. */
struct plan_point {
	double density;	 /* share of the (query, key) pairs that it computes */
	double recall;	 /* share of the attention that these pairs hold */
	double selected; /* share of the blocks or tokens before the chunk that the selector keeps;
			  * NaN: there are none */
	double rel_l2;	 /* relative L2 distance of the output to dense attention */
};

/* Points of each setting in each layer.  Setting 0 is dense. */
struct plan_table {
	size_t n_layer, n_setting;
	struct plan_point *at; /* [n_layer][n_setting] */
};

static inline const struct plan_point *plan_at(const struct plan_table *t, size_t layer,
					       size_t setting)
{
	return &t->at[layer * t->n_setting + setting];
}

/* The cheapest setting of a layer: of the settings with at least this recall, the one of least
 * density. */
size_t plan_cheapest(const struct plan_table *t, size_t layer, double recall);

/* The same for one setting in all layers, by means over the layers. */
size_t plan_cheapest_uniform(const struct plan_table *t, double recall);

/* Means over the layers; choice: [n_layer] settings. */
struct plan_point plan_mean(const struct plan_table *t, const size_t *choice);
struct plan_point plan_mean_uniform(const struct plan_table *t, size_t setting);

/* Change the setting of one layer, so that the mean recall stays at or above recall.  Of all such
 * changes take the one that saves the most density per recall lost.  False: there is none. */
bool plan_step(const struct plan_table *t, double recall, size_t *choice);

/* Search a setting for each layer.  Take steps until none is left, once from dense layers and once
 * from plan_cheapest_uniform().  choice: [n_layer], gets the cheaper result.  Returns its means. */
struct plan_point plan_greedy(const struct plan_table *t, double recall, size_t *choice);

#endif
