/* SPDX-License-Identifier: Apache-2.0 */
/* Methods of the bands and orders of selectors, selector.h. */
#ifndef AR_TEST_SELECTOR_TEXT_H
#define AR_TEST_SELECTOR_TEXT_H

#include <stdio.h>
#include <string.h>

#include "kernels/select/selector.h"

/* Write the method with value in place of %.  Returns its length. */
static inline size_t selector_text(char *buf, size_t n, const char *method, const char *value)
{
	size_t cut = strcspn(method, "%");

	return (size_t)snprintf(buf, n, "%.*s%s%s", (int)cut, method, method[cut] ? value : "",
				method[cut] ? method + cut + 1 : "");
}

#endif
