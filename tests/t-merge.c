/* SPDX-License-Identifier: Apache-2.0 */
/* Runs of several files in one: copies, conflicts, and the remains of a merge that ends in the
 * middle. */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "profiler/store/store_disk.h"
#include "profiler/store/store_file.h"
#include "profiler/store/store_merge.h"
#include "tests/query.h"
#include "tests/sample_db.h"
#include "tests/tap.h"

#define KEYS "UPDATE run SET run_key = "

static struct ar_err err;
static struct merge_count count;

static void shell(const char *command)
{
	if (system(command))
		bail_out("%s", command);
}

static void make(const char *path, const char *sql)
{
	if (sample_database(path, &err))
		bail_out("%s", err.msg);
	change(path, sql);
}

static enum ar_status merge_rule(const char *out, const char *in, struct merge_rule rule)
{
	struct ar_err ignored;
	sqlite3 *db;
	enum ar_status st = store_file_open(&db, out, &err);

	if (st)
		return st;
	err = (struct ar_err){ 0 };
	st = store_merge(db, out, in, &rule, &count, &err);
	store_file_close(db, out, &ignored);
	return st;
}

static enum ar_status merge(const char *out, const char *in)
{
	return merge_rule(out, in, (struct merge_rule){ .kernels = true });
}

static int64_t ask_file(const char *path, const char *sql)
{
	sqlite3 *db;
	int64_t x;

	if (store_open_read(&db, path, &err))
		bail_out("%s", err.msg);
	x = ask(db, sql);
	sqlite3_close(db);
	return x;
}

static void is_count(struct merge_count want, const char *what)
{
	ok(!memcmp(&count, &want, sizeof want), "%s", what);
	diag("%d new, %d there, %d unfinished, %d without a key", (int)count.added,
	     (int)count.there, (int)count.unfinished, (int)count.keyless);
}

/* ---- copies of a file that is written ---- */

/* Rows are in the log, but tables in the file: the copy is told from one that has none. */
static void test_live(void)
{
	struct ar_err ignored;
	sqlite3 *db;

	if (store_disk_network(".")) {
		skip(4, "no log on a network file system");
		return;
	}
	if (store_file_open(&db, "live.db", &err))
		bail_out("%s", err.msg);
	shell("cp live.db copy.db && head -c 16384 live.db >blank.db && "
	      "printf '\\0\\0\\0\\1' | dd of=blank.db bs=1 seek=28 conv=notrunc 2>dd.log");
	ok(store_file_lacks_log("copy.db") && !store_file_is_blank("copy.db"),
	   "a copy of a new file that is open lacks its log, and has tables");
	ok(store_file_is_blank("blank.db"), "... which a file of a page has not");
	ok(!store_file_lacks_log("live.db"), "... and the file itself has its log");
	store_file_close(db, "live.db", &ignored);
	ok(!store_file_lacks_log("live.db"), "... or needs none when it is closed");
}

/* ---- equal contents ---- */

static void add_columns(sqlite3_str *s, enum table_id t)
{
	for (int i = 0; i < store_tables[t].n_col; i++) {
		const struct column *c = &store_tables[t].col[i];

		if (column_refers(t, c) == TABLE_COUNT && strcmp(c->name, "run_id") &&
		    strcmp(c->name, "id"))
			sqlite3_str_appendf(s, ", x.%s", c->name);
	}
}

/* Rows of table t of the runs of one file that the other file has not.  Runs are told by key. */
static int64_t lacking(sqlite3 *db, enum table_id t, const char *of, const char *in)
{
	sqlite3_str *s = sqlite3_str_new(db);
	char *sql;
	int64_t n;

	sqlite3_str_appendall(s, "SELECT count(*) FROM (");
	for (int i = 0; i < 2; i++) {
		const char *schema = i ? in : of;

		sqlite3_str_appendf(s, "%sSELECT r.run_key", i ? " EXCEPT " : "");
		add_columns(s, t);
		sqlite3_str_appendf(s, " FROM %s.%s x JOIN %s.run r ON r.run_id = x.run_id", schema,
				    store_tables[t].name, schema);
	}
	sqlite3_str_appendall(s, ")");
	sql = sqlite3_str_finish(s);
	n = ask(db, sql);
	sqlite3_free(sql);
	return n;
}

