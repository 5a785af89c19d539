/* SPDX-License-Identifier: Apache-2.0 */
/* Backends run iterations: "cuda" with real kernels; "cpu" with the references in C; "cost" without
 * kernels, by a formula or measured costs; "roofline" by a model of a GPU.  One file each, one row
 * in backends.c. */
#ifndef AR_BACKEND_H
#define AR_BACKEND_H

#include "base/opt.h"
#include "kernels/drop/kept.h"
#include "kernels/methods/accuracy.h"
#include "kernels/methods/plan.h"
#include "model/model.h"
#include "profiler/cupti/prof.h"
#include "profiler/store/store.h"
#include "replay/sched/blocks.h"
#include "traces/capture/capture.h"
#include "traces/trace.h"

struct costs;
struct evict;
struct experts;
struct tokens;
struct weights;
struct world;

/* The input of a backend, which it outlives.  prepare_run() has checked that model
 * and captures fit each other.  They are NULL or 0 for a backend with needs_model == false. */
struct backend_env {
	const struct trace *trace;
	const struct model *model;
	struct capture **capture;
	size_t n_capture;
	const uint16_t *capture_of; /* [trace->n] which capture a request replays */
	const int *captured_layer;  /* [model->n_layers] index into the capture's layers, for
					 * each layer of the model */
	const int *run_layer;	    /* [n_run_layers] model layers that are executed */
	int n_run_layers;
	bool tile;   /* --extend=tile */
	int repeats; /* above 1: the captures repeat the heads of a file that often */
	const struct weights *weights; /* real ones of the model; NULL: activations are captures */
	struct tokens *tokens;	       /* of the requests, with weights */
	struct plan *plan;	       /* the backend opens its methods */
	const struct evict *evict;     /* of all of them; NULL: keys stay in the cache */
	int page_tok;		       /* tokens of a page of the KV cache; 0: as plan takes it */
	int64_t max_batched_tok, max_seqs, max_len; /* limits of the policy; longest request */
	int64_t max_captured;  /* rows of the largest CUDA graph; 0: see graph_sizes_open() */
	int64_t max_draft_tok; /* most drafts of a verify entry; 0: there are no such entries */
	int64_t num_blocks, block_tok; /* the policy's pool; num_blocks 0: backend sizes it */
	double memory_share;	       /* of the GPU's memory that it may use for that */
	/* Blocks that the requests of a batch list at most, where some list the same ones; 0: no
	 * block is listed twice. */
	int64_t listed_blocks;
	struct blocks *blocks; /* closed; start() of a backend that keeps KV opens it */
	uint64_t seed;
	bool attention_only;
	struct prof *prof;	 /* cuda: tracing session, or NULL */
	struct costs *costs;	 /* cost: the table, or NULL */
	const char *policy;	 /* its name; NULL: there is none */
	struct experts *experts; /* roofline: the loads of experts are drawn; or NULL */
	struct world *world;	 /* ranks that run the same batches; NULL: it is alone */
};

/* The source of a cost.  The three after the formula are of a table of measured costs. */
enum cost_source {
	COST_TIMED, /* the backend ran the iteration */
	COST_FORMULA,
	COST_MEASURED,
	COST_INTERPOLATED,
	COST_EXTRAPOLATED,
	COST_MODELLED, /* the roofline model */
	COST_SOURCES
};
extern const char *const cost_source_names[]; /* by source */

/* Chunks of prompts by the form of their latent attention: rows that are absorbed into the latents,
 * or keys that are expanded from them. */
struct latent_chunks {
	int64_t absorbed, expanded;
};

/* The rows of a batch at a layer that drops, and what ranks that share heads tell each other. */
struct drop_messages {
	int layer;
	bool before_mlp;    /* it drops before the layer's MLP */
	int64_t rows, kept; /* in the layer, and behind the dropper; decodes included */
	int64_t score[2];   /* scores that ranks add up for prompts, and for decodes, by a message
			     * each; 0: none */
};

/* The cost of an iteration.  cost_ns advances the clock. */
struct iter_cost {
	int64_t cost_ns;
	enum cost_source source;
	double beyond;			  /* of COST_EXTRAPOLATED: see cost_table_beyond() */
	int64_t event_ns;		  /* CUDA events around the iteration, -1: none */
	int64_t span_ns, busy_ns;	  /* of its kernels: first start to last end, union of their
					 * times; -1: none */
	const struct prof_kernel *kernel; /* in order of start; valid until the next run() */
	size_t n_kernel;
	int64_t comm_exposed_ns, comm_overlap_ns; /* if there are kernels: times of those of
						   * collectives, alone and beside others */
	int64_t phase_ns[PHASE_COUNT]; /* times with a kernel (cpu: wall time) by phase; where
					* kernels of two phases overlap, the time is the phase's
					* that started first; collectives count all of theirs */
	int32_t phase_kernels[PHASE_COUNT];
	const struct store_drop *drop; /* rows that a dropper saw, by layer; as kernel */
	size_t n_drop;
	const struct drop_messages *drop_messages; /* of each layer that drops; as kernel */
	size_t n_drop_messages;
	uint64_t drop_digest;	     /* of the rows that it kept; the same on all ranks */
	struct latent_chunks latent; /* none: the model has no latent attention */
};

/* Kernels of the method beside attention. */
static inline int64_t iter_cost_select_kernels(const struct iter_cost *c)
{
	return (int64_t)c->phase_kernels[PHASE_SELECT] + c->phase_kernels[PHASE_METADATA] +
	       c->phase_kernels[PHASE_COPY];
}

/* The work of a layer. */
struct layer_work {
	int64_t n_row, n_mlp; /* rows, and rows that its MLP runs */
	int64_t n_pair;	      /* (row, key) pairs of dense attention over the keys in its cache */
};

