/* SPDX-License-Identifier: Apache-2.0 */
/* Trace algebra: what the options of a trace do to it.  Requests stay sorted by arrival, and two
 * prompts share a prefix afterwards only where they did before. */
#ifndef AR_SHAPE_H
#define AR_SHAPE_H

#include "traces/trace.h"

enum trace_spread { SPREAD_NONE, SPREAD_EVEN, SPREAD_RANDOM };
extern const char *const trace_spreads[];	/* their names, ended by NULL */

/* Apply all options of a but those of reading and of merging. */
enum ar_status trace_shape(struct trace *t, const struct trace_args *a, struct ar_err *err);

#endif
