/* SPDX-License-Identifier: Apache-2.0 */
/* Charts as SVG.  Marks are added one by one; then a chart is drawn into an HTML page or as a file
 * of its own.  Colours come from CSS classes, so that light, dark and print are matters of
 * style.sheet.  No meaning is in a colour alone: a style has its own marker and dash as well. */
#ifndef AR_CHART_H
#define AR_CHART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/status.h"

enum chart_geom {
	CHART_POINT, /* a marker at (x, y), with bars from lo to hi */
	CHART_LINE,  /* marks of a series, joined in the order of adding; y NaN breaks it */
	CHART_STEPS, /* the same, level up to the next x */
	CHART_BAR,   /* bars of a row one after another, each x long */
	CHART_GROUP, /* bars of a row one below another */
	CHART_SPAN,  /* a box in its row, from x_lo to x_hi */
	CHART_CELL,  /* a square of a heat map at column x and line y; the greatest value of
		      * all panels is the strongest */
	CHART_RULE,  /* a line across the panel at x, or if x is NaN at y */
	CHART_GEOMS,
};
extern const char *const chart_geoms[CHART_GEOMS + 1]; /* names, ended by NULL */

enum chart_scale { CHART_LINEAR, CHART_LOG, CHART_ROWS };

struct chart_axis {
	const char *title;
	enum chart_scale scale; /* ROWS: y only; the names of rows stand in the panel */
	double least;		/* LOG: smaller values are drawn here; LINEAR: begin here, NaN: at
				 * the smallest value */
};

enum chart_flag {
	CHART_FREE_X = 1, /* each panel has its own x axis; else all have the same */
	CHART_FREE_Y = 2, /* the same for y */
	CHART_WIDE = 4,	  /* panels as wide as the page, one below another */
	CHART_LOW = 8,	  /* panels of a third of the height; rows without names */
	CHART_ZOOM = 16,  /* the page's script may zoom in x */
	CHART_DOWN = 32,  /* y grows downwards */
};

struct chart_spec {
	enum chart_geom geom;
	struct chart_axis x, y;
	unsigned flags;
};

/* Texts are copied; NULL is "".  Numbers that a geometry does not use are NaN. */
struct chart_mark {
	const char *panel, *series, *row;
	const char *title; /* shown for the mark, "": series and numbers */
	enum chart_geom geom;
	int style; /* see CHART_TURN */
	double x, y, x_lo, x_hi, y_lo, y_hi, value;
	bool hatch, ring;
};

struct chart {
	const struct chart_spec *spec;
	struct chart_names {
		char **name;
		size_t n, cap;
	} panel, row, series;
	struct chart_item *item;
	size_t n, cap;
	size_t hidden; /* marks that are not drawn, so that the page stays small */
	size_t most;   /* the most that are drawn of a series that has more; 0: all are drawn */
};

/* Begin an empty chart; spec must outlive it. */
void chart_init(struct chart *c, const struct chart_spec *spec);
void chart_release(struct chart *c); /* may be called twice */
enum ar_status chart_add(struct chart *c, const struct chart_mark *m, struct ar_err *err);

/* Most marks that are drawn of a series in a panel, and of all series in it.  Lines keep their
 * shape (largest triangles, three buckets), of points every n-th is kept.  Bars, spans and cells
 * are all drawn. */
enum { CHART_POINTS_MAX = 600, CHART_PANEL_MAX = 2000 };

/* End adding: sort the marks and hide marks above these limits.  Call it once, before drawing. */
void chart_finish(struct chart *c);

/* Keep the marks of the first panel alone, after chart_finish(). */
void chart_keep_first(struct chart *c);

/* Number of marks that are drawn one by one, each with a title: all but the marks of lines. */
size_t chart_n_single(const struct chart *c);

/* Draw into a page that has chart_css and chart_defs. */
void chart_put_html(const struct chart *c, FILE *f);
/* Draw n charts as a file: one SVG with its own style, two panels side by side, and the legend of
 * the first chart. */
void chart_put_svg(const struct chart *c, size_t n, FILE *f);

/* ---- parts, for drawings of another layout ---- */

/* A style is a colour, 0 ... CHART_TURN - 1, and CHART_TURN times a turn: each turn has other
 * markers and dashes.  Colour 0 is grey, for dense attention.  Colours 1 to 15 and from 37 on are
 * for methods, the others for all else, such as phases.  Below 0: no colour, for bars. */
enum { CHART_TURN = 48 };

/* The marker of a style, as in a legend; within a page. */
void chart_put_key(int style, FILE *f);

extern const char chart_css[];	/* rules, without <style> */
extern const char chart_defs[]; /* <defs>, once in each file */

/* The head of an SVG file of this size, up to its background. */
void chart_svg_begin(int width, double height, FILE *f);
void chart_svg_end(FILE *f);
void chart_text(double x, double y, const char *class, const char *text, FILE *f);

/* A heat map at (x, y): n_y lines of n_x cells, in a frame.  cell: [n_y][n_x], in [0, 1]; 0 is left
 * empty. */
struct chart_box {
	double x, y, width, height;
};
void chart_heat(const struct chart_box *b, const float *cell, int n_x, int n_y, FILE *f);

#endif
