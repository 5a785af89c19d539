/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the HTML report.  charts.inc holds the SQL of each chart as NAME_sql. */
#include "config.h"

#include <math.h>

#include "src/report/page.h"

#include "src/report/charts.inc"

/* clang-format off */
#define SPEC(geom, x, xs, xl, y, ys, yl, flags) \
	{ CHART_##geom, { x, CHART_##xs, xl }, { y, CHART_##ys, yl }, flags }
#define NO_SPEC { CHART_POINT, { NULL, CHART_LINEAR, 0 }, { NULL, CHART_LINEAR, 0 }, 0 }
/* clang-format on */

const struct page_item page_items[] = {
#define FIRST(name) { PAGE_FIRST, #name, NULL, name##_sql, NO_SPEC },
#define BESIDE(name) { PAGE_BESIDE, #name, NULL, NULL, NO_SPEC },
#define PART(name, title, lacking) { PAGE_PART, #name, title, lacking, NO_SPEC },
#define FOLDED(name, title, lacking) { PAGE_FOLDED, #name, title, lacking, NO_SPEC },
#define TABLE(name) { PAGE_TABLE, #name, NULL, NULL, NO_SPEC },
#define QUERY(name, title) { PAGE_QUERY, #name, title, name##_sql, NO_SPEC },
#define CHART(name, title, ...) { PAGE_CHART, #name, title, name##_sql, SPEC(__VA_ARGS__) },
#define EACH(name, title, ...) { PAGE_EACH, #name, title, name##_sql, SPEC(__VA_ARGS__) },
#include "src/report/chart_list.h"
#undef FIRST
#undef BESIDE
#undef PART
#undef FOLDED
#undef TABLE
#undef QUERY
#undef CHART
#undef EACH
	{ PAGE_END, NULL, NULL, NULL, NO_SPEC }
};
