/* SPDX-License-Identifier: Apache-2.0 */
/* The state of backend "cuda", shared by its source files. */
#ifndef AR_BACKEND_CUDA_H
#define AR_BACKEND_CUDA_H

#include "kernels/prim/cuda.h"
#include "replay/engine/attn_engine.h"
#include "replay/engine/evictions.h"
#include "replay/engine/backends_attn.h"
#include "replay/engine/decoder.h"
#include "replay/engine/graph_sizes.h"
#include "replay/engine/graphs.h"
#include "replay/engine/rows.h"

struct cuda_opts {
	int64_t device;
	bool enforce_eager;
	char *capture_sizes; /* read while opening only */
};

enum { CUDA_ALLOCS = 48, CUDA_GRAPHS = 3 };

/* The GPU, from open() to close(). */
struct cuda_device {
	struct store_gpu gpu;
	cudaStream_t stream;	  /* a blocking stream: in order with cudaMemcpy() */
	void *alloc[CUDA_ALLOCS]; /* device memory, freed at close */
	int n_alloc;
};

/* The rows that run, and their memory and graphs. */
struct cuda_pass {
	bf16_t *q, *k, *out;	       /* [rows of an iteration][heads][head_dim] */
	float *lse;		       /* [rows][q_heads] */
	void *work;		       /* workspace of the parts of methods, one after the other */
	void *lists;		       /* that pass between layers; NULL: none do */
	void *beside;		       /* workspace of decodes that run while chunks end */
	float *sink;		       /* copy of engine.sink */
	struct cuda_drops {	       /* on the device; without a dropper, NULL */
		struct drop_kept kept; /* of the dropper that ran last */
		int32_t *chunk;	       /* copy of engine.drops.chunk */
		int32_t *index;	       /* copy of engine.drops.index */
		int32_t *whole;	       /* copy of engine.drops.whole; NULL: no rows come back */
		/* If tokens are revived, else NULL: */
		struct drop_revived chosen; /* of the decodes at the layer that ran last */
		int32_t *left;		    /* copy of engine.drops.left */
		int32_t *slot;		    /* [segments][most revived rows] of revived tokens in
					     * the aux cache; rest: the scratch slot */
		int32_t *slot_host;	    /* [most revived rows] pinned */
		bf16_t **aux;		    /* [segments] the aux cache of the layer that ends it;
					     * NULL without a decoder */
	} drops;

	struct cuda_share {
		struct share_plane *plane; /* of all executed layers, on the device */
		int *first;		   /* [n_run_layers + 1] the first plane of each */
		size_t widest;		   /* bytes of a page of one */
		/* Copies of the batch that runs: early ones, then late ones. */
		struct share_copy *copy, *host; /* on the device; pinned */
		int n_early, n;
	} share;

	struct kv_cache *kv;	  /* [n_run_layers] */
	void **state;		  /* [n_run_layers] of selectors and linear layers, or NULL */
	struct rows_env rows;	  /* rows.mem is pinned host memory */
	void *rows_dev;		  /* the copy of rows.mem on the device */
	struct row_set host, dev; /* of the batch that was staged last */
	struct graphs graphs[CUDA_GRAPHS]; /* of parts of the layers, one after the other */
	struct graph_sizes sizes;	   /* none with --enforce-eager */

	struct dense_out { /* of compare(), on the device */
		bf16_t *out;
		float *lse;
		void *work;	/* of accuracy_measure_device() */
		int64_t *skips; /* [kv_heads][2], of attn_skip.count */
		/* With weights: the executed layer whose attention output of entry (req, start) is
		 * in out of struct cuda_pass, or -1. */
		int at;
		uint32_t req, start;
	} compared;
	float *logits; /* [vocab of all ranks] pinned, with weights */
};

