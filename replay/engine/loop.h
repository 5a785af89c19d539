/* SPDX-License-Identifier: Apache-2.0 */
/* Private to replay/engine/: the loop of one engine. */
#ifndef AR_LOOP_H
#define AR_LOOP_H

#include "replay/engine/replay.h"

/* When things happened to a request, -1: not yet. */
struct times {
	int64_t first_sched, first_token, last_token;
};

/* An iteration that was launched.  The host has not recorded its tokens yet. */
struct launched {
	uint32_t *emit; /* [n_emit] requests that get a token */
	size_t n_emit;
	bool counted; /* sched_emit() has counted its tokens */
};

struct loop {
	const struct replay *cfg;
	struct replay_result *res;
	struct sched *s;
	struct times *t; /* [trace->n] */
	bool *done;	 /* [trace->n] rejected or finished */
	struct arrivals *arrivals;
	struct front *front;
	struct host_clock clock;  /* now: when the next plan is made */
	int64_t received;	  /* when the front end had passed on the last request */
	int64_t delivered;	  /* when clients had the tokens of the last batch */
	struct launched queue[2]; /* [n_queue], the oldest first */
	int n_queue, depth;	  /* at depth the queue is full: 2 if plans are made ahead, or 1 */
	int n_empty;		  /* empty plans in a row; 0 after an arrival */
	struct accuracy *acc;	  /* [q_heads] */
	struct selection_count *count; /* [kv_heads] */
};

/* Tell the observer how request id ended. */
enum ar_status loop_tell_request(const struct loop *l, uint32_t id, const char *outcome,
				 const char *reason, struct ar_err *err);
/* Queue the requests that have arrived.  With nothing to run, or after two empty plans, the clock
 * jumps to the next arrival.  False: no request is left. */
bool loop_arrive(struct loop *l, enum ar_status *st, struct ar_err *err);
/* Plan, execute, and queue the iteration.  The oldest one is recorded and retired when the queue is
 * full, or when nothing can run.  A plan that only waits for it is no iteration. */
enum ar_status loop_iterate(struct loop *l, struct ar_err *err);
/* Choose the layers whose hot buffers are counted. */
enum ar_status loop_open_hot(struct loop *l, struct ar_err *err);
/* The latencies of a finished request in ns, -1: it has none. */
void loop_latencies(const struct loop *l, uint32_t id, double ns[LATENCY_COUNT]);

#endif