static bool equal(const char *a, const char *b)
{
	char attach[64];
	sqlite3 *db;
	int64_t n = 0;

	snprintf(attach, sizeof attach, "ATTACH '%s' AS b", b);
	if (sqlite3_open(a, &db) || sqlite3_exec(db, attach, NULL, NULL, NULL))
		bail_out("%s", sqlite3_errmsg(db));
	for (int t = 0; t < TABLE_COUNT; t++) {
		bool of_run = false;

		for (int i = 0; i < store_tables[t].n_col; i++)
			of_run = of_run || !strcmp(store_tables[t].col[i].name, "run_id");
		if (of_run)
			n += lacking(db, t, "main", "b") + lacking(db, t, "b", "main");
	}
	n += !ask(db, "SELECT integrity_check = 'ok' FROM pragma_integrity_check");
	n += ask(db, "SELECT count(*) FROM pragma_foreign_key_check");
	sqlite3_close(db);
	return !n;
}

/* Sums over the rows that numbers of other rows refer to. */
#define LEADS \
	"SELECT total(length(trace) + length(model) + length(method) + length(gpu)) * 1000 " \
	"+ count(*) FROM v_run"
#define KERNELS "SELECT total((dur_ns + length(name)) * (iter_no + 1)) + count(*) FROM v_kernel"
#define BASES \
	"SELECT count(*) FROM run r JOIN run b ON b.run_id = r.baseline_run_id " \
	"WHERE b.run_key = 'dense'"

static bool leads_alike(const char *a, const char *b)
{
	return ask_file(a, LEADS) == ask_file(b, LEADS) &&
	       ask_file(a, KERNELS) == ask_file(b, KERNELS) && ask_file(a, KERNELS) > 1000 &&
	       ask_file(a, BASES) == ask_file(b, BASES) && ask_file(a, BASES) > 0;
}

#define SPLIT \
	"DELETE FROM iteration WHERE run_id = 3; DELETE FROM request_outcome WHERE run_id = 3;" \
	"DELETE FROM request_span WHERE run_id = 3; DELETE FROM run_param WHERE run_id = 3;" \
	"DELETE FROM run WHERE run_id = 3;" KEYS \
	"CASE run_id WHEN 1 THEN 'dense' WHEN 2 THEN 'sparse' END"

static void test_copy(void)
{
	make("both.db", SPLIT);
	ok(!merge("out.db", "both.db"), "a file is merged into a new one: %s", err.msg);
	is_count((struct merge_count){ .added = 2 }, "... with its two runs");
	ok(equal("out.db", "both.db") && leads_alike("out.db", "both.db"),
	   "... and all their rows");
	shell("cp out.db before.db");
	ok(!merge("out.db", "both.db"), "the same again");
	is_count((struct merge_count){ .there = 2 }, "... adds nothing");
	ok(equal("out.db", "before.db"), "... and changes nothing");
	is_int(ask_file("out.db", "SELECT count(*) FROM method") +
		       ask_file("out.db", "SELECT count(*) FROM kernel_shape"),
	       6, "... not even rows that runs share");
}

/* One run in each file. */
static void test_parts(void)
{
	shell("cp both.db a.db && cp both.db b.db");
	change("a.db", "UPDATE run SET run_key = NULL WHERE run_id = 2");
	change("b.db", "UPDATE run SET run_key = NULL WHERE run_id = 1");
	ok(!merge("ab.db", "a.db") && count.added == 1 && count.keyless == 1,
	   "a run without a key stays behind");
	ok(!merge("ab.db", "b.db") && count.added == 1, "the other run comes from another file");
	ok(equal("ab.db", "both.db") && leads_alike("ab.db", "both.db"),
	   "both together are as one file, with the baseline");
	ok(!merge("ba.db", "b.db") && !merge("ba.db", "a.db") && equal("ba.db", "ab.db") &&
		   leads_alike("ba.db", "ab.db"),
	   "... in any order");
	ok(!merge_rule("ba.db", "a.db", (struct merge_rule){ .no_key = true, .kernels = true }) &&
		   count.added == 1 && count.there == 1,
	   "with no_key the run without a key is added");
	ok(!merge_rule("ba.db", "a.db", (struct merge_rule){ .no_key = true, .kernels = true }) &&
		   count.added == 1,
	   "... each time");
	ok(!merge_rule("one.db", "both.db", (struct merge_rule){ .run = 2 }) && count.added == 1,
	   "one run may be asked for");
	is_int(ask_file("one.db", "SELECT count(*) FROM iteration") * 1000 +
		       ask_file("one.db", "SELECT count(*) FROM iteration WHERE kernel_lo IS NULL"),
	       8008, "... without kernels");
	ok(merge_rule("one.db", "both.db", (struct merge_rule){ .run = 9 }) == AR_USAGE &&
		   strstr(err.msg, "both.db: no run 9;"),
	   "... and must be there: %s", err.msg);
}

