/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/cost/costs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "replay/cost/decode_walk.h"

/* The database, while it is read. */
struct reader {
	sqlite3 *db;
	char *path;
	int64_t run;
	const struct dense_as *dense_as; /* NULL: costs as they are */
	struct dense_as_run as;		 /* of it, with the layers of the run */
};

/* The database is input: if SQLite cannot read it, it is bad data. */
static enum ar_status sql_fail(const struct reader *r, struct ar_err *err)
{
	return sqlite3_errcode(r->db) == SQLITE_NOMEM ?
		       ar_nomem(err) :
		       ar_fail(err, AR_DATA, "%s: %s", r->path, sqlite3_errmsg(r->db));
}

/* Prepare a statement; ?1 is the run. */
static enum ar_status prepare_read(const struct reader *r, const char *sql, sqlite3_stmt **q,
				   struct ar_err *err)
{
	return sqlite3_prepare_v2(r->db, sql, -1, q, NULL) ||
			       (r->run && sqlite3_bind_int64(*q, 1, r->run)) ?
		       sql_fail(r, err) :
		       AR_OK;
}

static enum ar_status find_run(struct reader *r, struct ar_err *err)
{
	sqlite3_stmt *q = NULL;
	int64_t n = 0;
	enum ar_status st;

	if (r->run)
		return AR_OK;
	st = prepare_read(r,
			  "SELECT count(*), max(run_id) FROM run WHERE status = 'done' "
			  "AND clock NOT IN ('engine', 'modelled')",
			  &q, err);
	if (!st && sqlite3_step(q) != SQLITE_ROW)
		st = sql_fail(r, err);
	if (!st) {
		n = sqlite3_column_int64(q, 0);
		r->run = sqlite3_column_int64(q, 1);
	}
	sqlite3_finalize(q);
	if (st || n == 1)
		return st;
	return n ? ar_fail(err, AR_USAGE,
			   "%s: %" PRId64 " finished runs; name one of them, as in "
			   "%s:%" PRId64,
			   r->path, n, r->path, r->run) :
		   ar_fail(err, AR_USAGE, "%s: no run is done; costs need a finished run", r->path);
}

static enum ar_status get_text(struct costs *c, sqlite3_stmt *q, int i, const char **out,
			       struct ar_err *err)
{
	const char *s = (const char *)sqlite3_column_text(q, i);
	char *copy;

	if (sqlite3_column_type(q, i) == SQLITE_NULL)
		return AR_OK;
	copy = s ? strdup(s) : NULL;
	if (!copy)
		return ar_nomem(err);
	*out = c->text[c->n_text++] = copy;
	return AR_OK;
}

static void get_gpu(sqlite3_stmt *q, int i, struct costs *c)
{
	struct store_gpu *g = &c->gpu;

	if (sqlite3_column_type(q, i) == SQLITE_NULL)
		return;
	sqlite3_snprintf(sizeof g->uuid, g->uuid, "%s", sqlite3_column_text(q, i));
	sqlite3_snprintf(sizeof g->name, g->name, "%s", sqlite3_column_text(q, i + 1));
	g->cc_major = sqlite3_column_int(q, i + 2);
	g->cc_minor = sqlite3_column_int(q, i + 3);
	g->sm_count = sqlite3_column_int(q, i + 4);
	g->l2_bytes = sqlite3_column_int64(q, i + 5);
	g->mem_bytes = sqlite3_column_int64(q, i + 6);
	c->run.gpu = g;
}

static enum ar_status get_run(sqlite3_stmt *q, struct costs *c, struct ar_err *err)
{
	struct store_run *r = &c->run;
	enum ar_status st = get_text(c, q, 1, &r->options, err);

	if (!st)
		st = get_text(c, q, 5, &r->model_name, err);
	if (!st)
		st = get_text(c, q, 6, &r->model_json, err);
	if (!st)
		st = get_text(c, q, 14, &r->method_name, err);
	if (!st)
		st = get_text(c, q, 15, &r->method_params, err);
	if (!st)
		st = get_text(c, q, 24, &r->run_key, err);
	r->layers_run = sqlite3_column_int(q, 2);
	r->num_blocks = sqlite3_column_int64(q, 3);
	r->block_tok = sqlite3_column_int64(q, 4);
	r->n_layers = sqlite3_column_int(q, 7);
	r->hidden = sqlite3_column_int(q, 8);
	r->q_heads = sqlite3_column_int(q, 9);
	r->kv_heads = sqlite3_column_int(q, 10);
	r->head_dim = sqlite3_column_int(q, 11);
	r->tp = sqlite3_column_int(q, 12);
	c->max_len = sqlite3_column_int64(q, 13);
	r->dense = sqlite3_column_int(q, 16);
	get_gpu(q, 17, c);
	return st;
}

