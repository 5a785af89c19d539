/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/report/sums.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/grow.h"
#include "base/number.h"

enum { MOST_KEYS = 4096 };

struct sums {
	struct sum {
		bool any;
		int64_t x, y;
	} * of; /* [n] by key */
	size_t n, cap;
};

static void add_row(sqlite3_context *c, int argc, sqlite3_value **argv)
{
	struct sums *s = sqlite3_aggregate_context(c, sizeof *s);
	const int64_t key = sqlite3_value_int64(argv[0]);
	struct sum *sum;

	(void)argc;
	if (key < 0 || key >= MOST_KEYS) {
		sqlite3_result_error(c, "sums: the first argument is an integer from 0 to 4095",
				     -1);
		return;
	}
	if (!s || !GROW(s->of, s->cap, (size_t)key + 1)) {
		sqlite3_result_error_nomem(c);
		return;
	}
	while (s->n <= (size_t)key)
		s->of[s->n++] = (struct sum){ 0 };
	sum = &s->of[key];
	sum->any = true;
	sum->x = num_add(sum->x, sqlite3_value_int64(argv[1]));
	sum->y = num_add(sum->y, sqlite3_value_int64(argv[2]));
}

static void end_sums(sqlite3_context *c)
{
	struct sums *s = sqlite3_aggregate_context(c, 0);
	sqlite3_str *text = sqlite3_str_new(NULL);
	const char *before = "[";

	for (size_t i = 0; s && i < s->n; i++) {
		if (!s->of[i].any)
			continue;
		sqlite3_str_appendf(text, "%s[%lld,%lld,%lld]", before, (long long)i,
				    (long long)s->of[i].x, (long long)s->of[i].y);
		before = ",";
	}
	sqlite3_str_appendall(text, *before == '[' ? "[]" : "]");
	if (sqlite3_str_errcode(text))
		sqlite3_result_error_nomem(c);
	else
		sqlite3_result_text(c, sqlite3_str_value(text), -1, SQLITE_TRANSIENT);
	sqlite3_free(sqlite3_str_finish(text));
	if (s)
		free(s->of);
}

int sums_register(sqlite3 *db)
{
	return sqlite3_create_function(db, "sums", 3,
				       SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS, NULL,
				       NULL, add_row, end_sums);
}