static void test_conflicts(void)
{
	const struct merge_rule failed = { .failed = true, .kernels = true };
	const struct merge_rule verify = { .verify = true, .kernels = true };

	make("three.db", KEYS "'k' || run_id");
	ok(!merge("f.db", "three.db"), "a file with a failed run is merged");
	is_count((struct merge_count){ .added = 2, .unfinished = 1 }, "... without that run");
	ok(!merge_rule("f.db", "three.db", failed) && count.added == 1 && count.there == 2,
	   "... unless it is wanted");
	ok(!merge_rule("f.db", "three.db", failed) && !count.added, "... once");
	is_int(ask_file("f.db", "SELECT count(*) FROM run WHERE status = 'failed'"), 1,
	       "... and is marked");
	make("done.db", KEYS "'k3' WHERE run_id = 1");
	ok(!merge("f.db", "done.db") && count.added == 1, "a failed run does not keep its key");
	make("run.db", KEYS "'k9'; UPDATE run SET status = 'running' WHERE run_id = 3;"
			    "UPDATE run SET run_key = 'r' WHERE run_id = 3");
	ok(!merge_rule("f.db", "run.db", failed) && count.added == 2 && count.there == 1,
	   "of two runs with one key in a file one is taken");
	is_int(ask_file("f.db", "SELECT count(*) FROM run WHERE status = 'aborted'"), 1,
	       "... and one that was under way is marked");

	ok(!merge_rule("f.db", "three.db", verify), "equal runs stand the comparison: %s", err.msg);
	change("three.db", "UPDATE request_outcome SET finish_ns = finish_ns + 1 WHERE run_id = 2");
	ok(merge_rule("f.db", "three.db", verify) == AR_DATA &&
		   strstr(err.msg, "three.db: the requests of run 2 differ"),
	   "others do not: %s", err.msg);
	change("three.db", "DELETE FROM request_outcome WHERE run_id = 1 AND req_no = 1");
	ok(merge_rule("f.db", "three.db", verify) == AR_DATA && strstr(err.msg, "of run 1 differ"),
	   "... nor one that lacks requests: %s", err.msg);

	make("gpu.db", KEYS "'g' || run_id; UPDATE gpu SET mem_bytes = 1");
	shell("cp f.db before.db");
	ok(merge("f.db", "gpu.db") == AR_DATA &&
		   strstr(err.msg, "gpu.db: row 1 of table gpu contradicts"),
	   "a device of one UUID has one memory: %s", err.msg);
	ok(equal("f.db", "before.db"), "... and nothing is copied");
	make("trace.db", KEYS "'t' || run_id; UPDATE trace SET sha256 = '11'");
	ok(!merge("f.db", "trace.db"), "traces of one name may differ");
	is_int(ask_file("f.db", "SELECT count(*) FROM trace"), 2, "... and are two");
	make("foreign.db", KEYS "'u' || run_id; CREATE TABLE notes(x)");
	ok(merge("f.db", "foreign.db") == AR_DATA && strstr(err.msg, "not those of attnreplay"),
	   "a table of the user's is not lost silently: %s", err.msg);
	ok(merge("f.db", "none.db") == AR_DATA && strstr(err.msg, "none.db: No such file"),
	   "a file must be there: %s", err.msg);
	make("newer.db", "PRAGMA user_version = 99");
	ok(merge("f.db", "newer.db") == AR_DATA && strstr(err.msg, "schema version 99"),
	   "a newer file is refused: %s", err.msg);
	make("cut.db", KEYS "'c' || run_id; DROP TABLE token_gap");
	ok(merge("f.db", "cut.db") == AR_DB &&
		   strstr(err.msg, "merging cut.db: f.db: no such table"),
	   "so is one without a table: %s", err.msg);
	shell("cp three.db 'odd #%?.db'");
	ok(!merge("odd.db", "odd #%?.db") && count.added == 2, "any name is a name: %s", err.msg);
}

static void test_older(void)
{
	shell("gzip -dc \"$srcdir/tests/data/version-5.db.gz\" >old.db && cp old.db old.copy");
	ok(!merge("o.db", "old.db"), "a file of an older version is merged: %s", err.msg);
	is_count((struct merge_count){ .keyless = 3 }, "... whose runs have no keys");
	ok(!merge_rule("o.db", "old.db", (struct merge_rule){ .no_key = true, .kernels = true }),
	   "... and may be added: %s", err.msg);
	is_count((struct merge_count){ .added = 3 }, "... all of them");
	shell("cmp old.db old.copy");
	setenv("TMPDIR", "/none", 1);
	ok(merge("o.db", "old.db") == AR_IO && strstr(err.msg, "/none/attnreplay-"),
	   "it needs a folder for a copy: %s", err.msg);
	unsetenv("TMPDIR");
}

