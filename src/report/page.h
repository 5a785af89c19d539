/* SPDX-License-Identifier: Apache-2.0 */
/* The HTML report: its items in order, and the frame of its page. */
#ifndef AR_PAGE_H
#define AR_PAGE_H

#include <stdbool.h>
#include <stdio.h>

#include "src/chart/chart.h"

struct page_item {
	enum {
		PAGE_END,
		PAGE_FIRST,
		PAGE_BESIDE,
		PAGE_PART,
		PAGE_FOLDED,
		PAGE_TABLE,
		PAGE_QUERY,
		PAGE_CHART,
		PAGE_EACH
	} kind;
	const char *name, *title;
	const char *text;	/* PART, FOLDED: how to get it; FIRST, QUERY, CHART, EACH: SQL */
	struct chart_spec spec; /* CHART, EACH */
};
extern const struct page_item page_items[]; /* ends with PAGE_END */

enum { PAGE_PARTS_MAX = 32 }; /* more than there are parts */

/* The page up to its first screen; path: of the database, or of each. */
void page_begin(const char *path, FILE *f);
void page_end(FILE *f);

/* Whether i begins a part. */
bool page_is_part(const struct page_item *i);
/* The list of those parts for which shown has true, of all in order. */
void page_contents(const bool *shown, FILE *f);

/* A statement under a chart, folded. */
void page_sql(const char *summary, const char *sql, FILE *f);

#endif
