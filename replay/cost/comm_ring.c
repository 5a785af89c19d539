/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/cost/comm_ring.h"

#include <inttypes.h>
#include <math.h>

#include "base/jsonval.h"

enum { TIME_MAX = 1000000000 /* a second */ };

enum ar_status comm_ring_load(struct comm_ring *r, const cJSON *o, const char *prefix,
			      const char *path, struct ar_err *err)
{
	const cJSON *ring = cJSON_GetObjectItemCaseSensitive(o, "ring");

	*r = (struct comm_ring){ 0 };
	if (!ring)
		return AR_OK;
	if (!json_real(cJSON_GetObjectItemCaseSensitive(ring, "share"), 0.001, 10, &r->share) ||
	    !json_int(cJSON_GetObjectItemCaseSensitive(ring, "fixed_ns"), 0, TIME_MAX,
		      &r->fixed_ns) ||
	    !json_int(cJSON_GetObjectItemCaseSensitive(ring, "hop_ns"), 0, TIME_MAX, &r->hop_ns))
		return ar_fail(err, AR_DATA,
			       "%s: '%sring': want an object with share, from 0.001 to 10, and "
			       "fixed_ns and hop_ns, whole numbers of ns, at most a second",
			       path, prefix);
	return AR_OK;
}

void comm_ring_put(const struct comm_ring *r, const char *indent, FILE *f)
{
	if (r->share > 0)
		fprintf(f,
			",\n%s\"ring\": {\"share\": %.6g, \"fixed_ns\": %" PRId64
			", \"hop_ns\": %" PRId64 "}",
			indent, r->share, r->fixed_ns, r->hop_ns);
}

int64_t comm_ring_ns(const struct comm_ring *r, double gbps, int hops, double part)
{
	const double x = (double)r->fixed_ns +
			 hops * ((double)r->hop_ns + part / (gbps * r->share));

	return x < 0x1p63 ? llround(x) : INT64_MAX;
}
