#include "config.h"
#include "profiler/store/store_writer.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "profiler/store/store_file.h"
#include "profiler/store/store_spans.h"
#include "profiler/store/store_stage.h"

enum {
	TXN_ROWS = 20000,
	TXN_NS = 250000000,
};

/* Two runs can be compared when they agree in everything but the method: same trace, model,
 * policy, backend, clock and device, and the same setup, which is the options less those
 * that name the former or only say what is recorded. */
#define NOT_SETUP "('method', 'trace', 'format', 'model', 'policy', 'backend', 'db', 'accuracy'," \
	" 'keep-entries', 'keep-kernels', 'costs', 'slo')"

/* In lists of columns and of their values. */
#define COUNT_NAME(name, doc) ", " #name
#define COUNT_PLACE(name, doc) ", ?"

#define STMT_MAP(X)                                                                             \
	X(BEGIN, "BEGIN IMMEDIATE")                                                             \
	X(COMMIT, "COMMIT")                                                                     \
	X(STRING, "INSERT INTO string_id(value) VALUES(?1) "                                    \
		"ON CONFLICT(value) DO UPDATE SET value = value RETURNING id")                  \
	X(GPU, "INSERT INTO gpu VALUES(NULL, ?1, ?2, ?3, ?4, ?5, ?6, ?7) "                      \
		"ON CONFLICT(uuid) DO UPDATE SET uuid = uuid RETURNING gpu_id")                 \
	X(MODEL, "INSERT INTO model VALUES(NULL, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) "              \
		"ON CONFLICT(name, tp, config) DO UPDATE SET name = name RETURNING model_id")   \
	X(METHOD, "INSERT INTO method VALUES(NULL, ?1, ?2, ?3) "                                \
		"ON CONFLICT(name, params) DO UPDATE SET name = name RETURNING method_id")      \
	X(TRACE, "INSERT INTO trace VALUES(NULL, ?1, ?2, ?3, ?4) "                              \
		"ON CONFLICT(name, sha256, format, n_requests) DO UPDATE SET name = name "      \
		"RETURNING trace_id")                                                           \
	X(RUN, "INSERT INTO run(trace_id, model_id, method_id, gpu_id, policy, backend, seed, " \
		"clock, layers_run, num_blocks, block_tokens, version, cmdline, options, "      \
		"started_utc_ns, pid, pid_start, cupti_api, setup) "                            \
		"VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, " \
		"?17, ?18, (SELECT json_group_object(key, value) FROM "                         \
		"(SELECT key, value FROM json_each(?14) WHERE key NOT IN " NOT_SETUP            \
		" ORDER BY key))) RETURNING run_id")                                            \
	X(PARAM, "INSERT INTO run_param SELECT ?1, key, value FROM json_each(?2)")              \
	X(BASELINE, "UPDATE run AS r SET baseline_run_id = (SELECT id FROM "                 \
		"(SELECT b.run_id AS id, b.status, b.run_id > r.run_id AS later, "              \
		"abs(b.run_id - r.run_id) AS far "                                              \
		"FROM run b JOIN method m USING(method_id) WHERE m.is_dense "                   \
		"AND b.status IN ('done', 'running') AND b.trace_id = r.trace_id "              \
		"AND b.model_id IS r.model_id AND b.gpu_id IS r.gpu_id AND b.policy = r.policy " \
		"AND b.backend = r.backend AND b.clock = r.clock AND b.setup = r.setup) "       \
		"ORDER BY status, later, far LIMIT 1) "                                         \
		"WHERE setup = (SELECT setup FROM run WHERE run_id = ?1) AND EXISTS "           \
		"(SELECT 1 FROM method m WHERE m.method_id = r.method_id AND NOT m.is_dense) "  \
		"AND NOT EXISTS (SELECT 1 FROM run b WHERE b.run_id = r.baseline_run_id "       \
		"AND b.status = 'done')")                                                       \
	X(RUN_END, "UPDATE run SET status = ?2, finished_utc_ns = ?3, records = ?4, "           \
		"dropped = ?5, zero_ts = ?6, unattributed = ?7, late = ?8 WHERE run_id = ?1")   \
	X(TS_BASE, "UPDATE run SET ts_base_ns = ?2 WHERE run_id = ?1")                          \
	X(SPAN, "INSERT INTO request_span VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) "     \
		"ON CONFLICT DO UPDATE SET iterations = excluded.iterations")                   \
	X(LAST_NUMBER, "SELECT max(n) FROM iteration_number")                                   \
	X(NUMBER, "INSERT INTO iteration_number VALUES(NULL)")                                  \
	X(PHASE, "INSERT INTO iteration_phase VALUES(?1, ?2, ?3, ?4, ?5)")                      \
	X(SHAPE, "INSERT INTO kernel_shape VALUES(NULL, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, "   \
		"?10, ?11, ?12, ?13, ?14, ?15, ?16) "                                           \
		"ON CONFLICT DO UPDATE SET name_id = name_id RETURNING shape_id")               \
	X(KERNEL, "INSERT INTO kernel_event VALUES(NULL, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, "  \
		"?10)")                                                                         \
	X(OUTCOME, "INSERT INTO request_outcome VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, "    \
		"?10, ?11, ?12, ?13, ?14)")                                                     \
	X(GAP, "INSERT INTO token_gap VALUES(?1, ?2, ?3)")                                      \
	X(ACCURACY, "INSERT INTO accuracy_sample VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, "   \
		"?10, ?11, ?12)")                                                               \
	X(SELECTION, "INSERT INTO selection_stat(run_id, req_no, chunk_no, layer, kv_head, "     \
		"iter_no" SELECTION_COUNTS(COUNT_NAME) ") VALUES(?, ?, ?, ?, ?, ?"              \
		SELECTION_COUNTS(COUNT_PLACE) ")")                                              \
	X(RUNNING, "SELECT run_id, pid, pid_start FROM run WHERE status = 'running'")           \
	X(ABORT, "UPDATE run SET status = 'aborted' WHERE run_id = ?1")

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

