/* SPDX-License-Identifier: Apache-2.0 */
/* Policies: the scheduling rules of an engine, pinned to its version.  One file per engine, one row
 * per policy in policies.c. */
#ifndef AR_POLICY_H
#define AR_POLICY_H

#include "replay/sched/sched.h"

/* Settings that only some policies have.  They are also bits of an option's scope, above those of
 * enum run_scope. */
enum {
	POLICY_LONG_PREFILL = 1 << 16,
	POLICY_ORDER = 1 << 17,
	POLICY_PREFIX_CACHE = 1 << 18,
	POLICY_WATERMARK = 1 << 19,
	POLICY_CHUNKS = 1 << 20,
	POLICY_ASYNC = 1 << 21,

	POLICY_SETTINGS = 0x7fff << 16, /* all of them */
};

struct policy {
	const char *name, *title, *origin;
	unsigned can;	  /* the settings above that it has */
	double watermark; /* its default */
	const char *host; /* preset of the host model (replay/host), or NULL */
	/* Free KV blocks that cannot be found are taken before all others: vLLM 0.24.0,
	 * block_pool.py:634. */
	bool unnamed_first;

	/* Its rules: functions of its own, or shared ones of sched.h.
	 *
	 * check: AR_USAGE when it cannot work within the limits.  NULL: it always can.
	 * slots: the most positions that a request ever has blocks for.  goal: tokens at which the
	 * request ends.  longest: largest goal of the trace.
	 * unfit: true if the request can never run; why[n] gets the reason.
	 * requeue: put a preempted sequence into the waiting queue. */
	enum ar_status (*check)(const struct sched_limits *l, struct ar_err *err);
	int64_t (*slots)(const struct sched_limits *l, int64_t goal, int64_t longest);
	bool (*unfit)(const struct sched_limits *l, const struct request *r, char *why, size_t n);
	void (*requeue)(struct sched *s, uint32_t id);

	/* State kept between iterations: s->memory, memory_size bytes, zero at first.  begin, if
	 * not NULL, initialises it. */
	size_t memory_size;
	void (*begin)(struct sched *s);

	/* Plan one iteration (sched_begin was called) and set s->stop.  An empty plan is allowed
	 * only if the next one can differ. */
	void (*compose)(struct sched *s);
};

extern const struct policy *const policies[]; /* ends with NULL */
const struct policy *policy_find(const char *name);

#endif