/* Of an evictor; see backend_cuda_evict.c. */
struct cuda_evict {
	struct evictions list;
	const struct batch *batch; /* whose queries are kept; NULL: of none */
	bf16_t *window;		   /* on the device, [slots][n_run_layers][window][row of Q] */
	uint8_t *slot;		   /* [requests] from 1; 0: none */
	bool *used;		   /* [slots] */
	int32_t *keep, *number, *pos;
	int32_t *host; /* pinned, [n_number], as number */
	size_t n_number;
	void *work;
	cudaEvent_t begin, end;
	int64_t ns; /* of events since the last cuda_evict_cost() */
};

/* The clock of an iteration. */
struct cuda_clock {
	cudaEvent_t begin, head, end;
	volatile int *go;     /* pinned; see hold() and release() */
	bool early;	      /* release() before all is enqueued */
	int held_rows[2];     /* not for batches of at most this many rows; [1]: from graphs */
	int64_t *enqueued_ns; /* [n_run_layers + 1] when each layer and the head was */
	int ran_rows;	      /* of the graphs that ran last, in ran_ns; 0: none did */
	int64_t ran_ns;
	bool stale;	 /* the tracer may hold kernels of no iteration */
	bool slow_host;	 /* the batch before was late twice; see again_if_late() */
	bf16_t *barrier; /* [1] on the device, of ranks; NULL: there is one */
};

struct cuda {
	struct backend_env env;
	struct cuda_opts opts;
	struct attn_engine engine;
	struct decoder *decoder; /* NULL: attention only, without linear layers */
	struct cuda_device device;
	struct cuda_pass pass;
	struct cuda_clock clock;
	struct cuda_evict evict;
};

/* Linear layers are not executed without the decoder, which makes their inputs. */
static inline bool cuda_skips(const struct cuda *c, int i)
{
	return !c->decoder && !mixer_attends(attn_engine_mixer(&c->engine, i));
}

/* In backend_cuda.c.  Build the rows of b on the host and enqueue their copy to the device.
 * segment: as for rows_build().  m: the method that gets tiles; NULL: that of each layer.  graph:
 * number of rows of its CUDA graph; 0: it has none and is padded to pad rows. */
enum ar_status cuda_stage(struct cuda *c, const struct batch *b, const struct row_segment *segment,
			  const struct method *m, int graph, int pad, struct ar_err *err);
/* Make Q and K of the rows in executed layer i.  store: write K and V to the cache too, and show
 * them to the selector of decodes. */
enum ar_status cuda_make_qkv(struct cuda *c, int i, const struct rows *r, bool store,
			     struct ar_err *err);
/* The attention call of rows of a kind in executed layer i: from pass.q to pass.out. */
struct attn_call cuda_call(const struct cuda *c, const struct rows *r, enum row_kind kind, int i);
/* Begin a pass of the decoder over the staged rows. */
enum ar_status cuda_begin(struct cuda *c, struct ar_err *err);
/* The same, up to the first layer, outside of the timed region. */
enum ar_status cuda_enter(struct cuda *c, struct ar_err *err);
/* Enqueue executed layers [from, to).  Layer n_run_layers is the head.  flags: for
 * cudaEventRecordWithFlags(). */
enum ar_status cuda_enqueue(struct cuda *c, const struct row_set *set, int from, int to,
			    unsigned flags, struct ar_err *err);
/* Enqueue executed layer i up to its mixer.  store: as above. */
enum ar_status cuda_mix(struct cuda *c, int i, const struct rows *r, bool store,
			struct ar_err *err);
/* Enqueue the steps after its mixer, up to its dropper; without one, all.  After the dropper,
 * cuda_after_drop() goes on with the n_keep rows of cuda_put_index(), and enqueues the rest.
 * cuda_pass_drop() does so for all rows r that stay or are revived. */
enum ar_status cuda_until_drop(struct cuda *c, int i, const struct rows *r, struct ar_err *err);
enum ar_status cuda_after_drop(struct cuda *c, int i, int n_keep, struct ar_err *err);
enum ar_status cuda_pass_drop(struct cuda *c, int i, const struct rows *r, struct ar_err *err);

/* Layers that are enqueued when the GPU starts, unless it starts with all layers. */
enum { CUDA_AHEAD = 2 };

