/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the files of the chart module share. */
#ifndef AR_CHART_ITEM_H
#define AR_CHART_ITEM_H

#include "src/chart/chart.h"

/* A mark with indexes in place of names.  Sorted by panel, series, geometry and order. */
struct chart_item {
	size_t panel, series, row, order;
	char *title;
	enum chart_geom geom;
	int style;
	double x, y, x_lo, x_hi, y_lo, y_hi, value;
	bool hatch, ring, hidden;
};

/* One past the items of i's panel, series and geometry; or of its panel. */
size_t chart_series_end(const struct chart *c, size_t i);
size_t chart_panel_end(const struct chart *c, size_t i);

/* ---- thinning ---- */

/* Hide marks of the panel of items [from, to) until about CHART_PANEL_MAX are left. */
void chart_thin(struct chart *c, size_t from, size_t to);

/* ---- axes ---- */

struct chart_range {
	enum chart_scale scale;
	double lo, hi; /* of values; lo < hi */
};

/* The range of x (dim 0) or y (dim 1) of items [from, to).  Reaches to round numbers. */
struct chart_range chart_range_of(const struct chart *c, int dim, size_t from, size_t to);

/* Where v is in the range, 0 ... 1; values outside are at the edge. */
double chart_place(const struct chart_range *r, double v);

/* Ticks: write at most n values to at, ascending; returns their number. */
enum { CHART_TICKS_MAX = 48 };
int chart_ticks(const struct chart_range *r, int wanted, double at[CHART_TICKS_MAX]);

/* Format v for a tick or a title: three or four digits, with k, M or G from 10000 on. */
const char *chart_number(char *buf, size_t n, double v);

/* ---- drawing ---- */

enum {
	CHART_ROW_TEXT = 15,
	CHART_BAR_HEIGHT = 16,
	CHART_LANE = 8, /* height of a row without a name */
};

/* A panel being drawn: items [from, to) in a plot of this size. */
struct plot {
	const struct chart *c;
	size_t from, to;
	double left, top, width, height;
	struct chart_range x, y;
	FILE *f;
};

/* Where y is in the plot, 0 at its top ... 1 at its bottom. */
double chart_rise(const struct plot *p, double y);

/* Draw the panel of items [from, to) at (x, y). */
void chart_put_panel(const struct chart *c, size_t from, size_t to, double x, double y, FILE *f);
double chart_panel_width(const struct chart *c);
double chart_panel_height(const struct chart *c, size_t from, size_t to);

/* Height of a row: its name, and a bar or as many as there are series. */
double chart_row_height(const struct chart *c);
bool chart_in_rows(const struct chart *c);
void chart_put_marks(const struct plot *p);
void chart_put_cells(const struct plot *p);

int chart_colour(int style);
/* The marker of a style, centred at (x, y); class: more classes. */
void chart_marker(int style, double x, double y, double scale, bool ring, FILE *f);
/* Classes of colour and dash of a style. */
void chart_put_class(int style, FILE *f);
/* The sample of item i in a legend, 28 wide and 14 high. */
void chart_swatch(const struct chart_item *i, double x, double y, FILE *f);

#endif
