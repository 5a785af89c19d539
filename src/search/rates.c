/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/search/rates.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

const char *rate_text(double rate, char text[RATE_CHARS])
{
	for (int digits = 4; digits <= 17; digits++) {
		snprintf(text, RATE_CHARS, "%.*g", digits, rate);
		if (strtod(text, NULL) == rate)
			break;
	}
	return text;
}

double rates_round(double x)
{
	char text[RATE_CHARS];

	snprintf(text, sizeof text, "%.4g", x);
	return strtod(text, NULL);
}

/* Rate number k of the scan. */
static double scan_rate(const struct rates *r, int k)
{
	double x = k ? rates_round(ldexp(r->start, k)) : r->start;

	return r->highest > 0 && x > r->highest ? r->highest : x;
}

/* Halve the rate until one keeps the limits.  *k: the last one. */
static enum ar_status scan_down(const struct rates *r, int *k, bool *kept, struct ar_err *err)
{
	const int last = r->lowest > 0 ? 0 : -RATES_STEPS;
	enum ar_status st;

	for (*k = 0;; --*k) {
		st = r->keeps(r->self, scan_rate(r, *k), kept, err);
		if (st || *kept || *k == last)
			return st;
	}
}

/* Whether rate k is beyond the last one to try. */
static bool beyond(const struct rates *r, int k)
{
	return r->highest > 0 ? scan_rate(r, k - 1) >= r->highest : k > RATES_STEPS;
}

/* From rate k on, tried and kept or not: double it until two in a row fail.  The rates up to the
 * first one are known to fail, if that is not k. */
static enum ar_status scan_up(const struct rates *r, int k, bool kept, struct rates_found *f,
			      struct ar_err *err)
{
	int failures = !kept;
	enum ar_status st = AR_OK;

	*(kept ? &f->kept : &f->failed) = scan_rate(r, k);
	for (k++; failures < 2 && !beyond(r, k) && !st; k++) {
		double x = scan_rate(r, k);

		kept = false;
		if (k > 0)
			st = r->keeps(r->self, x, &kept, err);
		if (st)
			break;
		failures = kept ? 0 : failures + 1;
		if (kept)
			*f = (struct rates_found){ .kept = x };
		else if (f->failed == 0)
			f->failed = x;
	}
	return st;
}

/* Four digits are finer than the precision, so the middle lies between the ends. */
static enum ar_status bisect(const struct rates *r, struct rates_found *f, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	while (!st && f->failed > f->kept * (1 + r->precision)) {
		double x = rates_round(sqrt(f->kept * f->failed));
		bool kept;

		st = r->keeps(r->self, x, &kept, err);
		if (!st)
			*(kept ? &f->kept : &f->failed) = x;
	}
	return st;
}

/* Move the end that is not kept, or not failed, away from the other one. */
static enum ar_status widen(const struct rates *r, struct rates_found *f, bool up,
			    struct ar_err *err)
{
	double step = f->failed / f->kept;
	enum ar_status st = AR_OK;

	for (int i = 0; i < RATES_STEPS && !st; i++, step *= step) {
		const double x = rates_round(up ? f->kept * step : f->failed / step);
		bool kept;

		st = r->keeps(r->self, x, &kept, err);
		if (st || kept != up) {
			*(up ? &f->failed : &f->kept) = x;
			return st;
		}
		*(up ? &f->kept : &f->failed) = x;
	}
	*(up ? &f->failed : &f->kept) = 0;
	return st;
}

enum ar_status rates_from(const struct rates *r, struct rates_found *f, struct ar_err *err)
{
	bool low, high = false;
	enum ar_status st = r->keeps(r->self, f->kept, &low, err);

	if (!st && low)
		st = r->keeps(r->self, f->failed, &high, err);
	if (st || (low && !high))
		return st;
	st = widen(r, f, low, err);
	return st || !(f->kept > 0 && f->failed > 0) ? st : bisect(r, f, err);
}

enum ar_status rates_find(const struct rates *r, struct rates_found *out, struct ar_err *err)
{
	bool kept;
	int k;
	enum ar_status st = scan_down(r, &k, &kept, err);

	*out = (struct rates_found){ 0 };
	if (!st)
		st = scan_up(r, k, kept, out, err);
	if (!st && out->kept > 0 && out->failed > 0)
		st = bisect(r, out, err);
	return st;
}
