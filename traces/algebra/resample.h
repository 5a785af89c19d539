/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resamples of a trace: traces that the process behind it could have made as well.
 *
 * A unit is what was sent together: a session with all of its turns; else, where prefixes count,
 * the requests of a tree with a common prefix; else a request.  Blocks of consecutive units are
 * drawn with replacement (Politis and Romano 1992), each with the gap before it.  The length of
 * blocks follows from how gaps and lengths depend on those before them (base/block_length.h), and
 * from how far their ranks wander, so that bursts stay bursts.
 *
 * A copy of a unit shares no prefix with the unit, but for prefixes that several units share: a
 * prompt of the system, for example.  A prefix in more than a tenth of all requests makes no tree.
 *
 * Draws are keyed by the trace and their number alone: two runs of a trace get the same resamples.
 */
#ifndef AR_RESAMPLE_H
#define AR_RESAMPLE_H

#include "traces/trace.h"

enum resample_unit { RESAMPLE_REQUEST, RESAMPLE_SESSION, RESAMPLE_TREE };
extern const char *const resample_unit_names[]; /* "request", "session", "tree" */

struct resampler;

/* t outlives the resampler.  prefixes: a cache finds common prefixes.  gaps: the times of arrivals
 * count; without, only lengths do. */
enum ar_status resample_open(struct resampler **out, const struct trace *t, bool prefixes,
			     bool gaps, struct ar_err *err);
void resample_close(struct resampler *r); /* NULL is fine */

struct resample_plan {
	enum resample_unit unit;
	size_t n_unit, block; /* units; units of a block */
	uint64_t key;	      /* equal keys: equal draws */
	bool drifts; /* gaps or lengths wander farther from their mean than those of resamples */
};
struct resample_plan resample_plan(const struct resampler *r);

/* A figure of a resample, as far from the trace's own as its few blocks ask for: resamples of them
 * spread less than the process does.  The logarithm of the ratio is 1 + 7 / blocks times as large;
 * doc/intervals.md has the processes that the 7 is from.  Figures of 0 and less stay. */
double resample_spread(const struct resample_plan *p, double own, double resampled);

/* Draw resample number k, of times * n_unit units.  It borrows the names of t: release it with
 * resample_release().  AR_DATA: its times or numbers pass their range. */
enum ar_status resample_draw(const struct resampler *r, uint64_t k, size_t times, struct trace *out,
			     struct ar_err *err);
void resample_release(struct trace *out);

#endif
