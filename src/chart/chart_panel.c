/* SPDX-License-Identifier: Apache-2.0 */
/* A panel: title, axes and marks. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "src/chart/chart_item.h"

enum {
	WIDTH = 440,
	WIDE = 960,
	HEIGHT = 210,
	LOW = 84,   /* of a panel; of its plot */
	TICKS = 24, /* height of the labels under the plot */
	LINE = 16,
	LEFT = 52,
	ROWS_LEFT = 4,
	RIGHT = 14,
	LETTER = 7 /* width of a letter, at most, on average */
};

void chart_text(double x, double y, const char *class, const char *text, FILE *f)
{
	fprintf(f, "<text x=\"%.2f\" y=\"%.2f\"", x, y);
	if (*class)
		fprintf(f, " class=\"%s\"", class);
	putc('>', f);
	text_put_xml(text, f);
	fputs("</text>\n", f);
}

/* Text, cut to at most `width` pixels; hovering over cut text shows all of it. */
static void put_cut_text(double x, double y, const char *class, const char *text, double width,
			 FILE *f)
{
	size_t most = (size_t)(width / LETTER);
	char cut[400];

	if (strlen(text) <= most || most > sizeof cut - 4) {
		chart_text(x, y, class, text, f);
		return;
	}
	for (most--; most && ((unsigned char)text[most] & 0xc0) == 0x80;)
		most--;
	snprintf(cut, sizeof cut, "%.*s\xe2\x80\xa6", (int)most, text);
	fputs("<g>", f);
	chart_text(x, y, class, cut, f);
	fputs("<title>", f);
	text_put_xml(text, f);
	fputs("</title></g>\n", f);
}

/* ---- size ---- */

bool chart_in_rows(const struct chart *c)
{
	return c->spec->y.scale == CHART_ROWS;
}

/* Groups have a place for each series that has a bar; these come before others. */
static size_t bars_of_row(const struct chart *c)
{
	size_t n = 1;

	for (size_t i = 0; i < c->n; i++)
		if (c->item[i].geom == CHART_GROUP && c->item[i].series >= n)
			n = c->item[i].series + 1;
	return n;
}

double chart_row_height(const struct chart *c)
{
	if (c->spec->flags & CHART_LOW)
		return CHART_LANE;
	return CHART_ROW_TEXT + CHART_BAR_HEIGHT * (double)bars_of_row(c) + 5;
}

double chart_panel_width(const struct chart *c)
{
	return c->spec->flags & CHART_WIDE ? WIDE : WIDTH;
}

static double plot_height(const struct chart *c, const struct chart_range *y, double width)
{
	if (chart_in_rows(c))
		return chart_row_height(c) * (double)c->row.n;
	if (c->spec->geom == CHART_CELL) /* squares, within bounds */
		return fmin(fmax(width * 0.2, 12 * (y->hi - y->lo)), HEIGHT);
	return c->spec->flags & CHART_LOW ? LOW : HEIGHT;
}

/* Heights above and below the plot, from the names and titles there.  Low panels share the title of
 * the x axis, under the last panel. */
static bool has_name(const struct chart *c)
{
	for (size_t i = 0; i < c->panel.n; i++)
		if (*c->panel.name[i])
			return true;
	return false;
}

static double top(const struct chart *c)
{
	return 10 + (has_name(c) ? LINE : 0) + (c->spec->y.title ? LINE + 4 : 0);
}

static bool has_x_title(const struct chart *c, size_t to)
{
	return c->spec->x.title && (!(c->spec->flags & CHART_LOW) || to == c->n);
}

static struct plot plot_of(const struct chart *c, size_t from, size_t to, FILE *f)
{
	const bool own_x = c->spec->flags & CHART_FREE_X, own_y = c->spec->flags & CHART_FREE_Y;
	struct plot p = { .c = c, .from = from, .to = to, .f = f };

	p.x = chart_range_of(c, 0, own_x ? from : 0, own_x ? to : c->n);
	p.y = chart_range_of(c, 1, own_y ? from : 0, own_y ? to : c->n);
	p.left = chart_in_rows(c) ? ROWS_LEFT : LEFT;
	p.top = top(c);
	p.width = chart_panel_width(c) - p.left - RIGHT;
	p.height = plot_height(c, &p.y, p.width);
	return p;
}

