/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/report/slo.h"

#include <stdio.h>
#include <string.h>

#include "base/number.h"

static const char *const metrics[SLO_MAX] = { "ttft", "tpot", "e2e" };

static enum ar_status add(struct slo *s, const char *item, size_t n, struct ar_err *err)
{
	const char *colon = memchr(item, ':', n);
	const char *metric = NULL;
	char time[32];
	int64_t ns;

	for (int i = 0; colon && i < SLO_MAX; i++)
		if (strlen(metrics[i]) == (size_t)(colon - item) &&
		    !memcmp(metrics[i], item, strlen(metrics[i])))
			metric = metrics[i];
	if (!metric)
		return ar_fail(err, AR_USAGE, "slo '%.*s': want ttft:TIME, tpot:TIME or e2e:TIME",
			       (int)n, item);
	snprintf(time, sizeof time, "%.*s", (int)(item + n - colon - 1), colon + 1);
	if (!num_time(time, &ns) || ns <= 0)
		return ar_fail(err, AR_USAGE,
			       "slo '%.*s': want a time such as 500ms after the "
			       "colon",
			       (int)n, item);
	for (size_t i = 0; i < s->n; i++)
		if (s->limit[i].metric == metric)
			return ar_fail(err, AR_USAGE, "slo names %s twice; leave one out", metric);
	s->limit[s->n++] = (struct slo_limit){ metric, ns };
	return AR_OK;
}

enum ar_status slo_parse(struct slo *out, const char *text, struct ar_err *err)
{
	struct slo s = { 0 };
	enum ar_status st;

	for (;; text++) {
		size_t n = strcspn(text, ",");

		st = add(&s, text, n, err);
		text += n;
		if (st || !*text)
			break;
	}
	if (!st)
		*out = s;
	return st;
}
