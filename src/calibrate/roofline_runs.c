/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/calibrate/roofline_runs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/json.h"
#include "replay/cost/costs.h"

/* The database, while a run is read. */
struct reader {
	struct roofline_runs *in;
	struct roofline_run *run;
	struct costs *costs;
	struct roofline_subject subject;
	sqlite3 *db;
	int64_t id;
	struct batch_entry *entry; /* [cap] of an iteration */
	double *density;	   /* [cap] the run's */
	size_t cap;
};

static enum ar_status sql_fail(const struct reader *r, struct ar_err *err)
{
	return sqlite3_errcode(r->db) == SQLITE_NOMEM ?
		       ar_nomem(err) :
		       ar_fail(err, AR_DATA, "%s: %s", r->run->name, sqlite3_errmsg(r->db));
}

static enum ar_status prepare_query(const struct reader *r, const char *sql, sqlite3_stmt **q,
				    struct ar_err *err)
{
	return sqlite3_prepare_v2(r->db, sql, -1, q, NULL) || sqlite3_bind_int64(*q, 1, r->id) ?
		       sql_fail(r, err) :
		       AR_OK;
}

/* ---- the run ---- */

/* The name of costs is "PATH:RUN". */
static enum ar_status open_db(struct reader *r, struct ar_err *err)
{
	const char *colon = strrchr(r->costs->name, ':');
	char *path = strndup(r->costs->name, (size_t)(colon - r->costs->name));
	enum ar_status st = path ? store_open_tables(&r->db, path, err) : ar_nomem(err);

	r->id = strtoll(colon + 1, NULL, 10);
	free(path);
	return st;
}

/* A run has the time of all layers together, so all layers must have the same work. */
static enum ar_status check_layers(const struct roofline_run *run, struct ar_err *err)
{
	const struct model *m = &run->model;

	return model_odd_layer(m) || m->layer->mixer != MIX_FULL ?
		       ar_fail(err, AR_USAGE,
			       "%s: model %s has layers without full attention or layers that "
			       "differ; fit a GPU to runs of a model like llama-3.1-8b",
			       run->name, m->name) :
		       AR_OK;
}

static enum ar_status load_subject(struct reader *r, struct ar_err *err)
{
	const struct store_run *s = &r->costs->run;
	cJSON *options;
	bool attention;
	enum ar_status st;

	if (!s->model_json || !s->method_name)
		return ar_fail(err, AR_USAGE, "%s: no kernels were run; want a run of backend cuda",
			       r->run->name);
	st = model_parse(&r->run->model, s->model_name, s->model_json, err);
	if (!st)
		st = check_layers(r->run, err);
	if (!st)
		st = model_split(&r->run->model, s->tp, err);
	if (!st)
		st = method_parse(&r->run->method, s->method_name, err);
	if (st)
		return st;
	options = json_parse_all(s->options, NULL);
	attention = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(options, "attention-only"));
	if (!options)
		return ar_nomem(err);
	cJSON_Delete(options);
	r->run->n_layers = s->layers_run;
	if (!*r->in->gpu) {
		snprintf(r->in->gpu, sizeof r->in->gpu, "%s", r->costs->gpu.name);
		r->in->memory_bytes = r->costs->gpu.mem_bytes;
	}
	r->subject = (struct roofline_subject){ .model = &r->run->model,
						.method = r->run->method,
						.attention_only = attention };
	return AR_OK;
}

/* Check with one statement that the run is measured, and read its density. */
static enum ar_status check_run(struct reader *r, struct ar_err *err)
{
	static const char sql[] =
		"SELECT clock, EXISTS (SELECT 1 FROM iteration_phase p WHERE p.run_id = ?1),"
		" EXISTS (SELECT 1 FROM request_span s WHERE s.run_id = ?1),"
		" (SELECT sum(exec_sel) * 1.0 / sum(exec_total) FROM selection_stat t"
		" WHERE t.run_id = ?1 AND half = 'prefill') FROM run WHERE run_id = ?1";
	const char *name = r->run->name, *clock;
	sqlite3_stmt *q = NULL;
	enum ar_status st = prepare_query(r, sql, &q, err);

	if (!st && sqlite3_step(q) != SQLITE_ROW)
		st = sql_fail(r, err);
	clock = st ? NULL : (const char *)sqlite3_column_text(q, 0);
	if (!st && (!clock || strcmp(clock, "cupti")))
		st = ar_fail(err, AR_USAGE,
			     "%s: its clock is '%s'; want a run of backend cuda that CUPTI "
			     "measured",
			     name, clock ? clock : "");
	if (!st && !sqlite3_column_int(q, 1))
		st = ar_fail(err, AR_USAGE,
			     "%s: the run has no times of phases; measure it without "
			     "--keep-tables",
			     name);
	if (!st && !sqlite3_column_int(q, 2))
		st = ar_fail(err, AR_USAGE,
			     "%s: the run has no entries of batches; measure it without "
			     "--keep-tables and --keep-entries no",
			     name);
	if (!st && !r->run->method->dense && sqlite3_column_type(q, 3) == SQLITE_NULL)
		st = ar_fail(err, AR_USAGE,
			     "%s: the density of %s was not measured; measure it with an "
			     "--accuracy above 0",
			     name, r->run->method->name);
	if (!st)
		r->run->density = r->run->method->dense ? 1 : sqlite3_column_double(q, 3);
	sqlite3_finalize(q);
	return st;
}

/* ---- iterations ---- */

static bool grow_reader(struct reader *r, size_t need)
{
	size_t cap = r->cap;

	return GROW(r->entry, cap, need) && GROW(r->density, r->cap, need);
}

