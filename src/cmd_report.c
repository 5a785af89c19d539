/* attnreplay report: what was run, how long requests waited, where the time went, what it cost
 * in accuracy.  Everything it says is a query over the views of the database. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "profiler/store/store.h"
#include "src/cmd.h"
#include "src/report/slo.h"
#include "src/report/writer.h"

enum dialect { DIALECT_OWN, DIALECT_VLLM, DIALECT_AIPERF, DIALECT_VIDUR, DIALECT_LLMSERVINGSIM,
	       DIALECT_SPLITWISE };

static const char *const dialects[] = {
	"attnreplay", "vllm", "aiperf", "vidur", "llmservingsim", "splitwise", NULL
};

struct report_args {
	int64_t run;		/* 0: all */
	int format, dialect;
	char *slo;		/* NULL: that of each run */
};

static const struct opt report_opts[] = {
	{ .name = "run", .type = OPT_INT, .off = offsetof(struct report_args, run), .arg = "ID",
	  .min = 1, .max = 1e15, .help = "report this run only" },
	{ .name = "format", .type = OPT_ENUM, .off = offsetof(struct report_args, format),
	  .arg = "NAME", .def = "table", .choice = writer_names,
	  .help = "how the tables are written" },
	{ .name = "dialect", .type = OPT_ENUM, .off = offsetof(struct report_args, dialect),
	  .arg = "TOOL", .def = "attnreplay", .choice = dialects,
	  .help = "whose figures to report, as that tool defines and calls them" },
	{ .name = "slo", .type = OPT_STR, .off = offsetof(struct report_args, slo), .arg = "LIST",
	  .help = "limits that requests should keep, such as ttft:500ms,tpot:50ms,e2e:10s, "
	  "else those given to the run" },
	{ .name = NULL }
};

struct section {
	const char *name, *title, *sql;		/* ?1: the run, or NULL for all */
};

#define OF_RUN " WHERE (?1 IS NULL OR run_id = ?1) "
#define METRICS "instr('ttft tpot itl e2e queue', a.metric)"

/* The latencies of the run and of its baseline, ?2, or of all: the view sorts every token's time,
 * so it is evaluated once. */
static const char latencies[] =
	"CREATE TEMP TABLE latency AS SELECT * FROM v_latency"
	" WHERE ?1 IS NULL OR run_id IN (?1, ?2)";

/* The limits of each run; none: whether a request without the value keeps them. */
static const char limits[] =
	"CREATE TEMP TABLE slo(run_id, metric, ns, none, PRIMARY KEY(run_id, metric))";

static const struct section other_tools[] = {
	[DIALECT_VLLM] = { "vllm", "What vllm bench serve prints",
			   "SELECT * FROM v_metrics_vllm" OF_RUN },
	[DIALECT_AIPERF] = { "aiperf", "What aiperf prints",
			     "SELECT * FROM v_metrics_aiperf" OF_RUN },
	[DIALECT_VIDUR] = { "vidur", "What Vidur prints, in seconds",
			    "SELECT * FROM v_metrics_vidur" OF_RUN },
	[DIALECT_LLMSERVINGSIM] = { "llmservingsim", "What LLMServingSim prints",
				    "SELECT * FROM v_metrics_llmservingsim" OF_RUN },
	[DIALECT_SPLITWISE] = { "splitwise", "What SplitwiseSim prints, in seconds",
				"SELECT * FROM v_metrics_splitwise" OF_RUN },
};

/* Runs of a sparse method of which every count says, or without counts its parameters, that it
 * was dense. */
#define LEFT_NOTHING_OUT \
	"SELECT run_id, name, has_context FROM (SELECT run_id, name, params," \
	" EXISTS (SELECT 1 FROM request_outcome o WHERE o.run_id = r.run_id" \
	" AND (n_chunks > n_preempt + 1 OR cached_tokens > 0)) AS has_context," \
	" (SELECT sum(exec_sel) = sum(exec_total)" \
	" FROM selection_stat s WHERE s.run_id = r.run_id) AS whole" \
	" FROM run r JOIN method USING(method_id)" OF_RUN "AND NOT is_dense)" \
	" WHERE coalesce(whole, NOT has_context AND " \
	"json_extract(params, '$.\"dense-first\"'))"

