/* SPDX-License-Identifier: Apache-2.0 */
/* Measured runs, as the roofline model is fitted to them: the counted work and the times by phase
 * of each iteration. */
#ifndef AR_ROOFLINE_RUNS_H
#define AR_ROOFLINE_RUNS_H

#include "replay/cost/roofline.h"
#include "src/calibrate/roofline_fit.h"

struct roofline_run {
	char *name; /* "x.db:1" */
	struct model model;
	struct method *method;
	int n_layers; /* executed, which its times cover */
	double density;
};

struct roofline_sample {
	size_t run;
	bool prefill;
	struct roofline_work work[PHASE_COUNT]; /* as roofline_count() */
	int64_t phase_ns[PHASE_COUNT], span_ns;
};

struct roofline_runs {
	struct roofline_run *run;	/* [n_run] */
	struct roofline_sample *sample; /* [n_sample] */
	size_t n_run, n_sample, cap_run, cap_sample;
	char gpu[128]; /* of the first run, as is the next */
	int64_t memory_bytes;
};

/* Add the iterations of a run.  where: DB or DB:RUN, as for costs_open().  AR_USAGE: CUPTI did
 * not measure the run on a GPU, or the run lacks a figure; the message names it. */
enum ar_status roofline_runs_add(struct roofline_runs *in, const char *where, struct ar_err *err);
void roofline_runs_release(struct roofline_runs *in);

#endif
