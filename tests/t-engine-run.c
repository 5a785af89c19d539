/* SPDX-License-Identifier: Apache-2.0 */
/* Logs of engines as runs: the work of each step, from the order of each request's entries. */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "src/engine/engine_join.h"
#include "src/engine/engine_run.h"
#include "tests/alloc_fault.h"
#include "tests/file.h"
#include "tests/query.h"
#include "tests/tap.h"

static char dir[] = "/tmp/t-engine-run-XXXXXX";
static char path[64], db_path[64];

static struct engine_log *read_log(const char *text)
{
	struct engine_log *log;
	struct ar_err err;

	file_write(path, text, strlen(text));
	if (engine_log_open(&log, path, &err))
		bail_out("%s", err.msg);
	return log;
}

static void remove_db(void)
{
	char command[256];

	snprintf(command, sizeof command, "rm -f %s*", db_path);
	if (system(command))
		bail_out("%s", command);
}

/* Store the log in a new database. */
static enum ar_status store_log(const struct engine_log *log, const struct trace *t,
				int64_t *run_id, struct ar_err *err)
{
	const struct engine_run r = {
		.log = log, .trace = t, .version = "1", .cmdline = "attnreplay import-engine log"
	};
	struct store *s;
	enum ar_status st, st2;

	*err = (struct ar_err){ 0 };
	remove_db();
	st = engine_run_check(&r, err);
	if (!st)
		st = store_open(&s, db_path, err);
	if (st)
		return st;
	st = engine_run_store(&r, s, run_id, err);
	st2 = store_close(s, st ? NULL : err);
	return st ? st : st2;
}

static sqlite3 *stored(const char *text)
{
	struct engine_log *log = read_log(text);
	struct ar_err err;
	int64_t run_id;
	sqlite3 *db;

	if (store_log(log, NULL, &run_id, &err) || store_open_read(&db, db_path, &err))
		bail_out("%s", err.msg);
	engine_log_close(log);
	return db;
}

#define REQUEST(i, prompt, output) \
	"{\"request\":" #i ",\"prompt_tokens\":" #prompt ",\"output_tokens\":" #output \
	",\"arrival\":0.5,\"first_token\":1.5,\"last_token\":2.5}\n"
#define STEP(begin, tokens, requests) \
	"{\"begin\":" #begin ",\"end\":" #begin ".5,\"tokens\":" tokens ",\"requests\":" requests \
	"}\n"

/* Request 0 in two chunks, 1 after 16 tokens of the prefix cache, 2 with a preemption. */
#define LOG \
	STEP(1, "[6,4,4]", "[0,1,2]") \
	STEP(2, "[4,1,1]", "[0,1,2]") \
	STEP(3, "[1,6]", "[0,2]") \
	STEP(4, "[1,1]", "[0,2]") \
	STEP(5, "[]", "[]") REQUEST(0, 10, 3) REQUEST(1, 20, 2) REQUEST(2, 4, 4)

static void test_steps(void)
{
	sqlite3 *db = stored(LOG);

	is_int(ask(db, "SELECT count(*) FROM run WHERE status = 'done' AND clock = 'engine' AND "
		       "backend = 'engine' AND model_id IS NULL AND gpu_id IS NULL"),
	       1, "a log that says no engine is a run of one");
	is_int(ask(db, "SELECT count(*) FROM iteration WHERE start_ns = (iter_no + 1) * 1000000000 "
		       "AND end_ns = start_ns + 500000000 AND host_ns IS NULL"),
	       5, "iterations have the times of the steps");
#define ENTRY(iter, req, what) \
	"(SELECT count(*) FROM iteration_request WHERE iter_no = " #iter " AND req_no = " #req \
	" AND (chunk_no, start, n_tokens, decode, emit, recompute) = (" what ")) + "
	is_int(ask(db,
		   "SELECT " ENTRY(0, 0, "0, 0, 6, 0, 0, 0") ENTRY(0, 1, "0, 16, 4, 0, 1, 0")
			   ENTRY(0, 2, "0, 0, 4, 0, 1, 0") ENTRY(1, 0, "1, 6, 4, 0, 1, 0") ENTRY(
				   1, 1, "1, 20, 1, 1, 1, 0") ENTRY(1, 2, "1, 4, 1, 1, 1, 0")
				   ENTRY(2, 0, "2, 10, 1, 1, 1, 0") ENTRY(2, 2, "2, 0, 6, 0, 1, 1")
					   ENTRY(3, 0, "3, 11, 1, 1, 1, 0")
						   ENTRY(3, 2, "3, 6, 1, 1, 1, 0") "0"),
	       10, "entries are chunks, decodes, and chunks after a preemption");
	is_int(ask(db, "SELECT count(*) FROM iteration_request"), 10, "... and no others");
	is_int(ask(db, "SELECT count(*) FROM iteration WHERE (iter_no, prefill_tokens, "
		       "decode_tokens, batch_size, prefill_pairs, decode_context) IN (VALUES "
		       "(0, 14, 0, 3, 21 + 64 + 10 + 10, 0), (1, 4, 2, 3, 24 + 10, 21 + 5), "
		       "(2, 6, 1, 2, 21, 11), (3, 0, 2, 2, 0, 12 + 7), (4, 0, 0, 0, 0, 0))"),
	       5, "their sums are right");
	is_int(ask(db, "SELECT count(*) FROM request_outcome WHERE outcome = 'ok' AND arrival_ns = "
		       "500000000 AND first_sched_ns = 1000000000 AND ttft_ns = 1000000000 AND "
		       "e2e_ns = 2000000000 AND tpot_ns = 1e9 / (output_tokens - 1)"),
	       3, "requests have their latencies");
	is_int(ask(db, "SELECT count(*) FROM request_outcome WHERE (req_no, n_chunks, n_preempt, "
		       "recomputed_tokens, cached_tokens) IN (VALUES (0, 2, 0, 0, 0), "
		       "(1, 1, 0, 0, 16), (2, 2, 1, 6, 0))"),
	       3, "and counts");
	sqlite3_close(db);
}

