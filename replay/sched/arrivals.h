/* SPDX-License-Identifier: Apache-2.0 */
/* When requests arrive: at the times of the trace, or after the request before them in their
 * session has finished. */
#ifndef AR_ARRIVALS_H
#define AR_ARRIVALS_H

#include "traces/trace.h"

enum arrival_loop {
	LOOP_OPEN,     /* every request at its time */
	LOOP_SESSIONS, /* the first request of a session at its time; each other one a
				 * think time after the one that it follows has finished, and
				 * no earlier than the one before it in its session; a
				 * request for which sessions end follows those */
	LOOP_USERS,    /* each user runs one session, with those that it starts, after
				 * another, in the order of the trace; its arrival times are
				 * not used */
};

struct arrival_rule {
	int loop;	  /* enum arrival_loop */
	int64_t users;	  /* LOOP_USERS: at least 1 */
	int64_t think_ns; /* think time where the trace has none */
	/* Of the trace's think times; all 0: as they are. */
	int64_t think_cap_ns; /* the longest; 0: no limit */
	double think_scale;   /* factor, after that; 0: 1 */
	int64_t idle_cap_ns;  /* with no request in flight, all others come earlier so that the next
			       * comes after this at the latest; 0: they do not */
};

struct arrivals;

/* A request without a session is a session of its own. */
enum ar_status arrivals_open(struct arrivals **out, const struct trace *t,
			     const struct arrival_rule *rule, struct ar_err *err);
void arrivals_close(struct arrivals *a); /* NULL is fine */

/* The next request by (time, number); false: none is known.  More can come with arrivals_done. */
bool arrivals_peek(struct arrivals *a, uint32_t *id, int64_t *at_ns);
/* Take the next request. */
void arrivals_pop(struct arrivals *a);
/* Request id, taken before, is finished or rejected. */
void arrivals_done(struct arrivals *a, uint32_t id, int64_t now_ns);
/* When id arrived; before that, its time in the trace. */
int64_t arrivals_at(const struct arrivals *a, uint32_t id);

#endif
