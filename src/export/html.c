/* SPDX-License-Identifier: Apache-2.0 */
/* The report as a page, see report_html(). */
#include "config.h"
#include "src/export/export.h"

static enum ar_status write_html_page(const struct report *r, struct outfile *f, struct ar_err *err)
{
	return report_html(r, f->f, err);
}

extern const struct exporter export_html;
const struct exporter export_html = { .name = "html", .write = write_html_page };
