/* SPDX-License-Identifier: Apache-2.0 */
/* Dates from 1970 to April 2262, the range of nanoseconds in 63 bits. */
#include "config.h"
#include "traces/importers/date.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NS_PER_S INT64_C(1000000000)
enum { FIRST_YEAR = 1970, LAST_YEAR = 2262, DAY_S = 86400 };

static bool is_leap(int y)
{
	return y % 4 == 0 && (y % 100 || y % 400 == 0);
}

static int month_days(int y, int m)
{
	static const int days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };

	return days[m - 1] + (m == 2 && is_leap(y));
}

/* Days from 1970-01-01 to the first day of a month. */
static int days_before(int y, int m)
{
	int past = y - 1, days = 365 * (y - FIRST_YEAR) + past / 4 - past / 100 + past / 400 - 477;

	for (int k = 1; k < m; k++)
		days += month_days(y, k);
	return days;
}

/* Read exactly n digits from the front of *s. */
static bool digits(struct span *s, size_t n, int *out)
{
	int v = 0;

	if (s->n < n)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (s->s[i] < '0' || s->s[i] > '9')
			return false;
		v = v * 10 + (s->s[i] - '0');
	}
	s->s += n;
	s->n -= n;
	*out = v;
	return true;
}

static bool literal(struct span *s, char c)
{
	if (!s->n || *s->s != c)
		return false;
	s->s++;
	s->n--;
	return true;
}

/* Read ".6805900" or nothing. */
static bool fraction(struct span *s, int64_t *ns)
{
	int64_t unit = NS_PER_S;
	int d;

	*ns = 0;
	if (!literal(s, '.'))
		return true;
	while (unit > 1 && digits(s, 1, &d)) {
		unit /= 10;
		*ns += d * unit;
	}
	return unit < NS_PER_S;
}

/* Read "Z", "+hh", "+hhmm", "+hh:mm" or nothing, up to the end. */
static bool zone_suffix(struct span *s, int *offset_s, enum date_zone *zone)
{
	int h = 0, m = 0, sign;

	*offset_s = 0;
	*zone = s->n ? DATE_ZONED : DATE_BARE;
	if (!s->n)
		return true;
	if (literal(s, 'Z'))
		return !s->n;
	sign = literal(s, '-') ? -1 : 1;
	if (sign > 0 && !literal(s, '+'))
		return false;
	if (!digits(s, 2, &h))
		return false;
	if (s->n && ((literal(s, ':') && !s->n) || !digits(s, 2, &m)))
		return false;
	*offset_s = sign * (h * 3600 + m * 60);
	return !s->n && h < 24 && m < 60;
}

bool date_parse(struct span s, int64_t *ns, enum date_zone *zone)
{
	int y, mon, d, h, min, sec, offset_s;
	int64_t sub_ns, s_total;
	enum date_zone z;

	if (!digits(&s, 4, &y) || !literal(&s, '-') || !digits(&s, 2, &mon) || !literal(&s, '-') ||
	    !digits(&s, 2, &d) || !(literal(&s, ' ') || literal(&s, 'T')) || !digits(&s, 2, &h) ||
	    !literal(&s, ':') || !digits(&s, 2, &min) || !literal(&s, ':') ||
	    !digits(&s, 2, &sec) || !fraction(&s, &sub_ns) || !zone_suffix(&s, &offset_s, &z))
		return false;
	if (y < FIRST_YEAR || y > LAST_YEAR || mon < 1 || mon > 12 || d < 1 ||
	    d > month_days(y, mon) || h > 23 || min > 59 || sec > 59)
		return false;
	s_total = (int64_t)(days_before(y, mon) + d - 1) * DAY_S + h * 3600 + min * 60 + sec -
		  offset_s;
	if (s_total < 0 || s_total >= DATE_MAX_NS / NS_PER_S)
		return false;
	*ns = s_total * NS_PER_S + sub_ns;
	*zone = z;
	return true;
}

void date_format(char *buf, int64_t ns)
{
	int64_t s = ns / NS_PER_S;
	int day = (int)(s / DAY_S), sec = (int)(s % DAY_S), y = FIRST_YEAR, m = 1;

	while (days_before(y + 1, 1) <= day)
		y++;
	while (m < 12 && days_before(y, m + 1) <= day)
		m++;
	snprintf(buf, DATE_CHARS, "%04d-%02d-%02dT%02d:%02d:%02d.%09" PRId64 "Z", y, m,
		 day - days_before(y, m) + 1, sec / 3600, sec / 60 % 60, sec % 60, ns % NS_PER_S);
}
