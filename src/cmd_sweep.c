/* SPDX-License-Identifier: Apache-2.0 */
/* attnreplay sweep: the runs of a job file in which options may be lists. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "src/cmd.h"
#include "src/json_file.h"
#include "src/revision.h"
#include "src/sweep/sweep_json.h"

struct args {
	char *out, *index, *json;
	int64_t offset, jobs;
	bool all, plan, count, force, keep_going;
};

#define AT(field) offsetof(struct args, field)

/* clang-format off */
static const struct opt opts[] = {
	{ .name = "plan", .type = OPT_FLAG, .off = AT(plan),
	  .help = "print number, key, state and command line of each point, and run nothing" },
	{ .name = "count", .type = OPT_FLAG, .off = AT(count),
	  .help = "print the number of points, and run nothing" },
	{ .name = "out", .type = OPT_STR, .off = AT(out), .arg = "DIR",
	  .help = "folder of the databases, one for each point" },
	{ .name = "index", .type = OPT_STR, .off = AT(index), .arg = "N|A-B",
	  .help = "the point or points to run, from 0; if not given, the index of the task in the "
		  "job array of Slurm, PBS, LSF or SGE" },
	{ .name = "all", .type = OPT_FLAG, .off = AT(all), .help = "run all points" },
	{ .name = "offset", .type = OPT_INT, .off = AT(offset), .arg = "K", .def = "0",
	  .max = SWEEP_POINTS_MAX,
	  .help = "add K to the index, where arrays have fewer tasks than the file has points" },
	{ .name = "jobs", .type = OPT_INT, .off = AT(jobs), .arg = "J", .def = "1", .min = 1,
	  .max = 1024, .help = "points that run at a time on this machine" },
	{ .name = "force", .type = OPT_FLAG, .off = AT(force),
	  .help = "run points whose database is there, too" },
	{ .name = "keep-going", .type = OPT_FLAG, .off = AT(keep_going),
	  .help = "run the other points after one has failed" },
	{ .name = "json", .type = OPT_STR, .off = AT(json), .arg = "FILE",
	  .help = JSON_FILE_HELP },
	{ 0 }
};
/* clang-format on */

static void show_options(void (*show)(const struct opt_group *, FILE *), FILE *f)
{
	show((const struct opt_group[]){ { .title = "Sweep", .opts = opts }, { 0 } }, f);
}

/* ---- indexes ---- */

/* Where launchers put the index of a task, and its first number. */
static const struct launcher {
	const char *name;
	uint64_t first;
} launchers[] = {
	{ "SLURM_ARRAY_TASK_ID", 0 },
	{ "PBS_ARRAY_INDEX", 0 },
	{ "LSB_JOBINDEX", 1 }, /* 0 outside of arrays */
	{ "SGE_TASK_ID", 1 },  /* "undefined" outside of arrays */
};

static enum ar_status index_of_task(uint64_t *index, struct ar_err *err)
{
	for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
		const struct launcher *l = &launchers[i];
		const char *s = getenv(l->name);

		if (!s || !*s || (l->first && (!strcmp(s, "0") || !strcmp(s, "undefined"))))
			continue;
		if (!num_u64(s, strlen(s), index) || *index > INT32_MAX)
			return ar_fail(err, AR_USAGE, "%s '%s': want a number; give --index",
				       l->name, s);
		*index -= l->first;
		return AR_OK;
	}
	return ar_fail(err, AR_USAGE, "give --index, --all or start it as a Slurm array");
}

/* Set the points [*from, *to), of n at most. */
static enum ar_status choose_points(const struct args *a, size_t n, size_t *from, size_t *to,
				    struct ar_err *err)
{
	uint64_t first = 0, last = n - 1;
	enum ar_status st = AR_OK;

	if (a->index && (!num_range(a->index, strlen(a->index), &first, &last) || last > INT32_MAX))
		return ar_fail(err, AR_USAGE, "index '%s': want a number from 0, or A-B", a->index);
	if (!a->index && !a->all && !a->plan) {
		st = index_of_task(&first, err);
		last = first;
	}
	first += (uint64_t)a->offset;
	last += (uint64_t)a->offset;
	*from = first < n ? (size_t)first : n;
	*to = last < n ? (size_t)last + 1 : n;
	return st;
}

/* ---- actions ---- */

static void print_point(const struct sweep_point *p, bool done)
{
	printf("%zu\t%s\t%s\t", p->number, p->key, done ? "done" : "todo");
	sweep_point_show(p, stdout);
}

/* Print point i, or add it to o.  ran: what became of it, if it ran. */
static enum ar_status list_point(const struct args *a, struct sweep_base *b, size_t i, cJSON *o,
				 const enum sweep_state *ran, struct ar_err *err)
{
	struct sweep_point p;
	char *path = NULL;
	enum sweep_state state = ran ? *ran : SWEEP_TODO;
	enum ar_status st = sweep_point_open(&p, b, i, err);

	if (!st && a->out) {
		path = sweep_path(a->out, p.key, ".db");
		st = path ? AR_OK : ar_nomem(err);
	}
	if (!st && !ran && path && sweep_point_done(&p, b, path))
		state = SWEEP_DONE;
	if (!st && !o)
		print_point(&p, state == SWEEP_DONE);
	if (!st && o && !sweep_json_add(o, &p, state, path))
		st = ar_nomem(err);
	free(path);
	sweep_point_release(&p);
	return st;
}

