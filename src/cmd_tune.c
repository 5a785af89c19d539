/* SPDX-License-Identifier: Apache-2.0 */
/* attnreplay tune: find the thresholds at which methods have one accuracy. */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/text.h"
#include "kernels/select/plugin.h"
#include "src/cmd.h"
#include "src/json_file.h"
#include "src/tune/tune_prompts.h"
#include "src/tune/tune.h"

struct args {
	struct opt_list captures, selectors;
	char *methods, *target, *tasks, *json;
	double tolerance;
	int64_t tokens;
	struct plan_sample sample;
};

#define OFF(member) offsetof(struct args, member)
/* clang-format off */
static const struct opt opts[] = {
	{ .name = "method", .type = OPT_STR, .off = OFF(methods), .arg = "LIST",
	  .help = "methods to tune, separated by commas; see 'attnreplay methods'" },
	PLUGIN_OPT(OFF(selectors)),
	{ .name = "target", .type = OPT_STR, .off = OFF(target), .arg = "FIGURE=X",
	  .help = "what all of them are to have: recall=X, rel-l2=X or density=X of captures, "
		  "logprob=X or exact=X of prompts" },
	{ .name = "tolerance", .type = OPT_REAL, .off = OFF(tolerance), .arg = "X", .def = "0",
	  .max = 1, .help = "how near to the target is near enough; 0: the own tolerance of the "
		  "target" },
	{ .name = "json", .type = OPT_STR, .off = OFF(json), .arg = "FILE",
	  .help = JSON_FILE_HELP },
	{ .name = "tasks", .type = OPT_STR, .off = OFF(tasks), .arg = "FILE",
	  .help = "prompts with known answers in token ids, JSON lines, to measure on; it needs "
		  "--weights" },
	{ .name = "capture", .type = OPT_LIST, .off = OFF(captures), .arg = "FILE",
	  .help = "capture to measure on; repeat the option for more" },
	{ .name = "tokens", .type = OPT_INT, .off = OFF(tokens), .arg = "N", .def = "0",
	  .max = CAPTURE_MAX_TOK, .help = "use only the first N tokens of each capture, 0: all" },
	PLAN_SAMPLE_OPTS(OFF(sample)),
	{ 0 }
};
/* clang-format on */

/* A command line that is parsed. */
struct tune {
	struct args a;
	struct opt_group own; /* of a */
	struct tune_goal goal;
	char **method; /* [n] */
	size_t n;
};

/* ---- output ---- */

/* Contexts before the chunks of a sample. */
struct contexts {
	int64_t least, most;
};

static struct contexts contexts_of(const struct tune_captures *c)
{
	struct contexts out = { INT64_MAX, 0 };

	for (size_t i = 0; i < c->in->n; i++) {
		size_t n;
		struct plan_chunk *chunk = plan_chunks(c->in, &c->how, i, &n);

		for (size_t k = 0; chunk && k < n; k++) {
			out.least = chunk[k].from < out.least ? chunk[k].from : out.least;
			out.most = chunk[k].from > out.most ? chunk[k].from : out.most;
		}
		free(chunk);
	}
	return out;
}

static void print_captures(const struct args *a, const struct tune_captures *c)
{
	const struct contexts x = contexts_of(c);

	printf("sample    %" PRId64 " chunk%s of %" PRId64
	       " tokens in each layer of each capture\nholds     after contexts of %" PRId64
	       " to %" PRId64 " tokens\ncapture  ",
	       a->sample.n_chunk, a->sample.n_chunk > 1 ? "s" : "", a->sample.chunk, x.least,
	       x.most);
	for (size_t i = 0; i < a->captures.n; i++) {
		putchar(' ');
		text_put(a->captures.v[i], stdout);
	}
	putchar('\n');
}