/* The layer of the kernel that holds the GPU, for the tracer. */
enum { CUDA_HOLD = PHASE_NO_LAYER - 1 };

/* Wait for the stream; a rank of several ends if another fails. */
enum ar_status cuda_wait(struct cuda *c, struct ar_err *err);

/* In backend_cuda_cost.c.  Compute the cost from the events. */
enum ar_status cuda_event_cost(struct cuda *c, struct iter_cost *cost, struct ar_err *err);
/* Get the traced kernels.  What ran before the GPU was held, such as compare(), is not the
 * iteration's, nor are kernels before the first phase. */
enum ar_status cuda_collect(struct cuda *c, struct iter_cost *cost, struct ar_err *err);
/* Whether the GPU may have waited for the host: some layer, or the head, was not enqueued yet when
 * the one before it ended. */
bool cuda_starved(const struct cuda *c, const struct iter_cost *cost);

/* In backend_cuda_weights.c.  Outside of the timed region, run the layers of segment s on the
 * staged rows, up to its dropper.  The segments before have run. */
enum ar_status cuda_reach_drop(struct cuda *c, int s, struct ar_err *err);
/* Make Q of executed layer i, from the layers below.  They run on the staged rows of prefill entry
 * e of the last batch.  The cache has their K and V already.  Then the method's output in layer i
 * goes to pass.out. */
enum ar_status cuda_reach(struct cuda *c, const struct batch_entry *e, int i, struct ar_err *err);
/* Give the logits of rows that output a token to the run's tokens.  graph: b ran from one. */
enum ar_status cuda_put_logits(struct cuda *c, const struct batch *b, bool graph,
			       struct ar_err *err);

/* In backend_cuda_compare.c, a function of struct backend. */
enum ar_status cuda_compare(void *self, const struct batch_entry *e, int i, struct accuracy *acc,
			    struct selection_count *count, struct method_selection *sel,
			    struct ar_err *err);

/* In backend_cuda_linear.c.  Mix the rows of linear executed layer i, from the products of
 * decoder_before() to pass.out. */
enum ar_status cuda_mix_linear(struct cuda *c, int i, const struct rows *r, struct ar_err *err);
/* AR_USAGE: there are no kernels for a linear layer on GPUs of compute capability cc. */
enum ar_status cuda_check_linear(const struct cuda *c, int cc, struct ar_err *err);
/* Of linear layers: the widest row of pass.out, and the bytes of pass.work; 0: there are none. */
size_t cuda_linear_width(const struct cuda *c);
size_t cuda_linear_work(const struct cuda *c);

/* In backend_cuda_drop.c.  Device memory; take() allocates, ctx is the struct cuda_device. */
typedef enum ar_status cuda_take_fn(void *ctx, void *to, size_t bytes, const char *what,
				    struct ar_err *err);
enum ar_status cuda_take_drops(struct cuda *c, cuda_take_fn *take, struct ar_err *err);
size_t cuda_drop_work(const struct cuda *c, const struct attn_shape *s,
		      const struct attn_limits *l);
/* After drops_begin(): copy the token count of each prefill entry to the device, for the
 * droppers. */
enum ar_status cuda_stage_chunks(struct cuda *c, struct ar_err *err);
/* Enqueue the dropper of executed layer i on the rows r of that layer. */
enum ar_status cuda_drop_rows(struct cuda *c, int i, const struct rows *r, struct ar_err *err);
/* Wait for it, and fill segment s + 1 from its result.  r: the rows of segment s. */
enum ar_status cuda_read_drops(struct cuda *c, const struct batch *b, int s, const struct rows *r,
			       struct ar_err *err);
/* The dropper that acts after executed layer i on these rows, or NULL. */
const struct drop *cuda_drop_at(const struct cuda *c, int i, const struct rows *r);
/* Rows r of the last batch that stay after executed layer i, without revived rows. */
int cuda_kept(const struct cuda *c, int i, const struct rows *r);
/* Copy index[n], the rows that stay after executed layer i, to the device. */
enum ar_status cuda_put_index(struct cuda *c, int i, const int32_t *index, int n,
			      struct ar_err *err);
