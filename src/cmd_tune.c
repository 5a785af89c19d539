/* SPDX-License-Identifier: Apache-2.0 */
/* attnreplay tune: find the thresholds at which methods have one accuracy. */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/text.h"
#include "src/cmd.h"
#include "src/json_file.h"
#include "src/tune/tune.h"

struct args {
	struct opt_list captures;
	char *methods, *target, *json;
	double tolerance;
	int64_t tokens;
	struct plan_sample sample;
};

#define OFF(member) offsetof(struct args, member)
/* clang-format off */
static const struct opt opts[] = {
	{ .name = "method", .type = OPT_STR, .off = OFF(methods), .arg = "LIST",
	  .help = "methods to tune, separated by commas; see 'attnreplay methods'" },
	{ .name = "target", .type = OPT_STR, .off = OFF(target), .arg = "FIGURE=X",
	  .help = "what all of them are to have: recall=X, rel-l2=X or density=X" },
	{ .name = "tolerance", .type = OPT_REAL, .off = OFF(tolerance), .arg = "X", .def = "0",
	  .max = 1, .help = "how near to the target is near enough; 0: the own tolerance of the target" },
	{ .name = "capture", .type = OPT_LIST, .off = OFF(captures), .arg = "FILE",
	  .help = "capture to measure on; repeat the option for more" },
	{ .name = "tokens", .type = OPT_INT, .off = OFF(tokens), .arg = "N", .def = "0",
	  .max = CAPTURE_MAX_TOK, .help = "use only the first N tokens of each capture, 0: all" },
	PLAN_SAMPLE_OPTS(OFF(sample)),
	{ .name = "json", .type = OPT_STR, .off = OFF(json), .arg = "FILE",
	  .help = JSON_FILE_HELP },
	{ 0 }
};
/* clang-format on */

static void print_head(const struct args *a, const struct tune_goal *g)
{
	printf("target    %s %g within %g\nsample    %" PRId64 " chunk%s of %" PRId64
	       " tokens in each layer of each capture\ncapture  ",
	       g->target->name, g->want, g->near, a->sample.n_chunk,
	       a->sample.n_chunk > 1 ? "s" : "", a->sample.chunk);
	for (size_t i = 0; i < a->captures.n; i++) {
		putchar(' ');
		text_put(a->captures.v[i], stdout);
	}
	fputs("\n\n", stdout);
}

static bool add_captures(cJSON *o, const struct args *a)
{
	cJSON *list = cJSON_AddArrayToObject(o, "captures");
	bool done = list;

	for (size_t i = 0; i < a->captures.n && done; i++)
		done = json_add(list, NULL, cJSON_CreateString(a->captures.v[i]));
	return done;
}

static cJSON *json(const struct args *a, const struct tune_goal *g, const struct tuned *t, size_t n)
{
	cJSON *o = cJSON_CreateObject();

	if (o && json_add(o, "schema", cJSON_CreateString("attnreplay-tune-1")) &&
	    json_add(o, "target", cJSON_CreateString(g->target->name)) &&
	    json_add_real(o, "want", g->want) && json_add_real(o, "tolerance", g->near) &&
	    add_captures(o, a) && json_add_real(o, "tokens", (double)a->tokens) &&
	    json_add_real(o, "chunk", (double)a->sample.chunk) &&
	    json_add_real(o, "chunks", (double)a->sample.n_chunk) &&
	    json_add(o, "methods", tune_json(t, n)))
		return o;
	cJSON_Delete(o);
	return NULL;
}

static enum ar_status put(const struct args *a, const struct tune_goal *g, const struct tuned *t,
			  size_t n, struct ar_err *err)
{
	if (!json_file_alone(a->json)) {
		print_head(a, g);
		tune_print(g, t, n, stdout);
	}
	return a->json ? json_file_write(a->json, json(a, g, t, n), err) : AR_OK;
}

static enum ar_status tune(const struct args *a, const struct tune_goal *g, char *const *method,
			   size_t n, struct ar_err *err)
{
	struct calib_input in = { .tokens = a->tokens };
	struct tune_captures c = { .in = &in, .how = a->sample };
	struct tuned *t = calloc(n, sizeof *t);
	enum ar_status st = t ? calib_open(&in, &a->captures, err) : ar_nomem(err);

	if (!st)
		st = tune_methods(g, &c, method, n, t, err);
	if (!st)
		st = put(a, g, t, n, err);
	tuned_release(t, n);
	free(t);
	tune_captures_release(&c);
	calib_close(&in);
	return st;
}

static enum ar_status check(const struct args *a, int operands, char **argv, struct ar_err *err)
{
	if (operands)
		return ar_fail(err, AR_USAGE,
			       "'%s' is one operand too many: tune takes options only", argv[0]);
	if (!a->methods)
		return ar_fail(err, AR_USAGE, "no method to tune; add --method LIST");
	if (!a->target)
		return ar_fail(err, AR_USAGE,
			       "no target to tune to; add one, such as --target recall=0.95");
	if (!a->captures.n)
		return ar_fail(err, AR_USAGE, "no capture to measure on; add --capture FILE");
	return AR_OK;
}

static enum ar_status run(int argc, char **argv, struct ar_err *err)
{
	struct args a = { 0 };
	struct opt_group g[] = { { .title = "Options", .opts = opts, .base = &a }, { 0 } };
	struct tune_goal goal;
	char **method = NULL;
	size_t n = 0;
	enum ar_status st = opt_init(g, err);

	if (!st)
		st = opt_parse(g, &argc, argv, err);
	if (!st)
		st = check(&a, argc, argv, err);
	if (!st)
		st = tune_goal_parse(&goal, a.target, a.tolerance, err);
	if (!st)
		st = method_split(a.methods, &method, &n, err);
	if (!st)
		st = tune(&a, &goal, method, n, err);
	for (size_t i = 0; i < n; i++)
		free(method[i]);
	free(method);
	opt_release(g);
	return st;
}

static void show_options(void (*show)(const struct opt_group *, FILE *), FILE *f)
{
	show((const struct opt_group[]){ { .title = "Options", .opts = opts }, { 0 } }, f);
}

const struct cmd cmd_tune = {
	.name = "tune",
	.usage = "--method LIST --target FIGURE=X --capture FILE... [OPTION]...",
	.title = "find the thresholds at which methods have one accuracy",
	.run = run,
	.options = show_options,
};