/* ---- ends in the middle ---- */

static int steps_left;
static bool kills;

static int count_step(void *unused)
{
	(void)unused;
	if (--steps_left)
		return 0;
	if (kills)
		raise(SIGKILL);
	return 1;
}

static int watch(sqlite3 *db, char **message, const void *unused)
{
	(void)message, (void)unused;
	sqlite3_progress_handler(db, 1, count_step, NULL);
	return SQLITE_OK;
}

static void broken_merges(int step)
{
	steps_left = step;
	sqlite3_auto_extension((void (*)(void))watch);
	if (!merge("out.db", "a.db"))
		merge("out.db", "b.db");
	sqlite3_cancel_auto_extension((void (*)(void))watch);
}

static bool killed_merges(int step)
{
	int ended;
	pid_t child = fork();

	if (!child) {
		broken_merges(step);
		_exit(0);
	}
	if (child < 0 || waitpid(child, &ended, 0) != child)
		bail_out("no child");
	return WIFSIGNALED(ended);
}

/* Each input is there in whole or not at all, and calling again repairs. */
static void test_ends(bool kill_it, const char *what)
{
	int n[3] = { 0 }, bad = 0, step = 1;
	bool ended = true;

	kills = kill_it;
	for (; ended; step += 2111 * fault_stride(3)) {
		int64_t runs;

		shell("rm -f out.db*");
		if (kill_it)
			ended = killed_merges(step);
		else
			broken_merges(step), ended = steps_left <= 0;
		if (!merge("out.db", "a.db"))
			runs = 1 - count.added;
		else
			runs = 3;
		if (!merge("out.db", "b.db"))
			runs += 1 - count.added;
		if (runs < 0 || runs > 2 || !equal("out.db", "both.db"))
			bad++;
		else
			n[runs]++;
	}
	ok(!bad && n[0] > 2 && n[1] > 2 && n[2] > 0,
	   "%s: neither input is there (%d times), the first (%d) or both (%d); the next call "
	   "completes them",
	   what, n[0], n[1], n[2]);
}

/* SQLite's own allocations fail on demand. */
static sqlite3_mem_methods memory;
static long left = -1; /* allocations that still succeed; negative: all */

static void *faulty_malloc(int n)
{
	return left >= 0 && !left-- ? NULL : memory.xMalloc(n);
}

static void *faulty_realloc(void *p, int n)
{
	return left >= 0 && !left-- ? NULL : memory.xRealloc(p, n);
}

static void make_memory_faulty(void)
{
	sqlite3_mem_methods faulty;

	if (sqlite3_config(SQLITE_CONFIG_GETMALLOC, &memory))
		bail_out("SQLite does not tell how it allocates");
	faulty = memory;
	faulty.xMalloc = faulty_malloc;
	faulty.xRealloc = faulty_realloc;
	if (sqlite3_config(SQLITE_CONFIG_MALLOC, &faulty))
		bail_out("SQLite does not take other allocations");
}

static void test_memory(void)
{
	bool clean = true, done;
	long k = 0;

	for (;; k += 1 + k / 5) {
		enum ar_status st;
		sqlite3 *db;

		shell("rm -f out.db*");
		if (store_file_open(&db, "out.db", &err))
			bail_out("%s", err.msg);
		left = k;
		st = store_merge(db, "out.db", "a.db",
				 &(struct merge_rule){ .no_key = true, .kernels = true }, &count,
				 &err);
		done = left >= 0;
		left = -1;
		store_file_close(db, "out.db", NULL);
		if (done)
			break;
		if (st && st != AR_NOMEM) {
			diag("allocation %ld: %s", k, err.msg);
			clean = false;
		}
	}
	ok(clean && k > 100, "failed allocations, up to number %ld, end a merge cleanly", k);
}

int main(void)
{
	char dir[] = "/tmp/t-merge-XXXXXX", command[64];

	plan(0);
	if (!mkdtemp(dir) || chdir(dir))
		bail_out("cannot make a temporary folder");
	make_memory_faulty();
	test_live();
	test_copy();
	test_parts();
	test_conflicts();
	test_older();
	test_ends(false, "interrupted");
	test_ends(true, "killed");
	test_memory();
	snprintf(command, sizeof command, "rm -rf '%s'", dir);
	shell(command);
	return done_testing();
}
