/* SPDX-License-Identifier: Apache-2.0 */
/* The database: rows are read back as they were written, also after failures and interrupts. */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "profiler/store/store.h"
#include "tests/alloc_fault.h"
#include "tests/file.h"
#include "tests/query.h"
#include "tests/store_case.h"
#include "tests/tap.h"

static void test_file(void)
{
	const char *path = in_dir("new.db");
	char wal[300];
	struct stat sb;

	store_close(open_store(path), NULL);
	is_value(path, "PRAGMA application_id", 0x41545250, "a new file carries the program's id");
	is_value(path, "PRAGMA user_version", 22, "a new file carries the schema's version");
	is_value(path, "PRAGMA page_size", 16384, "pages are 16 KiB");
	is_value(path, "SELECT count(*) FROM schema_log WHERE version = 22", 1,
		 "the schema's creation is on record");
	is_value(path, "SELECT phase_id FROM phase WHERE name = 'attend' AND core", 8,
		 "phases carry the program's numbers");
	is_value(path, "SELECT sum(core) FROM phase", 11, "eleven phases make the attention core");
	snprintf(wal, sizeof wal, "%s-wal", path);
	ok(stat(wal, &sb), "a closed database is one file");
	store_close(open_store(path), NULL);
	is_value(path, "SELECT count(*) FROM schema_log", 1, "opening again changes nothing");
	file_write(in_dir("empty.db"), "", 0);
	store_close(open_store(in_dir("empty.db")), NULL);
	is_value(in_dir("empty.db"), "PRAGMA user_version", 22, "an empty file is taken");
}

static void refused(const char *path, enum ar_status want, const char *words, bool reads)
{
	struct ar_err err = { 0 };
	struct store *s;
	sqlite3 *db;
	enum ar_status st;

	st = store_open(&s, path, &err);
	ok(st == want && !s, "refused for writing: %s", words);
	if (!ok(strstr(err.msg, words) && strstr(err.msg, path), "the message says so: %s", words))
		diag("%s", err.msg);
	if (!reads)
		return;
	st = store_open_read(&db, path, &err);
	if (!ok(st == AR_DATA && !db && strstr(err.msg, path), "refused for reading: %s", words))
		diag("%d %s", st, err.msg);
}

static void test_refusals(void)
{
	static const char text[] =
		"this is not a database, though it is long enough to be looked at\n";
	const char *path;
	struct ar_err err = { 0 };
	sqlite3 *db;

	path = in_dir("text");
	file_write(path, text, sizeof text - 1);
	refused(path, AR_DATA, "not a database", true);
	path = in_dir("foreign.db");
	change(path, "CREATE TABLE mine(x)");
	refused(path, AR_DATA, "not a database of attnreplay", true);
	is_value(path, "SELECT count(*) FROM sqlite_schema", 1, "a foreign file is left alone");
	path = in_dir("other.db");
	store_close(open_store(path), NULL);
	change(path, "PRAGMA user_version = 4");
	refused(path, AR_DATA, "schema version 4, this program has version 22", true);
	change(path, "PRAGMA user_version = 23");
	refused(path, AR_DATA, "schema version 23, this program has version 22", true);
	change(path, "PRAGMA user_version = 0");
	refused(path, AR_DATA, "schema version 0, this program has version 22", true);
	refused(in_dir("no/such/folder.db"), AR_IO, "check folder", true);
	refused(in_dir("."), AR_IO, "check folder", true);
	path = in_dir("nothing.db");
	file_write(path, "", 0);
	ok(store_open_read(&db, path, &err) == AR_DATA && strstr(err.msg, "empty"),
	   "an empty file cannot be read");
}

