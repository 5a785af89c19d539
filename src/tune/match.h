/* SPDX-License-Identifier: Apache-2.0 */
/* Option --match: before a run, the methods are tuned to one figure on its captures.  Methods that
 * state their threshold or have none, plans of layers, and methods with a dropper stay as they
 * are. */
#ifndef AR_TUNE_MATCH_H
#define AR_TUNE_MATCH_H

#include "src/run/run.h"
#include "src/tune/match_sample.h"
#include "src/tune/tune.h"

/* The sample is at most of these, as references measure it. */
enum { MATCH_CAPTURES = 2, MATCH_LAYERS = 4 };

/* The self of match_tuner. */
struct match {
	struct tune_goal goal;
	struct tuned *tuned; /* [n_tuned] */
	size_t *method;	     /* [n_tuned] which of the run's methods it is, ascending */
	size_t n_tuned;
	/* The sample. */
	struct calib_input in;
	struct match_chunks chunks;
	struct tune_captures c;
	int layer[MATCH_LAYERS], n_layer; /* of the captures */
	bool ignore[CAPTURE_MAX_LAYER + 1];
};

/* Of runs whose command has option --match. */
extern const struct run_tuner match_tuner;

/* AR_USAGE: text, the value of --match, is no goal that captures can be measured for. */
enum ar_status match_check(const char *text, struct ar_err *err);

#endif
