/* SPDX-License-Identifier: Apache-2.0 */
/* The command that --resume reads from a database: runs that it cannot resume, damaged rows,
 * faults. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/run/options.h"
#include "tests/alloc_fault.h"
#include "tests/query.h"
#include "tests/sample_db.h"
#include "tests/tap.h"

static const char path[] = "a.db";

/* Of two methods the first is done.  The rest of the row is made of SQL. */
static void make(const char *sql)
{
	static const struct sample_run sample = {
		.method = "dense",
		.dense = true,
		.percent = 100,
		.options = "{\"method\": \"dense,compact-fp\", \"policy\": \"sarathi\", "
			   "\"watermark\": 0, \"trace\": \"s4.csv\", \"capture\": [\"a\", \"b\"], "
			   "\"think-time\": 0, \"enable-prefix-caching\": false}",
	};
	struct ar_err err = { 0 };
	struct store_run r = sample_record(&sample);
	struct store *s;
	int64_t id;

	unlink(path);
	r.backend = "cpu";
	r.num_blocks = 40;
	r.command_utc_ns = 7;
	if (store_open(&s, path, &err) || store_run_begin(s, &r, &id, &err) ||
	    store_run_end(s, "done", NULL, NULL, &err) || store_close(s, &err))
		bail_out("%s", err.msg);
	change(path, "UPDATE run SET pid_start = pid_start - 1");
	if (sql)
		change(path, sql);
}

static enum ar_status parse(struct run_options *o, struct ar_err *err)
{
	char resume[] = "--resume", where[] = "a.db";
	char *argv[] = { resume, where, NULL };

	return run_options_parse(o, NULL, 2, argv, err);
}

static void refused(const char *sql, enum ar_status want, const char *message, const char *what)
{
	struct ar_err err = { 0 };
	struct run_options o;

	make(sql);
	is_int(parse(&o, &err), want, "%s", what);
	is_str(err.msg, message, "... in these words");
	run_options_release(&o);
}

static void test_options(void)
{
	struct ar_err err = { 0 };
	struct run_options o;

	make(NULL);
	if (!is_int(parse(&o, &err), AR_OK, "a command with a method left is resumed"))
		diag("%s", err.msg);
	ok(!strcmp(o.trace, "s4.csv") && !strcmp(o.backend, "cpu") && !strcmp(o.db, "a.db") &&
		   o.captures.n == 2 && !strcmp(o.captures.v[1], "b"),
	   "... with its options");
	ok(o.limits.watermark == 0, "... also one that is 0 and not the policy's own");
	ok(o.resumed->done[0] && !o.resumed->done[1] && o.resumed->n_method == 2 &&
		   o.resumed->num_blocks == 40,
	   "... after the method that is done, with its pool");
	run_options_release(&o);

	make("UPDATE run SET repeat_no = 2, method_no = 1, "
	     "options = json_set(options, '$.repeats', 3)");
	ok(!parse(&o, &err) && o.repeats == 3 && o.resumed->n_run == 6 && !o.resumed->done[1] &&
		   !o.resumed->done[4] && o.resumed->done[5],
	   "a repeat of a method that is done is told from the others");
	run_options_release(&o);

	make("UPDATE run SET options = json_set(options, '$.watermark', 0.01)");
	ok(!parse(&o, &err) && o.limits.watermark == 0.01 && !opt_given(o.group, "watermark"),
	   "an option with the value that it has anyway does not count as given");
	run_options_release(&o);
}

