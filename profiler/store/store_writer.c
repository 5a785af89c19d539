/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/store/store_writer.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "profiler/store/process.h"
#include "profiler/store/store_file.h"
#include "profiler/store/store_spans.h"
#include "profiler/store/store_stage.h"

enum {
	TXN_ROWS = 20000,
	TXN_NS = 250000000,
};

#define STMT_MAP(X) \
	X(BEGIN, "BEGIN IMMEDIATE") \
	X(COMMIT, "COMMIT") \
	X(PARAM, "INSERT INTO run_param(run_id, key, value) " \
		 "SELECT ?, key, value FROM json_each(?)") \
	X(BASELINE, store_baseline_sql) \
	X(TS_BASE, "UPDATE run SET ts_base_ns = ? WHERE run_id = ?") \
	X(ENERGY, \
	  "UPDATE run SET energy_mj = ?, energy_ns = ?, energy_idle_mw = ? WHERE run_id = ?") \
	X(LAST_NUMBER, "SELECT max(n) FROM iteration_number") \
	X(RUNNING, \
	  "SELECT run_id, pid, pid_start, boot_id, pid_ns FROM run WHERE status = 'running'") \
	X(ABORT, "UPDATE run SET status = 'aborted' WHERE run_id = ?")

enum stmt {
#define X(name, sql) STMT_##name,
	STMT_MAP(X)
#undef X
		STMT_COUNT
};

static const char *const stmt_sql[] = {
#define X(name, sql) sql,
	STMT_MAP(X)
#undef X
};

/* SQL after the values of an INSERT.  A row of a dictionary may exist already; its number is
 * returned either way. */
static const char *const insert_tail[TABLE_COUNT] = {
	[TABLE_string_id] = "ON CONFLICT DO UPDATE SET value = value RETURNING id",
	[TABLE_gpu] = "ON CONFLICT DO UPDATE SET name = name RETURNING gpu_id",
	[TABLE_model] = "ON CONFLICT DO UPDATE SET name = name RETURNING model_id",
	[TABLE_method] = "ON CONFLICT DO UPDATE SET name = name RETURNING method_id",
	[TABLE_trace] = "ON CONFLICT DO UPDATE SET name = name RETURNING trace_id",
	[TABLE_capture] = "ON CONFLICT DO UPDATE SET name = name RETURNING capture_id",
	[TABLE_kernel_shape] = "ON CONFLICT DO UPDATE SET name_id = name_id RETURNING shape_id",
	[TABLE_run] = "RETURNING run_id",
	[TABLE_request_span] = "ON CONFLICT DO UPDATE SET iterations = excluded.iterations",
};

struct shape {
	const char *name; /* the profiler's pointer, valid for one run; NULL: free slot */
	struct row_kernel_shape row; /* name_id is 0: name is compared instead */
	int64_t id;
};

struct writer {
	sqlite3 *db;
	char *path;
	sqlite3_stmt *stmt[STMT_COUNT];
	sqlite3_stmt *insert[TABLE_COUNT], *end;
	struct stage *iterations; /* NULL: iterations are inserted one by one */
	struct request_spans entries;
	int64_t iter_no; /* the highest of an iteration */
	bool in_txn;
	int64_t rows, txn_start_ns; /* of the transaction */
	int64_t run_id, ts_base_ns; /* ts_base_ns 0: no kernel yet */
	struct prof_loss loss;	    /* at the end of the previous run */
	struct shape *shape;	    /* open addressing, at most half full */
	size_t n_shape, cap_shape;  /* cap_shape: a power of two */
};

/* ---- statements ---- */

static int64_t clock_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static enum ar_status sql_fail(struct writer *w, struct ar_err *err)
{
	return store_sql_fail(w->db, w->path, err);
}

/* Run a statement.  rc: the result of binding its values.  *id: the number it returns; id may be
 * NULL. */
static enum ar_status writer_step(struct writer *w, sqlite3_stmt *q, int rc, int64_t *id,
				  struct ar_err *err)
{
	enum ar_status st = AR_OK;

