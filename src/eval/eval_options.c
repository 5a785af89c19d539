/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/eval/eval.h"

#include <stdlib.h>
#include <string.h>

#include "src/json_file.h"

#define OFF(member) offsetof(struct eval_args, member)
/* clang-format off */
const struct opt eval_opts[] = {
	{ .name = "tasks", .type = OPT_STR, .off = OFF(tasks), .arg = "FILE",
	  .help = "prompts with known answers in token ids, JSON lines" },
	{ .name = "json", .type = OPT_STR, .off = OFF(json), .arg = "FILE",
	  .help = JSON_FILE_HELP },
	{ 0 }
};
/* clang-format on */

/* Append the methods of names that are dense, or not dense, as `dense` says.  names[i] NULL:
 * none. */
static enum ar_status append_methods(char **names, size_t n, bool dense, char **list,
				     struct ar_err *err)
{
	for (size_t i = 0; i < n; i++) {
		enum ar_status st;
		struct plan *p;
		char *more;
		bool wanted;

		st = plan_parse(&p, names[i], err);
		if (st)
			return st;
		wanted = p->dense == dense;
		plan_free(p);
		if (!wanted)
			continue;
		if (asprintf(&more, "%s%s%s", *list, **list ? "," : "", names[i]) < 0)
			return ar_nomem(err);
		free(*list);
		*list = more;
	}
	return AR_OK;
}

/* Dense attention is first: all others are compared with its logits. */
static enum ar_status dense_first(struct run_options *o, struct ar_err *err)
{
	char **names = NULL, *list = strdup("");
	size_t n = 0;
	enum ar_status st = list ? method_split(o->methods, &names, &n, err) : ar_nomem(err);

	if (!st)
		st = append_methods(names, n, true, &list, err);
	if (!st && !*list) {
		free(list);
		list = strdup("dense");
		st = list ? AR_OK : ar_nomem(err);
	}
	if (!st)
		st = append_methods(names, n, false, &list, err);
	if (!st)
		st = opt_set(o->group, "method", list, err);
	for (size_t i = 0; i < n; i++)
		free(names[i]);
	free(names);
	free(list);
	return st;
}

enum ar_status eval_options_set_tasks(struct run_options *o, const char *tasks, struct ar_err *err)
{
	static const char *const without[] = { "trace", "merge", "prompts", "temperature" };
	enum ar_status st;

	for (size_t i = 0; i < sizeof without / sizeof *without; i++)
		if (opt_given(o->group, without[i]))
			return ar_fail(
				err, AR_USAGE,
				"%s has no effect: prompts and answers are those of --tasks; "
				"leave it out",
				without[i]);
	if (!tasks)
		return ar_fail(err, AR_USAGE,
			       "no tasks given; name a file of prompts and answers with --tasks");
	if (!o->weights)
		return ar_fail(err, AR_USAGE,
			       "no weights given; name the folder of a model with --weights");
	if (o->ranks == RUN_RANKS_ENV)
		return ar_fail(err, AR_USAGE,
			       "ranks env: answers are those of ranks of this host; give --ranks "
			       "local");
	if (o->tp > 1 && o->ranks == RUN_RANKS_ONE)
		return ar_fail(err, AR_USAGE,
			       "tp %lld: one rank alone has partial sums, so its answers are of no "
			       "model; give --ranks local, or leave --tp out",
			       (long long)o->tp);
	st = opt_set(o->group, "trace", tasks, err);
	if (!st)
		st = opt_set(o->group, "prompts", tasks, err);
	if (!st)
		st = opt_set(o->group, "format", "prompts", err);
	return st ? st : dense_first(o, err);
}

enum ar_status eval_options_set(const struct run_command *c, struct run_options *o,
				struct ar_err *err)
{
	const struct eval_args *a = c->own.base;

	return eval_options_set_tasks(o, a->tasks, err);
}

struct run_command eval_command(struct eval_args *a)
{
	return (struct run_command){ .run_own = RUN_OWN_RANKS,
				     .own = { .title = "Eval", .opts = eval_opts, .base = a },
				     .parsed = eval_options_set };
}
