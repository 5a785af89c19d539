/* SPDX-License-Identifier: Apache-2.0 */
/* Running the points of a sweep, each in a process of its own, with a database of its own. */
#ifndef AR_SWEEP_RUN_H
#define AR_SWEEP_RUN_H

#include "src/sweep/sweep_point.h"

enum sweep_state { SWEEP_TODO, SWEEP_DONE, SWEEP_THERE, SWEEP_FAILED };

struct sweep_how {
	const char *out; /* folder of the databases; made if it is missing */
	int64_t jobs;	 /* points that run at a time */
	bool force;	 /* run points again that have a database */
	bool keep_going; /* after a point has failed */
	bool quiet;	 /* print nothing about single points */
};

/* Run the points [from, to) that have no database yet.  state: [to - from] of SWEEP_TODO, set to
 * what became of each point.  Returns the status of the first failed
 * point.  AR_INTERRUPTED: a signal came and stopped the running points; a call with the same
 * arguments goes on. */
enum ar_status sweep_run(struct sweep_base *b, size_t from, size_t to, const struct sweep_how *how,
			 enum sweep_state *state, struct ar_err *err);

/* DIR/KEY and an ending; the caller frees it.  NULL: no memory. */
char *sweep_path(const char *dir, const char *key, const char *ending);

#endif
