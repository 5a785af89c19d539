/* SPDX-License-Identifier: Apache-2.0 */
/* Which rates a search tries, to find the highest one that keeps the limits. */
#ifndef AR_RATES_H
#define AR_RATES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Rates of a search that was given none of its ends: up to this many doublings and halvings. */
enum { RATES_STEPS = 10 };

struct rates {
	double start;		/* the first rate to try, at most highest */
	double lowest, highest; /* ends, lowest is start if given; 0: found */
	double precision;	/* of the result, at least 0.01 */
	/* Try a rate; it is asked for a rate once only. */
	enum ar_status (*keeps)(void *self, double rate, bool *kept, struct ar_err *err);
	void *self;
};

struct rates_found {
	double kept;   /* the highest rate that kept the limits, 0: none did */
	double failed; /* the lowest rate above it, or of all, that did not; 0: none */
};

/*
 * Double the rate from the start until two rates in a row fail; if the start fails, halve it first
 * until one keeps the limits.  Then halve, on a log scale, the gap above the highest rate that kept
 * them.  End when the gap is within the precision.  Rates have four digits, except given ends.
 */
enum ar_status rates_find(const struct rates *r, struct rates_found *out, struct ar_err *err);

/* The same from a bracket: f is that of other requests, both rates above 0.  Its ends are moved
 * until one keeps the limits and one does not, ever farther; then the gap is halved.  r->start and
 * the ends do not matter.  f->kept or f->failed 0: none was found. */
enum ar_status rates_from(const struct rates *r, struct rates_found *f, struct ar_err *err);

/* A rate as text: the fewest digits that read back as it. */
enum { RATE_CHARS = 32 };
const char *rate_text(double rate, char text[RATE_CHARS]);
double rates_round(double rate); /* to four digits */

#endif
