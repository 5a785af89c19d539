/* SPDX-License-Identifier: Apache-2.0 */
/* Policies: the scheduling rules of an engine, pinned to its version.  One file for an engine, one
 * row for a policy in policies.c. */
#ifndef AR_POLICY_H
#define AR_POLICY_H

#include "replay/sched/sched.h"

/* Settings that not every policy has.  The scope of an option has these bits too, behind those of
 * enum run_scope. */
enum {
	POLICY_LONG_PREFILL = 1 << 16,
	POLICY_ORDER = 1 << 17,
	POLICY_PREFIX_CACHE = 1 << 18,
	POLICY_WATERMARK = 1 << 19,
	POLICY_CHUNKS = 1 << 20,
	POLICY_ASYNC = 1 << 21,

	POLICY_SETTINGS = 0x7fff << 16,	/* all of them */
};

struct policy {
	const char *name, *title, *origin;
	unsigned can;		/* the settings above that it has */
	double watermark;	/* its default */

	/* Its rules, each one of its own or one that policies have in common, from sched.h.
	 *
	 * check: AR_USAGE when it cannot work within the limits.  NULL: it always can.
	 * slots: the most positions that a request ever has blocks for.  The request ends at goal
	 * tokens, the longest of the trace at longest.
	 * unfit: can the request never run?  Then true, and why[] says so.
	 * requeue: put a preempted sequence into the waiting queue. */
	enum ar_status (*check)(const struct sched_limits *l, struct ar_err *err);
	int64_t (*slots)(const struct sched_limits *l, int64_t goal, int64_t longest);
	bool (*unfit)(const struct sched_limits *l, const struct request *r, char *why, size_t n);
	void (*requeue)(struct sched *s, uint32_t id);

	/* What it remembers from one iteration to the next.  s->memory has memory_size bytes of
	 * zeros; begin, if not NULL, sets them. */
	size_t memory_size;
	void (*begin)(struct sched *s);

	/* Plan one iteration (sched_begin was called) and set s->stop.  An empty plan is allowed
	 * only if the next one can differ. */
	void (*compose)(struct sched *s);
};

extern const struct policy *const policies[];	/* ends with NULL */
const struct policy *policy_find(const char *name);

#endif
