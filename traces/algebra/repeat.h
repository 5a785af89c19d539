/* SPDX-License-Identifier: Apache-2.0 */
/* A trace that is repeated. */
#ifndef AR_REPEAT_H
#define AR_REPEAT_H

#include "traces/trace.h"

/* The span and a mean gap, after which the trace can go on with its first request; 0: no span. */
double trace_period_ns(const struct trace *t);

/* Append the trace to itself until it is there n times, period_ns apart, 0: trace_period_ns.
 * Sessions of a copy are its own, and prefixes are unless share. */
enum ar_status trace_repeat(struct trace *t, int64_t n, int64_t period_ns, bool share,
			    struct ar_err *err);

#endif
