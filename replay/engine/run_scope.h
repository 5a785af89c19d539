/* SPDX-License-Identifier: Apache-2.0 */
/* Conditions for an option of 'attnreplay run' to have an effect.  The scope of an option is a set
 * of conditions, which must all hold: these bits, and the settings of policies in bits 16 to 28
 * (replay/sched/policy.h).  A backend's option without a scope is read by that backend only. */
#ifndef AR_RUN_SCOPE_H
#define AR_RUN_SCOPE_H

enum run_scope {
	RUN_USERS = 1 << 0,	    /* --loop users */
	RUN_ANSWERS = 1 << 1,	    /* a loop in which users wait for answers */
	RUN_MODEL = 1 << 2,	    /* the run has a model: its kernels run, or --costs is of
					 * such a run */
	RUN_COSTED = 1 << 3,	    /* RUN_MODEL, and measured costs depend on the value: a run
					 * with --costs adopts it from the run with the costs */
	RUN_KERNELS = 1 << 4,	    /* kernels of a model run */
	RUN_REFERENCE = 1 << 5,	    /* the backend computes dense attention to compare with */
	RUN_GPU = 1 << 6,	    /* kernels run on a GPU */
	RUN_TRACED = 1 << 7,	    /* --prof activity */
	RUN_CLOCK = 1 << 8,	    /* there is a choice of clocks */
	RUN_FORMULA = 1 << 9,	    /* the cost formula moves the clock */
	RUN_COSTS = 1 << 10,	    /* --costs */
	RUN_PREFIX_CACHE = 1 << 11, /* --enable-prefix-caching */
	RUN_DB = 1 << 12,	    /* --db */
	RUN_MEASURED = 1 << 13,	    /* measured times move the clock */
	RUN_CAPTURE = 1 << 14,	    /* kernels run, or a capture is given to backend roofline */
	RUN_DENSITY = 1 << 15,	    /* the densities of methods are to be given */
	RUN_WEIGHTS = 1 << 29,	    /* --weights */
	RUN_REPLAYED = 1 << 30,	    /* no --weights: captures are replayed */
};

#endif
