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
static const struct selector *table[SELECTORS_MAX + 1] = { SELECTORS(X) NULL };
#undef X

const struct selector *const *const selectors = table;

#define DECODE_SELECTORS(X) \
	X(duo) \
	X(quest) \
	X(rocket) \
	X(streaming) \
	X(topk) \
	X(twilight)

#define X(name) extern const struct selector selector_##name;
DECODE_SELECTORS(X)
#undef X

#define X(name) &selector_##name,
const struct selector *const decode_selectors[] = { DECODE_SELECTORS(X) NULL };
#undef X

const char *const selector_blocks[] = { "64", "128", NULL };

static const struct selector *find_in(const struct selector *const *s, const char *name)
{
	while (*s && strcmp((*s)->name, name) != 0)
		s++;
	return *s;
}

const struct selector *selector_find(const char *name)
{
	const struct selector *s = find_in(selectors, name);

	return s ? s : find_in(decode_selectors, name);
}

enum ar_status selector_add(const struct selector *s, struct ar_err *err)
{
	int n = 0;
	enum ar_status st = selector_check(s, err);

	if (st)
		return st;
	if (selector_find(s->name))
		return ar_fail(err, AR_USAGE, "selector '%s' exists already: give it another name",
			       s->name);
	while (table[n])
		n++;
	if (n == SELECTORS_MAX)
		return ar_fail(err, AR_USAGE, "selector '%s': there is room for %d selectors",
			       s->name, SELECTORS_MAX);
	table[n] = s;
	return AR_OK;
}
