/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/report/phrase.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include "src/revision.h"

enum { ROOM = 80 };

/* Three digits, of large numbers all before the point. */
static int decimals(double x)
{
	return x < 9.995 ? 2 : x < 99.95 ? 1 : 0;
}

static void end_text(sqlite3_context *c, const char *text)
{
	sqlite3_result_text(c, text, -1, SQLITE_TRANSIENT);
}

static bool is_speedup(sqlite3_value *v)
{
	return sqlite3_value_type(v) != SQLITE_NULL && isfinite(sqlite3_value_double(v)) &&
	       sqlite3_value_double(v) > 0;
}

static void times(sqlite3_context *c, int argc, sqlite3_value **argv)
{
	const double x = sqlite3_value_double(argv[0]);
	char text[ROOM];

	(void)argc;
	if (!is_speedup(argv[0]))
		return;
	snprintf(text, sizeof text, "%.*fx", decimals(x), x);
	end_text(c, text);
}

static void put_phrase(sqlite3_context *c, const char *before, const char *after, const double v[3],
		       bool has_ends)
{
	char text[ROOM], ends[ROOM / 2] = "";

	if (has_ends)
		snprintf(ends, sizeof ends, " [%.*f, %.*f]", decimals(v[1]), v[1], decimals(v[2]),
			 v[2]);
	snprintf(text, sizeof text, "%s%.*fx%s%s", before, decimals(v[0]), v[0], after, ends);
	end_text(c, text);
}

/* An interval that holds 1 tells no direction. */
static void put_range(sqlite3_context *c, double slower, double faster)
{
	char text[ROOM];

	snprintf(text, sizeof text, "%.*fx slower to %.*fx faster", decimals(slower), slower,
		 decimals(faster), faster);
	end_text(c, text);
}

static void faster(sqlite3_context *c, int argc, sqlite3_value **argv)
{
	const bool has_ends = is_speedup(argv[1]) && is_speedup(argv[2]);
	const double v[] = { sqlite3_value_double(argv[0]), sqlite3_value_double(argv[1]),
			     sqlite3_value_double(argv[2]) };
	const double inverse[] = { 1 / v[0], 1 / v[2], 1 / v[1] };

	(void)argc;
	if (!is_speedup(argv[0]))
		return;
	if (has_ends && v[1] <= 1 && v[2] >= 1 && inverse[2] + v[2] > 2.01) /* in print */
		put_range(c, inverse[2], v[2]);
	else if (has_ends && v[1] <= 1 && v[2] >= 1)
		put_phrase(c, "as fast, ", "", v, true);
	else if (v[0] < 1)
		put_phrase(c, "", " slower", inverse, has_ends);
	else
		put_phrase(c, "", " faster", v, has_ends);
}

static void thousands(sqlite3_context *c, int argc, sqlite3_value **argv)
{
	const double n = sqlite3_value_double(argv[0]);
	char text[ROOM];

	(void)argc;
	if (sqlite3_value_type(argv[0]) == SQLITE_NULL)
		return;
	snprintf(text, sizeof text, n < 1000 ? "%.3g" : "%.3gK", n < 1000 ? n : n / 1000);
	end_text(c, text);
}

static void program(sqlite3_context *c, int argc, sqlite3_value **argv)
{
	(void)argc;
	(void)argv;
	sqlite3_result_text(c, AR_REVISION, -1, SQLITE_STATIC);
}

int phrase_register(sqlite3 *db)
{
	static const struct {
		const char *name;
		int n_arg;
		void (*call)(sqlite3_context *, int, sqlite3_value **);
	} functions[] = { { "times", 1, times },
			  { "faster", 3, faster },
			  { "thousands", 1, thousands },
			  { "program", 0, program } };
	const int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS;
	int rc = SQLITE_OK;

	for (size_t i = 0; i < sizeof functions / sizeof *functions && !rc; i++)
		rc = sqlite3_create_function(db, functions[i].name, functions[i].n_arg, flags, NULL,
					     functions[i].call, NULL, NULL);
	return rc;
}
