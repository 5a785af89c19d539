/* SPDX-License-Identifier: Apache-2.0 */
/* Which selectors a test is of, and the methods of their bands and orders, selector.h. */
#ifndef AR_TEST_SELECTOR_CASE_H
#define AR_TEST_SELECTOR_CASE_H

#include <stdio.h>
#include <string.h>

#include "kernels/select/plugin.h"
#include "tests/tap.h"

/* Return the number of the first selector in the table to test.  Without arguments the test is of
 * all selectors, else of the selectors in the files that the arguments name. */
static inline int selector_first(int argc, char **argv)
{
	struct ar_err err;
	int n = 0;

	while (argc > 1 && selectors[n])
		n++;
	for (int i = 1; i < argc; i++)
		if (plugin_load(argv[i], &err))
			bail_out("%s", err.msg);
	return n;
}

/* Write the method with value in place of %.  Returns its length. */
static inline size_t selector_text(char *buf, size_t n, const char *method, const char *value)
{
	size_t cut = strcspn(method, "%");

	return (size_t)snprintf(buf, n, "%.*s%s%s", (int)cut, method, method[cut] ? value : "",
				method[cut] ? method + cut + 1 : "");
}

#endif