static void test_refusals(void)
{
	char text[200];

	snprintf(text, sizeof text,
		 "a.db: the command of run 1 is still running, in process %d; wait for its end, or "
		 "end it",
		 getpid());
	refused("UPDATE run SET pid_start = pid_start + 1", AR_USAGE, text,
		"between two methods a command still runs");
	refused("UPDATE run SET status = 'running', boot_id = 'x'", AR_USAGE,
		"a.db: run 1 is 'running' on another host, or was before a restart; if it has "
		"ended, set its status to 'aborted' with sqlite3(1)",
		"a run of another host is not judged");
	refused("UPDATE run SET options = json_set(options, '$.colour', 1)", AR_DATA,
		"a.db: run 1: option 'colour' is not known to this program",
		"an option that this program has not");
	refused("UPDATE run SET options = json_set(options, '$.seed', json('[1]'))", AR_DATA,
		"a.db: run 1: option 'seed': not a value of an option", "a list for a number");
	refused("UPDATE run SET options = json_set(options, '$.capture', json('[{}]'))", AR_DATA,
		"a.db: run 1: option 'capture': not a value of an option", "an object in a list");
	refused("UPDATE run SET options = json_set(options, '$.seed', -1)", AR_USAGE,
		"a.db: run 1: seed '-1': want an integer from 0 to 9e+15", "a value out of range");
	refused("UPDATE run SET options = json_remove(options, '$.method')", AR_DATA,
		"a.db: run 1: its options have no methods", "options without methods");
	refused("UPDATE run SET options = '[]'", AR_DATA,
		"a.db: run 1: its options have no methods", "options that are a list");
	refused("UPDATE run SET cmdline = 'attnreplay eval --tasks t'", AR_USAGE,
		"a.db: run 1: it is of 'attnreplay eval', which cannot be resumed; run that "
		"command again",
		"a command that gives answers");
	refused("UPDATE run SET method_no = 2", AR_DATA, "a.db: run 1: the command has no method 2",
		"a method that the list has not");
	refused("UPDATE run SET repeat_no = 1", AR_DATA, "a.db: run 1: the command has no repeat 1",
		"a repeat that the command has not");
	refused("UPDATE run SET repeat_no = -1", AR_DATA,
		"a.db: run 1: the command has no repeat -1", "... or that there cannot be");
	refused("UPDATE run SET method_no = NULL, num_blocks = 1", AR_DATA,
		"a.db: run 1: an invalid KV pool", "a pool of the reserved block alone");
	refused("PRAGMA ignore_check_constraints = 1; UPDATE run SET options = '{'", AR_DATA,
		"a.db: run 1: its options are malformed", "options that are no JSON");
	refused("PRAGMA writable_schema = 1; UPDATE sqlite_schema SET sql = "
		"replace(sql, 'backend TEXT NOT NULL', 'backend TEXT'); "
		"PRAGMA writable_schema = RESET; UPDATE run SET backend = NULL",
		AR_DATA, "a.db: run 1: a value is missing", "a run without a backend");
	refused("DROP TABLE trace", AR_DATA, "a.db: no such table: trace",
		"a database that lacks a table");
	refused("PRAGMA writable_schema = 1; DELETE FROM sqlite_schema WHERE type = 'view'; "
		"PRAGMA writable_schema = RESET; ALTER TABLE run DROP COLUMN command_utc_ns",
		AR_DATA, "a.db: no such column: command_utc_ns", "... or a column");
}

static void test_faults(void)
{
	struct ar_err err = { 0 };
	struct run_options o;
	enum ar_status st;
	bool fired;
	int bad = 0;
	long k = 0;

	make(NULL);
	do {
		err = (struct ar_err){ 0 };
		fault_arm(k++);
		st = parse(&o, &err);
		fired = fault_disarm();
		bad += fired && st != AR_NOMEM;
		run_options_release(&o);
	} while (fired);
	ok(!bad && !st && k > 50, "each of %ld allocations can fail", k - 1);
}

int main(void)
{
	char dir[] = "/tmp/t-resumed-XXXXXX", command[64];

	plan(0);
	if (!mkdtemp(dir) || chdir(dir))
		bail_out("cannot make a folder");
	test_options();
	test_refusals();
	test_faults();
	snprintf(command, sizeof command, "rm -rf '%s'", dir);
	if (system(command))
		bail_out("%s", command);
	return done_testing();
}
