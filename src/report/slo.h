/* SPDX-License-Identifier: Apache-2.0 */
/* Service-level objectives: limits on the latencies of a request,
 * "ttft:500ms,tpot:50ms,e2e:10s". */
#ifndef AR_SLO_H
#define AR_SLO_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { SLO_MAX = 3 };

struct slo {
	size_t n;
	struct slo_limit {
		const char *metric; /* "ttft", "tpot", "e2e" */
		int64_t ns;	    /* a time equal to it meets the limit */
	} limit[SLO_MAX];
};

/* AR_USAGE, naming what is wrong. */
enum ar_status slo_parse(struct slo *out, const char *text, struct ar_err *err);

#endif
