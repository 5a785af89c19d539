/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replicates of a run: resamples of its requests (traces/algebra/resample.h), replayed with its own
 * costs.  Their percentiles say how far those of the run would move if as many requests like these
 * were sent again, from an empty engine.  Resamples of the output cannot say that: waits in a queue
 * depend on each other over any block that a run is long enough for.
 *
 * Costs are what the run measured; backend roofline and the cost formula compute theirs again.  The
 * host's times are drawn anew.  Replays of four times as many requests tell whether the load can be
 * sustained: whether requests of the last quarter wait longer than those of the second.
 */
#ifndef AR_RUN_REPLICATES_H
#define AR_RUN_REPLICATES_H

#include "src/run/run.h"
#include "traces/algebra/resample.h"

/* Whether costs of iterations are computed anew from their batch, not from what was measured. */
bool replicates_compute(const struct run *r);

/* Write why a trace cannot be resampled, or "".  users: it is a closed loop. */
void replicates_judge(const struct resample_plan *p, bool users, char *why, size_t n);

/* Whether the verdict of v_steady is known before all longer replays are made: of n, `slower` had a
 * last quarter that waits longer, and the others cannot change it. */
bool replicates_steady_known(int64_t n, int64_t slower);

/* What replicates were made of, and what they found. */
struct replicates_made {
	const char *failed; /* why one of them failed; NULL: none did */
	int64_t n, want;
	double extrapolated;	   /* share of their iterations, by iter_cost.beyond */
	double cached, run_cached; /* shares of the prompts' tokens, of theirs and of the run's */
};

/* Write why replicates give no interval, or "". */
void replicates_why(const struct replicates_made *x, char *why, size_t n);

/* Collects the costs of a run's iterations, and passes its calls on. */
struct collector {
	const struct observer *to;
	struct cost_table *table;
	int64_t select_kernels; /* the most in an iteration */
};

/* Begin to collect the costs of a run of r, where its replicates need them.  *out: the observer to
 * replay it with, which calls `to`. */
enum ar_status collector_open(struct collector *c, const struct run *r, const struct observer *to,
			      struct observer *out, struct ar_err *err);
void collector_release(struct collector *c);

/* Make the replicates of a run, and store them.  cfg and res: how it was replayed, and its results.
 * Whatever stops that is the reason why the run has no intervals.  Errors are the store's. */
enum ar_status replicates_put(const struct run *r, const struct replay *cfg,
			      const struct replay_result *res, struct collector *c,
			      struct ar_err *err);

#endif