double chart_panel_height(const struct chart *c, size_t from, size_t to)
{
	struct plot p = plot_of(c, from, to, NULL);

	return p.top + p.height + TICKS + (has_x_title(c, to) ? LINE : 0);
}

/* ---- axes ---- */

static bool in_cells(const struct plot *p)
{
	return p->c->spec->geom == CHART_CELL;
}

/* The places of ticks.  Ticks of cells are at the middle of whole columns and lines. */
static int find_ticks(const struct plot *p, const struct chart_range *r, int wanted,
		      double at[CHART_TICKS_MAX], double place[CHART_TICKS_MAX])
{
	int n = chart_ticks(r, wanted, at), kept = 0;

	for (int i = 0; i < n; i++) {
		double shift = in_cells(p) ? 0.5 : 0;

		if (in_cells(p) && (at[i] != floor(at[i]) || at[i] >= r->hi))
			continue;
		at[kept] = at[i];
		place[kept++] = chart_place(r, at[i] + shift);
	}
	return kept;
}

static void put_x_axis(const struct plot *p)
{
	double at[CHART_TICKS_MAX], place[CHART_TICKS_MAX], free_from = -1e9;
	int n = find_ticks(p, &p->x, (int)(p->width / 70), at, place);
	char text[40];

	for (int i = 0; i < n; i++) {
		double x = p->left + place[i] * p->width, half;

		chart_number(text, sizeof text, at[i]);
		half = (double)(LETTER * strlen(text)) / 2;
		if (!in_cells(p))
			fprintf(p->f, "<path class=\"grid\" d=\"M%.1f %.1fv%.1f\"/>\n", x, p->top,
				p->height);
		if (x - half < free_from || x + half > p->left + p->width + RIGHT)
			continue;
		fprintf(p->f, "<text x=\"%.1f\" y=\"%.1f\" class=\"mid soft tick\">%s</text>\n", x,
			p->top + p->height + 17, text);
		free_from = x + half + 4;
	}
	if (has_x_title(p->c, p->to))
		chart_text(p->left + p->width / 2, p->top + p->height + TICKS + 10, "mid",
			   p->c->spec->x.title, p->f);
}

static void put_y_axis(const struct plot *p)
{
	double at[CHART_TICKS_MAX], place[CHART_TICKS_MAX], free_to = -1e9;
	int n = find_ticks(p, &p->y, (int)fmax(2, p->height / 34), at, place);
	char text[40];

	for (int i = 0; i < n; i++) { /* cells: line 0 is at the top */
		double y = p->top + (in_cells(p) ? place[i] : chart_rise(p, at[i])) * p->height;

		if (!in_cells(p))
			fprintf(p->f, "<path class=\"grid\" d=\"M%.1f %.1fh%.1f\"/>\n", p->left, y,
				p->width);
		if (fabs(y - free_to) < 13)
			continue;
		fprintf(p->f, "<text x=\"%.1f\" y=\"%.1f\" class=\"end soft\">%s</text>\n",
			p->left - 5, y + 4, chart_number(text, sizeof text, at[i]));
		free_to = y;
	}
}

static void put_rows(const struct plot *p)
{
	double h = chart_row_height(p->c);

	if (p->c->spec->flags & CHART_LOW)
		return;
	for (size_t i = 0; i < p->c->row.n; i++)
		put_cut_text(p->left + 4, p->top + h * (double)i + 12, "", p->c->row.name[i],
			     p->width - 4, p->f);
}

void chart_put_panel(const struct chart *c, size_t from, size_t to, double x, double y, FILE *f)
{
	const struct plot p = plot_of(c, from, to, f);
	double width = chart_panel_width(c), height = chart_panel_height(c, from, to);

	fprintf(f,
		"<svg class=\"chart\" x=\"%.0f\" y=\"%.0f\" width=\"%.0f\" height=\"%.0f\" "
		"viewBox=\"0 0 %.0f %.0f\">\n",
		x, y, width, height, width, height);
	put_cut_text(p.left, 12, "head", c->panel.name[c->item[from].panel], p.width, f);
	if (c->spec->y.title)
		chart_text(p.left, p.top - 13, "soft", c->spec->y.title, f);
	put_x_axis(&p);
	if (chart_in_rows(c))
		put_rows(&p);
	else
		put_y_axis(&p);
	chart_put_marks(&p);
	fputs("</svg>\n", f);
}
