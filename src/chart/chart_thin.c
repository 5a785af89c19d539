/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fewer marks of a panel.  Its series share CHART_PANEL_MAX.  Short series are whole; the longer
 * ones share the rest.
 *
 * A line keeps its first and last mark, and one mark of each bucket between the two.  It is the
 * mark of the largest triangle with the mark kept before and the mean of the next bucket.  See
 * Steinarsson, "Downsampling Time Series for Visual Representation", 2013.
 */
#include "config.h"
#include "src/chart/chart_item.h"

#include <math.h>

enum { LEAST = 8 }; /* of a series, however many share the panel */

/* First item of bucket b of n_bucket, which share [1, n - 1). */
static size_t bucket(size_t b, size_t n_bucket, size_t n)
{
	return 1 + b * (n - 2) / n_bucket;
}

static void mean_place(const struct chart_item *item, size_t from, size_t to, double *x, double *y)
{
	*x = *y = 0;
	for (size_t i = from; i < to; i++) {
		*x += item[i].x / (double)(to - from);
		*y += item[i].y / (double)(to - from);
	}
}

/* Keep one item of [from, to): the one of the largest triangle. */
static const struct chart_item *keep_largest(struct chart_item *item, size_t from, size_t to,
					     const struct chart_item *before, double x, double y)
{
	double most = -1;
	size_t best = from;

	for (size_t i = from; i < to; i++) {
		double area = fabs((before->x - x) * (item[i].y - before->y) -
				   (before->x - item[i].x) * (y - before->y));

		item[i].hidden = true;
		if (area > most) {
			most = area;
			best = i;
		}
	}
	item[best].hidden = false;
	return &item[best];
}

static size_t thin_line(struct chart_item *item, size_t n, size_t most)
{
	const struct chart_item *before = item;
	const size_t n_bucket = most - 2;
	double x, y;

	for (size_t b = 0; b < n_bucket; b++) {
		size_t from = bucket(b, n_bucket, n), to = bucket(b + 1, n_bucket, n);
		size_t next = b + 1 < n_bucket ? bucket(b + 2, n_bucket, n) : n;

		mean_place(item, to, next, &x, &y);
		before = keep_largest(item, from, to, before, x, y);
	}
	return n - most;
}

static size_t thin_points(struct chart_item *item, size_t n, size_t most)
{
	size_t every = (n + most - 1) / most, hidden = 0;

	for (size_t i = 0; i < n; i++) {
		item[i].hidden = i % every && !item[i].ring;
		hidden += item[i].hidden;
	}
	return hidden;
}

static bool can_thin(const struct chart_item *i)
{
	return i->geom <= CHART_STEPS;
}

/* Count the marks of the panel's series [from, to), at most `most` of each series. */
static size_t count_marks(const struct chart *c, size_t from, size_t to, size_t most)
{
	size_t n = 0;

	for (size_t i = from, end; i < to; i = end) {
		end = chart_series_end(c, i);
		if (can_thin(&c->item[i]))
			n += end - i < most ? end - i : most;
	}
	return n;
}

void chart_thin(struct chart *c, size_t from, size_t to)
{
	size_t most = CHART_POINTS_MAX;

	while (most > LEAST && count_marks(c, from, to, most) > CHART_PANEL_MAX)
		most--;
	for (size_t i = from, end; i < to; i = end) {
		end = chart_series_end(c, i);
		if (!can_thin(&c->item[i]) || end - i <= most)
			continue;
		c->hidden += c->item[i].geom == CHART_POINT ?
				     thin_points(c->item + i, end - i, most) :
				     thin_line(c->item + i, end - i, most);
		c->most = most < c->most || !c->most ? most : c->most;
	}
}
