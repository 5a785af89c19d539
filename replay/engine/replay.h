/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine loop, on a virtual clock in integer nanoseconds.
 *
 * In each iteration, arrived requests join the waiting queue, and the policy plans a batch.  The
 * backend runs it, and its cost and the host's time advance the clock.  Tokens get the time at
 * which the host has recorded them.  If there is nothing to run, the clock jumps to the next
 * arrival.  With limits.async, an iteration is planned while the last one runs, and begins when
 * that has ended.  The same trace, limits, costs and host give the same schedule bit for bit.
 *
 * Several engines, replicas of one model, can share the requests: each has a scheduler, a KV pool,
 * a front end and a clock of its own.  They do not wait for each other, unless they share the
 * experts of their layers.  Then an iteration is a step of all.  It begins when all have ended the
 * last one, and ends when the slowest does.  An engine without work takes part with a row that
 * nobody needs.
 */
#ifndef AR_REPLAY_H
#define AR_REPLAY_H

#include "replay/cost/comm.h"
#include "replay/cost/cost.h"
#include "replay/engine/backend.h"
#include "replay/engine/latency.h"
#include "replay/engine/observer.h"
#include "replay/host/host.h"
#include "replay/engine/hot_rows.h"
#include "replay/engine/router.h"
#include "replay/engine/stages.h"
#include "replay/ranks/world.h"
#include "replay/sched/arrivals.h"
#include "replay/sched/front.h"
#include "replay/sched/policy.h"

/* Prefill and decodes in different engines.  The first token of a request comes from the one, and
 * its KV travels to the other.  It waits for a place in the pool there before the transfer begins;
 * both pools have its blocks until that ends.  Between two engines there is one transfer at a
 * time. */
struct replay_apart {
	int64_t prefill, decode; /* engines; 0: each does both */
	double link_bytes_s;	 /* rate of a transfer */
	int64_t link_ns;	 /* latency, before its bytes flow */
	int64_t block_bytes;	 /* of all ranks */
};

struct replay {
	const char *title; /* for the progress line: "method 2 of 3, compact-fp"; NULL: none */
	const struct trace *trace;
	struct arrival_rule arrival;
	struct front_limits front;
	struct router_rule route; /* replicas 0 or 1: one engine, and no router */
	/* Prefill and decodes in different engines, in place of route.replicas.  Those of prefill
	 * have the first numbers.  The router picks one of each kind for a request. */
	struct replay_apart apart;
	bool share_experts;   /* the engines, of route.replicas */
	struct stages stages; /* of each engine; its limits are without async and evict */
	struct sched_limits limits;
	const struct backend *backend;
	void *self;		 /* its state, open and started */
	struct cost cost;	 /* advances the clock */
	const struct comm *comm; /* collectives to add to it; NULL: none */
	struct world *world;	 /* ranks that run the same replay; NULL: none */
	struct host host;
	uint64_t host_seed;		 /* draws from the spread of host */
	const struct observer *observer; /* or NULL */
	bool rejects_known;		 /* the user was told of the requests that are rejected */

	/* Accuracy: the share of (request, prefill chunk, run_layer[i]) compared with dense, among
	 * layers of model that see all keys.  accuracy_decode: the share of (request, decoded
	 * token), in all of these layers.  Used if the backend compares. */
	double accuracy, accuracy_decode;
	/* Tokens of hot buffers to count misses of, [n_hot_size]: of a share accuracy_decode of the
	 * requests, in HOT_LAYERS of those layers. */
	const int64_t *hot_size;
	int n_hot_size;
	uint64_t seed;
	bool weights; /* tokens have keys of a model: those that have left are not made again */
	const struct model *model;
	const int *run_layer;
	int n_run_layers;
	int q_heads, kv_heads; /* of a rank */
	int whole_kv_heads;    /* of the model */

	/* The highest latencies of a good request, without ITL; 0: no limit. */
	int64_t limit_ns[LATENCY_COUNT];
};

enum { HOT_LAYERS = 4 };

/* Over samples (request, chunk, layer) and heads. */
struct sample_sums {
	int64_t n;
	double rel_l2_sum, rel_l2_max, cosine_min, recall_sum;
	int64_t n_heads;	      /* samples times heads */
	int64_t exec_sel, exec_total; /* of their selections, see selection_count.h */
};

/* The results.  After an error they cover the iterations before the failed one. */
struct replay_result {
	int64_t iterations, entries, prefill_tok, decode_tok;
	int64_t cost_sources[COST_SOURCES]; /* iterations, by the source of their cost */
	double beyond; /* of extrapolated ones: sum of iter_cost.beyond, each at most 1 */
	int64_t preemptions, recomputed_tok;
	int64_t failures;		  /* iterations in which the engine would fail */
	int64_t cached_tok;		  /* found in the prefix cache instead of computed */
	int64_t kv_refilled;		  /* those of them that no page held, see blocks.h */
	int64_t evict_waits;		  /* entries whose event found no KV blocks */
	int64_t ok, rejected, unfinished; /* requests */
	int64_t good;			  /* ok within all limits */
	int64_t output_tok;
	int64_t comm_sent[COMM_KERNELS]; /* messages of collectives by kernel, with a table */
	int64_t drop_rows, drop_kept;	 /* rows of prompts at the first layer that drops, and rows
				       * left after the last */
	int64_t end_ns;			 /* the clock at the end, the latest of all replicas */
	int64_t span_ns;		 /* of the executed layers of all iterations, on a GPU */
	/* In ns, sorted; of finished requests, but ITL of all. */
	struct series latency[LATENCY_COUNT];

	struct sample_sums sample[ROW_KINDS]; /* by kind of the sampled rows */

	struct hot_rows hot;	   /* n_layer 0: nothing was counted */
	int hot_layer[HOT_LAYERS]; /* indices of its layers in run_layer */

	/* [n_group of the limits] the most KV blocks that a replica owned at a time; NULL: the
	 * limits have no groups, or the run has not begun. */
	int64_t *group_peak;
};

/* Release *res even after an error.  AR_INTERRUPTED: the user stopped the run; the last iteration
 * is complete.  AR_ENGINE: the policy cannot schedule any request, or the engine would fail and the
 * limits do not survive that.  AR_DATA: the clock passed INT64_MAX ns.
 * Errors of the backend and of the observer are passed on. */
enum ar_status replay_run(const struct replay *cfg, struct replay_result *res, struct ar_err *err);
void replay_result_release(struct replay_result *res);

#endif
