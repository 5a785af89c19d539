/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ranks tell each other after each iteration.
 *
 * Every rank runs the whole simulation, so all must have scheduled the same batch, and the clock
 * must move alike: by the time of the slowest rank.  They stop together if a user stops one.
 */
#ifndef AR_TELL_H
#define AR_TELL_H

#include "replay/engine/backend.h"
#include "replay/ranks/world.h"
#include "replay/sched/batch.h"

struct rank_tell {
	uint32_t magic, rank;
	int64_t iter;	 /* from 0 */
	uint64_t digest; /* of the batch's entries, in order, and of the rows that were kept */
	int64_t cost_ns, event_ns, span_ns, busy_ns; /* as in struct iter_cost */
	int32_t interrupted;
	int32_t select_kernels; /* iter_cost_select_kernels() */
	int64_t phase_ns[PHASE_COUNT];
	int64_t comm_exposed_ns, comm_overlap_ns; /* -1: not known */
	char pad[16];
};
_Static_assert(sizeof(struct rank_tell) == 256, "a record has 256 bytes");

/* The tells of an iteration. */
struct rank_tells {
	struct rank_tell of[RANKS_MAX]; /* by rank */
	int slowest;			/* the lowest of them */
};

uint64_t tell_digest(const struct batch *b);

/* Tell the others of iteration iter, which had batch b and cost c, and learn of theirs.  AR_DATA:
 * a rank is in another iteration, scheduled another batch or kept other rows; the message names it.
 * AR_INTERRUPTED: the user has stopped a rank; all end behind this iteration.  Else errors of
 * world_gather(). */
enum ar_status tell_iteration(struct world *w, int64_t iter, const struct batch *b,
			      const struct iter_cost *c, struct rank_tells *all,
			      struct ar_err *err);

/* Give the iteration the times of the slowest rank. */
void tell_take_slowest(const struct rank_tells *all, struct iter_cost *c);

#endif
