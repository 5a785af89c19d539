/* SPDX-License-Identifier: Apache-2.0 */
/* columns-mdoc: print the tables' part of attnreplay-db(5).  The text of columns.def is plain;
 * here sentences get a line each and `names` in backquotes are set in italics. */
#include "config.h"

#include <stdbool.h>
#include <stdio.h>

#include "kernels/methods/selection_count.h"

static const char *lead; /* before the next name */

static void put_text(const char *s)
{
	bool italic = false;

	for (; *s; s++) {
		if (*s == '`') {
			italic = !italic;
			fputs(italic ? "\\fI" : "\\fR", stdout);
		} else if (s[0] == ' ' && s[1] == ' ') {
			putchar('\n');
			s++;
		} else {
			putchar(*s);
		}
	}
	putchar('\n');
}

static void begin_table(const char *name, const char *doc)
{
	printf(".Ss %s\n", name);
	put_text(doc);
	puts(".Bl -tag -width Ds");
	lead = ".It Va";
}

static void put_column(const char *name, const char *doc)
{
	printf("%s %s", lead, name);
	lead = *doc ? ".It Va" : " ,";
	if (*doc) {
		putchar('\n');
		put_text(doc);
	}
}

int main(void)
{
#define TABLE(table, doc) begin_table(#table, doc);
#define COL(table, name, type, null, doc) put_column(#name, doc);
#define LATER(table, name, type, rule, doc) put_column(#name, doc);
#define AUTO(table, name, type, rule, doc) put_column(#name, doc);
#define END(table, rules, options) puts(".El");
#include "profiler/store/columns.def"
	return fflush(stdout) || ferror(stdout);
}
