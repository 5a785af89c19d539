/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/number.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool num_u64(const char *s, size_t n, uint64_t *out)
{
	uint64_t v = 0;

	if (!n)
		return false;
	for (size_t i = 0; i < n; i++) {
		unsigned d = (unsigned)(s[i] - '0');

		if (d > 9 || v > (UINT64_MAX - d) / 10)
			return false;
		v = v * 10 + d;
	}
	*out = v;
	return true;
}

bool num_range(const char *s, size_t n, uint64_t *from, uint64_t *to)
{
	const char *dash = memchr(s, '-', n);
	size_t head = dash ? (size_t)(dash - s) : n;
	uint64_t a, b;

	if (!num_u64(s, head, &a))
		return false;
	b = a;
	if (dash && (!num_u64(dash + 1, n - head - 1, &b) || a > b))
		return false;
	*from = a;
	*to = b;
	return true;
}

/* Parse digits[.digits][e[sign]digits] as mant * 10^exp10.  Digits after the 30th cannot change a
 * 64-bit result, so they only move the exponent. */
static bool decimal(const char *s, size_t n, unsigned __int128 *mant, int *exp10)
{
	unsigned __int128 m = 0;
	int e = 0, digits = 0, seen = 0;
	bool dot = false;
	size_t i;

	for (i = 0; i < n && (isdigit((unsigned char)s[i]) || (s[i] == '.' && !dot)); i++) {
		if (s[i] == '.') {
			dot = true;
			continue;
		}
		seen = 1;
		if (digits < 30) {
			m = m * 10 + (unsigned)(s[i] - '0');
			digits += m != 0;
			e -= dot;
		} else {
			e += !dot;
		}
		if (e < -1000 || e > 1000)
			return false;
	}
	if (!seen)
		return false;
	if (i < n && (s[i] == 'e' || s[i] == 'E')) {
		int sign = 1, x = 0, any = 0;

		i++;
		if (i < n && (s[i] == '+' || s[i] == '-'))
			sign = s[i++] == '-' ? -1 : 1;
		for (; i < n && isdigit((unsigned char)s[i]) && x < 10000; i++, any = 1)
			x = x * 10 + (s[i] - '0');
		if (!any)
			return false;
		e += sign * x;
	}
	*mant = m;
	*exp10 = e;
	return i == n;
}

/* num_scaled, and *exact: the result was not rounded. */
static bool scale(const char *s, size_t n, int64_t unit, int64_t *out, bool *exact)
{
	const unsigned __int128 limit = (unsigned __int128)INT64_MAX << 62;
	unsigned __int128 v;
	bool neg = false, half = false;
	int e;

	if (n && (*s == '-' || *s == '+')) {
		neg = *s == '-';
		s++, n--;
	}
	if (!decimal(s, n, &v, &e))
		return false;
	/* Fold powers of ten of unit into the exponent, so that the product cannot overflow before
	 * the division. */
	while (unit % 10 == 0) {
		unit /= 10;
		e++;
	}
	if (v > limit / (unsigned __int128)unit)
		return false;
	v *= (unsigned __int128)unit;
	for (; e > 0 && v; e--) {
		if (v > limit / 10)
			return false;
		v *= 10;
	}
	*exact = true;
	for (; e < 0 && v; e++) {
		half = v % 10 >= 5;
		*exact &= v % 10 == 0;
		v /= 10;
	}
	v += e == 0 && half; /* e < 0 here: below a tenth */
	if (v > INT64_MAX)
		return false;
	*out = neg ? -(int64_t)v : (int64_t)v;
	return true;
}

bool num_scaled(const char *s, size_t n, int64_t unit, int64_t *out)
{
	bool exact;

	return scale(s, n, unit, out, &exact);
}

struct unit {
	const char *name;
	int64_t factor;
};

static bool with_unit(const char *s, const struct unit *units, int64_t *out, bool *exact)
{
	size_t n = strspn(s, "0123456789.");

	for (; units->name; units++)
		if (!strcmp(s + n, units->name))
			return scale(s, n, units->factor, out, exact);
	return false;
}

bool num_time(const char *s, int64_t *ns)
{
	static const struct unit units[] = {
		{ "ns", 1 },	     { "us", 1000 },	     { "ms", 1000000 },
		{ "s", 1000000000 }, { "min", 60000000000 }, { "h", 3600000000000 },
		{ NULL, 0 }
	};
	bool exact;

	if (!strcmp(s, "0")) {
		*ns = 0;
		return true;
	}
	return with_unit(s, units, ns, &exact);
}

bool num_count(const char *s, int64_t *out)
{
	static const struct unit units[] = {
		{ "", 1 },	     { "B", 1 },	 { "k", 1000 },	    { "m", 1000000 },
		{ "g", 1000000000 }, { "kB", 1000 },	 { "MB", 1000000 }, { "GB", 1000000000 },
		{ "K", 1 << 10 },    { "M", 1 << 20 },	 { "G", 1 << 30 },  { "KiB", 1 << 10 },
		{ "MiB", 1 << 20 },  { "GiB", 1 << 30 }, { NULL, 0 }
	};

	bool neg = *s == '-', exact = false;

	if (!with_unit(s + neg, units, out, &exact) || !exact)
		return false;
	if (neg)
		*out = -*out;
	return true;
}

bool num_real(const char *s, double *out)
{
	char *end;

	if (!*s || isspace((unsigned char)*s))
		return false;
	*out = strtod(s, &end);
	return !*end && isfinite(*out);
}

char *num_time_str(char *buf, size_t n, double ns)
{
	static const char *const unit[] = { "ns", "us", "ms", "s" };
	int u = 0;

	while (u < 3 && fabs(ns) >= 1000) {
		ns /= 1000;
		u++;
	}
	snprintf(buf, n, "%.*f %s", fabs(ns) < 10 ? 2 : fabs(ns) < 100 ? 1 : 0, ns, unit[u]);
	return buf;
}
