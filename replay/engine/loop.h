/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to replay/engine/: the loop of one engine, a replica, as a row of events.
 *
 * A request that was routed to it waits in its inbox.  Its events are: it admits the first request
 * of the inbox; it launches the iteration that it plans; that iteration ends.  What others may see
 * of the engine changes with these events alone.
 */
#ifndef AR_LOOP_H
#define AR_LOOP_H

#include "replay/engine/heads.h"
#include "replay/engine/replay.h"
#include "replay/ranks/tell.h"

/* When things happened to a request, -1: not yet. */
struct times {
	int64_t first_sched, first_token, last_token;
};

/* The way of a request whose prefill and decodes are apart. */
struct travel {
	int64_t end_ns; /* when its KV has arrived; -1: it has not */
	int32_t from;	/* the replica that made its first token; -1: none */
};

/* An iteration that was launched.  The host has not recorded its tokens yet. */
struct launched {
	uint32_t *emit; /* [n_emit] requests that get a token */
	size_t n_emit;
	bool counted; /* sched_emit() has counted its tokens */
	/* With stages. */
	struct batch batch; /* a copy */
	int64_t end_ns, update_ns;
};

/* The iteration of the last plan. */
struct step {
	int64_t no;
	int64_t start_ns, wait_ns; /* wait_ns: how long the GPU waits for the host in it */
	enum host_kind kind;
	struct host_parts host;
	struct iter_cost cost;
};

enum loop_role { LOOP_WHOLE, LOOP_PREFILL, LOOP_DECODE };

struct loop {
	/* Of all replicas. */
	const struct replay *cfg;
	struct replay_result *res;
	struct times *t;    /* [trace->n] */
	bool *done;	    /* [trace->n] rejected or finished */
	uint32_t *in_after; /* [trace->n] the one after it in its inbox, or SCHED_NONE */
	int64_t *in_ns;	    /* [trace->n] when it came there */
	/* [trace->n]; NULL: prefill and decodes are not apart */
	struct travel *travel;
	int64_t *n_number; /* numbers of iterations that were taken, see next_number() */
	struct arrivals *arrivals;
	struct accuracy *acc;	       /* [q_heads] of this rank */
	struct selection_count *count; /* [kv_heads] of this rank */
	struct heads *heads;	       /* of a sample, of all ranks */

	/* Its own. */
	int64_t replica; /* number; -1: it is the only one */
	enum loop_role role;
	uint32_t *left; /* [n_left] requests that go on elsewhere, with their first output */
	size_t n_left;	/* since the caller set it to 0 */
	struct sched *s;
	struct front *front;
	uint32_t in_first, in_last; /* the inbox, by arrival; SCHED_NONE: empty */
	int64_t no, no_end;	    /* numbers of iterations that it has left */
	int64_t n_unfinished;	    /* requests that were routed to it and have not ended */
	bool runs;		    /* an iteration was launched, and its end is the next event */
	struct step step;
	bool joins;		 /* it has a plan for the common step */
	struct host_clock clock; /* now: when the next event is */
	int64_t received;	 /* when the front end had passed on the last request */
	int64_t delivered;	 /* when clients had the tokens of the last batch */
	struct launched *queue;	 /* [depth], n_queue of them launched, the oldest first */
	int n_queue, depth; /* at depth it is full: the stages, 2 if plans are made ahead, or 1 */
	int64_t *stage_end; /* [stages] when each has run what came to it; NULL: no stages */
	int n_empty;	    /* empty plans in a row; 0 after an arrival */
	struct rank_tells tells; /* of the iteration that was launched last, with ranks */
};

/* Open the engine in l->role: its scheduler, front end and queue.  seq: of a replica that is open,
 * or NULL.  Close it even after an error. */
enum ar_status loop_open(struct loop *l, struct sched_seq *seq, struct ar_err *err);
void loop_close(struct loop *l); /* twice is fine */

/* Request id joins the inbox at at_ns: it arrives, or its KV has come. */
void loop_take(struct loop *l, uint32_t id, int64_t at_ns);
/* The KV of request id, which went on elsewhere, has arrived there at at_ns. */
void loop_leave(struct loop *l, uint32_t id, int64_t at_ns);
/* The time of the next event; INT64_MAX: there is none before a request comes. */
int64_t loop_next(const struct loop *l);
/* Let the next event happen.  Without one, what waits can never run: AR_ENGINE. */
enum ar_status loop_step(struct loop *l, struct ar_err *err);
/* The next event is that it launches an iteration. */
bool loop_launches(const struct loop *l);

/* loop_step() in parts, in this order, for engines that run steps together. */
/* Let time pass, and admit the requests that have come. */
enum ar_status loop_wait(struct loop *l, int64_t until_ns, struct ar_err *err);
enum ar_status loop_plan(struct loop *l, struct ar_err *err);
/* Find the cost of the plan, if it has a batch.  step: of all engines; NULL: this one is alone. */
enum ar_status loop_price(struct loop *l, const struct batch_step *step, struct ar_err *err);
/* When the GPU would have run the plan. */
int64_t loop_end(const struct loop *l);
/* Launch the plan. */
enum ar_status loop_go(struct loop *l, struct ar_err *err);

/* Requests wait or run, or tokens are in flight that nobody needs. */
bool loop_has_work(const struct loop *l);

/* Tell the observer how request id ended. */
enum ar_status loop_tell_request(const struct loop *l, uint32_t id, const char *outcome,
				 const char *reason, struct ar_err *err);
/* Choose the layers whose hot buffers are counted. */
enum ar_status loop_open_hot(struct loop *l, struct ar_err *err);
/* The latencies of a finished request in ns, -1: it has none. */
void loop_latencies(const struct loop *l, uint32_t id, double ns[LATENCY_COUNT]);

#endif
