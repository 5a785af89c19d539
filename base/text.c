/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Read up to cap bytes of f; *n: bytes read. */
static enum ar_status fill(FILE *f, char **text, size_t cap, size_t *n, struct ar_err *err)
{
	size_t have = 0;

	for (*n = 0; *n == have && have < cap;) {
		size_t room = have ? 2 * have : 4096;
		char *more;

		room = room < cap ? room : cap;
		more = realloc(*text, room + 1);
		if (!more)
			return ar_nomem(err);
		*text = more;
		*n += fread(*text + *n, 1, room - *n, f);
		have = room;
	}
	(*text)[*n] = 0;
	return AR_OK;
}

enum ar_status text_read(char **out, const char *path, size_t max, struct ar_err *err)
{
	FILE *f = fopen(path, "r");
	char *text = NULL;
	enum ar_status st;
	size_t n;

	*out = NULL;
	if (!f)
		return ar_fail(err, AR_DATA, "%s: %s", path, strerror(errno));
	st = fill(f, &text, max + 1, &n, err);
	if (!st && ferror(f))
		st = ar_fail(err, AR_DATA, "%s: %s", path, strerror(errno));
	else if (!st && n > max)
		st = ar_fail(err, AR_DATA, "%s: too large, more than %zu bytes", path, max);
	fclose(f);
	if (st)
		free(text);
	else
		*out = text;
	return st;
}

int text_line(const char *text, const char *end)
{
	int line = 1;

	for (; text < end; text++)
		line += *text == '\n';
	return line;
}