/* A backend has the functions below.  Call them by the functions after the struct, which hold what
 * each asks of its caller. */
struct backend {
	const char *name, *title;
	const struct opt *opts; /* its own options of 'attnreplay run', may be NULL */
	size_t opts_size;
	bool needs_model; /* and captures and a method */
	bool uses_gpu;	  /* kernels can be traced: env.prof opens before open() */
	bool modelled;	  /* its times are modelled ones of a GPU; it can do without captures */

	/* Begin to use the device before open(), which takes long; errors are left to open().
	 * Another process may still fill the memory.  NULL: there is nothing to begin. */
	void (*attach)(const void *opts, const struct backend_env *env);
	enum ar_status (*open)(void **self, const void *opts, const struct backend_env *env,
			       struct ar_err *err);
	/* Blocks of block_tok tokens that fit (cuda: free memory), for --num-gpu-blocks auto.
	 * NULL: no limit, so the caller takes the blocks that the trace needs. */
	int64_t (*fit_blocks)(void *self);
	/* Rows of the largest CUDA graph, 0: none.  NULL: the backend has no graphs. */
	int64_t (*max_captured)(void *self);
	/* The device, for the record.  NULL where uses_gpu is false. */
	const struct store_gpu *(*gpu)(void *self);
	/* Called once num_blocks is final and before the first run: allocate, warm up. */
	enum ar_status (*start)(void *self, int64_t num_blocks, struct ar_err *err);
	/* With weights it gives the logits of each row that outputs a token to env.tokens. */
	enum ar_status (*run)(void *self, const struct batch *b, struct iter_cost *cost,
			      struct ar_err *err);
	/* Run prefill or decode entry e in layer run_layer[i], with the method and with dense
	 * attention, outside the timed region.  run() has already computed all tokens up to its
	 * last one.  acc: [q_heads].  count: [kv_heads].  sel: gets the selection, or NULL; release
	 * it even after a failure.  compare is NULL for a backend without accuracy. */
	enum ar_status (*compare)(void *self, const struct batch_entry *e, int i,
				  struct accuracy *acc, struct selection_count *count,
				  struct method_selection *sel, struct ar_err *err);
	/* Measure how much of dense attention the tokens hold that go on after layer run_layer[i].
	 * e: a prefill entry of the batch that run() ran last.  out->n_tok 0: no token was dropped
	 * yet; or the run has weights, where dropped tokens have no keys.  NULL for a backend
	 * without kernels, as is layer_work. */
	enum ar_status (*kept)(void *self, const struct batch_entry *e, int i,
			       struct kept_share *out, struct ar_err *err);
	/* Get the work of layer run_layer[i] in all batches that run() has run so far. */
	void (*layer_work)(const void *self, int i, struct layer_work *out);
	/* The request finished or was preempted: forget its state beside its tables. */
	void (*drop)(void *self, uint32_t req);
	/* Time the second of two barriers of all ranks in a row, n times, to ns[n]; -1: a time is
	 * not right, as the host was late.  NULL: the backend has none. */
	enum ar_status (*barriers)(void *self, int n, int64_t *ns, struct ar_err *err);
	/* Nothing runs any more: forget what depends on env.world, which ends before the backend.
	 * NULL: nothing does. */
	void (*leave)(void *self);
	void (*close)(void *self);
};

extern const struct backend *const backends[]; /* ends with NULL */
const struct backend *backend_find(const char *name);

/* The calls of backend b, whose state self is.  A call not listed here does as its member says.
 *
 * fit_blocks: BACKEND_ANY_BLOCKS without a limit.
 * max_captured: -1 for a backend without graphs.
 * gpu: NULL for one without a GPU.
 * run: the batch is not empty.
 * compares: backend_compare() may be called.
 * compare: e is of a kind that backend_compares_kind() names.
 * kept: e is a prefill entry.  A backend without kept() has dropped nothing.
 * layer_work: false if the backend has no kernels; *out is unchanged.
 * close: self may be NULL. */
#define BACKEND_ANY_BLOCKS INT64_MAX

enum ar_status backend_open(const struct backend *b, void **self, const void *opts,
			    const struct backend_env *env, struct ar_err *err);
int64_t backend_fit_blocks(const struct backend *b, void *self);
int64_t backend_max_captured(const struct backend *b, void *self);
const struct store_gpu *backend_gpu(const struct backend *b, void *self);
enum ar_status backend_start(const struct backend *b, void *self, int64_t num_blocks,
			     struct ar_err *err);
enum ar_status backend_run(const struct backend *b, void *self, const struct batch *batch,
			   struct iter_cost *cost, struct ar_err *err);
bool backend_compares(const struct backend *b);
static inline bool backend_compares_kind(enum row_kind kind)
{
	return kind == ROW_PREFILL || kind == ROW_DECODE;
}
enum ar_status backend_compare(const struct backend *b, void *self, const struct batch_entry *e,
			       int i, struct accuracy *acc, struct selection_count *count,
			       struct method_selection *sel, struct ar_err *err);
enum ar_status backend_kept(const struct backend *b, void *self, const struct batch_entry *e, int i,
			    struct kept_share *out, struct ar_err *err);
bool backend_layer_work(const struct backend *b, const void *self, int i, struct layer_work *out);
void backend_drop(const struct backend *b, void *self, uint32_t req);
/* AR_OK with *timed false: the backend has no barriers. */
enum ar_status backend_barriers(const struct backend *b, void *self, int n, int64_t *ns,
				bool *timed, struct ar_err *err);
void backend_leave(const struct backend *b, void *self);
void backend_close(const struct backend *b, void *self);

#endif
