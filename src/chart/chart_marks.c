/* SPDX-License-Identifier: Apache-2.0 */
/* The marks of a panel. */
#include "config.h"

#include <math.h>

#include "base/text.h"
#include "src/chart/chart_item.h"

enum { MARKED = 40 }; /* a line with at most MARKED marks shows its marks */
enum { CROWD = 100 }; /* points of a series above which they are pale */

static double at_x(const struct plot *p, double x)
{
	return chart_place(&p->x, x) * p->width;
}

static double at_y(const struct plot *p, double y)
{
	return chart_rise(p, y) * p->height;
}

/* Centre of a mark that stands in a row. */
static double row_y(const struct plot *p, const struct chart_item *i)
{
	double h = chart_row_height(p->c), y = h * (double)i->row;

	if (p->c->spec->flags & CHART_LOW)
		return y + h / 2;
	return y + CHART_ROW_TEXT + CHART_BAR_HEIGHT / 2. +
	       (i->geom == CHART_GROUP ? CHART_BAR_HEIGHT * (double)i->series : 0);
}

static double item_y(const struct plot *p, const struct chart_item *i)
{
	return chart_in_rows(p->c) ? row_y(p, i) : at_y(p, i->y);
}

static void put_title(const struct plot *p, const struct chart_item *i)
{
	char x[40], y[40];

	fputs("<title>", p->f);
	if (i->title) {
		text_put_xml(i->title, p->f);
	} else {
		text_put_xml(p->c->series.name[i->series], p->f);
		fprintf(p->f, ": %s", chart_number(x, sizeof x, i->x));
		if (isfinite(i->y))
			fprintf(p->f, ", %s", chart_number(y, sizeof y, i->y));
	}
	fputs("</title>", p->f);
}

static void put_bars_of_error(const struct plot *p, const struct chart_item *i)
{
	double x = at_x(p, i->x), y = item_y(p, i);

	if (isfinite(i->y_lo) && isfinite(i->y_hi))
		fprintf(p->f, "<path class=\"line\" d=\"M%.1f %.1fV%.1fm-3 0h6M%.1f %.1fh6\"/>", x,
			at_y(p, i->y_lo), at_y(p, i->y_hi), x - 3, at_y(p, i->y_lo));
	if (isfinite(i->x_lo) && isfinite(i->x_hi))
		fprintf(p->f, "<path class=\"line\" d=\"M%.1f %.1fH%.1fm0 -3v6M%.1f %.1fv6\"/>",
			at_x(p, i->x_lo), y, at_x(p, i->x_hi), at_x(p, i->x_lo), y - 3);
}

static void put_point(const struct plot *p, const struct chart_item *i, bool pale)
{
	fprintf(p->f, "<g class=\"c%d%s\">", chart_colour(i->style), pale ? " many" : "");
	put_title(p, i);
	put_bars_of_error(p, i);
	chart_marker(i->style, at_x(p, i->x), item_y(p, i), i->geom == CHART_LINE ? 0.7 : 1,
		     i->ring, p->f);
	fputs("</g>\n", p->f);
}

static void put_box(const struct plot *p, const struct chart_item *i, double x, double y,
		    double width, double height)
{
	static const char *const format =
		"<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\"/>";
	char class[40];

	if (i->style < 0)
		snprintf(class, sizeof class, "none");
	else
		snprintf(class, sizeof class, "bar%s%s c%d", width > 4 ? " edge" : "",
			 i->geom == CHART_GROUP ? " pale" : "", chart_colour(i->style));
	fputs("<g>", p->f);
	put_title(p, i);
	fprintf(p->f, format, class, x, y, width, height);
	if (i->hatch)
		fprintf(p->f,
			"<rect fill=\"url(#hatch)\" x=\"%.1f\" y=\"%.1f\" width=\"%.2f\" "
			"height=\"%.1f\"/>",
			x, y, width, height);
	fputs("</g>\n", p->f);
}

/* The end of a bar with its interval, and on it what it is of. */
static void put_group_label(const struct plot *p, const struct chart_item *i)
{
	char text[200], value[40];

	fputs("<g>", p->f);
	put_title(p, i);
	chart_marker(i->style, at_x(p, i->x), row_y(p, i), 1, false, p->f);
	put_bars_of_error(p, i);
	snprintf(text, sizeof text, "%s: %s", p->c->series.name[i->series],
		 chart_number(value, sizeof value, i->x));
	chart_text(6, row_y(p, i) + 4, "", text, p->f);
	fputs("</g>\n", p->f);
}

