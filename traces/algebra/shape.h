/* SPDX-License-Identifier: Apache-2.0 */
/* Trace algebra: options that change a trace.  Requests stay sorted by arrival.  Two prompts share
 * a prefix afterwards only if they shared it before. */
#ifndef AR_SHAPE_H
#define AR_SHAPE_H

#include "traces/trace.h"

enum trace_spread { SPREAD_NONE, SPREAD_EVEN, SPREAD_RANDOM };
extern const char *const trace_spreads[]; /* their names, ended by NULL */

/* Apply all options of a except the options for reading and merging. */
enum ar_status trace_shape(struct trace *t, const struct trace_args *a, struct ar_err *err);

/* Keep the first n requests.  has_first: the first request of the trace is among them; else time
 * counts from the first that is kept.  opts: the options to name if none is kept. */
enum ar_status trace_keep_first(struct trace *t, size_t n, bool has_first, const char *opts,
				struct ar_err *err);

#endif