static enum ar_status read_run(const struct reader *r, struct costs *c, struct ar_err *err)
{
	static const char sql[] =
		"SELECT CASE clock WHEN 'engine' THEN 'one of an engine' WHEN 'modelled' THEN "
		"'modelled' ELSE status END, options, layers_run, num_blocks, block_tokens,"
		" mo.name, config, n_layers, hidden, q_heads, kv_heads, head_dim, tp,"
		" json_extract(config, '$.max_position_embeddings'),"
		" me.name, params, is_dense,"
		" uuid, g.name, cc_major, cc_minor, sm_count, l2_bytes, mem_bytes,"
		" coalesce(run_key, version || ' ' || started_utc_ns)"
		" FROM run LEFT JOIN model mo USING(model_id) LEFT JOIN method me USING(method_id)"
		" LEFT JOIN gpu g USING(gpu_id) WHERE run_id = ?1";
	sqlite3_stmt *q = NULL;
	enum ar_status st = prepare_read(r, sql, &q, err);
	const char *status;
	int rc;

	if (st)
		goto out;
	rc = sqlite3_step(q);
	if (rc == SQLITE_DONE) {
		st = ar_fail(err, AR_USAGE,
			     "%s: no run %" PRId64 "; 'attnreplay report %s' lists "
			     "the runs",
			     r->path, r->run, r->path);
	} else if (rc != SQLITE_ROW || !(status = (const char *)sqlite3_column_text(q, 0))) {
		st = sql_fail(r, err);
	} else if (strcmp(status, "done")) {
		st = ar_fail(err, AR_USAGE,
			     "%s: run %" PRId64 " is %s; costs need a finished "
			     "run",
			     r->path, r->run, status);
	} else {
		st = get_run(q, c, err);
	}
	if (!st && (c->run.num_blocks < 2 || c->run.num_blocks > UINT32_MAX ||
		    c->run.block_tok < 1 || c->run.block_tok > UINT32_MAX))
		st = ar_fail(err, AR_DATA, "%s: run %" PRId64 " has an invalid KV pool", r->path,
			     r->run);
out:
	sqlite3_finalize(q);
	return st;
}

/* True: x can be a figure of an iteration: ns, tokens, pairs of tokens. */
static bool is_figure(int64_t x)
{
	return x >= 0 && x <= COST_MOST_NS;
}

/* Files of version 14 and before have the longest decode only in the entries of batches. */
static enum ar_status find_longest(const struct reader *r, struct costs *c, struct ar_err *err)
{
	static const char sql[] =
		"SELECT EXISTS(SELECT 1 FROM iteration WHERE run_id = ?1 AND decode_tokens > 0"
		" AND longest_decode IS NULL) AND NOT EXISTS(SELECT 1 FROM request_span"
		" WHERE run_id = ?1)";
	sqlite3_stmt *q = NULL;
	enum ar_status st = prepare_read(r, sql, &q, err);

	if (!st && sqlite3_step(q) != SQLITE_ROW)
		st = sql_fail(r, err);
	if (!st)
		c->no_longest = sqlite3_column_int(q, 0);
	sqlite3_finalize(q);
	return st;
}

/* Give the iteration in the current row of q the cost that it has with an engine's kernels. */
static void recast(const struct dense_as_run *as, sqlite3_stmt *q, const struct batch_shape *s,
		   int64_t *cost_ns)
{
	const int at = 4 + BATCH_FEATURES;
	struct iter_cost c = { .cost_ns = *cost_ns };

	c.phase_ns[PHASE_ATTEND] = sqlite3_column_int64(q, at);
	c.phase_ns[PHASE_DECODE] = sqlite3_column_int64(q, at + 1);
	dense_as_set_shape(as, s,
			   decode_walk_part((uint32_t)s->feature[BATCH_LONGEST_DECODE],
					    (uint32_t)sqlite3_column_int64(q, at + 2),
					    as->factors.mixed.fill_rows),
			   &c);
	*cost_ns = c.cost_ns;
}

/* Read the iteration of the current row.  False: a figure is out of range. */
static bool get_iteration(const struct reader *r, sqlite3_stmt *q, struct batch_shape *s,
			  int64_t *cost_ns)
{
	bool fine;

	*cost_ns = sqlite3_column_int64(q, 1);
	s->n_entry = sqlite3_column_int64(q, 2);
	s->composition = (uint64_t)sqlite3_column_int64(q, 3);
	fine = is_figure(*cost_ns);
	for (int f = 0; f < BATCH_FEATURES; f++) {
		s->feature[f] = sqlite3_column_int64(q, 4 + f);
		fine = fine && is_figure(s->feature[f]);
	}
	if (fine && r->dense_as)
		recast(&r->as, q, s, cost_ns);
	return fine && is_figure(*cost_ns);
}

