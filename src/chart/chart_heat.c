/* SPDX-License-Identifier: Apache-2.0 */
/* Heat maps: cells by level, one path of squares for each. */
#include "config.h"

#include <math.h>

#include "src/chart/chart_item.h"

enum { LEVELS = 16 };

static int level_of(double value)
{
	int level = (int)ceil(value * LEVELS);

	return level < 0 ? 0 : level > LEVELS ? LEVELS : level;
}

static void begin_heat(const struct chart_box *b, double n_x, double n_y, FILE *f)
{
	fprintf(f,
		"<svg x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" viewBox=\"0 0 %g %g\" "
		"preserveAspectRatio=\"none\" shape-rendering=\"crispEdges\">\n",
		b->x, b->y, b->width, b->height, n_x, n_y);
}

static void end_heat(const struct chart_box *b, FILE *f)
{
	fprintf(f,
		"</svg>\n<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" "
		"class=\"frame\"/>\n",
		b->x, b->y, b->width, b->height);
}

static void begin_level(int level, FILE *f)
{
	fprintf(f, "<path class=\"heat\" opacity=\"%.2f\" d=\"", 0.08 + 0.92 * level / LEVELS);
}

/* most: the value of the highest level. */
static void end_level(int level, double most, FILE *f)
{
	fprintf(f, "\"><title>%.3g to %.3g</title></path>\n", most * (level - 1) / LEVELS,
		most * level / LEVELS);
}

void chart_heat(const struct chart_box *b, const float *cell, int n_x, int n_y, FILE *f)
{
	begin_heat(b, n_x, n_y, f);
	for (int level = 1; level <= LEVELS; level++) {
		bool any = false;

		for (int i = 0; i < n_x * n_y; i++) {
			int n = 0;

			while ((i + n) / n_x == i / n_x && level_of((double)cell[i + n]) == level)
				n++; /* equal neighbours become one */
			if (!n)
				continue;
			if (!any)
				begin_level(level, f);
			any = true;
			fprintf(f, "M%d %dh%dv1h%dz", i % n_x, i / n_x, n, -n);
			i += n - 1;
		}
		if (any)
			end_level(level, 1, f);
	}
	end_heat(b, f);
}

static void put_items_of_level(const struct plot *p, double most, int level)
{
	bool any = false;

	for (size_t i = p->from; i < p->to; i++) {
		const struct chart_item *k = &p->c->item[i];

		if (level_of(k->value / most) != level)
			continue;
		if (!any)
			begin_level(level, p->f);
		any = true;
		fprintf(p->f, "M%g %gh1v1h-1z", k->x - p->x.lo, k->y - p->y.lo);
	}
	if (any)
		end_level(level, most, p->f);
}

/* The greatest value of all panels. */
static double greatest(const struct chart *c)
{
	double most = 0;

	for (size_t i = 0; i < c->n; i++)
		most = fmax(most, c->item[i].value);
	return most > 0 ? most : 1;
}

/* Line 0 is at the top. */
void chart_put_cells(const struct plot *p)
{
	const struct chart_box b = { p->left, p->top, p->width, p->height };
	const double most = greatest(p->c);
	char text[40], line[60];

	snprintf(line, sizeof line, "most: %s", chart_number(text, sizeof text, most));
	chart_text(p->left + p->width, p->top - 5, "end soft", line, p->f);
	begin_heat(&b, p->x.hi - p->x.lo, p->y.hi - p->y.lo, p->f);
	for (int level = 1; level <= LEVELS; level++)
		put_items_of_level(p, most, level);
	end_heat(&b, p->f);
}