/* Geometry of a launch, as kernel_shape keeps it: grid, block, cluster, six numbers. */
enum { SHAPE_LEN = 15 };

struct shape {
	const char *name;	/* the profiler's pointer, good for one run; NULL: free slot */
	int32_t v[SHAPE_LEN];
	int64_t id;
};

struct writer {
	sqlite3 *db;
	char *path;
	sqlite3_stmt *stmt[STMT_COUNT];
	struct stage *iterations;
	struct spans entries;
	int64_t iter_no;		/* the last */
	bool in_txn;
	int64_t rows, txn_start_ns;	/* of the transaction */
	int64_t run_id, ts_base_ns;	/* ts_base_ns 0: no kernel yet */
	struct prof_loss loss;		/* at the end of the run before */
	struct shape *shape;		/* open addressing, at most half full */
	size_t n_shape, cap_shape;	/* cap_shape: a power of two */
};

/* ---- statements ---- */

static struct val vi(int64_t i)
{
	return (struct val){ .type = VAL_INT, .i = i };
}

static struct val vi_or_null(int64_t i)	/* -1: none */
{
	return (struct val){ .type = i < 0 ? VAL_NULL : VAL_INT, .i = i };
}

static struct val vr(double r)
{
	return (struct val){ .type = VAL_REAL, .r = r };
}

static struct val vt(const char *t)
{
	return (struct val){ .type = t ? VAL_TEXT : VAL_NULL, .t = t };
}

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

static int bind(sqlite3_stmt *q, int i, const struct val *v)
{
	switch (v->type) {
	case VAL_INT:
		return sqlite3_bind_int64(q, i, v->i);
	case VAL_REAL:
		return sqlite3_bind_double(q, i, v->r);
	case VAL_TEXT:
		return sqlite3_bind_text(q, i, v->t, -1, SQLITE_STATIC);
	case VAL_NULL:
		break;
	}
	return sqlite3_bind_null(q, i);
}

/* Run a statement.  id, if not NULL, receives what it returns. */
static enum ar_status step(struct writer *w, sqlite3_stmt *q, const struct val *v, size_t n,
			   int64_t *id, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	int rc = SQLITE_OK;

	for (size_t i = 0; i < n && !rc; i++)
		rc = bind(q, (int)i + 1, &v[i]);
	if (!rc)
		rc = sqlite3_step(q);
	if (id && rc == SQLITE_ROW) {
		*id = sqlite3_column_int64(q, 0);
		rc = sqlite3_step(q);
	}
	if (rc != SQLITE_DONE)
		st = sql_fail(w, err);
	sqlite3_reset(q);
	return st;
}

