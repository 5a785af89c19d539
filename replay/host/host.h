/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The time of an engine's host in an iteration.
 *
 * The host chooses a batch (schedule), makes its inputs (prepare), launches its kernels (launch),
 * and records the sampled tokens (update).  How it launches is the kind of the iteration:
 * - graph: decodes only run from one CUDA graph, if it was captured for that many rows.  Its inputs
 *   are made in the time of its launch.
 * - pieces: other batches up to the largest captured size run from graphs.  Each graph has a part
 *   of a layer between attention calls.
 * - eager: larger batches are launched kernel by kernel.
 * The GPU cannot end an iteration before its last kernel is launched.  So the time of launching is
 * the least time of an iteration of this kind.  Between two batches the GPU copies inputs and
 * samples tokens.  These kernels are small, and launching ahead cannot hide the gaps between them
 * (gap).  Nor does it hide those between kernels that are launched one by one.
 *
 * The order of the steps is vLLM's (vllm/v1/engine/core.py: step(), step_with_batch_queue()).  With
 * asynchronous scheduling the host launches an iteration while the GPU runs the one before.  It
 * then records the tokens of the one before.
 *
 * A served engine has a front end in a process of its own.  It takes requests and sends messages to
 * the engine, which queues them before its next iteration (receive).  It hands the recorded tokens
 * to the clients, one batch after the other (deliver).  HTTP, tokenization and detokenization come
 * on top.  In a log of clients of the front end itself they take no time.
 *
 * All times are integers in ns.  A model with all times 0 says that the host takes no time.
 *
 * A host does not take the same time twice.  A model may have the spread of preparing and launching
 * in each kind: quantiles of the time relative to the fitted one.  A host is slow or fast for a
 * while.  So which quantile is drawn depends in equal shares on the iteration, on a short spell of
 * the clock, and on a long one.  Measured beside vLLM in two hours: launches 0.05 s apart correlate
 * by 0.55 and 0.75, launches 0.5 s apart by 0.25 and 0.4, launches 4 s apart hardly.
 *
 * Each rank of a model has a process that launches, and their collectives wait for the last one.
 * So each rank draws for itself, and the slowest one counts.  Measured: in 30 spells of a second
 * launches of vLLM's two ranks correlate by 0.04, and a step takes 1.5 % more than the longer one.
 */
#ifndef AR_HOST_H
#define AR_HOST_H

#include <stdbool.h>

#include "base/probe.h"
#include "base/status.h"
#include "model/model.h"
#include "replay/sched/batch.h"

/* X(NAME, key in files, what takes the time).  Never change a key: files have it. */
#define HOST_TIMES(X) \
	X(ADMIT, "admit_ns", "adding a request to the engine") \
	X(ADMIT_TOK, "admit_token_ns", "... for each token of its prompt") \
	X(SCHEDULE, "schedule_ns", "choosing a batch") \
	X(SCHEDULE_REQ, "schedule_request_ns", "... for each of its requests") \
	X(PREPARE, "prepare_ns", "making the inputs of a batch that is not one graph") \
	X(PREPARE_REQ, "prepare_request_ns", "... for each request of one that is one graph") \
	X(PREPARE_TOK, "prepare_token_ns", "... for each of its tokens") \
	X(JOIN, "join_ns", "... for each request that runs for the first time") \
	X(WAKE, "wake_ns", "... after the engine was idle") \
	X(GRAPH, "graph_ns", "launching an iteration that is one graph") \
	X(PIECES, "pieces_ns", "launching an iteration of graphs by pieces, without its layers") \
	X(PIECES_LAYER, "pieces_layer_ns", "... for each layer") \
	X(EAGER, "eager_ns", "launching an iteration kernel by kernel, without its layers") \
	X(EAGER_KERNEL, "eager_kernel_ns", "... for each kernel of each layer") \
	X(GAP, "gap_ns", "the GPU's small kernels around a batch, with their gaps") \
	X(UPDATE, "update_ns", "recording the tokens of a batch") \
	X(UPDATE_REQ, "update_request_ns", "... for each of its requests") \
	X(RECEIVE, "receive_ns", "a request's way through the front end to the engine") \
	X(RECEIVE_TOK, "receive_token_ns", "... for each token of its prompt") \
	X(DELIVER, "deliver_ns", "the way of a batch's tokens to the clients") \
	X(DELIVER_REQ, "deliver_request_ns", "... for each of its requests") \
	X(HTTP, "http_ns", "HTTP and tokenization of a request") \
	X(HTTP_TOK, "http_token_ns", "... for each token of its prompt") \
	X(HTTP_SEND, "http_send_ns", "detokenizing and sending a batch's tokens by HTTP") \
	X(HTTP_SEND_REQ, "http_send_request_ns", "... for each of its requests") \
	X(GAP_REQ, "gap_request_ns", "the gap, for each request of a batch") \
	X(GAP_LAYER, "gap_layer_ns", "... and for each layer, if it is launched by kernels") \
	X(SCHEDULE_TOK, "schedule_token_ns", "choosing a batch, for each of its tokens") \
	X(DELIVER_EAGER, "deliver_eager_ns", \
	  "delivering, while a batch is launched kernel by kernel")

enum host_time {
#define X(name, key, text) HOST_##name,
	HOST_TIMES(X)
#undef X
		HOST_N_TIMES,
	HOST_FRONT = HOST_RECEIVE, /* of the front end; from here on a file may leave them out */
};