/* Take the entries of iteration no from q, which stands at the first or later. */
static enum ar_status take_entries(struct reader *r, sqlite3_stmt *q, int64_t no, bool *more,
				   struct batch *b, struct ar_err *err)
{
	*b = (struct batch){ 0 };
	while (*more && sqlite3_column_int64(q, 0) <= no) {
		if (!grow_reader(r, b->n + 1))
			return ar_nomem(err);
		if (sqlite3_column_int64(q, 0) == no) {
			r->entry[b->n] = (struct batch_entry){
				.start = (uint32_t)sqlite3_column_int64(q, 1),
				.n_tok = (uint32_t)sqlite3_column_int64(q, 2),
				.kind = sqlite3_column_int(q, 3) ? ROW_DECODE : ROW_PREFILL,
				.n_emit = (uint32_t)sqlite3_column_int(q, 4)
			};
			r->density[b->n++] = r->run->density;
		}
		*more = sqlite3_step(q) == SQLITE_ROW;
	}
	b->entry = r->entry;
	return AR_OK;
}

static void take_phases(sqlite3_stmt *q, int64_t no, bool *more, struct roofline_sample *s)
{
	for (; *more && sqlite3_column_int64(q, 0) <= no; *more = sqlite3_step(q) == SQLITE_ROW) {
		int p = sqlite3_column_int(q, 1);

		/* Collectives are no kernels here. */
		if (sqlite3_column_int64(q, 0) == no && p > 0 && p < PHASE_COUNT &&
		    p != PHASE_COMM && p != PHASE_COMM_SELECT)
			s->phase_ns[p] = sqlite3_column_int64(q, 2);
	}
}

static struct roofline_sample *next_sample(struct roofline_runs *in)
{
	struct roofline_sample *s;

	if (!GROW(in->sample, in->cap_sample, in->n_sample + 1))
		return NULL;
	s = &in->sample[in->n_sample];
	*s = (struct roofline_sample){ .run = in->n_run };
	return s;
}

/* The three statements are in the order of iterations. */
static enum ar_status add_iterations(struct reader *r, sqlite3_stmt *it, sqlite3_stmt *entry,
				     sqlite3_stmt *phase, struct ar_err *err)
{
	bool more_entries = sqlite3_step(entry) == SQLITE_ROW;
	bool more_phases = sqlite3_step(phase) == SQLITE_ROW;
	enum ar_status st = AR_OK;

	while (!st && sqlite3_step(it) == SQLITE_ROW) {
		int64_t no = sqlite3_column_int64(it, 0);
		struct roofline_sample *s = next_sample(r->in);
		struct batch b;

		if (!s)
			return ar_nomem(err);
		st = take_entries(r, entry, no, &more_entries, &b, err);
		take_phases(phase, no, &more_phases, s);
		s->span_ns = sqlite3_column_int64(it, 1);
		if (st || !b.n || s->span_ns <= 0)
			continue;
		for (size_t i = 0; i < b.n; i++)
			s->prefill = s->prefill || b.entry[i].kind != ROW_DECODE;
		roofline_count(&r->subject, 0, &b, r->density, s->work);
		r->in->n_sample++;
	}
	return st || sqlite3_errcode(r->db) == SQLITE_DONE ? st : sql_fail(r, err);
}

static enum ar_status read_iterations(struct reader *r, struct ar_err *err)
{
	static const char *const sql[] = {
		"SELECT iter_no, span_ns FROM iteration WHERE run_id = ?1 AND batch_size > 0"
		" AND span_ns IS NOT NULL ORDER BY iter_no",
		"SELECT iter_no, start, n_tokens, decode, emit FROM iteration_request"
		" WHERE run_id = ?1 ORDER BY iter_no",
		"SELECT iter_no, phase_id, gpu_ns FROM iteration_phase WHERE run_id = ?1"
		" ORDER BY iter_no",
	};
	sqlite3_stmt *q[3] = { NULL };
	size_t before = r->in->n_sample;
	enum ar_status st = AR_OK;

	for (int i = 0; i < 3 && !st; i++)
		st = prepare_query(r, sql[i], &q[i], err);
	if (!st)
		st = add_iterations(r, q[0], q[1], q[2], err);
	for (int i = 0; i < 3; i++)
		sqlite3_finalize(q[i]);
	if (!st && r->in->n_sample == before)
		st = ar_fail(err, AR_DATA, "%s: no iteration has a time", r->run->name);
	return st;
}

static enum ar_status read_run(struct reader *r, struct ar_err *err)
{
	enum ar_status st;

	r->run->name = strdup(r->costs->name);
	st = r->run->name ? open_db(r, err) : ar_nomem(err);
	if (!st)
		st = load_subject(r, err);
	if (!st)
		st = check_run(r, err);
	return st ? st : read_iterations(r, err);
}

static void release_run(struct roofline_run *r)
{
	free(r->name);
	model_release(&r->model);
	method_free(r->method);
}

enum ar_status roofline_runs_add(struct roofline_runs *in, const char *where, struct ar_err *err)
{
	struct reader r = { .in = in };
	enum ar_status st;

	if (!GROW(in->run, in->cap_run, in->n_run + 1))
		return ar_nomem(err);
	r.run = &in->run[in->n_run];
	*r.run = (struct roofline_run){ 0 };
	st = costs_open(&r.costs, where, err);
	if (!st)
		st = read_run(&r, err);
	if (st)
		release_run(r.run);
	else
		in->n_run++;
	costs_close(r.costs);
	sqlite3_close(r.db);
	free(r.entry);
	free(r.density);
	return st;
}

void roofline_runs_release(struct roofline_runs *in)
{
	for (size_t i = 0; i < in->n_run; i++)
		release_run(&in->run[i]);
	free(in->run);
	free(in->sample);
	*in = (struct roofline_runs){ 0 };
}