/* Before executed layer i, whose rows are r: enqueue that all rows come back, if they do there. */
enum ar_status cuda_bring_back(struct cuda *c, int i, const struct rows *r, struct ar_err *err);
/* The function kept() of struct backend. */
enum ar_status cuda_kept_share(void *self, const struct batch_entry *e, int i,
			       struct kept_share *out, struct ar_err *err);
/* Enqueue that the decoder goes on with the n rows of cuda_put_index(). */
enum ar_status cuda_keep_rows(struct cuda *c, int i, int n, struct ar_err *err);
/* If tokens are revived, call both around cuda_after_drop().  Rows r of executed layer i that do
 * not stay go to the aux cache; revived rows come from it. */
enum ar_status cuda_put_aux(struct cuda *c, int i, const struct rows *r, struct ar_err *err);
enum ar_status cuda_take_aux(struct cuda *c, int i, const struct rows *r, struct ar_err *err);
/* Allocate the aux caches. */
enum ar_status cuda_open_aux(struct cuda *c, cuda_take_fn *take, struct ar_err *err);

/* In backend_cuda_share.c.  stage: list the copies of the batch that runs, and enqueue that the
 * device gets the list.  graph: the batch runs from CUDA graphs, in which no layer copies; its
 * decodes share nothing that it writes.  early: enqueue copies of what was there before the batch,
 * in all layers.  late: the others, in executed layer i, whose keys are in the cache; or the states
 * that were made of these keys.  is_late: there are some. */
enum ar_status cuda_take_share(struct cuda *c, cuda_take_fn *take, struct ar_err *err);
void cuda_release_share(struct cuda_share *x);
enum ar_status cuda_stage_share(struct cuda *c, bool graph, struct ar_err *err);
enum ar_status cuda_share_early(struct cuda *c, struct ar_err *err);
enum ar_status cuda_share_late(struct cuda *c, int i, bool states, struct ar_err *err);
static inline bool cuda_is_late(const struct cuda *c)
{
	return c->pass.share.n > c->pass.share.n_early;
}

/* In backend_cuda_evict.c.  begin: before the iteration of b.  see: the queries of executed layer i
 * are made and staged; they may be of tokens that are filled in.  commit: what the staged rows
 * added to a state counts from now on; timed: as a part of an event.  cuda_evict(): run the events
 * that are listed.  dense: attention of decode e, whose query is in pass.q, over all tokens of its
 * request. */
enum ar_status cuda_evict_open(struct cuda *c, cuda_take_fn *take, struct ar_err *err);
void cuda_evict_close(struct cuda_evict *x);
void cuda_evict_drop(struct cuda *c, uint32_t req);
enum ar_status cuda_evict_begin(struct cuda *c, const struct batch *b, struct ar_err *err);
enum ar_status cuda_evict_see(struct cuda *c, int i, const struct rows *r, struct ar_err *err);
enum ar_status cuda_evict_commit(struct cuda *c, bool timed, struct ar_err *err);
enum ar_status cuda_evict(struct cuda *c, struct ar_err *err);
/* Launch its kernels once, on request 0 of n tokens. */
enum ar_status cuda_evict_warm(struct cuda *c, int n, struct ar_err *err);
void cuda_evict_cost(struct cuda *c, struct iter_cost *cost);
enum ar_status cuda_evict_dense(struct cuda *c, const struct batch_entry *e, int i, bf16_t *out,
				float *lse, struct ar_err *err);

/* In backend_cuda_memory.c.  The first four are functions of struct backend.  cuda_take_pool()
 * allocates all memory whose size depends on num_blocks. */
void cuda_attach(const void *opts, const struct backend_env *env);
enum ar_status cuda_open(void **self, const void *opts, const struct backend_env *env,
			 struct ar_err *err);
void cuda_close(void *self);
int64_t cuda_fit_blocks(void *self);
enum ar_status cuda_take_pool(struct cuda *c, int64_t num_blocks, struct ar_err *err);

#endif
