/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/tune/threshold.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* More halvings than a gap of log-odds can have until its ends have equal digits. */
enum { STEPS = 32 };

/* The ends of the range have infinite log-odds; the search looks no nearer to them than this. */
static const double most_odds = 16;

/* With least, a gap of log-odds that is small: of two values near an end of the range, one is at
 * most 14 % farther from it.  Eight halvings reach it. */
static const double small_gap = 0.13;

void threshold_init(struct threshold *t, double min, double max, double want, double near)
{
	*t = (struct threshold){
		.min = min, .max = max, .want = want, .near = near, .best = { NAN, NAN, NAN }
	};
}

static double odds(const struct threshold *t, double value)
{
	double x = log((value - t->min) / (t->max - value));

	return fmin(fmax(x, -most_odds), most_odds);
}

/* To four digits of the distance to the nearer end. */
static double round_to(const struct threshold *t, double value)
{
	bool low = value - t->min < t->max - value;
	char text[32];
	double x;

	snprintf(text, sizeof text, "%.4g", low ? value - t->min : t->max - value);
	x = low ? t->min + strtod(text, NULL) : t->max - strtod(text, NULL);
	snprintf(text, sizeof text, "%.8g", x); /* as method_spell_with() writes it */
	return strtod(text, NULL);
}

static double middle(const struct threshold *t)
{
	double x = exp((odds(t, t->lo.value) + odds(t, t->hi.value)) / 2);

	return round_to(t, t->min + (t->max - t->min) * (x / (1 + x)));
}

static bool below(const struct threshold *t, const struct threshold_point *p)
{
	return t->least ? !(p->figure >= t->want - t->near) : p->figure <= t->want;
}

bool threshold_reached(const struct threshold *t)
{
	return t->least ? !below(t, &t->best) : fabs(t->best.figure - t->want) <= t->near;
}

static bool found(const struct threshold *t)
{
	return t->least ? odds(t, t->hi.value) - odds(t, t->lo.value) < small_gap :
			  threshold_reached(t);
}

bool threshold_beyond(const struct threshold *t)
{
	return t->steps == 2 && !threshold_reached(t) && below(t, &t->lo) == below(t, &t->hi);
}

bool threshold_next(struct threshold *t, double *value)
{
	if (t->steps >= 2 &&
	    (found(t) || below(t, &t->lo) == below(t, &t->hi) || t->steps == STEPS))
		return false;
	t->asked = t->steps == 0 ? t->min : t->steps == 1 ? t->max : middle(t);
	if (t->steps >= 2 && (t->asked <= t->lo.value || t->asked >= t->hi.value))
		return false;
	*value = t->asked;
	return true;
}

static bool better_threshold(const struct threshold *t, const struct threshold_point *p)
{
	const struct threshold_point *best = &t->best;
	double far = fabs(p->figure - t->want), least = fabs(best->figure - t->want);

	if (t->least && below(t, p) != below(t, best))
		return below(t, best);
	if (t->least && !below(t, p))
		return !(p->cost > best->cost);
	return !(least <= far) || (least == far && p->cost < best->cost);
}

void threshold_tell(struct threshold *t, double figure, double cost)
{
	const struct threshold_point p = { t->asked, figure, cost };
	double low = fmin(t->lo.figure, t->hi.figure), high = fmax(t->lo.figure, t->hi.figure);

	if (better_threshold(t, &p))
		t->best = p;
	if (t->steps >= 2)
		t->bends |= figure < low - t->near || figure > high + t->near;
	if (t->steps == 0 || (t->steps >= 2 && below(t, &p) == below(t, &t->lo)))
		t->lo = p;
	else
		t->hi = p;
	t->steps++;
}
