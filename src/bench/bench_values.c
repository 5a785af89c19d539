/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/bench/bench_values.h"

#include <stdio.h>
#include <string.h>

#include "base/number.h"

enum ar_status bench_values(const char *option, const char *list, bench_item *item, void *to,
			    const char *want, struct ar_err *err)
{
	char text[64];

	for (const char *s = list;; s++) {
		size_t n = strcspn(s, ",");

		snprintf(text, sizeof text, "%.*s", (int)n, s);
		if (n >= sizeof text || !item(text, to))
			return ar_fail(err, AR_USAGE, "--%s '%s': want %s", option, list, want);
		s += n;
		if (!*s)
			return AR_OK;
	}
}

struct counts {
	int64_t *v;
	int *n;
};

static bool add_count(const char *text, void *to)
{
	const struct counts *c = to;

	return *c->n < BENCH_LIST && num_count(text, &c->v[*c->n]) && c->v[*c->n] >= 1 &&
	       c->v[(*c->n)++] <= INT32_MAX;
}

enum ar_status bench_counts(const char *option, const char *list, int64_t *v, int *n,
			    struct ar_err *err)
{
	struct counts to = { v, n };

	*n = 0;
	return bench_values(option, list, add_count, &to, "up to 64 counts such as 8 or 32K", err);
}
