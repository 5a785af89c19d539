/* SPDX-License-Identifier: Apache-2.0 */
/* The writer of tables in the HTML report.  It writes parts of a page, so --format has it not. */
#ifndef AR_WRITE_HTML_H
#define AR_WRITE_HTML_H

#include "src/report/writer.h"

extern const struct report_writer write_html;

#endif
