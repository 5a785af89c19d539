/* SPDX-License-Identifier: Apache-2.0 */
/* Summary figures of a trace: load, lengths, sessions and prefix reuse. */
#ifndef AR_SUMMARY_H
#define AR_SUMMARY_H

#include "traces/trace.h"

enum { SUMMARY_WINDOWS = 3 };
extern const int summary_window_s[SUMMARY_WINDOWS]; /* 1, 10, 60 */

/* Distribution of a sample.  Percentiles are by nearest rank: the smallest value with at least
 * p % of the sample at or below it.  All 0 for an empty sample. */
struct spread {
	uint64_t n, sum;
	uint64_t min, p50, p90, p99, max;
};

/* Requests in consecutive windows from the first arrival.  A partial last window is left out. */
struct window_counts {
	double dispersion; /* variance / mean; 1 for a Poisson process */
	int64_t windows;
	uint64_t min, max;
	double idle; /* share of the windows without requests */
};

/* An undefined figure is NaN. */
struct summary {
	double rate;   /* requests per second of the span */
	double gap_cv; /* standard deviation / mean of the gaps between arrivals */
	struct spread gap_ns;
	struct window_counts window[SUMMARY_WINDOWS];
	size_t distinct; /* different arrival times */
	struct spread prompt, output;
	uint64_t longest;		    /* largest sum of prompt and output tokens */
	double correlation;		    /* Pearson, of prompt and output tokens */
	struct spread session;		    /* requests of a session */
	uint64_t started, started_requests; /* sessions that others start, and their requests */
	struct spread think_ns;		    /* of requests that have any */
	/* Ideal prefix reuse: in an unlimited cache every request reuses its longest leading run
	 * of blocks that earlier requests had. */
	uint64_t blocks_reused, tok_reused, prompts_reused;
	struct spread later; /* prompt tokens not reused, of requests with blocks that are not the
			      * first ones of their sessions */
	struct spread block; /* blocks of a request that has any */
	uint64_t distinct_blocks, blocks_once;
};

/* Set tok[t->n] to the prompt tokens of each request that earlier ones had: what it reuses of an
 * unlimited cache. */
enum ar_status trace_reuse(const struct trace *t, uint64_t *tok, struct ar_err *err);

enum ar_status trace_summarize(struct summary *out, const struct trace *t, struct ar_err *err);

#endif
