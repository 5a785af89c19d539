/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/eval/eval.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/cmd.h"
#include "src/json_file.h"

#define OFF(member) offsetof(struct eval_args, member)
/* clang-format off */
const struct opt eval_opts[] = {
	{ .name = "tasks", .type = OPT_STR, .off = OFF(tasks), .arg = "FILE",
	  .help = "prompts with known answers in token ids, JSON lines" },
	{ .name = "json", .type = OPT_STR, .off = OFF(json), .arg = "FILE", .help = JSON_FILE_HELP },
	{ 0 }
};
/* clang-format on */

/* ---- options ---- */

/* Append the methods of names that are dense, or those that are not; names[i] NULL: none. */
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

static enum ar_status set_options(const struct run_command *c, struct run_options *o,
				  struct ar_err *err)
{
	static const char *const without[] = { "trace", "merge", "prompts", "temperature" };
	const struct eval_args *a = c->own.base;
	enum ar_status st;

	for (size_t i = 0; i < sizeof without / sizeof *without; i++)
		if (opt_given(o->group, without[i]))
			return ar_fail(
				err, AR_USAGE,
				"%s has no effect: prompts and answers are those of --tasks; "
				"leave it out",
				without[i]);
	if (!a->tasks)
		return ar_fail(err, AR_USAGE,
			       "no tasks given; name a file of prompts and answers with --tasks");
	if (!strcmp(a->tasks, "-"))
		return ar_fail(err, AR_USAGE, "tasks are read twice; name a file, not -");
	st = opt_set(o->group, "trace", a->tasks, err);
	if (!st)
		st = opt_set(o->group, "format", "prompts", err);
	return st ? st : dense_first(o, err);
}

/* ---- prompts ---- */

static enum ar_status check_ids(const int32_t *id, uint32_t n, int vocab, const char *what,
				struct ar_err *err)
{
	for (uint32_t i = 0; i < n; i++)
		if (id[i] >= vocab)
			return ar_fail(
				err, AR_DATA,
				"token %u of the %s is %d, but the model's vocabulary has %d; "
				"encode it with the model's tokenizer",
				i, what, id[i], vocab);
	return AR_OK;
}

static enum ar_status check_prompt(const struct eval *e, const struct request *q,
				   const struct prompt *p, struct ar_err *err)
{
	char why[160];
	enum ar_status st;

	if (q->prompt_tok != p->n_prompt || q->output_tok != p->n_answer)
		return ar_fail(err, AR_USAGE,
			       "the prompt has %u tokens and the answer %u, but the run %u and %u; "
			       "leave out the options that change lengths",
			       p->n_prompt, p->n_answer, q->prompt_tok, q->output_tok);
	if (sched_rejects(&e->r.limits, q, why, sizeof why))
		return ar_fail(err, AR_DATA, "%s; leave it out with --longest-prompt", why);
	st = check_ids(p->prompt, p->n_prompt, e->r.model.vocab, "prompt", err);
	return st ? st : check_ids(p->answer, p->n_answer, e->r.model.vocab, "answer", err);
}

/* Find the prompt of each request by its line in the file. */
static enum ar_status set_texts(struct eval *e, struct ar_err *err)
{
	const struct trace *t = e->r.trace;
	enum ar_status st = AR_OK;

	e->prompt = calloc(t->n + 1, sizeof *e->prompt);
	e->text = calloc(t->n + 1, sizeof *e->text);
	if (!e->prompt || !e->text)
		return ar_nomem(err);
	for (size_t i = 0; i < t->n && !st; i++) {
		const struct prompt *p = prompts_at(&e->prompts, t->req[i].line);

		if (!p || !p->answer)
			return ar_fail(err, AR_DATA, "%s: changed while it was read", e->a.tasks);
		st = check_prompt(e, &t->req[i], p, err);
		if (st)
			ar_err_prefix(err, "%s:%" PRIu64, e->a.tasks, p->line);
		e->prompt[i] = p;
		e->text[i] = (struct tokens_text){ p->prompt, p->n_prompt, p->answer };
	}
	return st;
}

/* ---- the watch ---- */

static enum ar_status see(void *ctx, const struct tokens_row *row, struct ar_err *err)
{
	struct eval *e = ctx;

	(void)err;
	eval_results_add(&e->results, e->at, row);
	return AR_OK;
}

static void begin(void *ctx, size_t i)
{
	struct eval *e = ctx;

	e->at = i;
	eval_results_clear(&e->results, i);
}

static enum ar_status put_tokens(const struct eval *e, size_t i, size_t req, struct store *s,
				 struct ar_err *err)
{
	const size_t from = e->results.first[req], n = e->results.first[req + 1] - from;
	const struct eval_token *t = e->results.token + i * e->results.n_row + from;
	enum ar_status st = AR_OK;

	for (size_t k = 0; k < n && !st; k++)
		st = store_eval_token(s,
				      &(struct row_eval_token){ .req_no = (int64_t)req,
								.out_no = (int64_t)k,
								.gold = t[k].gold,
								.best = t[k].best,
								.rank = t[k].rank,
								.logprob = t[k].logprob,
								.kl = t[k].kl },
				      err);
	return st;
}

