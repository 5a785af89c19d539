/* SPDX-License-Identifier: Apache-2.0 */
/* The frame of the page: one file, nothing is fetched.  It is well-formed XML as well. */
#include "config.h"
#include "src/report/page.h"

#include "base/text.h"

static const char page_style[] =
#include "src/report/page.css.inc"
	;
static const char page_script[] =
#include "src/report/page.js.inc"
	;

bool page_is_part(const struct page_item *i)
{
	return i->kind == PAGE_PART || i->kind == PAGE_FOLDED;
}

void page_contents(const bool *shown, FILE *f)
{
	fputs("<nav>\n<details>\n<summary>Contents</summary>\n", f);
	for (const struct page_item *i = page_items; i->kind; i++)
		if (page_is_part(i) && *shown++)
			fprintf(f, "<a href=\"#%s\">%s</a>\n", i->name, i->title);
	fputs("</details>\n</nav>\n", f);
}

void page_begin(const char *path, FILE *f)
{
	fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
	      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
	      "<title>attnreplay: ",
	      f);
	text_put_xml(path, f);
	fprintf(f, "</title>\n<style>\n%s%s</style>\n</head>\n<body>\n", chart_css, page_style);
	fprintf(f, "<svg width=\"0\" height=\"0\" style=\"position:absolute\">%s</svg>\n",
		chart_defs);
}

void page_end(FILE *f)
{
	fprintf(f, "<script>//<![CDATA[\n%s//]]></script>\n</body>\n</html>\n", page_script);
}

void page_sql(const char *summary, const char *sql, FILE *f)
{
	fprintf(f, "<details class=\"sql\"><summary>%s</summary><pre>", summary);
	text_put_xml(sql, f);
	fputs("</pre></details>\n", f);
}