static enum ar_status put(struct writer *w, enum stmt s, const struct val *v, size_t n,
			  int64_t *id, struct ar_err *err)
{
	w->rows++;
	return step(w, w->stmt[s], v, n, id, err);
}

#define PUT_ID(w, s, id, err, ...)                                                              \
	put(w, s, (const struct val[]){ __VA_ARGS__ },                                          \
	    sizeof((const struct val[]){ __VA_ARGS__ }) / sizeof(struct val), id, err)
#define PUT(w, s, err, ...) PUT_ID(w, s, NULL, err, __VA_ARGS__)

/* The same for rows of integers, which are the many. */
static enum ar_status put_ints(struct writer *w, enum stmt s, const int64_t *v, int n,
			       struct ar_err *err)
{
	sqlite3_stmt *q = w->stmt[s];
	enum ar_status st = AR_OK;
	int rc = SQLITE_OK;

	for (int i = 0; i < n && !rc; i++)
		rc = sqlite3_bind_int64(q, i + 1, v[i]);
	if (rc || sqlite3_step(q) != SQLITE_DONE)
		st = sql_fail(w, err);
	sqlite3_reset(q);
	w->rows++;
	return st;
}

/* Those that have grown. */
static enum ar_status put_spans(struct writer *w, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < w->entries.n && !st; i++) {
		const struct span *s = &w->entries.span[i];
		const struct store_entry *e = &s->first;

		if (s->n != s->n_stored)
			st = put_ints(w, STMT_SPAN, (const int64_t[]){
				w->run_id, s->iter_no, e->req, s->n, e->chunk_no, e->start,
				e->n_tok, e->decode, e->emit, e->recompute }, 10, err);
	}
	if (!st)
		spans_stored(&w->entries, w->iter_no);
	return st;
}

/* A row gets the number behind the last. */
static enum ar_status put_numbers(struct writer *w, struct ar_err *err)
{
	int64_t last = 0;
	enum ar_status st = step(w, w->stmt[STMT_LAST_NUMBER], NULL, 0, &last, err);

	for (; last < w->iter_no && !st; last++)
		st = put_ints(w, STMT_NUMBER, NULL, 0, err);
	return st;
}

static enum ar_status begin(struct writer *w, struct ar_err *err)
{
	enum ar_status st;

	if (w->in_txn)
		return AR_OK;
	st = put(w, STMT_BEGIN, NULL, 0, NULL, err);
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
	if (stage_flush(w->iterations))
		return sql_fail(w, err);
	st = put(w, STMT_COMMIT, NULL, 0, NULL, err);
	w->in_txn = st != AR_OK;
	return st;
}

int64_t writer_age_ns(const struct writer *w)
{
	return w->in_txn ? clock_ns(CLOCK_MONOTONIC) - w->txn_start_ns : 0;
}

/* ---- life ---- */

/* When a process started, in clock ticks since boot; -1: there is no such process.  With it
 * a number that was given out again is not taken for the old process. */
static int64_t process_start(int64_t pid)
{
	char path[64], text[1024];
	long long start = -1;
	const char *p;
	FILE *f;
	size_t n;

	snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
	f = fopen(path, "r");
	if (!f)
		return -1;
	n = fread(text, 1, sizeof text - 1, f);
	fclose(f);
	text[n] = 0;
	p = strrchr(text, ')');		/* field 2 may hold anything */
	for (int field = 2; p && field < 22; field++)
		p = strchr(p + 1, ' ');
	if (!p || sscanf(p, " %lld", &start) != 1)
		return -1;
	return start;
}

static enum ar_status abort_lost_runs(struct writer *w, struct ar_err *err)
{
	sqlite3_stmt *q = w->stmt[STMT_RUNNING];
	enum ar_status st = begin(w, err);
	int rc = SQLITE_DONE;

	while (!st && (rc = sqlite3_step(q)) == SQLITE_ROW) {
		int64_t start = process_start(sqlite3_column_int64(q, 1));

		if (start < 0 || start != sqlite3_column_int64(q, 2))
			st = PUT(w, STMT_ABORT, err, vi(sqlite3_column_int64(q, 0)));
	}
	if (!st && rc != SQLITE_DONE)
		st = sql_fail(w, err);
	sqlite3_reset(q);
	return st ? st : writer_commit(w, err);
}

static void release(struct writer *w)
{
	for (int i = 0; i < STMT_COUNT; i++)
		sqlite3_finalize(w->stmt[i]);
	stage_close(w->iterations);
	spans_release(&w->entries);
	free(w->shape);
	free(w->path);
	free(w);
}

