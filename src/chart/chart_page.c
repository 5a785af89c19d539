/* SPDX-License-Identifier: Apache-2.0 */
/* A chart's panels and legend, in a page or as a file. */
#include "config.h"

#include <math.h>

#include "base/text.h"
#include "src/chart/chart_item.h"

enum { GAP = 20, COLUMNS = 2, LEGEND_COLUMNS = 4, LEGEND_STEP = 20, SWATCH = 28 };

/* The mark that stands for a series in the legend: of its line, else its first mark. */
static const struct chart_item *sample_of(const struct chart *c, size_t series)
{
	const struct chart_item *found = NULL;

	for (size_t i = 0; i < c->n; i++) {
		const struct chart_item *k = &c->item[i];

		if (k->series != series || k->geom == CHART_CELL)
			continue;
		if (k->geom == CHART_LINE || k->geom == CHART_STEPS)
			return k;
		found = found ? found : k;
	}
	return found;
}

/* The next series from *series on that is in the legend: one with a name. */
static const struct chart_item *next_in_legend(const struct chart *c, size_t *series)
{
	for (; *series < c->series.n; ++*series) {
		const struct chart_item *i = sample_of(c, *series);

		if (i && *c->series.name[*series])
			return i;
	}
	return NULL;
}

static void put_html_legend(const struct chart *c, FILE *f)
{
	const struct chart_item *i;
	bool any = false;

	for (size_t s = 0; (i = next_in_legend(c, &s)); s++) {
		if (!any)
			fputs("<ul class=\"legend\">\n", f);
		any = true;
		fprintf(f, "<li><svg class=\"chart\" width=\"%d\" height=\"14\">", SWATCH);
		chart_swatch(i, 0, 7, f);
		fputs("</svg> ", f);
		text_put_xml(c->series.name[s], f);
		fputs("</li>\n", f);
	}
	if (any)
		fputs("</ul>\n", f);
}

void chart_put_html(const struct chart *c, FILE *f)
{
	fprintf(f, "<div class=\"panels%s%s\">\n", c->spec->flags & CHART_WIDE ? " wide" : "",
		c->spec->flags & CHART_ZOOM ? " zoom" : "");
	for (size_t from = 0, to; from < c->n; from = to) {
		to = chart_panel_end(c, from);
		chart_put_panel(c, from, to, 0, 0, f);
	}
	fputs("</div>\n", f);
	put_html_legend(c, f);
}
void chart_svg_begin(int width, double height, FILE *f)
{
	fprintf(f,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" width=\"%d\" "
		"height=\"%.0f\" viewBox=\"0 0 %d %.0f\">\n<style>%s</style>\n%s"
		"<rect width=\"100%%\" height=\"100%%\" class=\"back\"/>\n",
		width, height, width, height, chart_css, chart_defs);
}

void chart_svg_end(FILE *f)
{
	fputs("</svg>\n", f);
}

static int put_legend(const struct chart *c, double y, double step, FILE *f)
{
	const struct chart_item *i;
	int n = 0;

	for (size_t s = 0; (i = next_in_legend(c, &s)); s++, n++) {
		double at = GAP + n % LEGEND_COLUMNS * step,
		       line = y + n / LEGEND_COLUMNS * LEGEND_STEP;

		if (!f)
			continue;
		chart_swatch(i, at, line - 4, f);
		chart_text(at + SWATCH + 6, line, "", c->series.name[s], f);
	}
	return (n + LEGEND_COLUMNS - 1) / LEGEND_COLUMNS;
}

/* Draw the panels of n charts from y on, or with f NULL measure: returns the y below them. */
static double put_panels(const struct chart *c, size_t n, double y, FILE *f)
{
	double high = 0, left = GAP;
	int k = 0;

	for (const struct chart *end = c + n; c < end; c++)
		for (size_t from = 0, to; from < c->n; from = to, k++) {
			to = chart_panel_end(c, from);
			if (k && k % COLUMNS == 0) {
				y += high;
				high = 0;
				left = GAP;
			}
			high = fmax(high, chart_panel_height(c, from, to));
			if (f)
				chart_put_panel(c, from, to, left, y, f);
			left += chart_panel_width(c) + GAP;
		}
	return y + high;
}

void chart_put_svg(const struct chart *c, size_t n, FILE *f)
{
	double width = COLUMNS * (chart_panel_width(c) + GAP) + GAP;
	double end = put_panels(c, n, GAP, NULL) + 2 * GAP;
	int lines = put_legend(c, end, 0, NULL);

	chart_svg_begin((int)width, end + lines * LEGEND_STEP, f);
	put_panels(c, n, GAP, f);
	put_legend(c, end, (width - GAP) / LEGEND_COLUMNS, f);
	chart_svg_end(f);
}
