/* SPDX-License-Identifier: Apache-2.0 */
/* The list of selectors. */
#include "config.h"
#include "kernels/select/selectors.h"

#include <string.h>

#define SELECTORS(X) \
	X(none) \
	X(flashprefill) \
	X(flexprefill) \
	X(ashape) \
	X(density) \
	X(minference) \
	X(oracle) \
	X(quoka) \
	X(seer) \
	X(trishape) \
	X(xattention) \
	X(bfla) \
	X(proxyattn)

#define X(name) extern const struct selector selector_##name;
SELECTORS(X)
#undef X

#define X(name) &selector_##name,
const struct selector *const selectors[] = { SELECTORS(X) NULL };
#undef X

const char *const selector_blocks[] = { "64", "128", NULL };

const struct selector *selector_find(const char *name)
{
	for (int i = 0; selectors[i]; i++)
		if (!strcmp(selectors[i]->name, name))
			return selectors[i];
	return NULL;
}
