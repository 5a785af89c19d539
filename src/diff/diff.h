/* SPDX-License-Identifier: Apache-2.0 */
/* Changes from one run to another: options, latencies with intervals, phases, kernels. */
#ifndef AR_DIFF_H
#define AR_DIFF_H

#include <sqlite3.h>
#include <stdint.h>

#include "base/status.h"
#include "src/report/writer.h"

/* A run of db, opened by store_open_runs() from two sources: run 1, and run 2 after it. */
struct diff {
	sqlite3 *db;
};

/* Compute the latencies of both runs into the TEMP table diff_latency: metric, at, n_before,
 * n_after, before, before_lo, before_hi, after, after_lo, after_hi, ratio, ratio_lo, ratio_hi, in
 * ms; reason, why the ratio has no interval; p, of Holm's test of the ratios with an interval.
 * AR_USAGE: db holds another number of runs than two. */
enum ar_status diff_compute(const struct diff *x, struct ar_err *err);

/* Write the sections of the comparison. */
enum ar_status diff_write(const struct diff *x, struct document *d, struct ar_err *err);

/* A limit such as "ttft.p99>5%": the percentile may not have changed by more, or by less. */
struct diff_limit {
	char metric[8], at[8];
	char sign; /* '>' or '<' */
	double percent;
};

/* AR_USAGE: text is no limit. */
enum ar_status diff_limit_parse(struct diff_limit *l, const char *text, size_t n,
				struct ar_err *err);

/* AR_LIMIT: the whole interval of the change exceeds l.  AR_UNKNOWN: a part of it does, or there is
 * no interval.  AR_DATA: a run lacks the figure. */
enum ar_status diff_judge(const struct diff *x, const struct diff_limit *l, struct ar_err *err);

#endif
