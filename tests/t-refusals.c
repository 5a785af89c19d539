/* SPDX-License-Identifier: Apache-2.0 */
/* Refusals of methods.  For every selector in the table, a parameter out of range is refused with
 * its name and range.  Every composition that no executor runs is refused too. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/methods/method.h"
#include "tests/tap.h"

/* The composition of a selector's parts that runs. */
static const char *rest_of(const struct selector *s)
{
	return s->gives == SHAPE_TOKENS	 ? "exec=gather" :
	       s->gives == SHAPE_COLUMNS ? "exec=columns" :
					   "exec=blocksparse";
}

/* Whether the value is refused.  The message begins with the parameter and the value, and names the
 * wanted values. */
static bool refused(const struct selector *s, const char *name, const char *value)
{
	char text[256], start[512];
	struct method *m = (struct method *)1;
	struct ar_err err = { 0 };
	bool good;

	snprintf(text, sizeof text, "select=%s,%s=%s/%s", s->name, name, value, rest_of(s));
	snprintf(start, sizeof start, "method '%s': %s '%s': want ", text, name, value);
	good = method_parse(&m, text, &err) == AR_USAGE && !m &&
	       !strncmp(err.msg, start, strlen(start));
	if (!good)
		diag("%s: %s", text, m ? "accepted" : err.msg);
	if (m != (struct method *)1)
		method_free(m);
	return good;
}

/* Whether the value is one, though not for every selector together with its defaults: then the
 * message names the parameter as it was written. */
static bool taken(const struct selector *s, const char *name, const char *value)
{
	char text[256], given[128];
	struct method *m = NULL;
	struct ar_err err = { 0 };
	enum ar_status st;
	bool good;

	snprintf(text, sizeof text, "select=%s,%s=%s/%s", s->name, name, value, rest_of(s));
	snprintf(given, sizeof given, ": %s=%s", name, value);
	st = method_parse(&m, text, &err);
	good = !st || (st == AR_USAGE && strstr(err.msg, given));
	if (!good)
		diag("%s: %s", text, err.msg);
	method_free(m);
	return good;
}

static int number_faults(const struct selector *s, const struct opt *o)
{
	static const char *const none[] = { "x", "nan", "inf", "-inf", "1e999", "-1", "0x" };
	char lo[32], hi[32], under[32], over[32];
	int bad = 0;

	snprintf(lo, sizeof lo, "%.17g", o->min);
	snprintf(hi, sizeof hi, "%.17g", o->max);
	snprintf(under, sizeof under, "%.17g", o->type == OPT_INT ? o->min - 1 : o->min - 1e-9);
	snprintf(over, sizeof over, "%.17g", o->type == OPT_INT ? o->max + 1 : o->max + 1e-9);
	for (int i = 0; i < (int)(sizeof none / sizeof *none); i++)
		bad += !refused(s, o->name, none[i]);
	if (o->type == OPT_INT)
		bad += !refused(s, o->name, "1.5") + !refused(s, o->name, "99999999999999999999");
	return bad + !refused(s, o->name, under) + !refused(s, o->name, over) +
	       !taken(s, o->name, lo) + !taken(s, o->name, hi);
}

static int choice_faults(const struct selector *s, const struct opt *o)
{
	int bad = !refused(s, o->name, "nothing-like-it");

	for (int i = 0; o->choice[i]; i++)
		bad += !taken(s, o->name, o->choice[i]);
	return bad;
}

static int faults(const struct selector *s, const struct opt *o)
{
	switch (o->type) {
	case OPT_INT:
	case OPT_REAL: return (o->min >= o->max) + number_faults(s, o);
	case OPT_ENUM: return choice_faults(s, o);
	case OPT_FLAG:
		return !refused(s, o->name, "2") + !refused(s, o->name, "on") +
		       !taken(s, o->name, "0") + !taken(s, o->name, "1") +
		       !taken(s, o->name, "no") + !taken(s, o->name, "yes");
	default: return 0;
	}
}

/* A parameter that the selector has not, and one without its value. */
static bool unknown_is_refused(const struct selector *s)
{
	static const char *const part[] = { "no-such=1", "=1", "," };
	bool good = true;

	for (int i = 0; i < 3; i++) {
		char text[256];
		struct method *m = NULL;
		struct ar_err err;

		snprintf(text, sizeof text, "select=%s,%s/%s", s->name, part[i], rest_of(s));
		good = good && method_parse(&m, text, &err) == AR_USAGE && !m;
	}
	return good;
}

/* Pairs that the parser takes although the executor does not take the shape, or the reverse. */
static int wrong_pairs(const struct selector *s)
{
	int bad = 0;

	for (int u = 0; unions[u].name; u++)
		for (int x = 0; executors[x]; x++) {
			char text[128];
			struct method *m = NULL;
			struct ar_err err = { 0 };
			bool masks = s->ref && !s->gives, runs;
			unsigned shape = !s->ref  ? SHAPE_ALL :
					 s->gives ? s->gives :
					 u	  ? SHAPE_TABLE :
						    SHAPE_MASK;
			enum ar_status st;

			snprintf(text, sizeof text, "select=%s/union=%s/exec=%s", s->name,
				 unions[u].name, executors[x]->name);
			runs = (masks || !u) && executor_takes(executors[x], shape);
			st = method_parse(&m, text, &err);
			bad += runs ? st != AR_OK : st != AR_USAGE || m || !*err.msg;
			if (runs == !!st)
				diag("%s: %s", text, st ? err.msg : "accepted");
			method_free(m);
		}
	return bad;
}

int main(void)
{
	plan(0);
	for (int i = 0; selectors[i]; i++) {
		const struct selector *s = selectors[i];
		int bad = 0, n = 0;

		for (const struct opt *o = s->params; o && o->name; o++, n++)
			bad += faults(s, o);
		if (n)
			is_int(bad, 0, "%s: each of %d parameters is held to its range", s->name,
			       n);
		if (n)
			ok(unknown_is_refused(s), "%s: others are refused", s->name);
		is_int(wrong_pairs(s), 0, "%s: it is taken by the executors of its shape alone",
		       s->name);
	}
	return done_testing();
}
