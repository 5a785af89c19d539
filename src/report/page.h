/* SPDX-License-Identifier: Apache-2.0 */
/* The HTML report: its items in order, and the frame of its page. */
#ifndef AR_PAGE_H
#define AR_PAGE_H

#include <stdio.h>

#include "src/chart/chart.h"

struct page_item {
	enum { PAGE_END, PAGE_PART, PAGE_TABLE, PAGE_QUERY, PAGE_CHART, PAGE_EACH } kind;
	const char *name, *title; /* PART: name NULL */
	const char *text;	  /* PART: how to get it; QUERY, CHART, EACH: the statement */
	struct chart_spec spec;	  /* CHART, EACH */
};
extern const struct page_item page_items[]; /* ends with PAGE_END */

/* The page up to its first part, with a list of the parts; path: of the database, or of each. */
void page_begin(const char *path, FILE *f);
void page_end(FILE *f);

/* A statement under a chart, folded. */
void page_sql(const char *summary, const char *sql, FILE *f);

#endif
