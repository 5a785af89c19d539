/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/report/interval.h"

#include <math.h>
#include <stdlib.h>

#include "base/bootstrap.h"
#include "base/grow.h"
#include "base/order.h"
#include "base/rng.h"
#include "base/status.h"

enum { MEANS = 2000, SEED = 1 };

/* Fewer groups than MEAN_LEAST say too little of their spread.  MEAN_FAR standard errors are more
 * than all but heavy tails need; without an end the interval of 24 prompts, of which one lost much,
 * would be ten times as wide and hold the truth no more often. */
enum { MEAN_LEAST = 12, MEAN_FAR = 6 };

struct group {
	int64_t place;
	double v[2]; /* sum and number of its values */
};

struct groups {
	struct group *v;
	size_t n, cap;
};

static void add_group(sqlite3_context *c, int argc, sqlite3_value **argv)
{
	struct groups *s = sqlite3_aggregate_context(c, sizeof *s);

	if (!s) {
		sqlite3_result_error_nomem(c);
		return;
	}
	for (int i = 1; i < argc; i++)
		if (sqlite3_value_type(argv[i]) == SQLITE_NULL)
			return;
	if (!GROW(s->v, s->cap, s->n + 1)) {
		sqlite3_result_error_nomem(c);
		return;
	}
	s->v[s->n++] = (struct group){ sqlite3_value_int64(argv[0]),
				       { sqlite3_value_double(argv[1]),
					 argc > 2 ? sqlite3_value_double(argv[2]) : 1 } };
}

static int by_place(const void *a, const void *b)
{
	const struct group *x = a, *y = b;

	return ORDER(x->place, y->place);
}

/* A mean of groups, and its standard error: by the residuals, a group's sum less the mean times its
 * number of values. */
struct mean {
	double of, error;
};

/* The mean of the groups, or of a resample of them, less `from`, which is near it: so the squares
 * do not cancel. */
static struct mean group_mean(const struct groups *s, double from, struct rng *r)
{
	double sum = 0, n = 0, sum2 = 0, cross = 0, n2 = 0, m;

	for (size_t i = 0; i < s->n; i++) {
		const struct group *p = &s->v[r ? rng_below(r, s->n) : i];
		const double x = p->v[0] - from * p->v[1];

		sum += x;
		n += p->v[1];
		sum2 += x * x;
		cross += x * p->v[1];
		n2 += p->v[1] * p->v[1];
	}
	m = sum / n;
	return (struct mean){ m, sqrt(fmax(sum2 - 2 * m * cross + m * m * n2, 0)) / n };
}

/* The distance of a resample's mean from the mean, in its own standard errors.  Where the rare
 * values are missing, the resample has next to no spread. */
static double mean_distance(struct mean m)
{
	const double t = m.of / m.error;

	return m.of == 0 ? 0 : fmin(fmax(t, -MEAN_FAR), MEAN_FAR);
}

/* out: mean, lo, hi, by the bootstrap-t: means of skewed values lie to one side of the truth, where
 * their standard errors are small. */
static enum ar_status find_mean(const struct groups *s, double out[3], struct ar_err *err)
{
	const double mean = group_mean(s, 0, NULL).of;
	const struct mean m = group_mean(s, mean, NULL);
	double *draw, lo, hi;
	struct rng r = { SEED };

	out[0] = mean;
	out[1] = out[2] = NAN;
	if (s->n < MEAN_LEAST)
		return AR_OK;
	draw = malloc(MEANS * sizeof *draw);
	if (!draw)
		return ar_nomem(err);
	for (size_t k = 0; k < MEANS; k++)
		draw[k] = mean_distance(group_mean(s, mean, &r));
	bootstrap_interval(draw, MEANS, 0.95, &lo, &hi);
	out[1] = mean - hi * m.error;
	out[2] = mean - lo * m.error;
	free(draw);
	return AR_OK;
}

static void end_mean(sqlite3_context *c)
{
	struct groups *s = sqlite3_aggregate_context(c, 0);
	double r[3];
	struct ar_err err;
	char json[100];

	if (s && s->n) {
		qsort(s->v, s->n, sizeof *s->v, by_place);
		if (find_mean(s, r, &err)) {
			sqlite3_result_error_nomem(c);
		} else if (isfinite(r[0])) {
			bool known = s->n > 1 && isfinite(r[1]) && isfinite(r[2]);

			sqlite3_snprintf(sizeof json, json,
					 known ? "[%!.17g,%!.17g,%!.17g]" : "[%!.17g,null,null]",
					 r[0], r[1], r[2]);
			sqlite3_result_text(c, json, -1, SQLITE_TRANSIENT);
		}
	}
	if (s)
		free(s->v);
}

int interval_register(sqlite3 *db)
{
	const int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS;
	int rc = SQLITE_OK;

	for (int n_arg = 2; n_arg <= 3 && !rc; n_arg++)
		rc = sqlite3_create_function(db, "mean_interval", n_arg, flags, NULL, NULL,
					     add_group, end_mean);
	return rc;
}