enum ar_status writer_open(struct writer **out, sqlite3 *db, const char *path, struct ar_err *err)
{
	struct writer *w = calloc(1, sizeof *w);
	enum ar_status st = AR_OK;
	int rc;

	*out = NULL;
	if (!w)
		return ar_nomem(err);
	w->db = db;
	w->path = strdup(path);
	if (!w->path) {
		st = ar_nomem(err);
		goto out;
	}
	for (int i = 0; i < STMT_COUNT; i++)
		if (sqlite3_prepare_v3(db, stmt_sql[i], -1, SQLITE_PREPARE_PERSISTENT, &w->stmt[i],
				       NULL)) {
			st = sql_fail(w, err);
			goto out;
		}
	rc = stage_open(&w->iterations, db, "iteration");
	if (rc) {
		st = rc == SQLITE_NOMEM ? ar_nomem(err) : sql_fail(w, err);
		goto out;
	}
	st = abort_lost_runs(w, err);
	if (st)
		goto out;
	*out = w;
	w = NULL;
out:
	if (w)
		release(w);
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
	release(w);
	st = store_file_close(db, path, err);
	free(path);
	return st;
}

/* ---- runs ---- */

static enum ar_status intern_gpu(struct writer *w, const struct store_gpu *g, int64_t *id,
				 struct ar_err *err)
{
	return PUT_ID(w, STMT_GPU, id, err, vt(g->uuid), vt(g->name), vi(g->cc_major),
		      vi(g->cc_minor), vi(g->sm_count), vi(g->l2_bytes), vi(g->mem_bytes));
}

static enum ar_status intern_model(struct writer *w, const struct store_run *r, int64_t *id,
				   struct ar_err *err)
{
	return PUT_ID(w, STMT_MODEL, id, err, vt(r->model_name), vi(r->n_layers), vi(r->hidden),
		      vi(r->q_heads), vi(r->kv_heads), vi(r->head_dim), vi(r->tp),
		      vt(r->model_json ? r->model_json : "{}"));
}

static enum ar_status insert_run(struct writer *w, const struct store_run *r, int64_t *run_id,
				 struct ar_err *err)
{
	int64_t trace = -1, model = -1, method = -1, gpu = -1, pid = getpid();
	enum ar_status st = PUT_ID(w, STMT_TRACE, &trace, err, vt(r->trace_name),
				   vt(r->trace_sha256), vt(r->trace_format), vi(r->n_requests));

	if (!st && r->model_name)
		st = intern_model(w, r, &model, err);
	if (!st && r->method_name)
		st = PUT_ID(w, STMT_METHOD, &method, err, vt(r->method_name),
			    vt(r->method_params ? r->method_params : "{}"), vi(r->dense));
	if (!st && r->gpu)
		st = intern_gpu(w, r->gpu, &gpu, err);
	if (st)
		return st;
	return PUT_ID(w, STMT_RUN, run_id, err, vi(trace), vi_or_null(model), vi_or_null(method),
		      vi_or_null(gpu), vt(r->policy), vt(r->backend), vi((int64_t)r->seed),
		      vt(r->clock), vi(r->layers_run), vi(r->num_blocks), vi(r->block_tok),
		      vt(r->version), vt(r->cmdline), vt(r->options), vi(clock_ns(CLOCK_REALTIME)),
		      vi(pid), vi(process_start(pid)),
		      r->cupti_api ? vi(r->cupti_api) : vt(NULL));
}

enum ar_status writer_run_begin(struct writer *w, const struct store_run *r, int64_t *run_id,
				struct ar_err *err)
{
	int64_t id = 0;
	enum ar_status st = begin(w, err);

	if (!st)
		st = insert_run(w, r, &id, err);
	if (!st)
		st = PUT(w, STMT_PARAM, err, vi(id), vt(r->options));
	if (!st)
		st = PUT(w, STMT_BASELINE, err, vi(id));
	if (!st)
		st = writer_commit(w, err);
	if (st)
		return st;
	w->run_id = *run_id = id;
	w->ts_base_ns = 0;
	spans_clear(&w->entries);
	w->n_shape = 0;
	if (w->shape)
		memset(w->shape, 0, w->cap_shape * sizeof *w->shape);
	return AR_OK;
}