	if (!rc)
		rc = sqlite3_step(q);
	if (id && rc == SQLITE_ROW) {
		*id = sqlite3_column_int64(q, 0);
		rc = sqlite3_step(q);
	}
	if (rc != SQLITE_DONE)
		st = sql_fail(w, err);
	sqlite3_reset(q);
	w->rows++;
	return st;
}

static enum ar_status put_row(struct writer *w, enum table_id t, const void *row, int64_t *id,
			      struct ar_err *err)
{
	sqlite3_stmt *q = w->insert[t];

	return writer_step(w, q, table_bind(&store_tables[t], SET_BY_INSERT, q, row), id, err);
}

/* Insert a row, given as the initializers of its struct. */
#define PUT_ID(w, table, id, err, ...) \
	put_row(w, TABLE_##table, &(const struct row_##table){ __VA_ARGS__ }, id, err)
#define PUT(w, table, err, ...) PUT_ID(w, table, NULL, err, __VA_ARGS__)

/* Run a statement with n integers. */
static enum ar_status put_ints(struct writer *w, enum stmt s, const int64_t *v, int n,
			       struct ar_err *err)
{
	sqlite3_stmt *q = w->stmt[s];
	int rc = SQLITE_OK;

	for (int i = 0; i < n && !rc; i++)
		rc = sqlite3_bind_int64(q, i + 1, v[i]);
	return writer_step(w, q, rc, NULL, err);
}

/* Store the spans that are new or have grown. */
static enum ar_status put_spans(struct writer *w, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < w->entries.n && !st; i++) {
		const struct request_span *s = &w->entries.span[i];
		const struct store_entry *e = &s->first;

		if (s->n != s->n_stored)
			st = PUT(w, request_span, err, .run_id = w->run_id, .iter_no = s->iter_no,
				 .req_no = e->req, .iterations = s->n, .chunk_no = e->chunk_no,
				 .start = e->start, .n_tokens = e->n_tok, .decode = e->decode,
				 .emit = e->emit, .recompute = e->recompute);
	}
	if (!st)
		spans_stored(&w->entries, w->iter_no);
	return st;
}

static enum ar_status put_numbers(struct writer *w, struct ar_err *err)
{
	int64_t last = 0;
	enum ar_status st = writer_step(w, w->stmt[STMT_LAST_NUMBER], SQLITE_OK, &last, err);

	while (last < w->iter_no && !st)
		st = PUT(w, iteration_number, err, .n = ++last);
	return st;
}

static enum ar_status writer_begin(struct writer *w, struct ar_err *err)
{
	enum ar_status st;

	if (w->in_txn)
		return AR_OK;
	st = put_ints(w, STMT_BEGIN, NULL, 0, err);
	if (st)
		return st;
	w->in_txn = true;
	w->rows = 0;
	w->txn_start_ns = clock_ns(CLOCK_MONOTONIC);
	return AR_OK;
}

enum ar_status writer_commit(struct writer *w, struct ar_err *err)
{
	enum ar_status st;

	if (!w->in_txn)
		return AR_OK;
	st = w->entries.n ? put_numbers(w, err) : AR_OK;
	if (!st)
		st = put_spans(w, err);
	if (st)
		return st;
	if (w->iterations && stage_flush(w->iterations))
		return sql_fail(w, err);
	st = put_ints(w, STMT_COMMIT, NULL, 0, err);
	w->in_txn = st != AR_OK;
	return st;
}

int64_t writer_age_ns(const struct writer *w)
{
	return w->in_txn ? clock_ns(CLOCK_MONOTONIC) - w->txn_start_ns : 0;
}

/* ---- life ---- */

/* Is q's row, of STMT_RUNNING, of a process that has ended? */
static bool is_lost(sqlite3_stmt *q)
{
	const struct process p = { sqlite3_column_int64(q, 1), sqlite3_column_int64(q, 2),
				   (const char *)sqlite3_column_text(q, 3),
				   sqlite3_column_int64(q, 4) };
	const enum process_state state = process_state(&p);

	if (state == PROCESS_UNKNOWN)
		log_warn("run %lld: unknown host; it stays 'running'",
			 (long long)sqlite3_column_int64(q, 0));
	return state == PROCESS_ENDED;
}

