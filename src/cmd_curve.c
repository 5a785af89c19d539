/* SPDX-License-Identifier: Apache-2.0 */
/* attnreplay curve: draw the error and the recall of methods over their density. */
#include "config.h"

#include <sqlite3.h>
#include <stddef.h>

#include "base/binfile.h"
#include "src/cmd.h"
#include "src/select/curve.h"

struct curve_args {
	char *svg, *points;
};

/* clang-format off */
static const struct opt curve_opts[] = {
	{ .name = "svg", .type = OPT_STR, .off = offsetof(struct curve_args, svg), .arg = "FILE",
	  .help = "draw the curves to FILE" },
	{ .name = "points", .type = OPT_STR, .off = offsetof(struct curve_args, points),
	  .arg = "FILE", .help = "write the points of the curves to FILE, as CSV" },
	{ .name = NULL }
};
/* clang-format on */

typedef enum ar_status put_fn(sqlite3 *db, FILE *f, struct ar_err *err);

static enum ar_status write_file(sqlite3 *db, put_fn *put, const char *path, struct ar_err *err)
{
	struct outfile f;
	enum ar_status st = path ? outfile_open(&f, path, err) : AR_OK;

	if (st || !path)
		return st;
	st = put(db, f.f, err);
	if (!st)
		st = outfile_commit(&f, err);
	outfile_release(&f);
	return st;
}

static enum ar_status check_curve(const struct curve_args *a, int argc, struct ar_err *err)
{
	bool same = false;
	enum ar_status st = AR_OK;

	if (argc != 1)
		return ar_fail(err, AR_USAGE, "want one CSV file; try 'attnreplay curve --help'");
	if (!a->svg && !a->points)
		return ar_fail(err, AR_USAGE, "nothing to write; want --svg FILE or --points FILE");
	if (a->svg && a->points)
		st = outfile_same(a->svg, a->points, &same, err);
	if (!st && same)
		st = ar_fail(err, AR_USAGE, "%s: given for two outputs; name another file",
			     a->points);
	return st;
}

static enum ar_status cmd_curve_run(int argc, char **argv, struct ar_err *err)
{
	struct curve_args a = { 0 };
	struct opt_group g[] = { { .opts = curve_opts, .base = &a }, { .opts = NULL } };
	sqlite3 *db = NULL;
	enum ar_status st = opt_init(g, err);

	if (!st)
		st = opt_parse(g, &argc, argv, err);
	if (!st)
		st = check_curve(&a, argc, err);
	if (!st)
		st = curve_read(&db, argv[0], err);
	if (!st)
		st = write_file(db, curve_put_svg, a.svg, err);
	if (!st)
		st = write_file(db, curve_put_points, a.points, err);
	sqlite3_close(db);
	opt_release(g);
	return st;
}

static void cmd_curve_options(void (*show)(const struct opt_group *, FILE *), FILE *f)
{
	struct opt_group g[] = { { .title = "Options", .opts = curve_opts }, { .opts = NULL } };

	show(g, f);
}

const struct cmd cmd_curve = {
	.name = "curve",
	.usage = "[OPTION]... CSV",
	.title = "draw error and recall over density, from the CSV of select",
	.run = cmd_curve_run,
	.options = cmd_curve_options,
};