enum ar_status writer_run_end(struct writer *w, const char *status, const struct prof_loss *loss,
			      struct ar_err *err)
{
	const struct prof_loss *old = &w->loss, *now = loss ? loss : old;
	enum ar_status st = begin(w, err);

	if (!st)
		st = PUT(w, STMT_RUN_END, err, vi(w->run_id), vt(status),
			 vi(clock_ns(CLOCK_REALTIME)), vi(now->records - old->records),
			 vi(now->dropped - old->dropped), vi(now->zero_ts - old->zero_ts),
			 vi(now->unattributed - old->unattributed), vi(now->late - old->late));
	if (!st)
		st = PUT(w, STMT_BASELINE, err, vi(w->run_id));
	if (!st)
		st = writer_commit(w, err);
	w->loss = *now;
	return st;
}

/* ---- kernels ---- */

static void shape_of(const struct prof_kernel *k, struct shape *s)
{
	const int32_t rest[] = { k->regs, k->smem_static, k->smem_dynamic, k->smem_executed,
				 k->local_per_thread, k->launch_type };

	s->name = k->name;
	memcpy(s->v, k->grid, sizeof k->grid);
	memcpy(s->v + 3, k->block, sizeof k->block);
	memcpy(s->v + 6, k->cluster, sizeof k->cluster);
	memcpy(s->v + 9, rest, sizeof rest);
}

static uint64_t shape_hash(const struct shape *s)
{
	uint64_t h = (uintptr_t)s->name;

	for (int i = 0; i < SHAPE_LEN; i++)
		h = (h ^ (uint32_t)s->v[i]) * 0x9e3779b97f4a7c15u;
	return h ^ h >> 32;
}

/* The slot that holds s, or the free one where it belongs. */
static struct shape *shape_slot(struct shape *table, size_t cap, const struct shape *s)
{
	for (size_t i = shape_hash(s);; i++) {
		struct shape *t = &table[i & (cap - 1)];

		if (!t->name || (t->name == s->name && !memcmp(t->v, s->v, sizeof s->v)))
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
	int64_t name = 0;
	struct val v[1 + SHAPE_LEN];
	enum ar_status st = PUT_ID(w, STMT_STRING, &name, err, vt(s->name));

	if (st)
		return st;
	v[0] = vi(name);
	for (int i = 0; i < SHAPE_LEN; i++)
		v[1 + i] = vi(s->v[i]);
	return put(w, STMT_SHAPE, v, 1 + SHAPE_LEN, &s->id, err);
}

static enum ar_status shape_id(struct writer *w, const struct prof_kernel *k, int64_t *id,
			       struct ar_err *err)
{
	struct shape s = { 0 }, *slot;
	enum ar_status st = shape_grow(w, err);

	if (st)
		return st;
	shape_of(k, &s);
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
	int64_t shape;
	enum ar_status st = shape_id(w, k, &shape, err);
	const int64_t v[] = { w->run_id, iter_no, k->start_ns - w->ts_base_ns,
			      k->end_ns - k->start_ns, st ? 0 : shape, k->layer, k->phase,
			      k->device, k->stream, k->corr };

	if (st)
		return st;
	if (k->layer != PHASE_NO_LAYER)
		return put_ints(w, STMT_KERNEL, v, 10, err);
	return PUT(w, STMT_KERNEL, err, vi(v[0]), vi(v[1]), vi(v[2]), vi(v[3]), vi(v[4]), vt(NULL),
		   vi(v[6]), vi(v[7]), vi(v[8]), vi(v[9]));
}

/* The ids are consecutive, because nobody else writes inside of a transaction. */
static enum ar_status put_kernels(struct writer *w, const struct store_iteration *it, int64_t *lo,
				  int64_t *hi, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	if (it->n_kernel && !w->ts_base_ns) {
		w->ts_base_ns = it->kernel[0].start_ns;
		st = PUT(w, STMT_TS_BASE, err, vi(w->run_id), vi(w->ts_base_ns));
	}
	for (size_t i = 0; i < it->n_kernel && !st; i++) {
		st = put_kernel(w, it->iter_no, &it->kernel[i], err);
		*hi = sqlite3_last_insert_rowid(w->db);
		if (!i)
			*lo = *hi;
	}
	return st;
}

/* ---- iterations and what belongs to them ---- */

static enum ar_status add_entries(struct writer *w, const struct store_iteration *it,
				  struct ar_err *err)
{
	const size_t n_span = w->entries.n;