static enum ar_status put_prompt(const struct eval *e, size_t i, size_t req, struct store *s,
				 struct ar_err *err)
{
	const struct prompt *p = e->prompt[req];
	struct eval_answer a;
	enum ar_status st;

	if (!eval_results_answer(&e->results, i, req, &a))
		return AR_OK;
	st = store_eval_prompt(s,
			       &(struct row_eval_prompt){ .req_no = (int64_t)req,
							  .task = p->task ? p->task : "",
							  .length = p->length,
							  .n_answer = a.n,
							  .n_best = a.n_best,
							  .exact = a.n_best == a.n,
							  .rank_max = a.rank_max,
							  .logprob = a.logprob,
							  .kl = a.kl,
							  .expected = p->expected },
			       err);
	return st ? st : put_tokens(e, i, req, s, err);
}

static enum ar_status end(void *ctx, size_t i, const struct replay_result *res, struct store *s,
			  struct ar_err *err)
{
	struct eval *e = ctx;
	const struct series *ttft = &res->latency[LATENCY_TTFT];
	const double n = (double)res->n_heads, all = (double)res->exec_total;
	enum ar_status st = AR_OK;

	e->results.run[i] = (struct eval_run){
		.executed = all > 0 ? (double)res->exec_sel / all : NAN,
		.recall = n > 0 ? res->recall_sum / n : NAN,
		.rel_l2 = n > 0 ? res->rel_l2_sum / n : NAN,
		.ttft_ms = ttft->n ? series_mean(ttft) / 1e6 : NAN,
	};
	for (size_t q = 0; q < e->results.n_req && s && !st; q++)
		st = put_prompt(e, i, q, s, err);
	return st;
}

/* ---- loading and running ---- */

/* Logits lie beside the database; without one where temporary files are. */
static char *folder(const struct eval *e)
{
	const char *slash = e->r.o.db ? strrchr(e->r.o.db, '/') : NULL, *tmp = getenv("TMPDIR");

	if (slash)
		return strndup(e->r.o.db, slash == e->r.o.db ? 1 : (size_t)(slash - e->r.o.db));
	return strdup(e->r.o.db ? "." : tmp && *tmp ? tmp : "/tmp");
}

static enum ar_status open_results(struct eval *e, struct ar_err *err)
{
	char *dir = e->r.n_runs > 1 ? folder(e) : NULL;
	enum ar_status st = AR_OK;

	if (e->r.n_runs > 1 && !dir)
		st = ar_nomem(err);
	if (!st)
		st = eval_results_open(&e->results, e->r.trace, e->r.model.vocab, e->r.n_runs, dir,
				       err);
	free(dir);
	return st;
}

enum ar_status eval_load(struct eval *e, const struct run_setting *setting, int argc, char **argv,
			 struct ar_err *err)
{
	struct run_command c = { .setting = setting, .parsed = set_options };
	enum ar_status st;

	*e = (struct eval){ .r = { .cmdline = cmd_line("eval", argc, argv), .pid = getpid() } };
	e->own = c.own = (struct opt_group){ .title = "Eval", .opts = eval_opts, .base = &e->a };
	st = run_options_parse(&e->r.o, &c, argc, argv, err);
	if (!st)
		st = run_load(&e->r, err);
	if (!st)
		st = prompts_read(&e->prompts, e->a.tasks, err);
	if (!st)
		st = set_texts(e, err);
	if (!st)
		st = open_results(e, err);
	e->watch = (struct run_watch){ e, e->text, see, begin, end, eval_json };
	e->r.watch = &e->watch;
	return st;
}

void eval_release(struct eval *e)
{
	eval_results_close(&e->results);
	run_unload(&e->r);
	prompts_release(&e->prompts);
	free(e->prompt);
	free(e->text);
	opt_release((struct opt_group[]){ e->own, { 0 } });
}

enum ar_status eval_run(struct eval *e, size_t i, struct eval_summary *out, struct ar_err *err)
{
	struct run *r = &e->r;
	enum ar_status st = !r->backend || r->backend->uses_gpu ? run_method_apart(r, i, err) :
								  run_method(r, i, err);

	*out = eval_results_summary(&e->results, i);
	return st;
}

enum ar_status eval_try(struct eval *e, size_t i, const char *method, struct eval_summary *out,
			struct ar_err *err)
{
	enum ar_status st = run_set_method(&e->r, i, method, err);

	return st ? st : eval_run(e, i, out, err);
}

struct eval_expected eval_expected(const struct eval *e)
{
	struct eval_expected x = { 0 };

	for (size_t q = 0; q < e->results.n_req; q++) {
		const int expected = e->prompt[q]->expected;
		struct eval_answer a;
		bool exact;

		if (expected < 0 || !eval_results_answer(&e->results, 0, q, &a))
			continue;
		exact = a.n_best == a.n;
		x.n++;
		x.agree += exact == expected;
		x.only_here += exact && !expected;
		x.only_in_file += !exact && expected;
	}
	return x;
}
