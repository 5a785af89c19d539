/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search of a threshold: at which value a method has a wanted figure, such as a recall.
 *
 *	threshold_init(&s, min, max, want, near);
 *	while (threshold_next(&s, &x))
 *		threshold_tell(&s, the figure measured at x, the cost of the method there);
 *
 * Both ends of the range are measured first.  If the wanted figure lies between theirs, the gap is
 * halved until a figure is near enough.  So the figure may rise or fall with the value.  Thresholds
 * of probabilities act near the lower end of their range, thresholds of masses near the upper end.
 * So the gap is halved in the log-odds of the place in the range.
 *
 * A share of a few prompts has steps: many values have the same figure.  With .least the search
 * does not end at such a value.  At one end of the gap the figure is at least the wanted one, at
 * the other it is less.  The gap is halved until it is small.  Then the search takes the cheapest
 * value whose figure is at least the wanted one.
 */
#ifndef AR_TUNE_THRESHOLD_H
#define AR_TUNE_THRESHOLD_H

#include <stdbool.h>

struct threshold_point {
	double value, figure;
	double cost; /* NaN: not known */
};

struct threshold {
	double min, max;   /* of the value */
	double want, near; /* the figure, and how near is near enough */
	bool least;	   /* at least the wanted figure; set it after threshold_init() */
	int steps;	   /* values measured so far */
	double asked;	   /* the value whose figure comes next */
	struct threshold_point lo, hi; /* the gap: one figure is below the wanted, the other not */
	struct threshold_point best;   /* nearest to the wanted figure so far */
	bool bends; /* a figure is not between its neighbours' figures; the search may have
		     * missed other values with the wanted figure */
};

/* min < max, near > 0. */
void threshold_init(struct threshold *t, double min, double max, double want, double near);

/* Return whether there is a value to measure, and set it.  It has few digits, so that its text
 * reads back as it. */
bool threshold_next(struct threshold *t, double *value);
/* figure NaN: there is none. */
void threshold_tell(struct threshold *t, double figure, double cost);

/* Whether the best figure is near enough. */
bool threshold_reached(const struct threshold *t);

/* Whether the wanted figure is beyond the figures at the ends of the range. */
bool threshold_beyond(const struct threshold *t);

#endif
