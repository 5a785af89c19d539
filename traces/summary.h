/* What a trace looks like, in figures. */
#ifndef AR_SUMMARY_H
#define AR_SUMMARY_H

#include "traces/trace.h"

enum { SUMMARY_WINDOWS = 3 };
extern const int summary_window_s[SUMMARY_WINDOWS];	/* 1, 10, 60 */

/* Percentiles are by nearest rank: the smallest value with at least p % of the sample at
 * or below it. */
struct spread {
	uint64_t sum;
	uint32_t min, p50, p90, p99, max;
};

/* NaN where a figure is not defined. */
struct summary {
	double rate;		/* requests per second of the span */
	double gap_cv;		/* standard deviation / mean of the gaps between arrivals */
	double dispersion[SUMMARY_WINDOWS];	/* variance / mean of the requests per window; 1
						 * for a Poisson process */
	size_t distinct;	/* arrival times */
	struct spread prompt, output;
	/* With an unlimited cache, blocks visible to the next request: each reuses its longest
	 * leading run of blocks seen before. */
	uint64_t blocks_reused, tok_reused;
};

enum ar_status trace_summarize(struct summary *out, const struct trace *t, struct ar_err *err);

#endif