static bool add_captures(cJSON *o, const struct args *a, const struct tune_captures *c)
{
	const struct contexts x = contexts_of(c);
	cJSON *list = cJSON_AddArrayToObject(o, "captures");
	bool done = list;

	for (size_t i = 0; i < a->captures.n && done; i++)
		done = json_add(list, NULL, cJSON_CreateString(a->captures.v[i]));
	return done && json_add_real(o, "tokens", (double)a->tokens) &&
	       json_add_real(o, "chunk", (double)a->sample.chunk) &&
	       json_add_real(o, "chunks", (double)a->sample.n_chunk) &&
	       json_add_real(o, "least_context", (double)x.least) &&
	       json_add_real(o, "most_context", (double)x.most);
}

/* p NULL: the sample is c, of captures. */
static cJSON *result_json(const struct tune *x, const struct tune_prompts *p,
			  const struct tune_captures *c, const struct tuned *t)
{
	const struct tune_goal *g = &x->goal;
	cJSON *o = cJSON_CreateObject();

	if (o && json_add(o, "schema", cJSON_CreateString("attnreplay-tune-1")) &&
	    json_add(o, "target", cJSON_CreateString(g->target->name)) &&
	    json_add_real(o, "want", g->want) && json_add_real(o, "tolerance", g->near) &&
	    (p ? tune_prompts_json(p, o) : add_captures(o, &x->a, c)) &&
	    json_add(o, "methods", tune_json(t, x->n)))
		return o;
	cJSON_Delete(o);
	return NULL;
}

static enum ar_status put_tuned(const struct tune *x, const struct tune_prompts *p,
				const struct tune_captures *c, const struct tuned *t,
				struct ar_err *err)
{
	const struct tune_goal *g = &x->goal;

	if (!json_file_alone(x->a.json)) {
		printf("target    %s %s%g within %g\n", g->target->name,
		       g->target->least ? "at least " : "", g->want, g->near);
		if (p)
			tune_prompts_print(p, g, stdout);
		else
			print_captures(&x->a, c);
		putchar('\n');
		tune_print(g, t, x->n, stdout);
	}
	return x->a.json ? json_file_write(x->a.json, result_json(x, p, c, t), err) : AR_OK;
}

/* ---- the two samples ---- */

/* One of p and c is NULL. */
static enum ar_status search_setting(const struct tune *x, struct tune_prompts *p,
				     struct tune_captures *c, struct ar_err *err)
{
	void *sample = p ? (void *)p : c;
	struct tuned *t = calloc(x->n, sizeof *t);
	enum ar_status st = t ? tune_methods(&x->goal, sample, x->method, x->n, t, err) :
				ar_nomem(err);

	if (!st)
		st = put_tuned(x, p, c, t, err);
	tuned_release(t, x->n);
	free(t);
	return st;
}

static enum ar_status on_captures(const struct tune *x, struct ar_err *err)
{
	struct calib_input in = { .tokens = x->a.tokens };
	struct tune_captures c = { .in = &in, .how = x->a.sample };
	enum ar_status st = calib_open(&in, &x->a.captures, err);

	if (!st)
		st = search_setting(x, NULL, &c, err);
	tune_captures_release(&c);
	calib_close(&in);
	return st;
}

static enum ar_status prompts_parsed(const struct run_command *c, struct run_options *o,
				     struct ar_err *err)
{
	const struct args *a = c->own.base;

	return tune_prompts_set(o, a->methods, a->tasks, err);
}

/* The command line is parsed once more, as that of runs. */
static enum ar_status on_prompts(const struct tune *x, int argc, char **argv, struct ar_err *err)
{
	struct args again = { 0 };
	struct run_command c = { .run_own = RUN_OWN_RANKS,
				 .own = { .opts = opts, .base = &again },
				 .parsed = prompts_parsed };
	struct tune_prompts p = { 0 };
	enum ar_status st = tune_prompts_open(&p, &c, argc, argv, err);

