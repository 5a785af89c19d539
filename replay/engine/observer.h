/* SPDX-License-Identifier: Apache-2.0 */
/* Callbacks of a replay: a call for every iteration, request and accuracy sample. */
#ifndef AR_OBSERVER_H
#define AR_OBSERVER_H

#include "replay/engine/backend.h"
#include "replay/host/host.h"
#include "replay/sched/sched.h"

struct rank_tell;
struct replay_result;

/* An iteration that has run.  sched_emit() has not counted its tokens yet. */
struct observed_iteration {
	int64_t no;		  /* from 0; with replicas, some are left out */
	int64_t replica;	  /* from 0; -1: there is one */
	int64_t start_ns, end_ns; /* virtual time */
	int64_t host_ns;	  /* how long the GPU waits for the host in it */
	const struct host_parts *host;
	const struct sched *sched;    /* the batch, the queues and the pool */
	const struct iter_cost *cost; /* empty batch: event_ns, span_ns and busy_ns are -1 */
	const struct rank_tell *rank; /* [n_rank] what ranks told of it; none: they are not there,
				       * or the batch is empty */
	int n_rank;
};

/* A request that finished, was rejected, or was unfinished at the end of the run. */
struct observed_request {
	uint32_t id;		 /* index into the trace */
	int64_t replica;	 /* from 0; -1: there is one, or the request came to none */
	int64_t prefill_replica; /* that made its first token for another one; -1: none did */
	int64_t kv_end_ns;	 /* when its KV had come from there; -1: it has not */
	uint32_t prompt_tok;
	int64_t arrival_ns, first_sched_ns, first_token_ns, finish_ns; /* -1: never */
	const struct sched_seq *seq;
	const char *outcome; /* "ok", "rejected", "unfinished" */
	const char *reason;  /* of a rejection, or NULL */
};

/* One layer of one batch entry, compared with dense attention. */
struct observed_sample {
	int64_t iter_no;
	const struct batch_entry *entry;
	int layer, q_heads, kv_heads;
	const struct accuracy *acc;	     /* [q_heads] */
	const struct selection_count *count; /* [kv_heads] */
	const struct kept_share *kept;	     /* NULL: nothing was dropped */
};

/* Arguments are borrowed for the call.  An error of a callback ends the run.  A callback may be
 * NULL: the run goes on without it. */
struct observer {
	void *self;
	enum ar_status (*iteration)(void *self, const struct observed_iteration *it,
				    struct ar_err *err);
	enum ar_status (*request)(void *self, const struct observed_request *r, struct ar_err *err);
	enum ar_status (*sample)(void *self, const struct observed_sample *s, struct ar_err *err);
	/* Called at the end of the run, also after an error.  res is complete. */
	enum ar_status (*end)(void *self, const struct replay_result *res, struct ar_err *err);
};

#endif