static void test_rows(void)
{
	const char *path = in_dir("rows.db");
	struct store *s = open_store(path);

	write_run(s, &case_dense);
	write_run(s, &case_sparse);
	store_close(s, NULL);
	is_value(path, "SELECT count(*) FROM trace", 1, "two runs of one trace share its row");
	is_value(path, "SELECT count(*) FROM model", 1, "... and their model's");
	is_value(path, "SELECT count(*) FROM gpu", 1, "... and their device's");
	is_value(path, "SELECT count(*) FROM method", 2, "two methods are two rows");
	is_value(path,
		 "SELECT count(*) FROM run WHERE status = 'done' AND finished_utc_ns >= "
		 "started_utc_ns AND cupti_api = 130001 AND layers_run = 32 AND num_blocks = 100 "
		 "AND block_tokens = 16 AND seed = 1 AND coalesce(n_params, weight_bytes, "
		 "block_bytes, pool_tokens, gpu_bytes, gpu_share, engine_defaults) IS NULL",
		 2, "a run keeps its facts");
	is_value(path,
		 "SELECT count(*) FROM run_param WHERE run_id = 1 AND (key, typeof(value), "
		 "value) IN (('max-num-seqs', 'integer', 256), ('rate', 'real', 0.5), ('tile', "
		 "'integer', 1), ('method', 'text', 'dense'))",
		 4, "options become rows with their types");
	is_value(path,
		 "SELECT count(*) FROM iteration WHERE run_id = 1 AND stop = 'budget' AND "
		 "span_ns = end_ns - start_ns AND busy_ns = span_ns - 1000 AND host_ns = 0 AND "
		 "blocks_used = 3 AND running = 2 AND waiting = 0",
		 8, "iterations come back");
	is_value(path,
		 "SELECT count(*) FROM iteration WHERE run_id = 1 AND cost_source = 'timed' "
		 "AND prefill_pairs = 30 + iter_no AND decode_context = 60 + iter_no AND "
		 "composition = -1 - iter_no",
		 8, "... with what their cost depends on");
	is_value(path, "SELECT ms FROM v_cost_source WHERE run_id = 1", 31,
		 "time is summed by the source of the cost");
	is_value(path, "SELECT sum(batch_size) FROM iteration WHERE run_id = 1", 12,
		 "the batch size is counted");
	is_value(path,
		 "SELECT sum(n_tokens) FROM iteration_request WHERE run_id = 1 AND NOT "
		 "decode",
		 22, "all prompt tokens are in entries");
	is_value(path, "SELECT sum(emit) FROM iteration_request WHERE run_id = 1", 10,
		 "entries emit as many tokens as the requests asked for");
	is_value(path, "SELECT count(*) FROM iteration_phase", 2 * 8 + 3 * 8,
		 "phases without time have no row");
	is_value(path, "SELECT count(*) FROM kernel_event", 2 * 8 + 3 * 8, "kernels come back");
	is_value(path, "SELECT count(*) FROM kernel_shape", 3, "equal launches share a shape");
	is_value(path,
		 "SELECT count(*) FROM v_kernel WHERE run_id = 2 AND iter_no = 3 AND "
		 "name LIKE '%_kernel' AND grid_x = 132 AND smem_dynamic = 200000",
		 3, "an iteration finds its kernels by their range");
	is_value(path, "SELECT count(*) FROM v_kernel WHERE layer IS NULL AND phase = 'head'", 16,
		 "a kernel outside of the layers has none");
	is_value(path, "SELECT min(start_ns) FROM v_kernel", 1700000000000000000.0,
		 "kernel times keep their base");
	is_value(path,
		 "SELECT sum(dur_ns) - (SELECT sum(gpu_ns) FROM iteration_phase) FROM "
		 "kernel_event",
		 0, "phases sum the kernels' times");
	is_value(path,
		 "SELECT max(chunk_start) FROM accuracy_sample WHERE chunk_tokens = 6 AND "
		 "req_no = 1 AND chunk_no = 2 AND head = 3 AND rel_l2 = 0.04",
		 14, "accuracy keeps the chunk's boundaries");
	is_value(path,
		 "SELECT count(*) FROM v_accuracy WHERE layer = 3 AND n = 16 AND rel_l2_max "
		 "= 0.04 AND cosine_min = 0.997",
		 2, "accuracy is summarised by layer");
	is_value(path, "SELECT executed FROM v_density WHERE run_id = 1", 0.55,
		 "densities are ratios of sums");
	is_value(path, "SELECT max(abs(rel_diff - 0.01 / 1.01)) < 1e-6 FROM v_clock", 1,
		 "the clock is compared with events");
	is_value(path, "SELECT share FROM v_phase_time WHERE run_id = 2 AND phase = 'select'", 0.1,
		 "a phase's share is of its run");
}