static enum ar_status read_iterations(const struct reader *r, struct cost_table *t,
				      struct ar_err *err)
{
	static const char sql[] =
		"WITH"
		" phases AS (SELECT iter_no,"
		" sum(gpu_ns) FILTER (WHERE name = 'attend') AS attend_ns,"
		" sum(gpu_ns) FILTER (WHERE name = 'decode') AS decode_ns FROM iteration_phase"
		" JOIN phase USING(phase_id) WHERE ?2 AND run_id = ?1 GROUP BY iter_no),"
		" chunks AS (SELECT iter_no, max(n_tokens) AS longest_chunk FROM iteration_request"
		" WHERE ?2 AND run_id = ?1 AND NOT decode GROUP BY iter_no)"
		" SELECT iter_no, end_ns - start_ns - coalesce(host_ns, 0), batch_size,"
		" composition,"
		" prefill_tokens, prefill_pairs, decode_tokens, decode_context,"
		" coalesce(longest_decode, (SELECT max(start + n_tokens) FROM iteration_request e"
		" WHERE e.run_id = i.run_id AND e.iter_no = i.iter_no AND decode), 0),"
		" attend_ns, decode_ns, longest_chunk"
		" FROM iteration i LEFT JOIN phases USING(iter_no) LEFT JOIN chunks USING(iter_no)"
		" WHERE run_id = ?1 AND batch_size > 0 ORDER BY i.rowid";
	sqlite3_stmt *q = NULL;
	enum ar_status st = prepare_read(r, sql, &q, err);
	int rc = SQLITE_DONE;

	if (!st && sqlite3_bind_int(q, 2, r->dense_as != NULL))
		st = sql_fail(r, err);

	while (!st && (rc = sqlite3_step(q)) == SQLITE_ROW) {
		struct batch_shape s;
		int64_t cost;

		if (get_iteration(r, q, &s, &cost))
			st = cost_table_add(t, &s, cost, err);
		else
			st = ar_fail(err, AR_DATA,
				     "%s: run %" PRId64 ": iteration %" PRId64
				     " has a figure out of range",
				     r->path, r->run, (int64_t)sqlite3_column_int64(q, 0));
	}
	if (!st && rc != SQLITE_DONE)
		st = sql_fail(r, err);
	sqlite3_finalize(q);
	if (!st && !cost_table_size(t))
		st = ar_fail(err, AR_DATA,
			     "%s: run %" PRId64 " has no iteration with a batch; name a run "
			     "without --keep-tables requests",
			     r->path, r->run);
	return st;
}

/* A method launches as many kernels for any batch with a prompt. */
static enum ar_status read_select_kernels(const struct reader *r, struct costs *c,
					  struct ar_err *err)
{
	static const char sql[] =
		"SELECT coalesce(max(n), 0) FROM (SELECT sum(kernels) AS n FROM iteration_phase"
		" JOIN phase USING(phase_id) WHERE run_id = ?1 AND name IN ('select', 'metadata',"
		" 'copy') GROUP BY iter_no)";
	sqlite3_stmt *q = NULL;
	enum ar_status st = prepare_read(r, sql, &q, err);

	if (!st && sqlite3_step(q) != SQLITE_ROW)
		st = sql_fail(r, err);
	if (!st)
		c->select_kernels = sqlite3_column_int64(q, 0);
	sqlite3_finalize(q);
	if (!st && c->run.layers_run > 0)
		c->select_kernels = num_mul(c->select_kernels, c->run.n_layers) / c->run.layers_run;
	return st;
}

static enum ar_status name_costs(const struct reader *r, struct costs *c, struct ar_err *err)
{
	size_t n = strlen(r->path) + 24;

	c->name = malloc(n);
	if (!c->name)
		return ar_nomem(err);
	snprintf(c->name, n, "%s:%" PRId64, r->path, r->run);
	return AR_OK;
}

static enum ar_status read_record(struct reader *r, const char *where, struct costs *c,
				  struct ar_err *err)
{
	enum ar_status st = store_where(where, &r->path, &r->run, err);

	if (!st)
		st = store_open_tables(&r->db, r->path, err);
	if (!st)
		st = find_run(r, err);
	if (!st)
		st = name_costs(r, c, err);
	return st ? st : read_run(r, c, err);
}

/* Set the layers of the run. */
static enum ar_status bind_dense_as(struct reader *r, const struct costs *c, struct ar_err *err)
{
	const int64_t n_run = c->run.layers_run;
	struct model m;
	enum ar_status st = model_parse(&m, c->name, c->run.model_json, err);
	int64_t n = 0;

	if (st)
		return st;
	for (int i = 0; i < m.n_layers; i++)
		n += m.layer[i].mixer == MIX_FULL;
	r->as = (struct dense_as_run){ *r->dense_as, m.n_layers, n_run, n * n_run / m.n_layers };
	model_release(&m);
	return AR_OK;
}

