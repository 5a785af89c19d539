/* SPDX-License-Identifier: Apache-2.0 */
/* Marks of a chart: adding, sorting, releasing. */
#include "config.h"
#include "src/chart/chart.h"

#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/order.h"
#include "src/chart/chart_item.h"

const char *const chart_geoms[CHART_GEOMS + 1] = { "point", "line", "steps", "bar", "group",
						   "span",  "cell", "rule",  NULL };

void chart_init(struct chart *c, const struct chart_spec *spec)
{
	*c = (struct chart){ .spec = spec };
}

static void release_names(struct chart_names *s)
{
	for (size_t i = 0; i < s->n; i++)
		free(s->name[i]);
	free(s->name);
}

void chart_release(struct chart *c)
{
	release_names(&c->panel);
	release_names(&c->row);
	release_names(&c->series);
	for (size_t i = 0; i < c->n; i++)
		free(c->item[i].title);
	free(c->item);
	*c = (struct chart){ .spec = c->spec };
}

/* *index: the place of name, which is added if it is new.  The latest name is the likeliest. */
static enum ar_status intern_name(struct chart_names *s, const char *name, size_t *index,
				  struct ar_err *err)
{
	name = name ? name : "";
	for (size_t i = s->n; i > 0; i--)
		if (!strcmp(s->name[i - 1], name)) {
			*index = i - 1;
			return AR_OK;
		}
	if (!GROW(s->name, s->cap, s->n + 1))
		return ar_nomem(err);
	s->name[s->n] = strdup(name);
	if (!s->name[s->n])
		return ar_nomem(err);
	*index = s->n++;
	return AR_OK;
}

enum ar_status chart_add(struct chart *c, const struct chart_mark *m, struct ar_err *err)
{
	struct chart_item i = {
		.order = c->n,
		.geom = m->geom,
		.style = m->style,
		.x = m->x,
		.y = m->y,
		.x_lo = m->x_lo,
		.x_hi = m->x_hi,
		.y_lo = m->y_lo,
		.y_hi = m->y_hi,
		.value = m->value,
		.hatch = m->hatch,
		.ring = m->ring,
	};
	enum ar_status st = GROW(c->item, c->cap, c->n + 1) ? AR_OK : ar_nomem(err);

	if (!st)
		st = intern_name(&c->panel, m->panel, &i.panel, err);
	if (!st)
		st = intern_name(&c->series, m->series, &i.series, err);
	if (!st)
		st = intern_name(&c->row, m->row, &i.row, err);
	if (st)
		return st;
	if (m->title && *m->title) {
		i.title = strdup(m->title);
		if (!i.title)
			return ar_nomem(err);
	}
	c->item[c->n++] = i;
	return AR_OK;
}

static int compare_items(const void *a, const void *b)
{
	const struct chart_item *x = a, *y = b;
	int c = ORDER(x->panel, y->panel);

	if (!c)
		c = ORDER(x->series, y->series);
	if (!c)
		c = ORDER(x->geom, y->geom);
	return c ? c : ORDER(x->order, y->order);
}

size_t chart_series_end(const struct chart *c, size_t i)
{
	size_t end = i;

	while (end < c->n && c->item[end].panel == c->item[i].panel &&
	       c->item[end].series == c->item[i].series && c->item[end].geom == c->item[i].geom)
		end++;
	return end;
}

size_t chart_panel_end(const struct chart *c, size_t i)
{
	size_t end = i;

	while (end < c->n && c->item[end].panel == c->item[i].panel)
		end++;
	return end;
}

void chart_finish(struct chart *c)
{
	if (c->n)
		qsort(c->item, c->n, sizeof *c->item, compare_items);
	for (size_t i = 0, end; i < c->n; i = end) {
		end = chart_panel_end(c, i);
		chart_thin(c, i, end);
	}
}

void chart_keep_first(struct chart *c)
{
	size_t end = c->n ? chart_panel_end(c, 0) : 0;

	while (c->n > end)
		free(c->item[--c->n].title);
}

size_t chart_n_single(const struct chart *c)
{
	size_t n = 0;

	for (size_t i = 0; i < c->n; i++)
		n += !c->item[i].hidden && c->item[i].geom != CHART_LINE &&
		     c->item[i].geom != CHART_STEPS;
	return n;
}
