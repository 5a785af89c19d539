/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/export/lanes.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/grow.h"

static bool lane_before(const struct lane *a, const struct lane *b)
{
	return a->end_ns != b->end_ns ? a->end_ns < b->end_ns : a->no < b->no;
}

static void lane_swap(struct lane *a, struct lane *b)
{
	struct lane x = *a;

	*a = *b;
	*b = x;
}

static void sift_up(struct lane *v, size_t i)
{
	for (; i && lane_before(&v[i], &v[(i - 1) / 2]); i = (i - 1) / 2)
		lane_swap(&v[i], &v[(i - 1) / 2]);
}

static void sift_down(struct lane *v, size_t n)
{
	for (size_t i = 0, k; (k = 2 * i + 1) < n; i = k) {
		if (k + 1 < n && lane_before(&v[k + 1], &v[k]))
			k++;
		if (lane_before(&v[i], &v[k]))
			return;
		lane_swap(&v[i], &v[k]);
	}
}

int64_t lanes_take(struct lanes *l, int64_t start_ns, int64_t end_ns)
{
	int64_t no;

	if (l->n && l->lane[0].end_ns <= start_ns) {
		no = l->lane[0].no;
		l->lane[0].end_ns = end_ns;
		sift_down(l->lane, l->n);
		return no;
	}
	if (!GROW(l->lane, l->cap, l->n + 1))
		return 0;
	no = (int64_t)l->n + 1;
	l->lane[l->n] = (struct lane){ end_ns, no };
	sift_up(l->lane, l->n++);
	return no;
}

static void lane_take(sqlite3_context *c, int argc, sqlite3_value **argv)
{
	int64_t no = lanes_take(sqlite3_user_data(c), sqlite3_value_int64(argv[0]),
				sqlite3_value_int64(argv[1]));

	(void)argc;
	if (no)
		sqlite3_result_int64(c, no);
	else
		sqlite3_result_error_nomem(c);
}

static void lanes_drop(void *lanes)
{
	free(((struct lanes *)lanes)->lane);
	free(lanes);
}

/* SQLite drops the lanes, also after a failure. */
int lanes_register(sqlite3 *db)
{
	struct lanes *l = calloc(1, sizeof *l);

	return l ? sqlite3_create_function_v2(db, "lane", 2, SQLITE_UTF8, l, lane_take, NULL, NULL,
					      lanes_drop) :
		   SQLITE_NOMEM;
}
