/* SPDX-License-Identifier: Apache-2.0 */
/* attnreplay diff: show the changes from one run to another, for people and for CI. */
#include "config.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/log.h"
#include "src/cmd.h"
#include "src/diff/diff.h"
#include "src/report/source.h"

struct diff_args {
	struct diff x;
	int format, unknown;
	struct opt_list fail_if;
	struct diff_limit *limit; /* n_limit, of fail_if */
	size_t n_limit, cap_limit;
};

enum { UNKNOWN_FAIL, UNKNOWN_PASS };
static const char *const unknown_names[] = { "fail", "pass", NULL };

#define OFF(member) offsetof(struct diff_args, member)
/* clang-format off */
static const struct opt diff_opts[] = {
	{ .name = "fail-if", .type = OPT_LIST, .off = OFF(fail_if), .arg = "LIST",
	  .help = "exit with status 1 if a percentile surely changed by more or less, such as "
		  "'ttft.p99>5%,itl.p50>2%'; repeat the option for more" },
	{ .name = "unknown", .type = OPT_ENUM, .off = OFF(unknown), .arg = "NAME", .def = "fail",
	  .choice = unknown_names,
	  .help = "what a limit within the interval of the change does: exit with status 5, or "
		  "pass with a warning" },
	{ .name = "format", .type = OPT_ENUM, .off = OFF(format), .arg = "NAME", .def = "table",
	  .choice = writer_names, .help = "output format" },
	{ .name = NULL }
};
/* clang-format on */

static enum ar_status add_limit(struct diff_args *a, const char *text, size_t n, struct ar_err *err)
{
	if (!GROW(a->limit, a->cap_limit, a->n_limit + 1))
		return ar_nomem(err);
	return diff_limit_parse(&a->limit[a->n_limit++], text, n, err);
}

static enum ar_status parse_limits(struct diff_args *a, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < a->fail_if.n && !st; i++)
		for (const char *p = a->fail_if.v[i]; p && !st;) {
			const size_t n = strcspn(p, ",");

			st = add_limit(a, p, n, err);
			p = p[n] ? p + n + 1 : NULL;
		}
	return st;
}

/* Each limit that fails has its line; the last one is the error of the command.  A crossed limit
 * decides its status. */
static enum ar_status judge_all(const struct diff_args *a, struct ar_err *err)
{
	struct ar_err one;
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < a->n_limit; i++) {
		enum ar_status found = diff_judge(&a->x, &a->limit[i], &one);

		if (found == AR_UNKNOWN && a->unknown == UNKNOWN_PASS)
			log_warn("%s", one.msg);
		else if (found) {
			if (st)
				log_line(LOG_ERROR, "%s", err->msg);
			st = st == AR_LIMIT ? st : found;
			*err = one;
		}
	}
	return st;
}

static enum ar_status diff(const struct store_source source[2], struct diff_args *a,
			   struct ar_err *err)
{
	struct document d = { .writer = writers[a->format], .f = stdout };
	enum ar_status st = store_open_runs(&a->x.db, source, 2, true, err);

	if (st)
		return st;
	writer_heed_interrupt(a->x.db);
	st = diff_compute(&a->x, err);
	if (!st)
		st = diff_write(&a->x, &d, err);
	if (!st)
		st = judge_all(a, err);
	sqlite3_close(a->x.db);
	return st;
}

static enum ar_status cmd_diff_run(int argc, char **argv, struct ar_err *err)
{
	struct diff_args a = { 0 };
	struct opt_group g[] = { { .opts = diff_opts, .base = &a }, { .opts = NULL } };
	struct store_source source[2];
	enum ar_status st = opt_init(g, err);

	if (!st)
		st = opt_parse(g, &argc, argv, err);
	if (!st && argc != 2)
		st = ar_fail(err, AR_USAGE,
			     "want two runs, as DB:RUN; try 'attnreplay diff --help'");
	if (!st)
		st = parse_limits(&a, err);
	if (!st) {
		source_parse(source, argv, 2);
		st = diff(source, &a, err);
	}
	free(a.limit);
	opt_release(g);
	return st;
}

static void cmd_diff_options(void (*show)(const struct opt_group *, FILE *), FILE *f)
{
	struct opt_group g[] = { { .title = "Options", .opts = diff_opts }, { .opts = NULL } };

	show(g, f);
}

const struct cmd cmd_diff = {
	.name = "diff",
	.usage = "[OPTION]... DB[:RUN] DB[:RUN]",
	.title = "compare two runs, with intervals",
	.run = cmd_diff_run,
	.options = cmd_diff_options,
};