static const struct section goodput = {
	"goodput", "Goodput: requests that kept their limits, of all that arrived",
	"WITH judged AS (SELECT run_id, req_no, metric, ns, outcome = 'ok' AND coalesce(CASE metric"
	" WHEN 'ttft' THEN ttft_ns WHEN 'tpot' THEN tpot_ns ELSE e2e_ns END <= ns, none) AS good"
	" FROM request_outcome JOIN slo USING(run_id)" OF_RUN "),"
	" counted AS (SELECT run_id, metric, ns, count(*) AS n, sum(good) AS good FROM judged"
	" GROUP BY run_id, metric UNION ALL SELECT run_id, 'all', NULL, count(*), sum(good) FROM"
	" (SELECT run_id, min(good) AS good FROM judged GROUP BY run_id, req_no) GROUP BY run_id)"
	" SELECT run_id AS run, me.name AS method, metric, ns / 1e6 AS limit_ms, n, good,"
	" 100.0 * good / n AS percent, good / duration_s AS per_second FROM counted"
	" JOIN v_load USING(run_id) JOIN run USING(run_id) LEFT JOIN method me USING(method_id)"
	" ORDER BY run_id, instr('ttft tpot e2e all', metric)"
};

static const struct section sections[] = {
	{ "runs", "Runs",
	  "SELECT run_id AS run, method, trace, model, policy, gpu, backend FROM v_run" OF_RUN
	  "ORDER BY run_id" },
	{ "outcome", "Outcome: requests, iterations, seconds of virtual time",
	  "SELECT run_id AS run, method, status, ok, rejected, unfinished, iterations,"
	  " duration_s AS seconds, layers_run || ' of ' || n_layers AS layers, clock,"
	  " (SELECT avg(host_ns) FROM iteration i WHERE i.run_id = v.run_id AND batch_size) / 1e6"
	  " AS host_ms, cached_tokens AS cached FROM v_run v" OF_RUN "ORDER BY run_id" },
	{ "costs", "What iterations cost, where that was taken from an earlier run",
	  "SELECT run_id AS run, c.costs, cost_source AS source, iterations,"
	  " 100 * share AS percent, ms FROM v_cost_source"
	  " JOIN (SELECT run_id, value AS costs FROM run_param"
	  " WHERE key = 'costs' AND value IS NOT NULL) c USING(run_id)" OF_RUN
	  "ORDER BY run_id, instr('measured interpolated extrapolated', cost_source)" },
	{ "latency", "Latency, ms",
	  "SELECT run_id AS run, method, metric, n, mean, p50, p90, p99, max FROM latency a" OF_RUN
	  "ORDER BY run_id, " METRICS },
	{ "phases", "Time by phase, ms of kernels; * is the attention core",
	  "SELECT run_id AS run, v.method, v.phase, iif(v.core, '*', '') AS core, kernels, ms,"
	  " 100 * share AS percent FROM v_phase_time v JOIN phase p ON p.name = v.phase" OF_RUN
	  "ORDER BY run_id, p.phase_id" },
	{ "speedup", "Against the dense run: dense / this, of each figure",
	  "SELECT p.run_id AS run, a.method, base_id AS dense_run, a.metric, a.n, b.n AS dense_n,"
	  " b.mean / nullif(a.mean, 0) AS mean, b.p50 / nullif(a.p50, 0) AS p50,"
	  " b.p90 / nullif(a.p90, 0) AS p90, b.p99 / nullif(a.p99, 0) AS p99"
	  " FROM (SELECT * FROM v_pair" OF_RUN ") p JOIN latency a USING(run_id)"
	  " JOIN latency b ON b.run_id = base_id AND b.metric = a.metric"
	  " ORDER BY p.run_id, " METRICS },
	{ "accuracy", "Accuracy against dense attention, per sampled (request, chunk, layer, head)",
	  "SELECT run_id AS run, method, sum(n) AS n, sum(n * rel_l2_mean) / sum(n) AS rel_l2_mean,"
	  " max(rel_l2_max) AS rel_l2_max, min(cosine_min) AS cosine_min, max(max_abs) AS max_abs,"
	  " sum(n * recall_mean) / sum(n) AS recall_mean, min(recall_min) AS recall_min"
	  " FROM v_accuracy" OF_RUN "GROUP BY run_id ORDER BY run_id" },
	{ "density", "Density: share of what dense attention looks at",
	  "SELECT s.run_id AS run, me.name AS method, count(*) AS n,"
	  " sum(tiles_sel) * 1.0 / nullif(sum(tiles_total), 0) AS selected,"
	  " sum(qunion_sel) * 1.0 / nullif(sum(qunion_total), 0) AS q_union,"
	  " sum(sub_sel) * 1.0 / nullif(sum(sub_total), 0) AS sub_union,"
	  " sum(kv_sel) * 1.0 / nullif(sum(kv_total), 0) AS kv_union,"
	  " sum(group_sel) * 1.0 / nullif(sum(group_total), 0) AS group_union,"
	  " sum(exec_sel) * 1.0 / nullif(sum(exec_total), 0) AS executed"
	  " FROM selection_stat s JOIN run USING(run_id) LEFT JOIN method me "
	  "USING(method_id)" OF_RUN
	  "GROUP BY run_id ORDER BY run_id" },
};

