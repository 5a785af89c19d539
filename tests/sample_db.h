/* SPDX-License-Identifier: Apache-2.0 */
/* A sample database for tests of readers: two requests with latencies computed by hand. */
#ifndef AR_SAMPLE_DB_H
#define AR_SAMPLE_DB_H

#include "profiler/store/store.h"

/* Request 0 arrives at 0 (2 prompt, 8 output tokens), request 1 at 2.9 ms (20, 2).  Budget 8
 * tokens, an iteration costs 2 ms + 0.5 ms per token: tokens at 3, 9, 15, 20.5, 23.5, 26, 28.5,
 * 31 ms and at 20.5, 23.5 ms. */
enum { SAMPLE_ITERATIONS = 8 };

struct sample_run {
	const char *method; /* NULL: none, as with backend cost */
	bool dense;
	int64_t percent;     /* scale of all times; 100: the times above */
	int64_t host_ns;     /* of every iteration */
	const char *options; /* JSON */
	const char *setup;   /* NULL: the options */
	bool full;	     /* kernels, phases, accuracy, selection as well */
	bool replicates;     /* 41, whose latencies are 0.8 to 1.2 times those of the run */
};

/* Record of such a run.  The caller may change it before store_run_begin(). */
struct store_run sample_record(const struct sample_run *r);
/* Write iteration i of the run with all its rows. */
enum ar_status sample_iteration(struct store *s, const struct sample_run *r, int i,
				struct ar_err *err);
enum ar_status sample_outcomes(struct store *s, const struct sample_run *r, struct ar_err *err);

/* Write the whole run: begin, iterations, outcomes, end with status "done". */
enum ar_status sample_write(struct store *s, const struct sample_run *r, int64_t *run_id,
			    struct ar_err *err);

/* Make a database of three runs: dense, compact-fp in half the time, and a failed run in which
 * every table lacks rows. */
enum ar_status sample_database(const char *path, struct ar_err *err);

#endif