/* Take the cost of dense attention, unless the run has such costs already. */
static enum ar_status take_dense_as(struct reader *r, struct costs *c, struct ar_err *err)
{
	static const char sql[] =
		"SELECT json_extract(options, '$.\"dense-as-engine\"') IS NOT NULL,"
		" EXISTS(SELECT 1 FROM iteration_phase WHERE run_id = ?1)"
		" AND EXISTS(SELECT 1 FROM request_span WHERE run_id = ?1)"
		" FROM run WHERE run_id = ?1";
	sqlite3_stmt *q = NULL;
	enum ar_status st = prepare_read(r, sql, &q, err);
	bool has = false, can = false;

	if (!st && sqlite3_step(q) != SQLITE_ROW)
		st = sql_fail(r, err);
	if (!st) {
		has = sqlite3_column_int(q, 0);
		can = sqlite3_column_int(q, 1) && c->run.dense && c->run.model_json &&
		      c->run.layers_run > 0;
	}
	sqlite3_finalize(q);
	if (!st && !has && !can)
		st = ar_fail(err, AR_USAGE,
			     "%s: --dense-as-engine needs a run of method dense with the times of "
			     "its phases and the entries of its batches",
			     c->name);
	if (!st && !has)
		st = bind_dense_as(r, c, err);
	c->dense_as = !has;
	if (has)
		r->dense_as = NULL;
	return st;
}

static enum ar_status read_table(struct reader *r, const char *where, struct costs *c,
				 struct ar_err *err)
{
	enum ar_status st = read_record(r, where, c, err);

	if (!st && r->dense_as)
		st = take_dense_as(r, c, err);
	if (!st)
		st = read_select_kernels(r, c, err);
	if (!st)
		st = cost_table_create(&c->table, err);
	if (!st)
		st = find_longest(r, c, err);
	return st ? st : read_iterations(r, c->table, err);
}

static enum ar_status read_all(struct reader *r, const char *where, struct costs *c,
			       struct ar_err *err)
{
	enum ar_status st = read_table(r, where, c, err);

	return st ? st : cost_table_build(c->table, err);
}

static enum ar_status open_with(enum ar_status (*read)(struct reader *, const char *,
						       struct costs *, struct ar_err *),
				struct costs **out, const char *where, const struct dense_as *as,
				struct ar_err *err)
{
	struct costs *c = calloc(1, sizeof *c);
	struct reader r = { .dense_as = as };
	enum ar_status st = c ? read(&r, where, c, err) : ar_nomem(err);

	*out = NULL;
	if (st)
		costs_close(c);
	else
		*out = c;
	sqlite3_close(r.db);
	free(r.path);
	return st;
}

/* Append to c the iterations of another run, which `where` names. */
static enum ar_status add_run(struct costs *c, const char *where, struct ar_err *err)
{
	struct costs *more = calloc(1, sizeof *more);
	struct reader r = { 0 };
	enum ar_status st = more ? read_record(&r, where, more, err) : ar_nomem(err);

	if (!st && strcmp(more->run.model_json ? more->run.model_json : "",
			  c->run.model_json ? c->run.model_json : "") != 0)
		st = ar_fail(err, AR_USAGE,
			     "%s: its model is not that of %s; name runs of one model", more->name,
			     c->name);
	if (!st)
		st = read_iterations(&r, c->table, err);
	costs_close(more);
	sqlite3_close(r.db);
	free(r.path);
	return st;
}

enum ar_status costs_open_as(struct costs **out, const char *where, const struct dense_as *as,
			     struct ar_err *err)
{
	return open_with(read_all, out, where, as, err);
}

enum ar_status costs_open(struct costs **out, const char *where, struct ar_err *err)
{
	return costs_open_as(out, where, NULL, err);
}

enum ar_status costs_open_list(struct costs **out, const char *where, struct ar_err *err)
{
	char *list = strdup(where), *next = list, *one;
	struct costs *c = NULL;
	enum ar_status st = list ? AR_OK : ar_nomem(err);

	while (!st && (one = strsep(&next, ",")))
		st = c ? add_run(c, one, err) : open_with(read_table, &c, one, NULL, err);
	if (!st)
		st = cost_table_build(c->table, err);
	if (st) {
		costs_close(c);
		c = NULL;
	}
	*out = c;
	free(list);
	return st;
}

enum ar_status costs_open_run(struct costs **out, const char *where, struct ar_err *err)
{
	return open_with(read_record, out, where, NULL, err);
}

void costs_close(struct costs *c)
{
	if (!c)
		return;
	cost_table_destroy(c->table);
	for (int i = 0; i < c->n_text; i++)
		free(c->text[i]);
	free(c->name);
	free(c);
}
