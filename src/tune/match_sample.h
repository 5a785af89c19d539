/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The chunks that --match measures: drawn from those that the run will have, so that the sample's
 * figures are the run's.  The prompt of each request is cut as if it had the budget alone.  The
 * chunks of all prompts are ordered by the context before them, and evenly spaced ones are taken.
 *
 * References measure it, so a chunk is cut to its last MATCH_CHUNK_TOK tokens.
 */
#ifndef AR_TUNE_MATCH_SAMPLE_H
#define AR_TUNE_MATCH_SAMPLE_H

#include "src/calibrate/plan_measure.h"
#include "src/run/run.h"

/* At least and at most so many chunks; between, as many as take as long as MATCH_LONG of the
 * longest. */
enum { MATCH_CHUNK_TOK = 2048, MATCH_LEAST = 16, MATCH_MOST = 48, MATCH_LONG = 8 };

struct match_chunks {
	struct plan_chunk *v; /* [n] owned, by context */
	size_t n, of;	      /* of so many in the run */
	int64_t longest;
};

/* Draw the sample for r, which is loaded, from the captures of in.  Free out->v even after a
 * failure.  AR_USAGE: no request has a prompt to run. */
enum ar_status match_sample(struct match_chunks *out, const struct run *r,
			    const struct calib_input *in, struct ar_err *err);

/* Item i of k evenly spaced items of n; if n is at most k, all items are taken. */
size_t match_spaced(size_t n, size_t k, size_t i);

#endif
