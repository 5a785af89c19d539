/* SPDX-License-Identifier: Apache-2.0 */
/* Draw a selection: a panel for each query head, and a strip for each table.  A panel has a row for
 * each query block and a column for each block. */
#include "config.h"

#include <stdlib.h>

#include "base/text.h"
#include "src/chart/chart.h"
#include "src/select/select.h"

enum { PANELS = 4, MARGIN = 20, TITLE = 14 };
enum { PANEL = (SELECT_SVG_WIDTH - (PANELS + 1) * MARGIN) / PANELS };

static void put_chunk(const struct select_result *r, double x, double y, double height, FILE *f)
{
	double chunk = x + (double)PANEL * select_past(r) / select_blocks(r);

	fprintf(f, "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\" class=\"chunk\"/>\n",
		chunk, y, chunk, y + height);
}

/* Rows are as high as blocks are wide, within bounds. */
static double row_height(const struct select_result *r)
{
	double h = (double)PANEL / select_blocks(r);

	return h < 4 ? 4 : h > 12 ? 12 : h;
}

/* Draw n lines of cells under a text, with the start of the chunk. */
static void put_panel(const struct select_result *r, const char *text, const float *cell, int n,
		      double x, double y, FILE *f)
{
	const struct chart_box box = { x, y, PANEL, n * row_height(r) };

	chart_text(x, y - 3, "", text, f);
	chart_heat(&box, cell, select_blocks(r), n, f);
	put_chunk(r, x, y, box.height, f);
}

static void put_head(const struct select_result *r, int head, double x, double y, float *cell,
		     FILE *f)
{
	int n = select_query_blocks(r);
	char text[80];

	snprintf(text, sizeof text, "head %d: density %.3f, recall %.3f", head,
		 select_head_density(r, head), r->acc[head].mass_recall);
	for (int i = 0; i < n; i++)
		select_cover(r, head, i, cell + (size_t)i * (size_t)select_blocks(r));
	put_panel(r, text, cell, n, x, y, f);
}

static void put_strip(const struct select_result *r, int g, double x, double y, float *cell,
		      FILE *f)
{
	char text[80];

	snprintf(text, sizeof text, "table %d: %d blocks", g, r->sel->lists.blocks.n[g]);
	select_table(r, g, cell);
	put_panel(r, text, cell, 1, x, y, f);
}

/* Top left corner of panel k; every panel is `high` pixels high. */
static void place_panel(int k, double high, double top, double *x, double *y)
{
	*x = MARGIN + k % PANELS * (double)(PANEL + MARGIN);
	*y = top + k / PANELS * (high + TITLE + 6) + TITLE;
}

enum ar_status select_put_svg(const struct select_result *r, int head, FILE *f, double *y,
			      struct ar_err *err)
{
	float *cell =
		malloc((size_t)select_query_blocks(r) * (size_t)select_blocks(r) * sizeof *cell);
	int first = head < 0 ? 0 : head, n = head < 0 ? r->shape.q_heads : 1;
	double high = select_query_blocks(r) * row_height(r), top = *y + 2 * TITLE, px, py = top;

	if (!cell)
		return ar_nomem(err);
	fprintf(f, "<text x=\"%d\" y=\"%.2f\" class=\"title\">", MARGIN, *y + TITLE);
	text_put_xml(r->method->name, f);
	fputs(", ", f);
	text_put_xml(r->capture, f);
	fprintf(f, ", layer %d, context %d, chunk %d</text>\n", r->layer, r->ctx, r->chunk);
	for (int k = 0; k < n; k++) {
		place_panel(k, high, top, &px, &py);
		put_head(r, first + k, px, py, cell, f);
	}
	*y = py + high + MARGIN;
	for (int g = 0; head < 0 && g < select_groups(r); g++) {
		place_panel(g, row_height(r), *y, &px, &py);
		put_strip(r, g, px, py, cell, f);
	}
	if (head < 0 && select_groups(r))
		*y = py + row_height(r) + MARGIN;
	free(cell);
	return AR_OK;
}
