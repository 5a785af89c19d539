/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table of the costs of measured iterations.
 *
 * A batch whose shape was measured gets its measured cost.  If it was measured several times, it
 * gets the costs in the order of measurement, then always the last one.  So a schedule that repeats
 * the measured one gets each measured cost in its place.
 *
 * Any other batch gets the cost of a trend plus a residual: the trend's mean residual at the
 * nearest measured batches.  The trend is linear in the features, with coefficients >= 0 (more work
 * never costs less).  It is fitted by least squares of the relative error.  Distance counts
 * doublings of the part of the trend that each feature adds: 500 tokens are as far from 1000 as
 * 8000 from 16000, and a feature that costs little counts little.  The longest decode is a feature
 * of batches with prefill rows alone.
 *
 * All arithmetic is exact, or IEEE operations in a fixed order: the same table gives the same costs
 * on every machine.
 */
#ifndef AR_COST_TABLE_H
#define AR_COST_TABLE_H

#include "replay/engine/backend.h"

struct cost_table;

#define COST_MOST_NS 1000000000000000 /* eleven days: no cost and no feature is larger */

enum ar_status cost_table_create(struct cost_table **out, struct ar_err *err);
void cost_table_destroy(struct cost_table *t); /* NULL is fine */

/* Add an iteration, in the order of measurement.  Cost and features are 0 to COST_MOST_NS. */
enum ar_status cost_table_add(struct cost_table *t, const struct batch_shape *s, int64_t cost_ns,
			      struct ar_err *err);
/* Fit the table.  Called once, between the last cost_table_add(), of at least one, and the first
 * cost_table_find(). */
enum ar_status cost_table_build(struct cost_table *t, struct ar_err *err);

/* The cost of a batch of a shape.  Returns its source.  COST_EXTRAPOLATED: a feature is outside of
 * the measured range; *outside is the first such feature. */
enum cost_source cost_table_find(struct cost_table *t, const struct batch_shape *shape,
				 int64_t *cost_ns, int *outside);
/* How far a shape lies outside of the measured range, in doublings as distances above; the sum over
 * features.  0: within. */
double cost_table_beyond(const struct cost_table *t, const struct batch_shape *shape);
/* Begin a run: shapes that were measured several times give their first cost again. */
void cost_table_rewind(struct cost_table *t);

size_t cost_table_size(const struct cost_table *t); /* iterations */
/* The measured range of a feature. */
void cost_table_range(const struct cost_table *t, int feature, int64_t *min, int64_t *max);

#endif
