/* SPDX-License-Identifier: Apache-2.0 */
/* Prefills of a whole model on one of its ranks, by the replay of 'attnreplay run'. */
#ifndef AR_BENCH_WHOLE_H
#define AR_BENCH_WHOLE_H

#include <stdint.h>

#include "base/status.h"

/* Equal requests that arrive together, and ask for one token each. */
struct bench_whole {
	const char *model; /* as for --model of run */
	int64_t tp, batch, context;
	int64_t budget;	     /* tokens of an iteration */
	const char *capture; /* a file, repeated for longer requests; NULL: random values */
	int64_t seed, device;
};

struct bench_whole_result {
	double seconds; /* until all have their token, the host's time included */
	double kept; /* share of the prompts' rows that are left after the last drop; 1: there is no
			 * dropper */
};

/* Run it in a process of its own on the backend cuda.  No CUDA call may come before.  AR_USAGE,
 * AR_DATA: method, model and capture do not go together. */
enum ar_status bench_whole_run(const struct bench_whole *w, const char *method,
			       struct bench_whole_result *out, struct ar_err *err);

#endif
