/* Policies: the scheduling rules of an engine, pinned to its version.  One file for an engine, one
 * row for a policy in policies.c. */
#ifndef AR_POLICY_H
#define AR_POLICY_H

#include "replay/sched/sched.h"

/* Settings of a run that not every policy has. */
enum {
	POLICY_LONG_PREFILL = 1 << 0,
	POLICY_ORDER = 1 << 1,
	POLICY_PREFIX_CACHE = 1 << 2,
	POLICY_WATERMARK = 1 << 3,
	POLICY_CHUNKS = 1 << 4,
	POLICY_ASYNC = 1 << 5,
};

struct policy {
	const char *name, *title, *origin;
	unsigned can;		/* the settings above that it has */
	double watermark;	/* its default */
	struct sched_rules rules;

	/* Plan one iteration (sched_begin was called) and set s->stop.  An empty plan is allowed
	 * only if the next one can differ. */
	void (*compose)(struct sched *s);
};

extern const struct policy *const policies[];	/* ends with NULL */
const struct policy *policy_find(const char *name);

#endif
