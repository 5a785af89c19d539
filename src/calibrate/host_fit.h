/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fit a host model to step logs.
 *
 * Each step is predicted by the replay's own clock (replay/host/host.h), begun where the log says.
 * Each step's time has a residual.  So have the step's parts, the times of adding requests, and
 * those of the front end, where a log has them.  Relative to the prediction the residuals enter a
 * Huber loss.  Levenberg and Marquardt's method minimises it with all times >= 0.
 *
 * If a log has the parts of a step, the parts decide: the step's own time weighs 1e-4 in the loss.
 * It also depends on the GPU's time, which may come from other kernels than the engine's.
 *
 * The host is slow or fast for a while, in launches of all kinds.  So the parts of a step are
 * divided by its speed.  This is the mean of measured / fitted over the steps near by, relative to
 * that of the logs.
 * The gaps come last, from steps before and after which the host waited for the GPU.
 *
 * Where the GPU's time of a step is not given, two lines are fitted beside the host: for graphs by
 * requests, for other steps by tokens.  The GPU's gap is then 0: the lines have it.
 *
 * A kind of steps has a spread if the logs have the parts of enough such steps.  It is the spread
 * of the measured times of preparing and launching, relative to the fitted times, less the host's
 * mean speed in these steps.
 *
 * A time that no step depends on, or that cannot be told from others, is 0 and not identified.
 */
#ifndef AR_HOST_FIT_H
#define AR_HOST_FIT_H

#include "replay/host/host.h"
#include "traces/engine/engine_log.h"

struct host_fit_step {
	int64_t begin_ns, end_ns;
	struct host_load load;	       /* n_req 0: nothing was launched */
	int64_t part_ns[ENGINE_PARTS]; /* -1: the log does not say */
	int64_t gpu_ns;		       /* -1: not known */
	int64_t n_layers, n_kernels;
	bool async;
	bool first; /* of a log: nothing is in flight */
};

/* A measured time that is linear: of the times at, and of n times the times each. */
enum { HOST_FIT_TERMS = 3 };

struct host_fit_line {
	struct host_fit_term {
		enum host_time at;
		int each; /* -1: none */
	} term[HOST_FIT_TERMS];
	int n_term;
	int64_t n, ns;
};

struct host_fit_input {
	const struct host_fit_step *step; /* [n_step] */
	size_t n_step;
	const struct host_fit_line *line; /* [n_line] */
	size_t n_line;
};

struct host_fit_result {
	bool identified[HOST_N_TIMES];
	int64_t *predicted_ns; /* [n_step] time of each step; the caller frees it */
};

/* Fit h->ns and h->spread; the rest of h stays as it is. */
enum ar_status host_fit(struct host *h, const struct host_fit_input *in,
			struct host_fit_result *res, struct ar_err *err);

#endif