static enum ar_status abort_lost_runs(struct writer *w, struct ar_err *err)
{
	sqlite3_stmt *q = w->stmt[STMT_RUNNING];
	enum ar_status st = writer_begin(w, err);
	int rc = SQLITE_DONE;

	while (!st && (rc = sqlite3_step(q)) == SQLITE_ROW) {
		if (is_lost(q))
			st = put_ints(w, STMT_ABORT,
				      (const int64_t[]){ sqlite3_column_int64(q, 0) }, 1, err);
	}
	if (!st && rc != SQLITE_DONE)
		st = sql_fail(w, err);
	sqlite3_reset(q);
	return st ? st : writer_commit(w, err);
}

static void writer_release(struct writer *w)
{
	for (int i = 0; i < STMT_COUNT; i++)
		sqlite3_finalize(w->stmt[i]);
	for (int i = 0; i < TABLE_COUNT; i++)
		sqlite3_finalize(w->insert[i]);
	sqlite3_finalize(w->end);
	stage_close(w->iterations);
	spans_release(&w->entries);
	free(w->shape);
	free(w->path);
	free(w);
}

static enum ar_status writer_prepare(struct writer *w, const char *sql, sqlite3_stmt **q,
				     struct ar_err *err)
{
	if (!sql)
		return ar_nomem(err);
	return sqlite3_prepare_v3(w->db, sql, -1, SQLITE_PREPARE_PERSISTENT, q, NULL) ?
		       sql_fail(w, err) :
		       AR_OK;
}

/* sql: of sqlite3_malloc(), freed here. */
static enum ar_status prepare_made(struct writer *w, char *sql, sqlite3_stmt **q,
				   struct ar_err *err)
{
	enum ar_status st = writer_prepare(w, sql, q, err);

	sqlite3_free(sql);
	return st;
}

static enum ar_status prepare_all(struct writer *w, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (int i = 0; i < STMT_COUNT && !st; i++)
		st = writer_prepare(w, stmt_sql[i], &w->stmt[i], err);
	for (int i = 0; i < TABLE_COUNT && !st; i++) {
		const char *tail = insert_tail[i] ? insert_tail[i] : "";

		st = prepare_made(w, table_insert_sql(&store_tables[i], tail), &w->insert[i], err);
	}
	return st ? st : prepare_made(w, table_end_sql(&store_tables[TABLE_run]), &w->end, err);
}

static enum ar_status open_stage(struct writer *w, struct ar_err *err)
{
	int rc = stage_open(&w->iterations, w->db, &store_tables[TABLE_iteration]);

	if (!rc)
		return AR_OK;
	return rc == SQLITE_NOMEM ? ar_nomem(err) : sql_fail(w, err);
}

enum ar_status writer_open(struct writer **out, sqlite3 *db, const char *path, bool stage,
			   struct ar_err *err)
{
	struct writer *w = calloc(1, sizeof *w);
	enum ar_status st = AR_OK;

	*out = NULL;
	if (!w)
		return ar_nomem(err);
	w->db = db;
	w->path = strdup(path);
	if (!w->path) {
		st = ar_nomem(err);
		goto out;
	}
	st = prepare_all(w, err);
	if (!st && stage)
		st = open_stage(w, err);
	if (!st)
		st = abort_lost_runs(w, err);
	if (st)
		goto out;
	*out = w;
	w = NULL;
out:
	if (w)
		writer_release(w);
	return st;
}

enum ar_status writer_close(struct writer *w, struct ar_err *err)
{
	sqlite3 *db;
	char *path;
	enum ar_status st;

	if (!w)
		return AR_OK;
	db = w->db;
	path = w->path;
	w->path = NULL;
	if (w->in_txn)
		sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
	writer_release(w);
	st = store_file_close(db, path, err);
	free(path);
	return st;
}

/* ---- runs ---- */

