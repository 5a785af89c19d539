/* When an option of 'attnreplay run' has an effect: bits for the scope of its row, of which all must
 * hold.  Bits from 16 on are settings of policies, see replay/sched/policy.h.  No bit in the table of
 * a backend: it has to be that backend. */
#ifndef AR_RUN_SCOPE_H
#define AR_RUN_SCOPE_H

enum run_scope {
	RUN_USERS = 1 << 0,		/* --loop users */
	RUN_ANSWERS = 1 << 1,		/* a loop in which users wait for answers */
	RUN_MODEL = 1 << 2,		/* kernels of a model run, or costs of such a run are taken */
	RUN_COSTED = 1 << 3,		/* as RUN_MODEL; and costs depend on it: a run that takes
					 * costs adopts the value they were measured with */
	RUN_KERNELS = 1 << 4,		/* kernels of a model run */
	RUN_REFERENCE = 1 << 5,		/* the backend computes dense attention to compare with */
	RUN_GPU = 1 << 6,		/* they run on a GPU */
	RUN_TRACED = 1 << 7,		/* --prof activity */
	RUN_CLOCK = 1 << 8,		/* there is more than one clock to choose from */
	RUN_FORMULA = 1 << 9,		/* the cost formula moves the clock */
	RUN_COSTS = 1 << 10,		/* --costs */
	RUN_PREFIX_CACHE = 1 << 11,	/* --enable-prefix-caching */
	RUN_DB = 1 << 12,		/* --db */
};

#endif