	w->iter_no = it->iter_no;
	for (size_t i = 0; it->entry && i < it->n_entry; i++)
		if (!spans_add(&w->entries, it->iter_no, &it->entry[i]))
			return ar_nomem(err);
	w->rows += (int64_t)(w->entries.n - n_span);
	return AR_OK;
}

static enum ar_status put_phases(struct writer *w, const struct store_iteration *it,
				 struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (int p = 0; it->phase_ns && p < PHASE_COUNT && !st; p++) {
		const int64_t v[] = { w->run_id, it->iter_no, p,
				      it->phase_kernels ? it->phase_kernels[p] : 0,
				      it->phase_ns[p] };

		if (p != PHASE_NONE && (v[3] || v[4]))
			st = put_ints(w, STMT_PHASE, v, 5, err);
	}
	return st;
}

static void put_iteration(struct writer *w, const struct store_iteration *it, int64_t lo,
			  int64_t hi)
{
	const struct val v[] = {
		vi(w->run_id), vi(it->iter_no), vi(it->start_ns), vi(it->end_ns),
		vi_or_null(it->host_ns), vi_or_null(it->event_ns), vi_or_null(it->span_ns),
		vi_or_null(it->busy_ns), vi(it->prefill_tok), vi(it->decode_tok),
		vi((int64_t)it->n_entry), vi(it->blocks_used), vi(it->waiting), vi(it->running),
		vi(it->preempted), vt(it->stop), vi_or_null(lo), vi_or_null(hi),
		vt(it->cost_source), vi(it->prefill_pairs), vi(it->decode_context),
		vi((int64_t)it->composition) };

	stage_put(w->iterations, v, sizeof v / sizeof *v);
	w->rows++;
}

enum ar_status writer_iteration(struct writer *w, const struct store_iteration *it,
				struct ar_err *err)
{
	int64_t lo = -1, hi = -1;
	enum ar_status st = AR_OK;

	if (w->rows >= TXN_ROWS || stage_full(w->iterations) || writer_age_ns(w) >= TXN_NS)
		st = writer_commit(w, err);
	if (!st)
		st = begin(w, err);
	if (!st)
		st = put_kernels(w, it, &lo, &hi, err);
	if (st)
		return st;
	put_iteration(w, it, lo, hi);
	st = add_entries(w, it, err);
	return st ? st : put_phases(w, it, err);
}

enum ar_status writer_outcome(struct writer *w, const struct store_outcome *o, struct ar_err *err)
{
	enum ar_status st = begin(w, err);

	return st ? st : PUT(w, STMT_OUTCOME, err, vi(w->run_id), vi(o->req), vt(o->outcome),
			     vt(o->reason), vi(o->arrival_ns), vi_or_null(o->first_sched_ns),
			     vi_or_null(o->first_token_ns), vi_or_null(o->finish_ns),
			     vi(o->prompt_tok), vi(o->output_tok), vi(o->n_chunks),
			     vi(o->n_preempt), vi(o->recomputed_tok), vi(o->cached_tok));
}

enum ar_status writer_gap(struct writer *w, const struct store_gap *g, struct ar_err *err)
{
	const int64_t v[] = { w->run_id, g->itl_ns, g->n };
	enum ar_status st = begin(w, err);

	return st ? st : put_ints(w, STMT_GAP, v, 3, err);
}

enum ar_status writer_accuracy(struct writer *w, const struct store_accuracy *a,
			       struct ar_err *err)
{
	enum ar_status st = begin(w, err);

	return st ? st : PUT(w, STMT_ACCURACY, err, vi(w->run_id), vi(a->req), vi(a->chunk_no),
			     vi(a->layer), vi(a->head), vi(a->iter_no), vi(a->chunk_start),
			     vi(a->chunk_tok), vr(a->rel_l2), vr(a->cosine), vr(a->max_abs),
			     vr(a->mass_recall));
}

enum ar_status writer_selection(struct writer *w, const struct store_selection *a,
				struct ar_err *err)
{
	const int64_t v[] = { w->run_id, a->req, a->chunk_no, a->layer, a->kv_head, a->iter_no,
#define X(name, doc) a->count.name,
			      SELECTION_COUNTS(X)
#undef X
	};
	enum ar_status st = begin(w, err);

	return st ? st : put_ints(w, STMT_SELECTION, v, (int)(sizeof v / sizeof *v), err);
}