static void test_counts(void)
{
	const char *path = in_dir("counts.db");
	const struct sample_run r = { .percent = 100, .options = "{}" };
	struct store_run record = sample_record(&r);
	struct store *s = open_store(path);
	struct store_selection sel = { .row.req_no = 1 };
	const struct row_run_layer layer = { .layer = 3, .kind = "window", .n_rows = 7 };
	const struct row_layer_phase time = { 0, 3, PHASE_ATTEND, 2, 4000000 };
	const struct row_drop_sample kept = { .layer = 3, .mass = 0.75, .top_recall = 0.5 };
	int64_t id;
	int n = 0;

	record.memory = (struct store_memory){ 1, 2, 3, 4, 5, 0.5 };
#define X(name, doc) sel.count.name = ++n;
	SELECTION_COUNTS(X)
#undef X
	if (store_run_begin(s, &record, &id, NULL) || store_selection(s, &sel, NULL) ||
	    store_layer(s, &layer, NULL) || store_layer_phase(s, &time, NULL) ||
	    store_kept(s, &kept, NULL) || store_run_end(s, "done", NULL, NULL, NULL))
		bail_out("no run");
	store_close(s, NULL);
	n = 0;
#define X(name, doc) \
	is_value(path, "SELECT " #name " FROM selection_stat", ++n, #name " is stored");
	SELECTION_COUNTS(X)
#undef X
	is_value(path, "SELECT layers * ms FROM v_layer_time WHERE kind = 'window'", 4,
		 "the time of a kind of layers");
	is_value(path, "SELECT mass + top_recall FROM drop_sample WHERE layer = 3", 1.25,
		 "and what was kept");
	is_value(path,
		 "SELECT n_params + 10 * weight_bytes + 100 * block_bytes + 1000 * pool_tokens + "
		 "10000 * gpu_bytes + gpu_share FROM run",
		 54321.5, "and the memory");
}

static void test_losses(void)
{
	const char *path = in_dir("loss.db");
	struct store *s = open_store(path);
	const struct prof_loss loss[] = { { 10, 1, 2, 3, 4 }, { 30, 1, 2, 4, 4 } };
	struct store_run r = sample_record(&case_dense);
	int64_t id;

	for (int i = 0; i < 2; i++) {
		store_run_begin(s, &r, &id, NULL);
		store_run_end(s, "done", &loss[i], NULL, NULL);
	}
	store_close(s, NULL);
	is_value(path, "SELECT lost_records FROM v_run WHERE run_id = 1", 10,
		 "losses are recorded");
	is_value(path,
		 "SELECT records * 100 + unattributed * 10 + dropped FROM run WHERE run_id = "
		 "2",
		 2010, "a session's counts become those of the run");
}

/* ---- failures ---- */

/* A child writes until it is killed; it says on a pipe when it has begun. */
static void write_for_ever(const char *path, int fd)
{
	struct store *s = open_store(path);
	struct store_run r = sample_record(&case_dense);
	struct store_entry e[50] = { { 0 } };
	struct store_iteration it = { .entry = e, .n_entry = 50, .row.event_ns = -1 };
	int64_t id;

	for (uint32_t i = 0; i < 50; i++)
		e[i].req = i;
	store_run_begin(s, &r, &id, NULL);
	for (;; it.row.iter_no++) {
		if (store_iteration(s, &it, NULL))
			_exit(1);
		if (it.row.iter_no == 100 && write(fd, "x", 1) != 1)
			_exit(1);
	}
}

static void test_kill(void)
{
	const char *path = in_dir("kill.db");
	int fd[2], ended;
	char c;
	pid_t child;

	if (pipe(fd))
		bail_out("no pipe");
	child = fork();
	if (!child)
		write_for_ever(path, fd[1]);
	if (child < 0 || read(fd[0], &c, 1) != 1)
		bail_out("the child did not begin");
	for (int i = 0; i < 300 && !(value(path, "SELECT count(*) FROM iteration") > 100); i++)
		usleep(100000);
	kill(child, SIGKILL);
	waitid(P_PID, (id_t)child, NULL, WEXITED | WNOWAIT);
	is_value(path, "SELECT count(*) FROM run WHERE status = 'running'", 1,
		 "its run is readable, as running");
	store_close(open_store(path), NULL);
	is_value(path, "SELECT count(*) FROM run WHERE status = 'aborted'", 1,
		 "the next to open the database marks it aborted, a zombie as well");
	waitpid(child, &ended, 0);
	ok(WIFSIGNALED(ended), "the writing process was killed");
	ok(value(path, "SELECT count(*) FROM iteration") > 100, "its iterations were kept");
	is_value(path, "SELECT max(iter_no) + 1 - count(*) FROM iteration", 0, "without a gap");
	is_value(path,
		 "SELECT count(*) - 50 * (SELECT count(*) FROM iteration) FROM "
		 "iteration_request",
		 0, "each with all of its rows");
	close(fd[0]);
	close(fd[1]);
}

static void test_alive(void)
{
	const char *path = in_dir("alive.db");
	struct store *s = open_store(path), *t;
	struct store_run r = sample_record(&case_dense);
	int64_t id;

	store_run_begin(s, &r, &id, NULL);
	t = open_store(path);
	store_close(t, NULL);
	is_value(path, "SELECT count(*) FROM run WHERE status = 'running'", 1,
		 "a run of a living process stays running");
	store_close(s, NULL);
	change(path, "UPDATE run SET pid_start = pid_start - 1, boot_id = 'x' || boot_id");
	store_close(open_store(path), NULL);
	is_value(path, "SELECT count(*) FROM run WHERE status = 'running'", 1,
		 "a run of another host or an earlier boot is not judged");
	change(path, "UPDATE run SET boot_id = substr(boot_id, 2), pid_ns = pid_ns + 1");
	store_close(open_store(path), NULL);
	is_value(path, "SELECT count(*) FROM run WHERE status = 'running'", 1,
		 "nor is one of another PID namespace");
	change(path, "UPDATE run SET pid_ns = pid_ns - 1");
	store_close(open_store(path), NULL);
	is_value(path, "SELECT count(*) FROM run WHERE status = 'aborted'", 1,
		 "a process number that was given out again does not count as living");
}

/* A run of this process, as a child that is gone has left it. */
static void test_lost(void)
{
	const char *path = in_dir("lost.db");
	struct store *s = open_store(path);
	struct store_run r = sample_record(&case_dense);
	struct ar_err err = { 0 };
	int64_t id;

	store_run_begin(s, &r, &id, NULL);
	store_close(s, NULL);
	is_int(store_fail_runs(path, &err), AR_OK, "a run that a child has left is found");
	is_value(path, "SELECT count(*) FROM run WHERE status = 'failed'", 1, "... and has failed");
	change(path, "UPDATE run SET status = 'running', pid_start = pid_start - 1");
	is_int(store_fail_runs(path, &err), AR_OK, "those of others are left");
	is_value(path, "SELECT count(*) FROM run WHERE status = 'running'", 1, "... as they are");
	is_int(store_fail_runs(in_dir("never.db"), &err), AR_OK, "a child may leave no file");
	ok(access(in_dir("never.db"), F_OK), "... and gets none");
	file_write(in_dir("prose.db"), "no database", 11);
	is_int(store_fail_runs(in_dir("prose.db"), &err), AR_DATA, "another file is an error");
	path = in_dir("lost.db");
	change(path, "DROP TABLE run_param; DROP TABLE run");
	is_int(store_fail_runs(path, &err), AR_DB, "so is one without its tables");
}

/* The writer has slept when a message comes, and may not have woken when the caller asks. */
static void test_rest(void)
{
	const char *path = in_dir("rest.db");
	struct store *s = open_store(path);
	struct store_run r = sample_record(&case_dense);
	struct store_iteration it = { .row.event_ns = -1 };
	int64_t id, missing = 0;

	store_run_begin(s, &r, &id, NULL);
	store_rest(s);
	for (; it.row.iter_no < 100; it.row.iter_no++) {
		store_iteration(s, &it, NULL);
		store_rest(s);
		missing += it.row.iter_no + 1;
		missing -= (int64_t)value(path, "SELECT count(*) FROM iteration");
	}
	is_int(missing, 0, "a writer that rests has committed what it was sent");
	store_close(s, NULL);
}

static void test_pause(void)
{
	const char *path = in_dir("pause.db");
	struct store *s = open_store(path);
	struct store_run r = sample_record(&case_dense);
	int64_t id;

	store_run_begin(s, &r, &id, NULL);
	sample_iteration(s, &case_dense, 0, NULL);
	usleep(700000);
	is_value(path, "SELECT count(*) FROM iteration", 1, "what is written shows after a pause");
	store_close(s, NULL);
	is_value(path, "SELECT count(*) FROM iteration", 1, "and stays");
}

static void test_full_disk(void)
{
	const char *path = in_dir("full.db");
	static struct store_entry e[20000];
	struct store_iteration it = { .entry = e, .n_entry = 20000 };
	struct store *s = open_store(path);
	struct store_run r = sample_record(&case_dense);
	struct ar_err err = { 0 }, again = { 0 };
	struct rlimit old, small;
	int64_t id;
	enum ar_status st = AR_OK;

	for (uint32_t i = 0; i < 20000; i++)
		e[i].req = i;
	store_run_begin(s, &r, &id, NULL);
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &old);
	small = old;
	small.rlim_cur = 4 << 20;
	setrlimit(RLIMIT_FSIZE, &small);
	for (; it.row.iter_no < 1000 && !st; it.row.iter_no++)
		st = store_iteration(s, &it, &err);
	is_int(st, AR_IO, "a full disk is an output error");
	if (!ok(strstr(err.msg, path) && strstr(err.msg, "keeps what was committed"),
		"it names the file and says what is safe"))
		diag("%s", err.msg);
	is_int(store_run_end(s, "failed", NULL, NULL, &again), AR_IO,
	       "every later call fails as well");
	is_str(again.msg, err.msg, "with the same message");
	is_int(store_close(s, &again), AR_IO, "so does closing");
	setrlimit(RLIMIT_FSIZE, &old);
	is_value(path, "SELECT integrity_check = 'ok' FROM pragma_integrity_check", 1,
		 "the file is in order");
	is_value(path, "SELECT count(*) > 0 AND max(iter_no) + 1 = count(*) FROM iteration", 1,
		 "it holds iterations without a gap");
	is_value(path,
		 "SELECT count(*) - 20000 * (SELECT count(*) FROM iteration) FROM "
		 "iteration_request",
		 0, "each with all of its rows");
}

