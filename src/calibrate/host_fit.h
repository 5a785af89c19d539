/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fit a host model to step logs.
 *
 * Each step is predicted by the replay's own clock (replay/host/host.h), begun where the log says.
 * The residuals are those of the step's time and, where a log has them, of its parts and of the
 * times of adding requests.  Relative to the prediction they enter a Huber loss, which is minimised
 * by Levenberg and Marquardt's method with all times >= 0.
 *
 * If a log has the parts of a step, the parts decide, and the step counts a hundredth of them.  A
 * step also depends on the GPU's time, which may come from other kernels than the engine's.
 *
 * Where the GPU's time of a step is not given, two lines are fitted beside the host: for graphs by
 * requests, for other steps by tokens.
 *
 * Where the logs have the parts of enough steps of a kind, the spread of the kind is that of the
 * measured times of preparing and launching, relative to the fitted ones.
 *
 * A time without a step that depends on it, or that cannot be told from other times, is 0 and not
 * identified.
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

struct host_fit_admit {
	int64_t prompt_tok, ns;
};

struct host_fit_input {
	const struct host_fit_step *step; /* [n_step] */
	size_t n_step;
	const struct host_fit_admit *admit; /* [n_admit] */
	size_t n_admit;
};

struct host_fit_result {
	bool identified[HOST_N_TIMES];
	int64_t *predicted_ns; /* [n_step] time of each step; the caller frees it */
};

/* Fit h->ns and h->spread; the rest of h stays as it is. */
enum ar_status host_fit(struct host *h, const struct host_fit_input *in,
			struct host_fit_result *res, struct ar_err *err);

#endif
