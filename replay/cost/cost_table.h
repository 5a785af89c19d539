/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measured iterations as a table of costs.
 *
 * A batch whose shape was measured costs what was measured; measured several times, the costs are
 * handed out in that order, and the last one from then on.  So a schedule that repeats the measured
 * one gets the measured costs back, each in its place.
 *
 * Any other batch costs what a trend says, corrected by what the trend misses at the batches
 * measured nearest to it.  The trend is linear in the features, its coefficients none below 0 (more
 * work never costs less), fitted to least squares of the relative error.  Nearness counts doublings
 * of what each feature adds to the trend: 500 tokens are as far from 1000 as 8000 from 16000, and
 * what hardly costs anything hardly counts.
 *
 * Everything is exact arithmetic or IEEE operations in a fixed order: the same table gives the same
 * costs on every machine.
 */
#ifndef AR_COST_TABLE_H
#define AR_COST_TABLE_H

#include "replay/engine/backend.h"

struct cost_table;

#define COST_MOST_NS 1000000000000000	/* eleven days: no cost and no feature is larger */

enum ar_status cost_table_create(struct cost_table **out, struct ar_err *err);
void cost_table_destroy(struct cost_table *t);	/* NULL is fine */

/* In the order of measurement.  Cost and features are 0 to COST_MOST_NS. */
enum ar_status cost_table_add(struct cost_table *t, const struct batch_shape *s, int64_t cost_ns,
			      struct ar_err *err);
/* Once, after the last one and before any cost; there is one at least. */
enum ar_status cost_table_build(struct cost_table *t, struct ar_err *err);

/* What a batch costs, and how that is known; COST_EXTRAPOLATED where a feature is outside of what
 * was measured, and *outside is then the first such feature. */
enum cost_source cost_table_find(struct cost_table *t, const struct batch_shape *s,
				 int64_t *cost_ns, int *outside);

size_t cost_table_size(const struct cost_table *t);	/* iterations */
/* The measured range of a feature. */
void cost_table_range(const struct cost_table *t, int feature, int64_t *min, int64_t *max);

#endif
