/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The database: one SQLite file per experiment, many runs in it; attnreplay-db(5) describes
 * tables and views.  One writer thread owns the connection; the calls here copy rows into its
 * queue.  It commits between iterations, so a committed iteration is complete, except perhaps for
 * its accuracy and selection rows.
 *
 * When the writer fails (a full disk), the next call returns its error.
 */
#ifndef AR_STORE_H
#define AR_STORE_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kernels/methods/selection_count.h"
#include "profiler/cupti/prof.h"
#include "profiler/nvml/energy.h"
#include "profiler/nvml/gpu_state.h"
#include "profiler/store/store_columns.h"

/* The bytes of a text or number that reports read. */
enum { STORE_TEXT_MAX = 1 << 20 };

struct store;

/* Open or create the database; migrate an older file.  AR_DATA: not a database of attnreplay, or of
 * an unknown version.  Runs that are 'running' but whose process is gone become 'aborted'. */
enum ar_status store_open(struct store **out, const char *path, struct ar_err *err);
/* Write all queued rows, checkpoint and close. */
enum ar_status store_close(struct store *s, struct ar_err *err);

/* Runs of this process that are 'running' become 'failed': the child that wrote them is gone.  No
 * file: it had not begun. */
enum ar_status store_fail_runs(const char *path, struct ar_err *err);

/* Return when all rows are committed and the writer waits for more: it then holds no lock of the C
 * library, and this process may fork. */
void store_rest(struct store *s);

/* Rows are the struct row_* of store_columns.h; the store sets their run_id.  The structs below are
 * not rows: the store makes rows of one or more tables from them. */

/* A device as its driver describes it.  It holds copies of the driver's texts. */
struct store_gpu {
	char uuid[40], name[128];
	char driver[32]; /* the version of CUDA that it supports; "": not known */
	int cc_major, cc_minor, sm_count;
	int64_t l2_bytes, mem_bytes;
	int64_t free_bytes; /* when it was opened; not stored */
};

/* A capture of a run: rows of capture and run_capture. */
struct store_capture {
	struct row_capture row;
	const char *origin;
};

/* Memory of a run, as columns of run; 0: not known. */
struct store_memory {
	int64_t n_params, weight_bytes, block_bytes, pool_tokens, gpu_bytes;
	double gpu_share;
};

/* A run: rows of run, run_param, trace, model, method, gpu, capture and run_capture. */
struct store_run {
	const char *trace_name, *trace_sha256, *trace_format;
	int64_t n_requests;
	const char *model_name, *model_json; /* NULL: none (cost backend) */
	int n_layers, hidden, q_heads, kv_heads, head_dim, tp;
	const struct store_capture *capture; /* [n_capture] */
	size_t n_capture;
	const char *method_name, *method_params; /* JSON; NULL: none */
	bool dense;
	const char *policy, *backend;
	uint64_t seed;
	const char *version, *cmdline;
	const char *options;	     /* JSON object of all options */
	const char *setup;	     /* JSON of the options that comparable runs share,
						 * compared as text */
	const char *clock;	     /* "cupti", "events", "cpu", "cost", "modelled" */
	const struct store_gpu *gpu; /* NULL: none */
	struct gpu_state gpu_state;  /* when the run begins */
	uint32_t cupti_api;
	int layers_run;		       /* executed; below n_layers when sampled */
	int64_t num_blocks, block_tok; /* of the policy's pool, null block included */
	struct store_memory memory;
	int64_t pid;		/* of the command; 0: this process */
	int64_t command_utc_ns; /* 0: not known; method_no has no meaning then */
	int64_t method_no;	/* place of the method in the command's list, from 0 */
	const char *run_key;	/* of run_key(); NULL: none */
	/* As the columns; NULL: none. */
	const char *engine_defaults, *rates, *host, *nccl, *comm;
	int64_t barrier_spread_ns, barrier_p99_ns; /* as the columns; -1: not known */
	int64_t repeat_no;			   /* which of the method's repeats, from 0 */
};

/* An entry of a batch.  Consecutive entries of a request may share a row (store_spans.h). */
struct store_entry {
	uint32_t req, start, n_tok, chunk_no;
	bool decode, emit, recompute;
};

/* Prefill rows at a layer where a dropper acted. */
struct store_drop {
	int layer;
	int64_t n_row, n_kept;
};