static void test_bad_rows(void)
{
	const char *path = in_dir("bad.db");
	struct store *s = open_store(path);
	struct store_run r = sample_record(&case_dense);
	const struct row_request_outcome o = { .outcome = "lost" };
	struct ar_err err = { 0 };
	int64_t id;

	store_run_begin(s, &r, &id, NULL);
	sample_iteration(s, &case_dense, 0, NULL);
	store_outcome(s, &o, NULL);
	is_int(store_run_end(s, "done", NULL, NULL, &err), AR_DB,
	       "a row against the schema is an error");
	ok(strstr(err.msg, "constraint"), "SQLite's reason is passed on");
	is_int(store_close(s, NULL), AR_DB, "closing repeats it");
	s = open_store(path);
	r.options = "{";
	is_int(store_run_begin(s, &r, &id, &err), AR_DB, "options that are no JSON are an error");
	store_close(s, NULL);
	is_value(path, "SELECT count(*) FROM run", 1, "and leave no run behind");
}

static enum ar_status write_captures(const char *path, const char *origin, struct ar_err *err)
{
	const struct store_capture c = { { .name = "a.arc", .sha256 = "00", .model = "m" },
					 origin };
	struct store_run r = sample_record(&case_dense);
	struct store *s;
	int64_t id;
	enum ar_status st = store_open(&s, path, err), close_st;

