/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routers: which of several engines, replicas of one model, gets a request when it arrives.
 *
 * A router knows how many requests of each replica have not ended, as it routed them itself.  It
 * knows the queues inside of replicas as they were published last, and may add to its copy what it
 * has sent since then.
 */
#ifndef AR_ROUTER_H
#define AR_ROUTER_H

#include "traces/trace.h"

enum { ROUTER_MOST = 1024 }; /* replicas */

/* A replica, as a router knows it. */
struct router_load {
	int64_t unfinished;	  /* requests that were routed to it and have not ended */
	int64_t waiting, running; /* those of them in its queue, and in its batches */
	double kv_use;		  /* share of its KV blocks in use */
};

struct router_rule {
	const struct request_router *router;
	int64_t replicas; /* at most ROUTER_MOST */
	int64_t stats_ns; /* how often loads are published; 0: before each request */
	uint64_t seed;
};

struct routing {
	struct router_rule rule;
	const struct trace *trace;
	struct router_load *load; /* [replicas] the caller keeps them */
	uint64_t n_routed;	  /* requests before this one */
	/* Of a router that knows prefixes. */
	size_t *first;	 /* [requests] where its blocks are in block */
	uint32_t *block; /* [blocks of all requests] equal ones have equal numbers, from 0 */
	uint64_t *known; /* [different blocks][words] bit r: replica r was sent this block */
	size_t words;
	int64_t *tree_tok; /* [replicas] tokens of different prefixes that it was sent */
};

/* One router.  To add one: a function, and a row of request_routers[]. */
struct request_router {
	const char *name;
	bool published; /* it reads waiting, running or kv_use */
	bool prefixes;	/* it reads known and tree_tok */
	bool drawn;	/* it draws from the seed */
	/* The replica for request id.  It may change r->load[]. */
	size_t (*choose)(struct routing *r, uint32_t id);
};
extern const struct request_router *const request_routers[]; /* ends with NULL */
extern const struct request_router router_prefix;

/* Begin to route the requests of a trace.  Release *r even after an error.  AR_NOMEM. */
enum ar_status routing_open(struct routing *r, const struct router_rule *rule,
			    const struct trace *t, struct ar_err *err);
void routing_release(struct routing *r);
/* The replica that request id goes to, from 0.  Calls are in the order of arrival. */
size_t routing_choose(struct routing *r, uint32_t id);

/* For routers: the replica with the fewest unfinished requests; of equals the lowest. */
size_t routing_least(const struct routing *r);

#endif
