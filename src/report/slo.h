/* SPDX-License-Identifier: Apache-2.0 */
/* Service-level objectives: limits on latencies.  "ttft:500ms,tpot:50ms,e2e:10s" limits each
 * request; "ttft:p99:500ms,tpot:p50:30ms" limits percentiles of a run. */
#ifndef AR_SLO_H
#define AR_SLO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { SLO_MAX = 8 };

struct slo {
	size_t n;
	struct slo_limit {
		const char *metric; /* "ttft", "tpot", "e2e" */
		double percentile;  /* above 0, at most 100; 0: of each request */
		int64_t ns;	    /* a time equal to it meets the limit */
	} limit[SLO_MAX];
};

/* percentiles: limits may name one.  AR_USAGE: the message names the wrong limit. */
enum ar_status slo_parse(struct slo *out, const char *text, bool percentiles, struct ar_err *err);

#endif