static void test_unknown(void)
{
	sqlite3 *db = stored("[[1,2,[5,1,1]],[2,3,[1]]]");

	is_int(ask(db, "SELECT count(*) FROM iteration WHERE (iter_no, prefill_tokens, "
		       "decode_tokens, batch_size, composition) IN (VALUES (0, 5, 2, 3, 0), "
		       "(1, 0, 1, 1, 0))"),
	       2, "without names of requests, single tokens are decodes");
	is_int(ask(db, "SELECT count(*) FROM request_span"), 0, "... and there are no entries");
	sqlite3_close(db);
	db = stored("{\"request\":0,\"prompt_tokens\":5}\n"
		    "{\"request\":1,\"arrival\":1,\"prompt_tokens\":5,\"output_tokens\":1,"
		    "\"first_token\":3}\n"
		    "{\"request\":2,\"arrival\":1,\"prompt_tokens\":5,\"output_tokens\":2,"
		    "\"first_token\":3}\n");
	is_int(ask(db, "SELECT count(*) FROM request_outcome WHERE (req_no, outcome) IN (VALUES "
		       "(0, 'unfinished'), (1, 'ok'), (2, 'unfinished')) AND "
		       "first_sched_ns IS NULL"),
	       3, "a request without an end is unfinished");
	is_int(ask(db, "SELECT e2e_ns FROM request_outcome WHERE req_no = 1"), 2000000000,
	       "the first token of a single one is the end");
	sqlite3_close(db);
}

#define MODEL \
	"{\"engine\":\"vLLM\",\"version\":\"1\",\"gpu\":\"GPU\",\"async\":false," \
	"\"max_num_seqs\":8,\"max_num_batched_tokens\":64,\"model\":{\"architectures\":[" \
	"\"LlamaForCausalLM\"],\"hidden_size\":64,\"intermediate_size\":96,\"vocab_size\":100," \
	"\"num_attention_heads\":4,\"num_hidden_layers\":2}}\n"

/* The first layer is a gated DeltaNet. */
#define MIXED \
	"{\"engine\":\"a\",\"model\":{\"model_type\":\"qwen3_next\",\"hidden_size\":64," \
	"\"intermediate_size\":96,\"vocab_size\":100,\"num_attention_heads\":4," \
	"\"num_key_value_heads\":2,\"head_dim\":32,\"num_hidden_layers\":2," \
	"\"layer_types\":[\"linear_attention\",\"full_attention\"]," \
	"\"linear_num_key_heads\":1,\"linear_num_value_heads\":1,\"linear_key_head_dim\":8," \
	"\"linear_value_head_dim\":8,\"linear_conv_kernel_dim\":4}}\n"

