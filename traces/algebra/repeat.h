/* SPDX-License-Identifier: Apache-2.0 */
/* Repeating a trace. */
#ifndef AR_REPEAT_H
#define AR_REPEAT_H

#include "traces/trace.h"

/* The default period of a repeated trace: its span plus a mean gap.  0: the span is 0. */
double trace_period_ns(const struct trace *t);

/* Append copies of t to itself until there are n, each period_ns after the last (0:
 * trace_period_ns).  Each copy has its own sessions, and its own prefixes unless share. */
enum ar_status trace_repeat(struct trace *t, int64_t n, int64_t period_ns, bool share,
			    struct ar_err *err);

#endif
