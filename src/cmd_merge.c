/* SPDX-License-Identifier: Apache-2.0 */
/* attnreplay merge: put the runs of several databases into one. */
#include "config.h"

#include <stddef.h>
#include <stdio.h>

#include "base/binfile.h"
#include "base/text.h"
#include "profiler/store/store_disk.h"
#include "profiler/store/store_file.h"
#include "profiler/store/store_merge.h"
#include "src/cmd.h"

struct merge_args {
	char *output;
	bool no_key, failed, verify;
};

#define OFF(member) offsetof(struct merge_args, member)
/* clang-format off */
static const struct opt merge_opts[] = {
	{ .name = "output", .type = OPT_STR, .off = OFF(output), .arg = "FILE", .letter = 'o',
	  .help = "database to add the runs to, in place of the first operand" },
	{ .name = "no-key", .type = OPT_FLAG, .off = OFF(no_key),
	  .help = "also add runs without a key, again at each call; older versions stored none" },
	{ .name = "failed", .type = OPT_FLAG, .off = OFF(failed),
	  .help = "also add runs that did not end; their status says so" },
	{ .name = "verify", .type = OPT_FLAG, .off = OFF(verify),
	  .help = "compare the requests of each run that is there already" },
	{ .name = NULL }
};
/* clang-format on */

static void put_count(const char *path, const struct merge_count *n)
{
	text_put(path, stdout);
	printf(": %lld new, %lld there already, %lld not finished", (long long)n->added,
	       (long long)n->there, (long long)n->unfinished);
	if (n->keyless)
		printf(", %lld without a key: add them with --no-key", (long long)n->keyless);
	putchar('\n');
	fflush(stdout);
}

static int poll_interrupt(void *unused)
{
	(void)unused;
	return ar_interrupted();
}

static enum ar_status check_log(const char *path, struct ar_err *err)
{
	if (!store_file_lacks_log(path))
		return AR_OK;
	return ar_fail(err, AR_DATA,
		       "%s: its log %s-wal is missing, as in a copy of a file that a run still "
		       "writes; copy both, or wait for the end of the run",
		       path, path);
}

/* A call with an input that cannot be read makes no output. */
static enum ar_status check_inputs(char **in, int n, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (int i = 0; i < n && !st; i++) {
		sqlite3 *db;
		int64_t version;

		st = check_log(in[i], err);
		if (st)
			return st;
		st = store_file_read(&db, in[i], &version, err);
		sqlite3_close(db);
	}
	return st;
}

static enum ar_status merge(const char *out, char **in, int n, const struct merge_args *a,
			    struct ar_err *err)
{
	const struct merge_rule rule = {
		.no_key = a->no_key, .failed = a->failed, .verify = a->verify, .kernels = true
	};
	struct merge_count count;
	struct ar_err close_err;
	sqlite3 *db;
	enum ar_status st = store_file_is_blank(out) ? AR_OK : check_log(out, err), close_st;

	if (!st)
		st = check_inputs(in, n, err);
	if (!st)
		st = store_file_open(&db, out, err);
	if (st)
		return st;
	store_disk_warn(out);
	sqlite3_progress_handler(db, 1000, poll_interrupt, NULL);
	for (int i = 0; i < n && !st; i++) {
		st = store_merge(db, out, in[i], &rule, &count, err);
		if (!st)
			put_count(in[i], &count);
	}
	sqlite3_progress_handler(db, 0, NULL, NULL);
	close_st = store_file_close(db, out, st ? &close_err : err);
	return st ? st : close_st;
}

static enum ar_status check_files(const char *out, char **in, int n, struct ar_err *err)
{
	bool same = false;
	enum ar_status st = AR_OK;

	if (!out || n < 1)
		return ar_fail(err, AR_USAGE,
			       "want a database to write and one or more to read; try "
			       "'attnreplay merge --help'");
	for (int i = 0; i < n && !st && !same; i++)
		st = outfile_same(out, in[i], &same, err);
	if (!st && same)
		st = ar_fail(err, AR_USAGE, "%s: given as output and as input; name another file",
			     out);
	return st;
}

static enum ar_status cmd_merge_run(int argc, char **argv, struct ar_err *err)
{
	struct merge_args a = { 0 };
	struct opt_group g[] = { { .opts = merge_opts, .base = &a }, { .opts = NULL } };
	const char *out;
	enum ar_status st = opt_init(g, err);

	if (!st)
		st = opt_parse(g, &argc, argv, err);
	out = a.output;
	if (!st && !out && argc) {
		out = *argv++;
		argc--;
	}
	if (!st)
		st = check_files(out, argv, argc, err);
	if (!st)
		st = merge(out, argv, argc, &a, err);
	opt_release(g);
	return st;
}

static void cmd_merge_options(void (*show)(const struct opt_group *, FILE *), FILE *f)
{
	struct opt_group g[] = { { .title = "Options", .opts = merge_opts }, { .opts = NULL } };

	show(g, f);
}

const struct cmd cmd_merge = {
	.name = "merge",
	.usage = "[OPTION]... -o OUT IN...\n[OPTION]... OUT IN...",
	.title = "put the runs of several databases into one",
	.run = cmd_merge_run,
	.options = cmd_merge_options,
};
