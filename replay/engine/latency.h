/* SPDX-License-Identifier: Apache-2.0 */
/* Latencies of a run, kept in memory.
 *
 *   ttft   first token - arrival
 *   tpot   (last token - first token) / (outputs - 1), of requests with two outputs or more
 *   itl    gaps between consecutive tokens of a request, pooled
 *   e2e    last token - arrival
 *   queue  start of the first iteration - arrival
 */
#ifndef AR_LATENCY_H
#define AR_LATENCY_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* A multiset of numbers, stored as runs of equal ones.  Token gaps are nearly always equal within
 * an iteration and in many iterations, so millions of gaps take little memory. */
struct series {
	struct series_run {
		double x;
		uint64_t n;
	} * run;
	size_t n_run, cap;
	size_t n_sorted; /* of n_run: the first ones are in order, equal ones joined */
	uint64_t n;	 /* numbers in all */
};

/* Make room for n numbers. */
enum ar_status series_reserve(struct series *s, size_t n, struct ar_err *err);
enum ar_status series_add(struct series *s, double x, struct ar_err *err);
void series_release(struct series *s);
/* By value, equal runs joined. */
enum ar_status series_sort(struct series *s, struct ar_err *err);
/* Of a sorted series that is not empty.  p: 0 to 100, interpolated as by stats_percentile(). */
double series_percentile(const struct series *s, double p);
double series_mean(const struct series *s);

enum latency_metric {
	LATENCY_TTFT,
	LATENCY_TPOT,
	LATENCY_ITL,
	LATENCY_E2E,
	LATENCY_QUEUE,
	LATENCY_COUNT
};
extern const char *const latency_names[]; /* by metric */

#endif
