/* SPDX-License-Identifier: Apache-2.0 */
/* The inputs of --weights: the model's weights, and the tokens of the requests. */
#include "config.h"
#include "src/run/run.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* What a run with real weights cannot do, or needs. */
static enum ar_status check_options(const struct run *r, struct ar_err *err)
{
	const struct run_options *o = &r->o;

	if (!o->prompts)
		return ar_fail(err, AR_USAGE,
			       "no prompts given; --weights runs the model on tokens, so name a "
			       "file of token ids with --prompts");
	if (!strcmp(o->prompts, "-"))
		return ar_fail(err, AR_USAGE,
			       "prompts '-': standard input is read once, but prompts may be read "
			       "again; write them to a file");
	return AR_OK;
}

enum ar_status run_load_weights(struct run *r, struct ar_err *err)
{
	enum ar_status st = check_options(r, err);

	if (!st)
		st = prompts_read_limited(&r->prompts, r->o.prompts, r->o.trace_args.in.max_memory,
					  err);
	if (!st)
		st = weights_open_rank(&r->weights, r->o.weights, (int)r->o.tp, 0, err);
	if (!st && !model_alike(&r->weights.model, &r->model))
		st = ar_fail(err, AR_USAGE,
			     "model '%s' is not that of %s/config.json; leave --model out",
			     r->o.model, r->o.weights);
	return st;
}

void run_warn_rank(const struct run *r)
{
	if (r->o.weights && r->model.tp > 1 && !r->point)
		log_warn("rank 0 of %d runs alone: times and memory are those of a rank, but "
			 "activations after the first attention are partial sums, so tokens, "
			 "selections and accuracy are of no model",
			 r->model.tp);
}

/* Request i has prompt i, modulo their number, unless a watch says otherwise. */
static enum ar_status set_text(struct run *r, struct ar_err *err)
{
	r->text = calloc(r->trace->n + 1, sizeof *r->text);
	if (!r->text)
		return ar_nomem(err);
	if (r->watch)
		return r->watch->texts(r->watch->ctx, r->text, err);
	for (size_t i = 0; i < r->trace->n; i++) {
		const struct prompt *p = &r->prompts.v[i % r->prompts.n];

		r->text[i] = (struct tokens_text){ .prompt = p->prompt, .n_prompt = p->n_prompt };
	}
	return AR_OK;
}

enum ar_status run_open_tokens(struct run *r, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	if (!r->o.weights)
		return AR_OK;
	if (!r->text)
		st = set_text(r, err);
	tokens_close(r->tokens);
	r->tokens = NULL;
	if (st)
		return st;
	st = tokens_open(&r->tokens,
			 &(struct tokens_env){ .trace = r->trace,
					       .text = r->text,
					       .vocab = r->model.vocab * r->model.tp,
					       .n_logits = r->model.vocab,
					       .temperature = r->o.temperature,
					       .seed = (uint64_t)r->o.seed,
					       .see = r->watch ? r->watch->see : NULL,
					       .ctx = r->watch ? r->watch->ctx : NULL },
			 err);
	if (st)
		ar_err_prefix(err, "%s", r->o.prompts);
	return st;
}

struct run_fit run_prompts_fit(const struct run *r)
{
	struct run_fit f = { 0 };

	for (size_t i = 0; i < r->trace->n; i++) {
		uint32_t n = r->trace->req[i].prompt_tok;

		f.cut += n < r->text[i].n_prompt;
		f.repeated += n > r->text[i].n_prompt;
	}
	return f;
}

void run_unload_weights(struct run *r)
{
	tokens_close(r->tokens);
	free(r->text);
	prompts_release(&r->prompts);
	weights_release(&r->weights);
}