	if (st)
		return st;
	r.capture = (const struct store_capture[]){ c, c };
	r.n_capture = 2;
	st = store_run_begin(s, &r, &id, err);
	if (!st)
		st = store_run_end(s, "done", NULL, NULL, err);
	close_st = store_close(s, NULL);
	return st ? st : close_st;
}

static void test_captures(void)
{
	const char *path = in_dir("captures.db");
	struct ar_err err;
	bool clean = true;
	long k = 0;

	is_int(write_captures(path, "other", &err), AR_OK, "a run has captures");
	is_int(write_captures(path, "stolen", &err), AR_DB, "... of the origins that there are");
	is_value(path, "SELECT count(*) FROM run", 1, "... or it leaves no run behind");
	for (;; k++) {
		enum ar_status st;

		fault_arm(k);
		st = write_captures(path, "same", &err);
		if (!fault_disarm())
			break;
		clean &= st == AR_NOMEM;
	}
	ok(clean && k > 5, "each of %ld allocations fails cleanly", k);
	is_value(path, "SELECT count(*) FROM capture", 1, "a capture is one row");
	is_value(path,
		 "SELECT count(*) = 2 * (SELECT count(*) FROM run) FROM run_capture "
		 "JOIN capture USING(capture_id) WHERE sha256 = '00' AND capture_no IN (0, 1)",
		 1, "... in each of its places in each run");
}