/* A bar begins where the bars before it in its row end. */
static void put_bar(const struct plot *p, const struct chart_item *i)
{
	double before = 0, x;

	for (const struct chart_item *k = p->c->item + p->from; k < i; k++)
		if (k->row == i->row && i->geom == CHART_BAR && k->geom == CHART_BAR)
			before += k->x;
	x = at_x(p, before);
	put_box(p, i, x, row_y(p, i) - CHART_BAR_HEIGHT / 2. + 1, at_x(p, before + i->x) - x,
		CHART_BAR_HEIGHT - 2);
	if (i->geom == CHART_GROUP)
		put_group_label(p, i);
}

static void put_span(const struct plot *p, const struct chart_item *i)
{
	double x = at_x(p, i->x_lo), width = fmax(at_x(p, i->x_hi) - x, 0.8);

	if (chart_in_rows(p->c))
		put_box(p, i, x, row_y(p, i) - CHART_LANE / 2. + 1, width, CHART_LANE - 2);
	else
		put_box(p, i, x, at_y(p, i->y_hi), width, at_y(p, i->y_lo) - at_y(p, i->y_hi));
}

static void put_rule(const struct plot *p, const struct chart_item *i)
{
	double x = at_x(p, i->x), y = at_y(p, i->y);

	fputs("<g>", p->f);
	put_title(p, i);
	if (isfinite(i->x))
		fprintf(p->f, "<path class=\"rule\" d=\"M%.1f 0v%.1f\"/>", x, p->height);
	else
		fprintf(p->f, "<path class=\"rule\" d=\"M0 %.1fh%.1f\"/>", y, p->width);
	fputs("</g>\n", p->f);
}

static void put_item(const struct plot *p, const struct chart_item *i, bool pale)
{
	switch (i->geom) {
	case CHART_BAR:
	case CHART_GROUP: put_bar(p, i); break;
	case CHART_SPAN: put_span(p, i); break;
	case CHART_RULE: put_rule(p, i); break;
	default: put_point(p, i, pale);
	}
}

static void put_line(const struct plot *p, const struct chart_item *i, const struct chart_item *end)
{
	const char *to = "M";

	fputs("<g class=\"series\">", p->f);
	fputs("<title>", p->f);
	text_put_xml(p->c->series.name[i->series], p->f);
	fputs("</title><path class=\"line ", p->f);
	chart_put_class(i->style, p->f);
	fputs("\" d=\"", p->f);
	for (const struct chart_item *k = i; k < end; k++) {
		if (k->hidden)
			continue;
		if (isnan(k->y)) {
			to = "M";
			continue;
		}
		if (i->geom == CHART_STEPS && *to == 'L')
			fprintf(p->f, "H%.1fV%.1f", at_x(p, k->x), at_y(p, k->y));
		else
			fprintf(p->f, "%s%.1f %.1f", to, at_x(p, k->x), at_y(p, k->y));
		to = "L";
	}
	fputs("\"/></g>\n", p->f);
	for (const struct chart_item *k = i; end - i <= MARKED && i->geom == CHART_LINE && k < end;
	     k++)
		put_point(p, k, false);
}

static void put_series(const struct plot *p, size_t from, size_t to)
{
	const struct chart_item *item = p->c->item;

	if (item[from].geom == CHART_LINE || item[from].geom == CHART_STEPS) {
		put_line(p, item + from, item + to);
		return;
	}
	for (size_t i = from; i < to; i++)
		if (!item[i].hidden)
			put_item(p, &item[i], to - from > CROWD);
}

void chart_put_marks(const struct plot *p)
{
	const bool zoom = p->c->spec->flags & CHART_ZOOM;

	if (p->c->item[p->from].geom == CHART_CELL) {
		chart_put_cells(p);
		return;
	}
	fprintf(p->f,
		"<svg class=\"plot\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
		"viewBox=\"0 0 %.1f %.1f\" preserveAspectRatio=\"none\" data-lo=\"%.9g\" "
		"data-hi=\"%.9g\"%s>\n",
		p->left, p->top, p->width, p->height, p->width, p->height, p->x.lo, p->x.hi,
		zoom ? "" : " overflow=\"visible\"");
	for (size_t i = p->from, end; i < p->to; i = end) {
		end = chart_series_end(p->c, i);
		put_series(p, i, end);
	}
	fputs("</svg>\n", p->f);
}
