/* SPDX-License-Identifier: Apache-2.0 */
/* The table of sections.  sections.inc holds the SQL of each as NAME_sql. */
#include "config.h"
#include "src/report/report.h"

#include "src/report/sections.inc"

#define OWN "attnreplay"

const struct section sections[] = {
#define SECTION(name, title) { #name, title, name##_sql, OWN, false },
#define DIALECT(name, title) { #name, title, name##_sql, #name, false },
#define COMMON(name, title) { #name, title, name##_sql, NULL, false },
#define PROSE(name, title) { #name, title, name##_sql, OWN, true },
#include "src/report/section_list.h"
#undef SECTION
#undef DIALECT
#undef COMMON
#undef PROSE
	{ 0 }
};

const char *const report_dialects[] = { OWN,
#define SECTION(name, title)
#define DIALECT(name, title) #name,
#define COMMON(name, title)
#define PROSE(name, title)
#include "src/report/section_list.h"
#undef SECTION
#undef DIALECT
#undef COMMON
#undef PROSE
					NULL };