static enum ar_status write_all(const char *path, struct ar_err *err)
{
	struct store *s;
	int64_t id;
	enum ar_status st = store_open(&s, path, err), close_st;

	if (st)
		return st;
	st = sample_write(s, &case_sparse, &id, err);
	close_st = store_close(s, NULL);
	return st ? st : close_st;
}

static void test_faults(void)
{
	const char *path = in_dir("fault.db");
	struct ar_err err;
	bool clean = true;
	long k = 0;

	store_close(open_store(path), NULL);
	for (;; k++) {
		enum ar_status st;

		fault_arm(k);
		st = write_all(path, &err);
		if (!fault_disarm())
			break;
		if (st != AR_NOMEM) {
			diag("allocation %ld: status %d", k, st);
			clean = false;
		}
	}
	ok(clean && k > 5, "each of %ld allocations fails cleanly", k);
	is_value(path, "SELECT count(*) FROM run WHERE status = 'done'", 1,
		 "only the run without a fault is done");
	is_value(path, "SELECT integrity_check = 'ok' FROM pragma_integrity_check", 1,
		 "the file is in order after all of them");
}

int main(void)
{
	plan(0);
	case_begin();
	test_file();
	test_refusals();
	test_rows();
	test_counts();
	test_losses();
	test_kill();
	test_alive();
	test_lost();
	test_rest();
	test_pause();
	test_full_disk();
	test_bad_rows();
	test_captures();
	test_faults();
	case_end();
	return done_testing();
}