static const struct section notes = {
	"notes", "Notes",
	"SELECT 'percentiles interpolate linearly between the two nearest values; requests "
	"without an end are left out' AS note"
	" UNION ALL SELECT 'accuracy is the error of single layers on replayed activations; it "
	"does not add up over layers' WHERE EXISTS (SELECT 1 FROM accuracy_sample" OF_RUN ")"
	" UNION ALL SELECT printf('run %d: %s; the figures cover what was committed', run_id, "
	"status) FROM run" OF_RUN "AND status <> 'done'"
	" UNION ALL SELECT printf('run %d: %s left nothing out: %s', run_id, name, "
	"iif(has_context, 'selector and union kept every block of the sampled chunks', "
	"'every chunk was the first of its prompt; lower --max-num-batched-tokens')) FROM ("
	LEFT_NOTHING_OUT ")"
	" UNION ALL SELECT printf('run %d: %d query blocks, over the heads of the sampled chunks, "
	"see nothing: their output is 0', run_id, blind) FROM (SELECT run_id, sum(blind) AS blind "
	"FROM selection_stat" OF_RUN "GROUP BY run_id) WHERE blind > 0"
	" UNION ALL SELECT printf('run %d: %d of %d layers were executed, their time stands for "
	"all', run_id, layers_run, n_layers) FROM v_run" OF_RUN "AND layers_run < n_layers"
	" UNION ALL SELECT printf('run %d: %d kernel records were lost; its time by phase is"
	" incomplete', run_id, lost_records) FROM v_run" OF_RUN "AND lost_records > 0"
	" UNION ALL SELECT printf('run %d: requests longer than the capture replay it tiled', "
	"run_id) FROM v_run" OF_RUN "AND extend = 'tile'"
	" UNION ALL SELECT printf('run %d: %d requests were rejected, %d did not finish', run_id,"
	" rejected, unfinished) FROM v_run" OF_RUN "AND rejected + unfinished > 0"
};

/* *base: the run's baseline, 0: none. */
static enum ar_status check_run(sqlite3 *db, const char *path, int64_t run, int64_t *base,
				struct ar_err *err)
{
	sqlite3_stmt *q = NULL;
	enum ar_status st = AR_OK;

	if (sqlite3_prepare_v2(db, "SELECT baseline_run_id FROM run WHERE run_id = ?1", -1, &q,
			       NULL) ||
	    sqlite3_bind_int64(q, 1, run))
		st = ar_fail(err, AR_DB, "%s: %s", path, sqlite3_errmsg(db));
	else if (sqlite3_step(q) != SQLITE_ROW)
		st = ar_fail(err, AR_USAGE, "%s: no run %lld; 'attnreplay report %s' lists the "
			     "runs", path, (long long)run, path);
	else
		*base = sqlite3_column_int64(q, 0);
	sqlite3_finalize(q);
	return st;
}

static enum ar_status write_section(sqlite3 *db, const struct section *s, int64_t run,
				    struct document *d, struct ar_err *err)
{
	sqlite3_stmt *q = NULL;
	enum ar_status st;

	if (sqlite3_prepare_v2(db, s->sql, -1, &q, NULL) ||
	    (run && sqlite3_bind_int64(q, 1, run))) {
		st = writer_fail(db, err);
	} else {
		d->name = s->name;
		d->title = s->title;
		st = writer_query(d, q, err);
	}
	if (st)
		ar_err_prefix(err, "%s", s->name);
	sqlite3_finalize(q);
	return st;
}

static enum ar_status gather(sqlite3 *db, int64_t run, int64_t base, struct ar_err *err)
{
	static const struct report_writer silent = { 0 };
	struct document none = { .writer = &silent };
	sqlite3_stmt *q = NULL;
	enum ar_status st;

	if (sqlite3_prepare_v2(db, latencies, -1, &q, NULL) ||
	    (run && (sqlite3_bind_int64(q, 1, run) || sqlite3_bind_int64(q, 2, base))))
		st = ar_fail(err, AR_DB, "%s", sqlite3_errmsg(db));
	else
		st = writer_query(&none, q, err);
	if (st)
		ar_err_prefix(err, "latency");
	sqlite3_finalize(q);
	return st;
}

static enum ar_status write_own(sqlite3 *db, int64_t run, int64_t base, struct document *d,
				struct ar_err *err)
{
	enum ar_status st = gather(db, run, base, err);

