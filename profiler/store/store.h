/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The database: one SQLite file per experiment, many runs in it; attnreplay-db(5) describes
 * tables and views.  One writer thread owns the connection; rows are handed over by copy and
 * committed at iteration boundaries, so that whatever is committed is complete.
 *
 * A failure of the writer (a full disk) is returned by the next call.
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
#include "profiler/store/columns.h"

struct store;

/* Open or create; an older file is migrated.  AR_DATA: not a database of ours, or of a version that
 * is not known here.  Runs left 'running' by a process that is gone become 'aborted'. */
enum ar_status store_open(struct store **out, const char *path, struct ar_err *err);
/* Finish what is queued, checkpoint, close. */
enum ar_status store_close(struct store *s, struct ar_err *err);

/* Rows are those of columns.h.  Their run_id is the store's to fill.  The structs here hold more
 * than columns, or less: what they have is turned into rows of several tables. */

/* A device as its driver describes it.  It holds its texts, as it outlives what they came from. */
struct store_gpu {
	char uuid[40], name[128];
	int cc_major, cc_minor, sm_count;
	int64_t l2_bytes, mem_bytes;
};

/* Rows of trace, model, method, gpu and run. */
struct store_run {
	const char *trace_name, *trace_sha256, *trace_format;
	int64_t n_requests;
	const char *model_name, *model_json;	/* NULL: none (cost backend) */
	int n_layers, hidden, q_heads, kv_heads, head_dim, tp;
	const char *method_name, *method_params;	/* JSON; NULL: none */
	bool dense;
	const char *policy, *backend;
	uint64_t seed;
	const char *version, *cmdline;
	const char *options;			/* JSON object of all options */
	const char *setup;			/* JSON of those that two runs must share to be
						 * compared: equal text, equal setup */
	const char *clock;			/* "cupti", "events", "cpu", "cost" */
	const struct store_gpu *gpu;		/* NULL: none */
	uint32_t cupti_api;
	int layers_run;				/* of n_layers, when sampled */
	int64_t num_blocks, block_tok;		/* the policy's pool, null block included */
};

/* Not a row: entries that follow from each other share one. */
struct store_entry {
	uint32_t req, start, n_tok, chunk_no;
	bool decode, emit, recompute;
};

/* An iteration and its rows of other tables. */
struct store_iteration {
	struct row_iteration row;		/* batch_size and kernel_* are the store's to fill;
						 * texts are string literals */
	const struct store_entry *entry;	/* NULL: no rows, only their number */
	size_t n_entry;
	const int64_t *phase_ns;		/* [PHASE_COUNT] or NULL */
	const int32_t *phase_kernels;
	const struct prof_kernel *kernel;	/* rows to keep, may be none; their names live until
						 * store_run_end() */
	size_t n_kernel;
};

/* The row's counts are the store's to fill: they come in a struct of their own. */
struct store_selection {
	struct row_selection_stat row;
	struct selection_count count;
};

/* A run's baseline is the latest dense run before it, else the first after it, with the same trace,
 * model, device, policy, backend, clock and setup.  *run_id is for reports. */
enum ar_status store_run_begin(struct store *s, const struct store_run *r, int64_t *run_id,
			       struct ar_err *err);
enum ar_status store_iteration(struct store *s, const struct store_iteration *it,
			       struct ar_err *err);
enum ar_status store_outcome(struct store *s, const struct row_request_outcome *o,
			     struct ar_err *err);
/* n tokens of the run came itl_ns after the token before of their request. */
enum ar_status store_gap(struct store *s, const struct row_token_gap *g, struct ar_err *err);
enum ar_status store_accuracy(struct store *s, const struct row_accuracy_sample *a,
			      struct ar_err *err);
enum ar_status store_selection(struct store *s, const struct store_selection *a,
			       struct ar_err *err);
/* status: "done", "failed", "aborted".  loss: the session's counts, of which the run keeps what was
 * added since the run before; may be NULL.  Waits until all is committed. */
enum ar_status store_run_end(struct store *s, const char *status, const struct prof_loss *loss,
			     struct ar_err *err);

/* SQL that makes the views of attnreplay-db(5) as TEMP views of a connection. */
extern const char store_views[];

/* A read-only connection with the views and our SQL functions (median, percentile).  The file may
 * be of an older version; it is left as it is. */
enum ar_status store_open_read(sqlite3 **db, const char *path, struct ar_err *err);

#endif