static enum ar_status intern_gpu(struct writer *w, const struct store_gpu *g, int64_t *id,
				 struct ar_err *err)
{
	return PUT_ID(w, gpu, id, err, .uuid = g->uuid, .name = g->name, .cc_major = g->cc_major,
		      .cc_minor = g->cc_minor, .sm_count = g->sm_count, .l2_bytes = g->l2_bytes,
		      .mem_bytes = g->mem_bytes);
}

static enum ar_status intern_model(struct writer *w, const struct store_run *r, int64_t *id,
				   struct ar_err *err)
{
	return PUT_ID(w, model, id, err, .name = r->model_name, .n_layers = r->n_layers,
		      .hidden = r->hidden, .q_heads = r->q_heads, .kv_heads = r->kv_heads,
		      .head_dim = r->head_dim, .tp = r->tp,
		      .config = r->model_json ? r->model_json : "{}");
}

static enum ar_status intern_method(struct writer *w, const struct store_run *r, int64_t *id,
				    struct ar_err *err)
{
	return PUT_ID(w, method, id, err, .name = r->method_name,
		      .params = r->method_params ? r->method_params : "{}", .is_dense = r->dense);
}

/* Store the rows that the run's row refers to, and set their ids in row; -1: none. */
static enum ar_status intern_all(struct writer *w, const struct store_run *r, struct row_run *row,
				 struct ar_err *err)
{
	enum ar_status st = PUT_ID(w, trace, &row->trace_id, err, .name = r->trace_name,
				   .sha256 = r->trace_sha256, .format = r->trace_format,
				   .n_requests = r->n_requests);

	row->model_id = row->method_id = row->gpu_id = -1;
	if (!st && r->model_name)
		st = intern_model(w, r, &row->model_id, err);
	if (!st && r->method_name)
		st = intern_method(w, r, &row->method_id, err);
	if (!st && r->gpu)
		st = intern_gpu(w, r->gpu, &row->gpu_id, err);
	return st;
}

static enum ar_status insert_run(struct writer *w, const struct store_run *r, int64_t *run_id,
				 struct ar_err *err)
{
	const struct process self = process_here(r->pid ? r->pid : getpid());
	const struct gpu_state *gpu = &r->gpu_state;
	const struct store_memory *mem = &r->memory;
	struct row_run row = {
		.policy = r->policy,
		.backend = r->backend,
		.seed = (int64_t)r->seed,
		.clock = r->clock,
		.layers_run = r->layers_run,
		.num_blocks = r->num_blocks,
		.block_tokens = r->block_tok,
		.version = r->version,
		.cmdline = r->cmdline,
		.options = r->options,
		.setup = r->setup,
		.started_utc_ns = clock_ns(CLOCK_REALTIME),
		.pid = self.pid,
		.pid_start = self.start,
		.boot_id = self.boot_id,
		.pid_ns = self.ns,
		.cupti_api = r->cupti_api ? (int64_t)r->cupti_api : -1,
		.command_utc_ns = r->command_utc_ns ? r->command_utc_ns : -1,
		.method_no = r->command_utc_ns ? r->method_no : -1,
		.run_key = r->run_key,
		.repeat_no = r->command_utc_ns ? r->repeat_no : -1,
		.driver = *gpu->driver ? gpu->driver : NULL,
		.sm_mhz = gpu->sm_mhz ? gpu->sm_mhz : -1,
		.mem_mhz = gpu->mem_mhz ? gpu->mem_mhz : -1,
		.n_params = mem->n_params ? mem->n_params : -1,
		.weight_bytes = mem->weight_bytes ? mem->weight_bytes : -1,
		.block_bytes = mem->block_bytes ? mem->block_bytes : -1,
		.pool_tokens = mem->pool_tokens ? mem->pool_tokens : -1,
		.gpu_bytes = mem->gpu_bytes ? mem->gpu_bytes : -1,
		.gpu_share = mem->gpu_share > 0 ? mem->gpu_share : NAN,
		.engine_defaults = r->engine_defaults,
		.rates = r->rates,
		.host = r->host,
		.nccl = r->nccl,
		.comm = r->comm,
		.barrier_spread_ns = r->nccl ? r->barrier_spread_ns : -1,
		.barrier_p99_ns = r->nccl ? r->barrier_p99_ns : -1,
	};
	enum ar_status st = intern_all(w, r, &row, err);