/* Write the points to the file of --json. */
static enum ar_status write_points(const struct args *a, struct sweep_base *b, size_t from,
				   size_t to, const enum sweep_state *ran, struct outfile *f,
				   struct ar_err *err)
{
	cJSON *o = sweep_json(&b->file);
	enum ar_status st = o ? AR_OK : ar_nomem(err);

	for (size_t i = from; i < to && !st; i++)
		st = list_point(a, b, i, o, ran ? &ran[i - from] : NULL, err);
	if (!st)
		return json_file_end(f, o, err);
	cJSON_Delete(o);
	return st;
}

static enum ar_status plan_points(const struct args *a, struct sweep_base *b, size_t from,
				  size_t to, struct outfile *json, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (size_t i = from; i < to && !st && !json_file_alone(a->json); i++)
		st = list_point(a, b, i, NULL, NULL, err);
	return st || !json->f ? st : write_points(a, b, from, to, NULL, json, err);
}

/* The file of --json also says which points failed. */
static enum ar_status run_points(const struct args *a, struct sweep_base *b, size_t from, size_t to,
				 struct outfile *json, struct ar_err *err)
{
	const struct sweep_how how = { .out = a->out,
				       .jobs = a->jobs,
				       .force = a->force,
				       .keep_going = a->keep_going,
				       .quiet = json_file_alone(a->json) };
	enum sweep_state *state = calloc(to - from + 1, sizeof *state);
	struct ar_err other;
	enum ar_status st = state ? AR_OK : ar_nomem(err), json_st;

	if (!st && from == to && !how.quiet)
		printf("the points of %s are 0 to %zu; nothing to do\n", b->file.path,
		       b->file.n_point - 1);
	if (!st && from < to)
		st = sweep_run(b, from, to, &how, state, err);
	if (json->f && state) {
		json_st = write_points(a, b, from, to, state, json, st ? &other : err);
		st = st ? st : json_st;
	}
	free(state);
	return st;
}

static enum ar_status act(const struct args *a, struct sweep_base *b, struct ar_err *err)
{
	struct outfile json = { 0 };
	size_t from = 0, to = 0;
	enum ar_status st;

	if (a->count) {
		printf("%zu\n", b->file.n_point);
		return AR_OK;
	}
	st = choose_points(a, b->file.n_point, &from, &to, err);
	if (!st)
		st = json_file_open(&json, a->json, err);
	if (!st)
		st = a->plan ? plan_points(a, b, from, to, &json, err) :
			       run_points(a, b, from, to, &json, err);
	outfile_release(&json);
	return st;
}

/* Refuse options without effect. */
static enum ar_status check_sweep(const struct args *a, const struct opt_group *g,
				  struct ar_err *err)
{
	static const char *const runs[] = { "jobs", "force", "keep-going", NULL };
	static const char *const points[] = { "out", "index", "all", "offset", "json", NULL };

	if (a->plan && a->count)
		return ar_fail(err, AR_USAGE, "--plan and --count both print; give one of them");
	for (int i = 0; runs[i]; i++)
		if ((a->plan || a->count) && opt_given(g, runs[i]))
			return ar_fail(err, AR_USAGE, "%s has no effect with --%s; leave it out",
				       runs[i], a->plan ? "plan" : "count");
	for (int i = 0; points[i]; i++)
		if (a->count && opt_given(g, points[i]))
			return ar_fail(err, AR_USAGE, "%s has no effect with --count; leave it out",
				       points[i]);
	if (a->index && a->all)
		return ar_fail(err, AR_USAGE, "--index and --all both choose; give one of them");
	if (a->all && a->offset)
		return ar_fail(err, AR_USAGE, "offset has no effect with --all; leave it out");
	if (!a->plan && !a->count && !a->out)
		return ar_fail(err, AR_USAGE, "no folder for the databases; name one with --out");
	return AR_OK;
}

static enum ar_status sweep_main(int argc, char **argv, struct ar_err *err)
{
	struct args a = { 0 };
	struct opt_group g[] = { { .title = "Sweep", .opts = opts, .base = &a }, { 0 } };
	struct sweep_base b = { 0 };
	enum ar_status st = opt_init(g, err);

	if (!st)
		st = opt_parse(g, &argc, argv, err);
	if (!st && argc != 1)
		st = argc ? ar_fail(err, AR_USAGE, "unexpected operand '%s'; sweep takes one file",
				    argv[1]) :
			    ar_fail(err, AR_USAGE, "no file given; name the file of the sweep");
	if (!st)
		st = check_sweep(&a, g, err);
	if (!st)
		st = sweep_base_open(&b, argv[0], AR_REVISION, err);
	if (!st)
		st = act(&a, &b, err);
	sweep_base_release(&b);
	opt_release(g);
	return st;
}

const struct cmd cmd_sweep = {
	.name = "sweep",
	.usage = "FILE --plan|--count\nFILE --out DIR [--index N|--index A-B|--all] [OPTION]...",
	.title = "run every combination of the options in a file, or one task's share of them",
	.run = sweep_main,
	.options = show_options,
};
