/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/export/export_names.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/dynlib.h"

static char *(*demangle)(const char *name, char *out, size_t *n, int *status);

enum ar_status names_load(struct ar_err *err)
{
	const struct dynlib_sym syms[] = { { "__cxa_demangle", (void **)&demangle }, { 0 } };

	return demangle ? AR_OK : dynlib_load("libstdc++.so.6", "ATTNREPLAY_LIBSTDCXX", syms, err);
}

/* Status of __cxa_demangle(): no memory. */
enum { DEMANGLE_NOMEM = -1 };

char *name_full(const char *name)
{
	int status = 0;
	char *full = demangle ? demangle(name, NULL, NULL, &status) : NULL;

	return full || status == DEMANGLE_NOMEM ? full : strdup(name);
}

/* Return the first character outside of any <> that is '(' and begins the parameters, or the end.
 * Set *begin to where the function's own name begins. */
static char *find_end(char *s, char **begin)
{
	static const char unnamed[] = "(anonymous namespace)";
	int depth = 0;

	*begin = s;
	for (; *s; s++) {
		if (!strncmp(s, unnamed, sizeof unnamed - 1))
			s += sizeof unnamed - 2;
		else if (*s == '<')
			depth++;
		else if (*s == '>')
			depth--;
		else if (!depth && *s == '(')
			break;
		else if (!depth && (*s == ':' || *s == ' '))
			*begin = s + 1;
	}
	return s;
}

char *name_cut(char *full)
{
	char *begin, *end = find_end(full, &begin);
	char *angle = memchr(begin, '<', (size_t)(end - begin));
	size_t n = (size_t)((angle ? angle : end) - begin);

	if (n) {
		memmove(full, begin, n);
		full[n] = 0;
	}
	return full;
}

static void give(sqlite3_context *c, sqlite3_value *mangled, bool cut)
{
	const char *name = (const char *)sqlite3_value_text(mangled);
	char *full = name ? name_full(name) : NULL;

	if (full)
		sqlite3_result_text(c, cut ? name_cut(full) : full, -1, free);
	else
		sqlite3_result_error_nomem(c);
}

static void give_full(sqlite3_context *c, int argc, sqlite3_value **argv)
{
	(void)argc;
	give(c, argv[0], false);
}

static void give_short(sqlite3_context *c, int argc, sqlite3_value **argv)
{
	(void)argc;
	give(c, argv[0], true);
}

int names_register(sqlite3 *db)
{
	const int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS;
	int rc = sqlite3_create_function(db, "full_name", 1, flags, NULL, give_full, NULL, NULL);

	return rc ? rc :
		    sqlite3_create_function(db, "short_name", 1, flags, NULL, give_short, NULL,
					    NULL);
}
