/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/tune/tune_prompts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/text.h"

enum ar_status tune_prompts_set(struct run_options *o, const char *methods, const char *tasks,
				struct ar_err *err)
{
	enum ar_status st = AR_OK;
	char *all;

	if (o->db)
		return ar_fail(err, AR_USAGE,
			       "db has no effect: tune stores nothing; leave it out, and evaluate "
			       "the settings that it finds with 'attnreplay eval --db'");
	for (const struct part_kind *k = part_kinds; k->key; k++)
		if (opt_given(o->group, k->key))
			return ar_fail(err, AR_USAGE,
				       "%s has no effect: the methods to tune have their parts in "
				       "--method; write /%s=NAME there",
				       k->key, k->key);
	/* Each setting takes the place of the second one; options are checked with all. */
	if (asprintf(&all, "dense,%s", methods) < 0)
		return ar_nomem(err);
	st = opt_set(o->group, "method", all, err);
	free(all);
	return st ? st : eval_options_set_tasks(o, tasks, err);
}

enum ar_status tune_prompts_open(struct tune_prompts *p, struct run_command *c, int argc,
				 char **argv, struct ar_err *err)
{
	return eval_load(&p->e, c, argc, argv, err);
}

void tune_prompts_release(struct tune_prompts *p)
{
	eval_release(&p->e);
}

static double exact_share(const struct eval_summary *s)
{
	return (double)s->exact / (double)s->n;
}

static enum ar_status measure_prompts(struct tune_prompts *p, const char *setting,
				      struct tune_figures *f, struct ar_err *err)
{
	struct eval_summary s;
	enum ar_status st = eval_try(&p->e, 1, setting, &s, err);

	*f = tune_unknown;
	if (st)
		return st;
	if (!p->e.r.in.plan[1]->drop) { /* else they are of the tokens that are left */
		f->recall = s.run.recall;
		f->rel_l2 = s.run.rel_l2;
		f->executed = s.run.executed;
	}
	f->logprob = s.diff;
	f->exact = exact_share(&s);
	return AR_OK;
}

/* A setting that does not fit the model fails before dense attention runs. */
static enum ar_status run_dense(struct tune_prompts *p, char *const *setting, size_t n,
				struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < n && !st; i++)
		st = run_set_method(&p->e.r, 1, setting[i], err);
	return st ? st : eval_run(&p->e, 0, &p->dense, err);
}

enum ar_status tune_measure_prompts(void *sample, char *const *setting, size_t n,
				    struct tune_figures *out, struct ar_err *err)
{
	struct tune_prompts *p = sample;
	enum ar_status st = p->dense.n ? AR_OK : run_dense(p, setting, n, err);

	for (size_t i = 0; i < n && !st; i++)
		st = measure_prompts(p, setting[i], &out[i], err);
	return st;
}

void tune_prompts_print(const struct tune_prompts *p, const struct tune_goal *g, FILE *f)
{
	const struct run *r = &p->e.r;
	const struct eval_summary *d = &p->dense;
	const struct tune_figures dense = { .exact = exact_share(d) };

	fputs("weights   ", f);
	text_put(r->session.o.weights, f);
	fprintf(f, "\nsample    %zu prompt%s of ", r->in.trace->n, r->in.trace->n > 1 ? "s" : "");
	text_put(r->session.o.prompts, f);
	fprintf(f, ", in chunks of at most %" PRId64 " tokens, on backend %s\n",
		r->in.limits.max_batched_tok, r->session.backend->name);
	fprintf(f, "dense     %zu of %zu answers exact (%.4f), logprob %.4f a token%s\n", d->exact,
		d->n, dense.exact, d->logprob,
		g->target->least && tune_figure(g, &dense) < g->want ?
			"; less than wanted, so a method may not reach it" :
			"");
}

static bool add_dense(const struct tune_prompts *p, cJSON *o)
{
	return o && json_add_real(o, "exact", exact_share(&p->dense)) &&
	       json_add_real(o, "logprob", p->dense.logprob);
}

bool tune_prompts_json(const struct tune_prompts *p, cJSON *o)
{
	const struct run *r = &p->e.r;

	return json_add(o, "weights", cJSON_CreateString(r->session.o.weights)) &&
	       json_add(o, "tasks", cJSON_CreateString(r->session.o.prompts)) &&
	       json_add_real(o, "prompts", (double)r->in.trace->n) &&
	       json_add_real(o, "max_num_batched_tokens", (double)r->in.limits.max_batched_tok) &&
	       json_add(o, "backend", cJSON_CreateString(r->session.backend->name)) &&
	       add_dense(p, cJSON_AddObjectToObject(o, "dense"));
}