	return st ? st : put_row(w, TABLE_run, &row, run_id, err);
}

static enum ar_status put_captures(struct writer *w, int64_t run_id, const struct store_run *r,
				   struct ar_err *err)
{
	enum ar_status st = AR_OK;
	int64_t id = 0;

	for (size_t i = 0; i < r->n_capture && !st; i++) {
		st = put_row(w, TABLE_capture, &r->capture[i].row, &id, err);
		if (!st)
			st = PUT(w, run_capture, err, .run_id = run_id, .capture_no = (int64_t)i,
				 .capture_id = id, .origin = r->capture[i].origin);
	}
	return st;
}

static enum ar_status put_params(struct writer *w, int64_t run_id, const char *options,
				 struct ar_err *err)
{
	sqlite3_stmt *q = w->stmt[STMT_PARAM];
	int rc = sqlite3_bind_int64(q, 1, run_id);

	if (!rc)
		rc = sqlite3_bind_text(q, 2, options, -1, SQLITE_STATIC);
	return writer_step(w, q, rc, NULL, err);
}

static enum ar_status put_end(struct writer *w, const struct run_end *end, struct ar_err *err)
{
	int rc = table_bind(&store_tables[TABLE_run], SET_AT_END, w->end, end);

	if (!rc)
		rc = sqlite3_bind_int64(w->end, sqlite3_bind_parameter_count(w->end), w->run_id);
	return writer_step(w, w->end, rc, NULL, err);
}

enum ar_status writer_run_begin(struct writer *w, const struct store_run *r, int64_t *run_id,
				struct ar_err *err)
{
	int64_t id = 0;
	enum ar_status st = writer_begin(w, err);

	if (!st)
		st = insert_run(w, r, &id, err);
	if (!st)
		st = put_params(w, id, r->options, err);
	if (!st)
		st = put_captures(w, id, r, err);
	if (!st)
		st = put_ints(w, STMT_BASELINE, &id, 1, err);
	if (!st)
		st = writer_commit(w, err);
	if (st)
		return st;
	w->run_id = *run_id = id;
	w->ts_base_ns = 0;
	spans_clear(&w->entries);
	w->iter_no = 0;
	w->n_shape = 0;
	if (w->shape)
		memset(w->shape, 0, w->cap_shape * sizeof *w->shape);
	return AR_OK;
}

enum ar_status writer_run_end(struct writer *w, const char *status, const struct prof_loss *loss,
			      const struct store_counts *counts, struct ar_err *err)
{
	const struct prof_loss *old = &w->loss, *now = loss ? loss : old;
	const struct run_end end = {
		.status = status,
		.finished_utc_ns = clock_ns(CLOCK_REALTIME),
		.records = now->records - old->records,
		.dropped = now->dropped - old->dropped,
		.zero_ts = now->zero_ts - old->zero_ts,
		.unattributed = now->unattributed - old->unattributed,
		.late = now->late - old->late,
		.kv_refilled = counts ? counts->kv_refilled : -1,
		.evict_waits = counts ? counts->evict_waits : -1,
	};
	enum ar_status st = writer_begin(w, err);

	if (!st)
		st = put_end(w, &end, err);
	if (!st)
		st = put_ints(w, STMT_BASELINE, &w->run_id, 1, err);
	if (!st)
		st = writer_commit(w, err);
	w->loss = *now;
	return st;
}

/* ---- kernels ---- */

