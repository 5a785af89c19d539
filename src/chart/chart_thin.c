/* SPDX-License-Identifier: Apache-2.0 */
/* Fewer marks of a series.  A line keeps its first and last mark; each bucket between them keeps the
 * mark that spans the largest triangle with the mark kept before and the mean of the next bucket
 * (Steinarsson, "Downsampling Time Series for Visual Representation", 2013). */
#include "config.h"
#include "src/chart/chart_item.h"

#include <math.h>

enum { BUCKETS = CHART_POINTS_MAX - 2 };

/* First item of bucket b; the buckets share [1, n - 1). */
static size_t bucket(size_t b, size_t n)
{
	return 1 + b * (n - 2) / BUCKETS;
}

static void mean(const struct chart_item *item, size_t from, size_t to, double *x, double *y)
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

static size_t thin_line(struct chart_item *item, size_t n)
{
	const struct chart_item *before = item;
	double x, y;

	for (size_t b = 0; b < BUCKETS; b++) {
		size_t next = b + 1 < BUCKETS ? bucket(b + 2, n) : n;

		mean(item, bucket(b + 1, n), next, &x, &y);
		before = keep_largest(item, bucket(b, n), bucket(b + 1, n), before, x, y);
	}
	return n - CHART_POINTS_MAX;
}

static size_t thin_points(struct chart_item *item, size_t n)
{
	size_t every = (n + CHART_POINTS_MAX - 1) / CHART_POINTS_MAX, hidden = 0;

	for (size_t i = 0; i < n; i++) {
		item[i].hidden = i % every && !item[i].ring;
		hidden += item[i].hidden;
	}
	return hidden;
}

size_t chart_thin(struct chart_item *item, size_t n)
{
	if (n <= CHART_POINTS_MAX)
		return 0;
	return item->geom == CHART_POINT ? thin_points(item, n) : thin_line(item, n);
}