static void test_header(void)
{
	sqlite3 *db = stored(MODEL LOG);

	is_int(ask(db,
		   "SELECT count(*) FROM v_run WHERE backend = 'vllm-1' AND policy = 'vllm' AND "
		   "model = 'LlamaForCausalLM' AND gpu = 'GPU' AND n_layers = 2 AND "
		   "layers_run = 2"),
	       1, "engine, model and GPU of the header");
	is_int(ask(db,
		   "SELECT count(*) FROM run_param WHERE (key, value) IN (VALUES "
		   "('async-scheduling', 0), ('max-num-seqs', 8), ('max-num-batched-tokens', 64),"
		   " ('log', 'log'))"),
	       4, "... and limits");
	sqlite3_close(db);
	db = stored(MIXED LOG);
	is_int(ask(db, "SELECT n_layers * 10000 + q_heads * 1000 + kv_heads * 100 + head_dim "
		       "FROM model"),
	       24232, "heads are those of the layers that have some");
	sqlite3_close(db);
	db = stored("{\"engine\":\"a\",\"model\":{}}\n" LOG);
	is_int(ask(db, "SELECT count(*) FROM v_run WHERE backend = 'a' AND model IS NULL"), 1,
	       "a model that cannot be read is left out");
	sqlite3_close(db);
}

/* ---- faults ---- */

static void refused(const char *text, enum ar_status want, const char *message, const char *status)
{
	struct engine_log *log = read_log(text);
	struct ar_err err;
	int64_t run_id = 0;
	enum ar_status st = store_log(log, NULL, &run_id, &err);
	sqlite3 *db;
	char sql[128];

	ok(st == want && !strcmp(err.msg, message), "%s", err.msg);
	engine_log_close(log);
	if (!status)
		return;
	if (sqlite3_open(db_path, &db))
		bail_out("%s", sqlite3_errmsg(db));
	snprintf(sql, sizeof sql, "SELECT count(*) FROM run WHERE status = '%s'", status);
	is_int(ask(db, sql), 1, "... and the run is %s", status);
	sqlite3_close(db);
}

static void test_faults(void)
{
	refused(STEP(1, "[1,1]", "[0,0]") REQUEST(0, 10, 3), AR_DATA,
		"log: step 0 runs request 0 twice", "failed");
	refused(STEP(1, "[2147483647]", "[0]") STEP(2, "[1]", "[0]") REQUEST(0, 10, 3), AR_DATA,
		"log: request 0 runs more than 2147483647 tokens", "failed");
	refused(REQUEST(0, 10, 0), AR_USAGE,
		"log: the log does not say the lengths of request 0; name its trace with --trace",
		NULL);
}

/* Each allocation fails in turn. */
static void test_memory(void)
{
	struct engine_log *log = read_log(MODEL LOG);
	long n = 0, bad = 0;
	struct ar_err err;
	int64_t run_id;

	for (long k = 0;; k++, n++) {
		enum ar_status st;

		fault_arm(k);
		st = store_log(log, NULL, &run_id, &err);
		if (!fault_disarm())
			break;
		if (st != AR_NOMEM) {
			diag("allocation %ld: %d, %s", k, st, err.msg);
			bad++;
		}
	}
	ok(n > 10 && !bad, "each of %ld allocations fails cleanly", n);
	engine_log_close(log);
}

static void test_join_memory(void)
{
	struct engine_log *steps = read_log(STEP(1, "[10]", "[0]") REQUEST(0, 10, 3));
	struct engine_log *client = read_log(REQUEST(0, 10, 3));
	struct ar_err err;
	long n = 0;

	for (;; n++) {
		enum ar_status st;

		fault_arm(n);
		st = engine_join(steps, client, &err);
		if (!fault_disarm())
			break;
		is_int(st, AR_NOMEM, "a join without memory fails");
	}
	is_int(n, 3, "... wherever it allocates");
	is_int(steps->step[0].begin_ns, 1000000000, "logs of one clock stay in place");
	engine_log_close(steps);
	engine_log_close(client);
}

static void test_interrupted_store(void)
{
	struct engine_log *log = read_log(LOG);
	struct ar_err err;
	int64_t run_id;
	sqlite3 *db;

	ar_catch_interrupts();
	raise(SIGTERM);
	ok(store_log(log, NULL, &run_id, &err) == AR_INTERRUPTED, "storing heeds an interrupt");
	if (sqlite3_open(db_path, &db))
		bail_out("%s", sqlite3_errmsg(db));
	is_int(ask(db, "SELECT count(*) FROM run WHERE status = 'aborted'"), 1,
	       "... and the run is aborted");
	sqlite3_close(db);
	engine_log_close(log);
	ok(engine_log_open(&log, path, &err) == AR_INTERRUPTED && !log,
	   "reading heeds an interrupt");
}

int main(void)
{
	plan(0);
	log_level = LOG_ERROR;
	if (!mkdtemp(dir))
		bail_out("no temporary folder");
	snprintf(path, sizeof path, "%s/log", dir);
	snprintf(db_path, sizeof db_path, "%s/a.db", dir);
	test_steps();
	test_unknown();
	test_header();
	test_faults();
	test_memory();
	test_join_memory();
	test_interrupted_store();
	remove_db();
	unlink(path);
	rmdir(dir);
	return done_testing();
}