static struct shape shape_of(const struct prof_kernel *k)
{
	return (struct shape){
		.name = k->name,
		.row = {
			.grid_x = k->grid[0], .grid_y = k->grid[1], .grid_z = k->grid[2],
			.block_x = k->block[0], .block_y = k->block[1], .block_z = k->block[2],
			.cluster_x = k->cluster[0], .cluster_y = k->cluster[1],
			.cluster_z = k->cluster[2], .regs = k->regs,
			.smem_static = k->smem_static, .smem_dynamic = k->smem_dynamic,
			.smem_executed = k->smem_executed,
			.local_per_thread = k->local_per_thread, .launch_type = k->launch_type,
		},
	};
}

static uint64_t shape_hash(const struct shape *s)
{
	uint64_t h = (uintptr_t)s->name, v[sizeof s->row / sizeof(uint64_t)];

	memcpy(v, &s->row, sizeof v);
	for (size_t i = 0; i < sizeof v / sizeof *v; i++)
		h = (h ^ v[i]) * 0x9e3779b97f4a7c15u;
	return h ^ h >> 32;
}

/* The slot that holds s, or the free one where it belongs. */
static struct shape *shape_slot(struct shape *table, size_t cap, const struct shape *s)
{
	for (size_t i = shape_hash(s);; i++) {
		struct shape *t = &table[i & (cap - 1)];

		if (!t->name || (t->name == s->name && !memcmp(&t->row, &s->row, sizeof s->row)))
			return t;
	}
}

static enum ar_status shape_grow(struct writer *w, struct ar_err *err)
{
	size_t cap = w->cap_shape ? 2 * w->cap_shape : 1024;
	struct shape *table;

	if (2 * (w->n_shape + 1) <= w->cap_shape)
		return AR_OK;
	table = calloc(cap, sizeof *table);
	if (!table)
		return ar_nomem(err);
	for (size_t i = 0; i < w->cap_shape; i++)
		if (w->shape[i].name)
			*shape_slot(table, cap, &w->shape[i]) = w->shape[i];
	free(w->shape);
	w->shape = table;
	w->cap_shape = cap;
	return AR_OK;
}

static enum ar_status intern_shape(struct writer *w, struct shape *s, struct ar_err *err)
{
	struct row_kernel_shape row = s->row;
	enum ar_status st = PUT_ID(w, string_id, &row.name_id, err, .value = s->name);

	return st ? st : put_row(w, TABLE_kernel_shape, &row, &s->id, err);
}

static enum ar_status shape_id(struct writer *w, const struct prof_kernel *k, int64_t *id,
			       struct ar_err *err)
{
	struct shape s = shape_of(k), *slot;
	enum ar_status st = shape_grow(w, err);

	if (st)
		return st;
	slot = shape_slot(w->shape, w->cap_shape, &s);
	if (!slot->name) {
		st = intern_shape(w, &s, err);
		if (st)
			return st;
		*slot = s;
		w->n_shape++;
	}
	*id = slot->id;
	return AR_OK;
}

static enum ar_status put_kernel(struct writer *w, int64_t iter_no, const struct prof_kernel *k,
				 struct ar_err *err)
{
	int64_t shape = 0;
	enum ar_status st = shape_id(w, k, &shape, err);

	return st ? st :
		    PUT(w, kernel_event, err, .run_id = w->run_id, .iter_no = iter_no,
			.t_ns = k->start_ns - w->ts_base_ns, .dur_ns = k->end_ns - k->start_ns,
			.shape_id = shape, .layer = k->layer == PHASE_NO_LAYER ? -1 : k->layer,
			.phase_id = k->phase, .device = k->device, .stream = k->stream,
			.corr = k->corr);
}

/* Ids of kernels are consecutive: nobody else writes during the transaction. */
static enum ar_status put_kernels(struct writer *w, struct store_iteration *it, struct ar_err *err)
{
	struct row_iteration *row = &it->row;
	enum ar_status st = AR_OK;

	row->kernel_lo = row->kernel_hi = -1;
	if (it->n_kernel && !w->ts_base_ns) {
		w->ts_base_ns = it->kernel[0].start_ns;
		st = put_ints(w, STMT_TS_BASE, (const int64_t[]){ w->ts_base_ns, w->run_id }, 2,
			      err);
	}
	for (size_t i = 0; i < it->n_kernel && !st; i++) {
		st = put_kernel(w, row->iter_no, &it->kernel[i], err);
		row->kernel_hi = sqlite3_last_insert_rowid(w->db);
		if (!i)
			row->kernel_lo = row->kernel_hi;
	}
	return st;
}

