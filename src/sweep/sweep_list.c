/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/sweep/sweep_list.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"

enum ar_status texts_add(struct texts *t, const char *text, size_t n, struct ar_err *err)
{
	if (!GROW(t->v, t->cap, t->n + 1))
		return ar_nomem(err);
	t->v[t->n] = strndup(text, n);
	if (!t->v[t->n])
		return ar_nomem(err);
	t->n++;
	return AR_OK;
}

void texts_release(struct texts *t)
{
	for (size_t i = 0; i < t->n; i++)
		free(t->v[i]);
	free(t->v);
	*t = (struct texts){ 0 };
}

const char *list_space(const char *s)
{
	while (isspace((unsigned char)*s))
		s++;
	return s;
}

enum ar_status list_value(const char **s, const char *ends, struct texts *to, struct ar_err *err)
{
	const char *from = *s = list_space(*s);
	size_t n;

	if (*from == '"') {
		n = strcspn(++from, "\"");
		if (!from[n])
			return ar_fail(err, AR_USAGE, "a quote without its end");
		*s = list_space(from + n + 1);
		if (**s && !strchr(ends, **s))
			return ar_fail(err, AR_USAGE, "'%s' after a quoted value; want a comma",
				       *s);
	} else {
		n = strcspn(from, ends);
		*s = from + n;
		while (n && isspace((unsigned char)from[n - 1]))
			n--;
	}
	if (!n)
		return ar_fail(err, AR_USAGE, "an empty value");
	return texts_add(to, from, n, err);
}

enum ar_status list_read(const char **s, struct texts *to, struct ar_err *err)
{
	enum ar_status st;

	do {
		++*s;
		st = list_value(s, ",]", to, err);
	} while (!st && **s == ',');
	if (!st && **s != ']')
		st = ar_fail(err, AR_USAGE, "a list without its end ']'");
	if (!st)
		*s = list_space(*s + 1);
	return st;
}
