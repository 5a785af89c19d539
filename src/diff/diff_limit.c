/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/diff/diff.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"

static const char *const metrics[] = { "ttft", "tpot", "itl", "e2e", NULL };
static const char *const places[] = { "p50", "p90", "p99", NULL };

static bool is_one_of(const char *const *list, const char *s)
{
	while (*list && strcmp(*list, s))
		list++;
	return *list;
}

enum ar_status diff_limit_parse(struct diff_limit *l, const char *text, size_t n,
				struct ar_err *err)
{
	char limit[32], *dot, *sign, *end;

	snprintf(limit, sizeof limit, "%.*s", (int)n, text);
	dot = strchr(limit, '.');
	sign = strpbrk(limit, "<>");
	end = strchr(limit, '%');
	if (n < sizeof limit && dot && sign && end && dot < sign && !end[1] &&
	    (size_t)(dot - limit) < sizeof l->metric && (size_t)(sign - dot) <= sizeof l->at) {
		l->sign = *sign;
		*dot = *sign = *end = '\0';
		snprintf(l->metric, sizeof l->metric, "%.*s", (int)sizeof l->metric - 1, limit);
		snprintf(l->at, sizeof l->at, "%.*s", (int)sizeof l->at - 1, dot + 1);
		if (is_one_of(metrics, l->metric) && is_one_of(places, l->at) &&
		    num_real(sign + 1, &l->percent))
			return AR_OK;
	}
	return ar_fail(
		err, AR_USAGE,
		"fail-if '%.*s': want a metric, a percentile and a change, such as "
		"ttft.p99>5%%; metrics are ttft, tpot, itl and e2e, percentiles p50, p90 and "
		"p99",
		(int)n, text);
}

static double percent_column(sqlite3_stmt *q, int i)
{
	return 100 * (sqlite3_column_double(q, i) - 1);
}

static bool exceeds(const struct diff_limit *l, double change)
{
	return l->sign == '>' ? change > l->percent : change < l->percent;
}

static enum ar_status judge_limit(sqlite3_stmt *q, const struct diff_limit *l, struct ar_err *err)
{
	const double change = percent_column(q, 0), lo = percent_column(q, 1),
		     hi = percent_column(q, 2);

	if (sqlite3_column_type(q, 1) == SQLITE_NULL)
		return ar_fail(err, AR_UNKNOWN,
			       "%s.%s changed by %+.2f %%, limit %c %g %%: not known, as it has no "
			       "interval: %s",
			       l->metric, l->at, change, l->sign, l->percent,
			       (const char *)sqlite3_column_text(q, 3));
	if (!exceeds(l, lo) && !exceeds(l, hi))
		return AR_OK;
	if (exceeds(l, lo) && exceeds(l, hi))
		return ar_fail(err, AR_LIMIT,
			       "%s.%s changed by %+.2f %%, limit %c %g %%, 95 %% interval %+.2f to "
			       "%+.2f %%",
			       l->metric, l->at, change, l->sign, l->percent, lo, hi);
	return ar_fail(err, AR_UNKNOWN,
		       "%s.%s changed by %+.2f %%, limit %c %g %%: not known, as the limit is "
		       "within its 95 %% interval, %+.2f to %+.2f %%; replay more requests",
		       l->metric, l->at, change, l->sign, l->percent, lo, hi);
}

enum ar_status diff_judge(const struct diff *x, const struct diff_limit *l, struct ar_err *err)
{
	static const char sql[] = "SELECT ratio, ratio_lo, ratio_hi, reason FROM diff_latency "
				  "WHERE metric = ?1 AND at = ?2 AND ratio IS NOT NULL";
	sqlite3_stmt *q = NULL;
	enum ar_status st;
	int rc = sqlite3_prepare_v2(x->db, sql, -1, &q, NULL);

	if (!rc)
		rc = sqlite3_bind_text(q, 1, l->metric, -1, SQLITE_STATIC);
	if (!rc)
		rc = sqlite3_bind_text(q, 2, l->at, -1, SQLITE_STATIC);
	if (!rc)
		rc = sqlite3_step(q);
	if (rc == SQLITE_ROW)
		st = judge_limit(q, l, err);
	else if (rc == SQLITE_DONE)
		st = ar_fail(err, AR_DATA,
			     "%s.%s: one of the runs has no such figure; leave it out", l->metric,
			     l->at);
	else
		st = writer_fail(x->db, err);
	sqlite3_finalize(q);
	return st;
}