/* ---- iterations and what belongs to them ---- */

static enum ar_status add_entries(struct writer *w, const struct store_iteration *it,
				  struct ar_err *err)
{
	const size_t n_span = w->entries.n;

	if (it->row.iter_no > w->iter_no) /* those of replicas come mixed */
		w->iter_no = it->row.iter_no;
	for (size_t i = 0; it->entry && i < it->n_entry; i++)
		if (!spans_add(&w->entries, it->row.iter_no, &it->entry[i]))
			return ar_nomem(err);
	w->rows += (int64_t)(w->entries.n - n_span);
	return AR_OK;
}

static enum ar_status put_phases(struct writer *w, const struct store_iteration *it,
				 struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (int p = 0; it->phase_ns && p < PHASE_COUNT && !st; p++) {
		const int64_t kernels = it->phase_kernels ? it->phase_kernels[p] : 0;

		if (p != PHASE_NONE && (kernels || it->phase_ns[p]))
			st = PUT(w, iteration_phase, err, .run_id = w->run_id,
				 .iter_no = it->row.iter_no, .phase_id = p, .kernels = kernels,
				 .gpu_ns = it->phase_ns[p]);
	}
	return st;
}

static enum ar_status put_drops(struct writer *w, const struct store_iteration *it,
				struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < it->n_drop && !st; i++)
		st = PUT(w, iteration_drop, err, .run_id = w->run_id, .iter_no = it->row.iter_no,
			 .layer = it->drop[i].layer, .n_rows = it->drop[i].n_row,
			 .n_kept = it->drop[i].n_kept);
	return st;
}

static enum ar_status put_ranks(struct writer *w, const struct store_iteration *it,
				struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < it->n_rank && !st; i++) {
		struct row_iteration_rank row = it->rank[i];

		row.run_id = w->run_id;
		row.iter_no = it->row.iter_no;
		st = put_row(w, TABLE_iteration_rank, &row, NULL, err);
	}
	return st;
}

static enum ar_status put_iteration(struct writer *w, const struct row_iteration *row,
				    struct ar_err *err)
{
	if (!w->iterations)
		return put_row(w, TABLE_iteration, row, NULL, err);
	stage_put(w->iterations, row);
	w->rows++;
	return AR_OK;
}

enum ar_status writer_iteration(struct writer *w, struct store_iteration *it, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	if (w->rows >= TXN_ROWS || (w->iterations && stage_full(w->iterations)) ||
	    writer_age_ns(w) >= TXN_NS)
		st = writer_commit(w, err);
	if (!st)
		st = writer_begin(w, err);
	if (!st)
		st = put_kernels(w, it, err);
	if (st)
		return st;
	it->row.run_id = w->run_id;
	it->row.batch_size = (int64_t)it->n_entry;
	st = put_iteration(w, &it->row, err);
	if (!st)
		st = add_entries(w, it, err);
	if (!st)
		st = put_drops(w, it, err);
	if (!st)
		st = put_ranks(w, it, err);
	return st ? st : put_phases(w, it, err);
}

enum ar_status writer_row(struct writer *w, enum table_id t, void *row, struct ar_err *err)
{
	const struct column *first = store_tables[t].col;
	enum ar_status st = writer_begin(w, err);

	assert(!first->off && !strcmp(first->name, "run_id"));
	*(int64_t *)row = w->run_id;
	return st ? st : put_row(w, t, row, NULL, err);
}

enum ar_status writer_energy(struct writer *w, const struct energy_use *use, struct ar_err *err)
{
	const int64_t v[] = { use->mj, use->ns, use->idle_mw, w->run_id };
	enum ar_status st = writer_begin(w, err);

	return st ? st : put_ints(w, STMT_ENERGY, v, 4, err);
}