enum host_kind { HOST_KIND_GRAPH, HOST_KIND_PIECES, HOST_KIND_EAGER, HOST_KINDS };
extern const char *const host_kind_names[]; /* by kind */

enum {
	HOST_SPREAD = 32, /* quantiles of a spread, of (i + 1/2) / HOST_SPREAD */
};

/* How long a host keeps parts of its speed. */
#define HOST_SPELL_NS 250000000
#define HOST_LONG_SPELL_NS 2000000000

struct host {
	char name[64];		  /* of the preset or file; "none": the host takes no time */
	char about[128];	  /* engine, GPU and CPU that it was fitted on */
	int64_t ns[HOST_N_TIMES]; /* >= 0 */
	/* preparing and launching, in thousandths of their time, from low to high; 0: no spread */
	int64_t spread[HOST_KINDS][HOST_SPREAD];
	int64_t max_captured;	     /* tokens of the largest CUDA graph; 0: there are none */
	int64_t n_layers, n_kernels; /* of the model; see host_bind() */
	int ranks;		     /* that wait for each other in an iteration; 0: one */
	struct probe probe;	     /* of the host that it was fitted on; 0: not known */
};

/* The features of an iteration that set its host times.  kernel_extra: kernels of a selection, in
 * all layers.  draw: the quantile of the spread, from host_draw(). */
struct host_load {
	enum host_kind kind;
	int64_t n_req, n_tok, n_join;
	int64_t kernel_extra;
	bool idle; /* the engine had nothing to run before */
	int64_t draw;
};

/* Parts of the host's time, in ns; and the GPU's gap. */
struct host_parts {
	int64_t schedule, prepare, launch, update, gap;
};

/* Number of kernels that an engine launches for all layers of model m with dense attention. */
int64_t host_kernels(const struct model *m);
/* Set the layers of the model, and the kernels of all layers together; a collective of ranks is one
 * of them.  Without this call, launching layers takes no time. */
void host_bind(struct host *h, int64_t n_layers, int64_t n_kernels);

struct host_load host_load(const struct host *h, const struct batch *b);
struct host_parts host_parts(const struct host *h, const struct host_load *x);
/* Draw a quantile for an iteration at time now, from 0 to HOST_SPREAD - 1: that of the slowest of
 * these ranks. */
int64_t host_draw(uint64_t seed, int ranks, int64_t now);
/* Time to add a request to the engine. */
int64_t host_admit(const struct host *h, int64_t prompt_tok);
/* Time from a request's arrival until the engine can add it. */
int64_t host_receive(const struct host *h, int64_t prompt_tok);
/* The front end hands the tokens of n_req requests to their clients; they were recorded at now.
 * eager: the host launches kernel by kernel meanwhile, which holds up messages to the front end.
 * *free_at: when it has done so for the batch before; it becomes the time when the clients have
 * these, which is returned.  The way there overlaps, the work for each request does not. */
int64_t host_deliver(const struct host *h, int64_t n_req, bool eager, int64_t now,
		     int64_t *free_at);
/* Whether the host has times of HTTP, and whether it has a front end at all. */
bool host_has_http(const struct host *h);
bool host_has_front(const struct host *h);
/* Make all times of the host x times as long.  The GPU's gaps stay. */
void host_scale(struct host *h, double x);

/*
 * The two clocks: the host's and the GPU's.  Both replay and calibration advance them here.
 *
 * host_run: the host prepares and launches an iteration at h->now.  Its kernels take the GPU
 * gpu_ns.  Then the host waits for this iteration.  If async, it waits for the iteration in flight
 * instead, if there is one.  It records the tokens of the iteration it waited for.  now becomes the
 * time after all that.
 * host_wait: nothing can be launched, so the host waits for the iteration in flight.
 * Sums that pass INT64_MAX become INT64_MAX.
 */
struct host_clock {
	int64_t now;	  /* of the host */
	int64_t gpu_end;  /* when the GPU has run all that was launched */
	int64_t launched; /* when the last kernel was launched */
	int64_t update;	  /* to record the tokens in flight */
	bool in_flight;	  /* async: an iteration whose tokens are not recorded */
};

/* Returns the time that the GPU waits for the host: before its first kernel, and between them. */
int64_t host_run(struct host_clock *c, const struct host_parts *p, enum host_kind kind,
		 int64_t gpu_ns, bool async);
void host_wait(struct host_clock *c, int64_t schedule_ns);

/* ---- files ---- */

extern const char *const host_keys[];	     /* keys in files, by time */
extern const char *const host_spread_keys[]; /* by kind */

/* Load a host model.  name_or_path: "none", a preset, or a file written by host_write().  AR_DATA:
 * there is no such file or preset, or a key is missing or out of range.  Spreads may be missing. */
enum ar_status host_load_file(struct host *h, const char *name_or_path, struct ar_err *err);
/* Write the path of the file that name_or_path means into path[0..n): itself if it exists, else a
 * preset.  False: there is none. */
bool host_find(const char *name_or_path, char *path, size_t n);
/* Write h as JSON to path, whole or not at all.  size: [n_size] tokens of the CUDA graphs. */
enum ar_status host_write(const struct host *h, const int64_t *size, size_t n_size,
			  const char *path, struct ar_err *err);

#endif
