/* SPDX-License-Identifier: Apache-2.0 */
/* Latencies of both runs.  If the requests are the same, each resample takes the same requests of
 * both runs.  So the spread between requests does not widen the interval of the ratio. */
#include "config.h"
#include "src/diff/diff.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bootstrap.h"
#include "base/grow.h"

#define SHARE 0.95 /* of an interval */

/* Latencies of served requests in order of arrival, and times between tokens, of run ?1. */
static const struct metric {
	const char *name, *sql;
	bool counted;
} metrics[] = {
	{ "ttft",
	  "SELECT ttft_ns / 1e6 FROM request_outcome WHERE run_id = ?1 AND outcome = 'ok' "
	  "ORDER BY req_no",
	  false },
	{ "tpot",
	  "SELECT tpot_ns / 1e6 FROM request_outcome WHERE run_id = ?1 AND outcome = 'ok' "
	  "AND tpot_ns IS NOT NULL ORDER BY req_no",
	  false },
	{ "itl", "SELECT itl_ns / 1e6, n FROM token_gap WHERE run_id = ?1 ORDER BY itl_ns", true },
	{ "e2e",
	  "SELECT e2e_ns / 1e6 FROM request_outcome WHERE run_id = ?1 AND outcome = 'ok' "
	  "ORDER BY req_no",
	  false },
};

static const struct {
	const char *name;
	double p;
} places[] = { { "p50", 50 }, { "p90", 90 }, { "p99", 99 } };

struct values {
	double *x;
	int64_t *times;
	size_t n, cap;
};

static bool reserve(struct values *v)
{
	size_t cap = v->cap;

	return GROW(v->x, cap, v->n + 1) && GROW(v->times, v->cap, v->n + 1);
}

static void values_release(struct values *v)
{
	free(v->x);
	free(v->times);
}

static enum ar_status read_values(sqlite3 *db, const struct metric *m, int64_t run,
				  struct values *v, struct ar_err *err)
{
	sqlite3_stmt *q = NULL;
	int rc = sqlite3_prepare_v2(db, m->sql, -1, &q, NULL);
	enum ar_status st = AR_OK;

	if (!rc)
		rc = sqlite3_bind_int64(q, 1, run);
	while (!rc && !st && (rc = sqlite3_step(q)) == SQLITE_ROW) {
		rc = SQLITE_OK;
		if (!reserve(v)) {
			st = ar_nomem(err);
			break;
		}
		v->x[v->n] = sqlite3_column_double(q, 0);
		v->times[v->n++] = m->counted ? sqlite3_column_int64(q, 1) : 1;
	}
	if (!st && rc != SQLITE_DONE)
		st = writer_fail(db, err);
	sqlite3_finalize(q);
	return st;
}

static enum ar_status read_sample(sqlite3 *db, const struct metric *m, int64_t run,
				  struct sample *s, struct ar_err *err)
{
	struct values v = { 0 };
	enum ar_status st = read_values(db, m, run, &v, err);

	if (!st && v.n)
		st = m->counted ? sample_of_counts(s, v.x, v.times, v.n, err) :
				  sample_of_values(s, v.x, v.n, err);
	values_release(&v);
	return st;
}

/* ---- rows ---- */

struct figure {
	double is, lo, hi;
};

static int bind_figure(sqlite3_stmt *q, int i, const struct figure *f)
{
	const double v[] = { f->is, f->lo, f->hi };
	int rc = SQLITE_OK;

	for (int k = 0; k < 3 && !rc; k++) /* a number that is none is stored as NULL */
		rc = sqlite3_bind_double(q, i + k, isfinite(v[k]) ? v[k] : NAN);
	return rc;
}

static enum ar_status put_row(const struct diff *x, const struct metric *m, const char *at,
			      const struct sample s[2], const struct figure f[3],
			      struct ar_err *err)
{
	sqlite3_stmt *q = NULL;
	enum ar_status st = AR_OK;
	int rc = sqlite3_prepare_v2(x->db,
				    "INSERT INTO diff_latency "
				    "VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
				    -1, &q, NULL);

	if (!rc)
		rc = sqlite3_bind_text(q, 1, m->name, -1, SQLITE_STATIC);
	if (!rc)
		rc = sqlite3_bind_text(q, 2, at, -1, SQLITE_STATIC);
	for (int k = 0; k < 2 && !rc; k++)
		rc = sqlite3_bind_int64(q, 3 + k, (int64_t)s[k].n);
	for (int k = 0; k < 3 && !rc; k++)
		rc = bind_figure(q, 5 + 3 * k, &f[k]);
	if (rc || sqlite3_step(q) != SQLITE_DONE)
		st = writer_fail(x->db, err);
	sqlite3_finalize(q);
	return st;
}

