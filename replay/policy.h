/* Policies: the scheduling rules of an engine, pinned to its version.  One file each, one row in
 * policies.c. */
#ifndef AR_POLICY_H
#define AR_POLICY_H

#include "replay/sched.h"

enum {
	POLICY_LONG_PREFILL = 1 << 0,
	POLICY_PREFIX_CACHE = 1 << 1,
	POLICY_WATERMARK = 1 << 2,
	POLICY_ORDER = 1 << 3,
};

struct policy {
	const char *name, *title, *origin;
	unsigned can;		/* which of the settings above it has */
	double watermark;	/* default of the setting */
	bool keeps_watermark;	/* also where nothing else runs */
	bool to_completion;	/* with blocks for all outputs, the last one included */
	bool whole_prompts;	/* in one iteration, with blocks for the longest request */

	/* Plan one iteration (sched_begin was called) and set s->stop.  An empty plan is allowed
	 * only if the next one can differ. */
	void (*compose)(struct sched *s);
};

extern const struct policy *const policies[];	/* ends with NULL */
const struct policy *policy_find(const char *name);

#endif
