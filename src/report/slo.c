/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/report/slo.h"

#include <stdio.h>
#include <string.h>

#include "base/number.h"

static const char *const metrics[] = { "ttft", "tpot", "e2e", NULL };

static enum ar_status wrong(const char *item, size_t n, const char *want, struct ar_err *err)
{
	return ar_fail(err, AR_USAGE, "slo '%.*s': %s", (int)n, item, want);
}

/* The "p99:" before the time, if there is one.  *at moves behind it. */
static bool read_percentile(struct slo_limit *l, const char **at, const char *end)
{
	const char *colon = memchr(*at, ':', (size_t)(end - *at));
	char text[16];

	if (!colon)
		return true;
	snprintf(text, sizeof text, "%.*s", (int)(colon - *at), *at);
	*at = colon + 1;
	return *text == 'p' && num_real(text + 1, &l->percentile) && l->percentile > 0 &&
	       l->percentile <= 100;
}

static enum ar_status check_twice(const struct slo *s, const struct slo_limit *l,
				  struct ar_err *err)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->limit[i].metric == l->metric && s->limit[i].percentile == l->percentile)
			return ar_fail(err, AR_USAGE, "slo names %s twice; leave one out",
				       l->metric);
	return s->n < SLO_MAX ? AR_OK :
				ar_fail(err, AR_USAGE,
					"slo has more than %d limits; leave some out", SLO_MAX);
}

static enum ar_status slo_add(struct slo *s, const char *item, size_t n, bool percentiles,
			      struct ar_err *err)
{
	const char *at = memchr(item, ':', n);
	struct slo_limit l = { 0 };
	enum ar_status st;
	char time[32];

	for (int i = 0; at && metrics[i]; i++)
		if (strlen(metrics[i]) == (size_t)(at - item) &&
		    !memcmp(metrics[i], item, strlen(metrics[i])))
			l.metric = metrics[i];
	if (!l.metric)
		return wrong(item, n,
			     percentiles ? "want a limit such as ttft:p99:500ms, of ttft, tpot or "
					   "e2e" :
					   "want ttft:TIME, tpot:TIME or e2e:TIME",
			     err);
	at++;
	if (!read_percentile(&l, &at, item + n))
		return wrong(item, n, "want a percentile such as p50, p99 or p99.9", err);
	if (l.percentile > 0 && !percentiles)
		return wrong(item, n,
			     "a percentile is one of many requests, but the goodput counts single "
			     "ones; leave it out, or use 'attnreplay search'",
			     err);
	snprintf(time, sizeof time, "%.*s", (int)(item + n - at), at);
	if (!num_time(time, &l.ns) || l.ns <= 0)
		return wrong(item, n, "want a time such as 500ms after the colon", err);
	st = check_twice(s, &l, err);
	if (!st)
		s->limit[s->n++] = l;
	return st;
}

enum ar_status slo_parse(struct slo *out, const char *text, bool percentiles, struct ar_err *err)
{
	struct slo s = { 0 };
	enum ar_status st;

	for (;; text++) {
		size_t n = strcspn(text, ",");

		st = slo_add(&s, text, n, percentiles, err);
		text += n;
		if (st || !*text)
			break;
	}
	if (!st)
		*out = s;
	return st;
}