	if (!st)
		st = search_setting(x, &p, NULL, err);
	tune_prompts_release(&p);
	return st;
}

/* ---- the command line ---- */

static enum ar_status no_effect(const struct tune_goal *g, const char *name, struct ar_err *err)
{
	return ar_fail(err, AR_USAGE, "%s has no effect with target %s; leave it out", name,
		       g->target->name);
}

static enum ar_status check_captures(const struct tune *x, const struct run_options *o,
				     struct ar_err *err)
{
	if (x->a.tasks)
		return no_effect(&x->goal, "tasks", err);
	for (const struct opt_group *g = o->group; g->opts; g++)
		for (const struct opt *p = g->opts; p->name; p++)
			if (opt_given(o->group, p->name))
				return no_effect(&x->goal, p->name, err);
	if (!x->a.captures.n)
		return ar_fail(err, AR_USAGE, "no capture to measure on; add --capture FILE");
	return AR_OK;
}

static enum ar_status check_prompts(struct tune *x, struct ar_err *err)
{
	static const char *const of_captures[] = { "capture", "tokens", "chunk", "chunks",
						   "layers" };

	for (size_t i = 0; i < sizeof of_captures / sizeof *of_captures; i++)
		if (opt_given((struct opt_group[]){ x->own, { 0 } }, of_captures[i]))
			return no_effect(&x->goal, of_captures[i], err);
	return AR_OK;
}

static enum ar_status check_target(struct tune *x, const struct run_options *o, struct ar_err *err)
{
	enum ar_status st;

	if (!x->a.methods)
		return ar_fail(err, AR_USAGE, "no method to tune; add --method LIST");
	if (!x->a.target)
		return ar_fail(err, AR_USAGE,
			       "no target to tune to; add one, such as --target recall=0.95");
	st = tune_goal_parse(&x->goal, x->a.target, TUNE_CAPTURES | TUNE_PROMPTS, x->a.tolerance,
			     err);
	if (!st)
		st = x->goal.target->sample == TUNE_PROMPTS ? check_prompts(x, err) :
							      check_captures(x, o, err);
	return st ? st : method_split(x->a.methods, &x->method, &x->n, err);
}

static enum ar_status parse_target(struct tune *x, int argc, char **argv, struct ar_err *err)
{
	struct run_options o;
	enum ar_status st = run_options_init(&o, RUN_OWN_RANKS, err);

	x->own = (struct opt_group){ .title = "Tune", .opts = opts, .base = &x->a };
	if (!st)
		st = run_options_read(&o, &x->own, &argc, argv, err);
	if (!st && argc)
		st = ar_fail(err, AR_USAGE, "'%s' is one operand too many: tune takes options only",
			     argv[0]);
	if (!st)
		st = check_target(x, &o, err);
	run_options_release(&o);
	return st;
}

static enum ar_status tune_main(int argc, char **argv, struct ar_err *err)
{
	struct tune x = { 0 };
	enum ar_status st = parse_target(&x, argc, argv, err);

	if (!st)
		st = x.goal.target->sample == TUNE_PROMPTS ? on_prompts(&x, argc, argv, err) :
							     on_captures(&x, err);
	for (size_t i = 0; i < x.n; i++)
		free(x.method[i]);
	free(x.method);
	opt_release((struct opt_group[]){ x.own, { 0 } });
	return st;
}

static void show_options(void (*show)(const struct opt_group *, FILE *), FILE *f)
{
	show((const struct opt_group[]){ { .title = "Tune", .opts = opts }, { 0 } }, f);
	run_options_show(RUN_OWN_RANKS, opts, show, f);
}

const struct cmd cmd_tune = {
	.name = "tune",
	.usage = "--method LIST --target FIGURE=X --capture FILE ...\n"
		 "--method LIST --target FIGURE=X --tasks FILE ...",
	.title = "find the thresholds at which methods have one accuracy",
	.run = tune_main,
	.options = show_options,
};