/* Percentile p of both samples, and its ratio; draw: room for three times x->resamples. */
static enum ar_status compare_percentile(const struct diff *x, const struct sample s[2],
					 bool paired, double p, double *draw, struct figure f[3],
					 struct ar_err *err)
{
	const size_t n = (size_t)x->resamples;
	enum ar_status st = AR_OK;

	for (size_t k = 0; k < 2 && !st; k++) {
		size_t block = x->block ? (size_t)x->block : bootstrap_block(s[k].n);
		struct bootstrap b = { n, (uint64_t)x->seed + (paired ? 0 : k),
				       block < s[k].n ? block : s[k].n };

		if (!s[k].rank)
			b.block = 0;
		f[k].is = sample_percentile(&s[k], p);
		st = bootstrap_draw(&b, &s[k], p, draw + k * n, err);
	}
	if (st)
		return st;
	for (size_t i = 0; i < n; i++)
		draw[2 * n + i] = draw[n + i] / draw[i];
	f[2].is = f[1].is / f[0].is;
	for (size_t k = 0; k < 3; k++)
		bootstrap_interval(draw + k * n, n, SHARE, &f[k].lo, &f[k].hi);
	return AR_OK;
}

static enum ar_status compute(const struct diff *x, const struct metric *m, bool paired,
			      double *draw, struct ar_err *err)
{
	struct sample s[2] = { { 0 }, { 0 } };
	struct figure f[3];
	enum ar_status st = read_sample(x->db, m, 1, &s[0], err);

	if (!st)
		st = read_sample(x->db, m, 2, &s[1], err);
	for (size_t i = 0; i < sizeof places / sizeof *places && !st && s[0].n && s[1].n; i++) {
		st = compare_percentile(x, s, paired && !m->counted, places[i].p, draw, f, err);
		if (!st)
			st = put_row(x, m, places[i].name, s, f, err);
	}
	sample_release(&s[0]);
	sample_release(&s[1]);
	return st;
}

/* The integer that sql returns. */
static enum ar_status ask_integer(sqlite3 *db, const char *sql, int64_t *value, struct ar_err *err)
{
	sqlite3_stmt *q = NULL;
	enum ar_status st = AR_OK;

	if (sqlite3_prepare_v2(db, sql, -1, &q, NULL) || sqlite3_step(q) != SQLITE_ROW)
		st = writer_fail(db, err);
	else
		*value = sqlite3_column_int64(q, 0);
	sqlite3_finalize(q);
	return st;
}

static enum ar_status check_runs(const struct diff *x, struct ar_err *err)
{
	int64_t n = 0;
	enum ar_status st = ask_integer(x->db, "SELECT count(*) FROM run", &n, err);

	if (!st && n != 2)
		st = ar_fail(err, AR_USAGE,
			     "the operands hold %lld runs, want two; name each as DB:RUN",
			     (long long)n);
	return st;
}

enum ar_status diff_compute(const struct diff *x, struct ar_err *err)
{
	/* The same requests were served, with the same lengths. */
	static const char same[] =
		"CREATE TEMP TABLE diff_paired AS SELECT NOT EXISTS ("
		"SELECT req_no, prompt_tokens, output_tokens, outcome FROM request_outcome "
		"WHERE run_id = 1 EXCEPT "
		"SELECT req_no, prompt_tokens, output_tokens, outcome FROM request_outcome "
		"WHERE run_id = 2) AND (SELECT count(*) FROM request_outcome WHERE run_id = 1) = "
		"(SELECT count(*) FROM request_outcome WHERE run_id = 2) AS paired;"
		"CREATE TEMP TABLE diff_latency(metric, at, n_before, n_after, before, before_lo, "
		"before_hi, after, after_lo, after_hi, ratio, ratio_lo, ratio_hi)";
	int64_t paired = 0;
	double *draw = NULL;
	enum ar_status st = check_runs(x, err);

	if (!st && sqlite3_exec(x->db, same, NULL, NULL, NULL))
		st = writer_fail(x->db, err);
	if (!st)
		st = ask_integer(x->db, "SELECT paired FROM diff_paired", &paired, err);
	if (!st && !(draw = malloc(3 * (size_t)x->resamples * sizeof *draw)))
		st = ar_nomem(err);
	for (size_t i = 0; i < sizeof metrics / sizeof *metrics && !st; i++)
		st = compute(x, &metrics[i], paired, draw, err);
	free(draw);
	return st;
}
