/* SPDX-License-Identifier: Apache-2.0 */
/* Synthetic traces: arrivals from a random process, lengths from a trace or a distribution. */
#ifndef AR_SYNTH_H
#define AR_SYNTH_H

#include "traces/trace.h"

struct synth_args {
	int64_t count;	  /* requests; 0: the number in the trace, or 1000 */
	int64_t sessions; /* to make instead of requests; 0: none */
	char *arrivals;	  /* NAME[:NAME=VALUE,...] */
	char *lengths;	  /* ... or NULL: trace; lognormal without a trace */
};
extern const struct opt synth_opts[];

/* Write a synthetic trace that follows t to f, in the canonical form, request by request, or with
 * sessions as a whole.  The
 * function consumes t, which may be NULL.  The same t, options and seed give the same bytes. */
enum ar_status trace_synthesize(struct trace *t, const struct synth_args *a, int64_t seed, FILE *f,
				struct ar_err *err);

#endif
