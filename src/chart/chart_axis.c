/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges, places and ticks of axes. */
#include "config.h"
#include "src/chart/chart_item.h"

#include <math.h>

static const struct chart_axis *axis(const struct chart *c, int dim)
{
	return dim ? &c->spec->y : &c->spec->x;
}

static void reach(double v, const struct chart_axis *a, double *lo, double *hi)
{
	if (!isfinite(v))
		return;
	if (a->scale == CHART_LOG)
		v = fmax(v, a->least);
	*lo = fmin(*lo, v);
	*hi = fmax(*hi, v);
}

/* Where the last bar of a row ends; [from, to) is a panel. */
static double bar_end(const struct chart *c, size_t from, size_t to, size_t row)
{
	double sum = 0;

	for (size_t i = from; i < to; i++)
		if (c->item[i].geom == CHART_BAR && c->item[i].row == row)
			sum += c->item[i].x;
	return sum;
}

static void reach_item(const struct chart *c, int dim, size_t from, size_t to,
		       const struct chart_item *i, double *lo, double *hi)
{
	const struct chart_axis *a = axis(c, dim);
	double v = dim ? i->y : i->x;

	if (i->geom == CHART_BAR && !dim)
		v = bar_end(c, from, to, i->row);
	reach(v, a, lo, hi);
	if (i->geom == CHART_CELL)
		reach(v + 1, a, lo, hi);
	reach(dim ? i->y_lo : i->x_lo, a, lo, hi);
	reach(dim ? i->y_hi : i->x_hi, a, lo, hi);
}

/* 1, 2 or 5 times a power of ten: the least step that makes at most n of the span. */
static double step_of(double span, int n)
{
	double power = pow(10, floor(log10(span / n))), part = span / n / power;

	return power * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
}

/* Leave some room at the ends.  A linear y axis reaches to the next ticks, a linear x axis begins
 * at the least value. */
static void widen_range(struct chart_range *r, int dim)
{
	double step, room;

	if (r->scale == CHART_LOG) {
		room = fmax(0.02 * log10(r->hi / r->lo), 0.05);
		r->lo /= pow(10, room);
		r->hi *= pow(10, room);
		return;
	}
	if (!dim) {
		r->hi += 0.02 * (r->hi - r->lo);
		return;
	}
	step = step_of(r->hi - r->lo, 5);
	r->lo = floor(r->lo / step + 1e-9) * step;
	r->hi = ceil(r->hi / step - 1e-9) * step;
}

struct chart_range chart_range_of(const struct chart *c, int dim, size_t from, size_t to)
{
	const struct chart_axis *a = axis(c, dim);
	struct chart_range r = { a->scale, INFINITY, -INFINITY };

	for (size_t panel = from, end; panel < to; panel = end) {
		end = chart_panel_end(c, panel);
		for (size_t i = panel; i < end; i++)
			reach_item(c, dim, panel, end, &c->item[i], &r.lo, &r.hi);
	}
	if (a->scale == CHART_LINEAR && isfinite(a->least))
		reach(a->least, a, &r.lo, &r.hi);
	if (r.lo > r.hi)
		r.lo = r.hi = a->scale == CHART_LOG ? a->least : 0;
	if (r.lo >= r.hi)
		r.hi = r.lo > 0 ? 1.1 * r.lo : r.lo + 1;
	if (c->spec->geom != CHART_CELL)
		widen_range(&r, dim);
	return r;
}

double chart_place(const struct chart_range *r, double v)
{
	double p = r->scale == CHART_LOG ? (v > 0 ? log(v / r->lo) / log(r->hi / r->lo) : 0) :
					   (v - r->lo) / (r->hi - r->lo);

	return p < 0 ? 0 : p > 1 ? 1 : p;
}

double chart_rise(const struct plot *p, double y)
{
	double place = chart_place(&p->y, y);

	return p->c->spec->flags & CHART_DOWN ? place : 1 - place;
}

static int linear_ticks(const struct chart_range *r, int wanted, double at[CHART_TICKS_MAX])
{
	double step = step_of(r->hi - r->lo, wanted);
	int n = 0;

	for (double k = ceil(r->lo / step - 1e-9); n < CHART_TICKS_MAX; k++) {
		if (k * step > r->hi + 1e-9 * step)
			break;
		at[n++] = k * step;
	}
	return n;
}

/* Powers of ten; with 2 and 5 times them where these are few; within a decade as a linear axis. */
int chart_ticks(const struct chart_range *r, int wanted, double at[CHART_TICKS_MAX])
{
	static const double within[] = { 1, 2, 5 };
	double decades = r->scale == CHART_LOG ? log10(r->hi / r->lo) : 0;
	int n = 0, every = (int)fmax(1, ceil(decades / wanted - 1e-9));

	if (r->scale != CHART_LOG || decades < 0.8)
		return linear_ticks(r, wanted, at);
	for (int p = (int)floor(log10(r->lo)); p <= (int)ceil(log10(r->hi)); p++)
		for (int k = 0; k < (3 * decades <= 2 * wanted ? 3 : 1); k++) {
			double v = within[k] * pow(10, p);

			if (v >= r->lo && v <= r->hi && p % every == 0 && n < CHART_TICKS_MAX)
				at[n++] = v;
		}
	return n;
}

const char *chart_number(char *buf, size_t n, double v)
{
	double m = fabs(v);

	if (m < 1e-12)
		snprintf(buf, n, "0");
	else if (m >= 1e13 || m < 1e-4)
		snprintf(buf, n, "%.2g", v);
	else if (m >= 1e10)
		snprintf(buf, n, "%.4gG", v / 1e9);
	else if (m >= 1e7)
		snprintf(buf, n, "%.4gM", v / 1e6);
	else if (m >= 1e4)
		snprintf(buf, n, "%.4gk", v / 1e3);
	else
		snprintf(buf, n, "%.4g", v);
	return buf;
}
