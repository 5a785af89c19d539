/* What a trace looks like, in figures. */
#ifndef AR_SUMMARY_H
#define AR_SUMMARY_H

#include "traces/trace.h"

enum { SUMMARY_WINDOWS = 3 };
extern const int summary_window_s[SUMMARY_WINDOWS];	/* 1, 10, 60 */

/* Percentiles are by nearest rank: the smallest value with at least p % of the sample at
 * or below it.  All 0 for no values. */
struct spread {
	uint64_t n, sum;
	uint64_t min, p50, p90, p99, max;
};

/* Requests in consecutive windows from the first arrival; one that is not whole is left out. */
struct window_counts {
	double dispersion;	/* variance / mean; 1 for a Poisson process */
	int64_t windows;
	uint64_t min, max;
	double idle;		/* share of the windows without requests */
};

/* NaN where a figure is not defined. */
struct summary {
	double rate;		/* requests per second of the span */
	double gap_cv;		/* standard deviation / mean of the gaps between arrivals */
	struct spread gap_ns;
	struct window_counts window[SUMMARY_WINDOWS];
	size_t distinct;	/* arrival times */
	struct spread prompt, output;
	uint64_t longest;	/* prompt and output of one request */
	double correlation;	/* of prompt and output */
	struct spread session;	/* requests of a session */
	/* With an unlimited cache, blocks visible to the next request: each reuses its longest
	 * leading run of blocks seen before. */
	uint64_t blocks_reused, tok_reused, prompts_reused;
	struct spread block;	/* blocks of a request that has any */
	uint64_t distinct_blocks, blocks_once;
};

enum ar_status trace_summarize(struct summary *out, const struct trace *t, struct ar_err *err);

#endif
