/* Trace algebra: what the options of a trace do to it.  All keep requests sorted by arrival, and
 * two prompts share a prefix afterwards only where they did before. */
#ifndef AR_SHAPE_H
#define AR_SHAPE_H

#include "traces/trace.h"

enum trace_align { ALIGN_START, ALIGN_CLOCK };

/* Add the requests of b, whose prefixes and sessions stay apart from those of a, on one time axis:
 * both begin together, or stand where the absolute times put them. */
enum ar_status trace_merge(struct trace *a, const struct trace *b, enum trace_align align,
			   struct ar_err *err);

/* The span and a mean gap, after which the trace can go on with its first request; 0: no span. */
double trace_period_ns(const struct trace *t);

/* Append the trace to itself until it is there n times, period_ns apart, 0: trace_period_ns.
 * Sessions of a copy are its own, and prefixes are unless share. */
enum ar_status trace_repeat(struct trace *t, int64_t n, int64_t period_ns, bool share,
			    struct ar_err *err);

/* Give the blocks ids 0 .. *n_ids - 1, and each request blocks of its own, in its order. */
enum ar_status trace_number_blocks(struct trace *t, uint64_t *n_ids, struct ar_err *err);

/* Multiply prompts by x; what two prompts share is multiplied, too, and cut to whole blocks. */
enum ar_status trace_scale_prompts(struct trace *t, double x, struct ar_err *err);

/* AR_USAGE when times to end_ns would not fit. */
enum ar_status trace_check_end(const struct trace *t, double end_ns, struct ar_err *err);

#endif
