/* SPDX-License-Identifier: Apache-2.0 */
/* For sched.c and sched_evict.c: blocks of sequences, and events of evictors. */
#ifndef AR_SCHED_PART_H
#define AR_SCHED_PART_H

#include "replay/sched/sched.h"

/* n stored tokens of q leave after e. */
static inline void sched_take_tokens(struct sched_seq *q, struct batch_entry *e, uint32_t n)
{
	e->evict = q->n_evict = n;
	q->gone += n;
}

/* Swap the blocks of id with its other ones, without names, to which an event moved its keys. */
void sched_move(struct sched *s, uint32_t id);
/* An event has moved the keys of id, or will. */
bool sched_has_other(const struct sched *s, uint32_t id);
/* Release the blocks of id, but not its other ones. */
void sched_release_own(struct sched *s, uint32_t id);
/* The evictor took tokens of id.  An iteration that still runs takes its tokens when it has
 * ended. */
void sched_give_back(struct sched *s, uint32_t id);

#endif
