/* Synthetic traces: arrivals from a random process, lengths from a trace or a distribution. */
#ifndef AR_SYNTH_H
#define AR_SYNTH_H

#include "traces/trace.h"

struct synth_args {
	int64_t count;		/* 0: as many as the trace has, or 1000 */
	char *arrivals;		/* NAME[:NAME=VALUE,...] */
	char *lengths;		/* ... or NULL: trace, or lognormal where there is none */
};
extern const struct opt synth_opts[];

/* Write a trace like t, in the canonical form, request by request; t, which may be NULL, is used
 * up.  The same t, options and seed give the same bytes. */
enum ar_status trace_synthesize(struct trace *t, const struct synth_args *a, int64_t seed, FILE *f,
				struct ar_err *err);

#endif