/* An iteration, with its rows in other tables. */
struct store_iteration {
	struct row_iteration row;	 /* the store sets batch_size and kernel_*;
						 * texts are string literals */
	const struct store_entry *entry; /* NULL: only n_entry is stored */
	size_t n_entry;
	const int64_t *phase_ns; /* [PHASE_COUNT] or NULL */
	const int32_t *phase_kernels;
	const struct store_drop *drop;
	size_t n_drop;
	const struct prof_kernel *kernel; /* rows to store, may be none; names must live
						 * until store_run_end() */
	size_t n_kernel;
	const struct row_iteration_rank *rank; /* the store sets iter_no */
	size_t n_rank;
};

/* Counts of a selection.  The store copies count into row. */
struct store_selection {
	struct row_selection_stat row;
	struct selection_count count;
};

/* Totals of a run, see columns.def. */
struct store_counts {
	int64_t kv_refilled, evict_waits;
};

/* Begin a run.  Its baseline is the latest dense run before it, else the first after it.  The two
 * have the same trace, model, device, policy, backend, clock and setup.  They are of the same
 * repeat if there is one.  *run_id: the run's number. */
enum ar_status store_run_begin(struct store *s, const struct store_run *r, int64_t *run_id,
			       struct ar_err *err);
enum ar_status store_iteration(struct store *s, const struct store_iteration *it,
			       struct ar_err *err);
/* The rows that follow are copied with their texts. */
enum ar_status store_outcome(struct store *s, const struct row_request_outcome *o,
			     struct ar_err *err);
/* Add a time between tokens: g->n tokens of the run came g->itl_ns after the previous token of
 * their request. */
enum ar_status store_gap(struct store *s, const struct row_token_gap *g, struct ar_err *err);
enum ar_status store_accuracy(struct store *s, const struct row_accuracy_sample *a,
			      struct ar_err *err);
enum ar_status store_selection(struct store *s, const struct store_selection *a,
			       struct ar_err *err);
/* Add a KV cache group of the run. */
enum ar_status store_group(struct store *s, const struct row_kv_group *g, struct ar_err *err);
/* Add a rank of the run. */
enum ar_status store_rank(struct store *s, const struct row_run_rank *r, struct ar_err *err);
/* Add the work of a layer of the run. */
enum ar_status store_layer(struct store *s, const struct row_run_layer *l, struct ar_err *err);
/* Add the place of a request in its session. */
enum ar_status store_turn(struct store *s, const struct row_request_turn *t, struct ar_err *err);
enum ar_status store_hot_buffer(struct store *s, const struct row_hot_buffer *h,
				struct ar_err *err);
/* Add the time of a phase in a layer of the run. */
enum ar_status store_layer_phase(struct store *s, const struct row_layer_phase *x,
				 struct ar_err *err);
enum ar_status store_kept(struct store *s, const struct row_drop_sample *x, struct ar_err *err);
/* Add a form in which chunks attended to latents. */
enum ar_status store_latent_form(struct store *s, const struct row_latent_form *f,
				 struct ar_err *err);
/* Add a prompt with a known answer, and a token of that. */
enum ar_status store_eval_prompt(struct store *s, const struct row_eval_prompt *p,
				 struct ar_err *err);
enum ar_status store_eval_token(struct store *s, const struct row_eval_token *t,
				struct ar_err *err);
/* Add how replicates of the run were made, a replicate, and percentiles of one. */
enum ar_status store_resampling(struct store *s, const struct row_resampling *r,
				struct ar_err *err);
enum ar_status store_replicate(struct store *s, const struct row_replicate *r, struct ar_err *err);
enum ar_status store_replicate_latency(struct store *s, const struct row_replicate_latency *l,
				       struct ar_err *err);
/* Set the energy of the run. */
enum ar_status store_energy(struct store *s, const struct energy_use *use, struct ar_err *err);
/* End the run.  status: "done", "failed" or "aborted".  loss: counts of the whole tracing session,
 * or NULL; the run stores their increase since the previous run.  counts: NULL: not known.  Returns
 * when all rows are committed. */
enum ar_status store_run_end(struct store *s, const char *status, const struct prof_loss *loss,
			     const struct store_counts *counts, struct ar_err *err);

/* Split "DB:7" into the name of a database and the number of a run.  A colon without a number
 * behind it belongs to the name; *run is 0 then.  The caller frees *path.  AR_USAGE: the number is
 * 0. */
enum ar_status store_where(const char *where, char **path, int64_t *run, struct ar_err *err);

/* SQL that makes the views of attnreplay-db(5), as TEMP views of a connection. */
extern const char store_views[];

/* Open a read-only connection with the views and the functions of functions.h.  A file of an older
 * version appears under the present names and is left as it is. */
enum ar_status store_open_read(sqlite3 **db, const char *path, struct ar_err *err);
/* The same without functions, and with no view but iteration_request. */
enum ar_status store_open_tables(sqlite3 **db, const char *path, struct ar_err *err);

#endif
