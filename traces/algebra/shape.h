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

#endif