	for (size_t i = 0; i < sizeof sections / sizeof *sections && !st; i++)
		st = write_section(db, &sections[i], run, d, err);
	if (!st)
		st = write_section(db, &goodput, run, d, err);
	d->text = true;
	return st ? st : write_section(db, &notes, run, d, err);
}

static enum ar_status write_other(sqlite3 *db, const struct section *tool, int64_t run,
				  struct document *d, struct ar_err *err)
{
	enum ar_status st = write_section(db, tool, run, d, err);

	return st ? st : write_section(db, &goodput, run, d, err);
}

static enum ar_status add_limits(sqlite3 *db, int64_t run, const char *text, bool none,
				 struct ar_err *err)
{
	sqlite3_stmt *q = NULL;
	struct slo slo = { 0 };
	enum ar_status st = slo_parse(&slo, text, err);

	for (size_t i = 0; i < slo.n && !st; i++) {
		const struct slo_limit *l = &slo.limit[i];

		if (sqlite3_prepare_v2(db, "INSERT INTO slo SELECT run_id, ?2, ?3, ?4 FROM run"
				       OF_RUN, -1, &q, NULL) ||
		    (run && sqlite3_bind_int64(q, 1, run)) ||
		    sqlite3_bind_text(q, 2, l->metric, -1, SQLITE_STATIC) ||
		    sqlite3_bind_int64(q, 3, l->ns) || sqlite3_bind_int(q, 4, none) ||
		    sqlite3_step(q) != SQLITE_DONE)
			st = writer_fail(db, err);
		sqlite3_finalize(q);
	}
	return st;
}

/* A request of one token has no tpot: it keeps that limit with vLLM and misses it with aiperf. */
static enum ar_status gather_limits(sqlite3 *db, const struct report_args *a, struct ar_err *err)
{
	const bool none = a->dialect != DIALECT_AIPERF;
	sqlite3_stmt *q = NULL;
	enum ar_status st = AR_OK;
	int rc = SQLITE_DONE;

	if (sqlite3_exec(db, limits, NULL, NULL, NULL))
		return writer_fail(db, err);
	if (a->slo)
		return add_limits(db, a->run, a->slo, none, err);
	rc = sqlite3_prepare_v2(db, "SELECT run_id, value FROM run_param" OF_RUN "AND key = 'slo'",
				-1, &q, NULL);
	if (!rc && a->run)
		rc = sqlite3_bind_int64(q, 1, a->run);
	while (!rc && !st && (rc = sqlite3_step(q)) == SQLITE_ROW) {
		const char *text = (const char *)sqlite3_column_text(q, 1);

		rc = SQLITE_OK;
		st = text ? add_limits(db, sqlite3_column_int64(q, 0), text, none, err) :
		     ar_nomem(err);
	}
	if (!st && rc != SQLITE_DONE)
		st = writer_fail(db, err);
	sqlite3_finalize(q);
	return st;
}

static int poll_interrupt(void *unused)
{
	(void)unused;
	return ar_interrupted();
}

static enum ar_status cmd_report_run(int argc, char **argv, struct ar_err *err)
{
	struct report_args a = { 0 };
	struct opt_group g[] = { { .opts = report_opts, .base = &a }, { .opts = NULL } };
	struct document d = { .f = stdout };
	sqlite3 *db = NULL;
	int64_t base = 0;
	enum ar_status st = opt_init(g, err);

	if (!st)
		st = opt_parse(g, &argc, argv, err);
	if (!st && argc != 1)
		st = ar_fail(err, AR_USAGE, "want one database; try 'attnreplay report --help'");
	if (!st)
		st = store_open_read(&db, argv[0], err);
	if (!st && a.run)
		st = check_run(db, argv[0], a.run, &base, err);
	if (st)
		goto out;
	sqlite3_progress_handler(db, 10000, poll_interrupt, NULL);
	d.writer = writers[a.format];
	st = gather_limits(db, &a, err);
	if (!st && a.dialect == DIALECT_OWN)
		st = write_own(db, a.run, base, &d, err);
	else if (!st)
		st = write_other(db, &other_tools[a.dialect], a.run, &d, err);
	writer_finish(&d);
	if (st == AR_DATA || st == AR_DB)
		ar_err_prefix(err, "%s", argv[0]);
out:
	sqlite3_close(db);
	opt_release(g);
	return st;
}

static void cmd_report_options(void (*show)(const struct opt_group *, FILE *), FILE *f)
{
	struct opt_group g[] = { { .title = "Options", .opts = report_opts }, { .opts = NULL } };

	show(g, f);
}

const struct cmd cmd_report = {
	.name = "report",
	.usage = "[OPTION]... DB",
	.title = "summarise the runs of a database",
	.run = cmd_report_run,
	.options = cmd_report_options,
};
