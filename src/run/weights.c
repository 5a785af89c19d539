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
	const struct run_options *o = &r->session.o;

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
		st = prompts_read_limited(&r->in.prompts, r->session.o.prompts,
					  r->session.o.trace_args.in.max_memory, err);
	if (!st)
		st = weights_open_rank(&r->in.weights, r->session.o.weights, (int)r->session.o.tp,
				       0, err);
	if (!st && !model_alike(&r->in.weights.model, &r->in.model))
		st = ar_fail(err, AR_USAGE,
			     "model '%s' is not that of %s/config.json; leave --model out",
			     r->session.o.model, r->session.o.weights);
	return st;
}

void run_warn_rank(const struct run *r)
{
	if (r->session.o.weights && r->in.model.tp > 1 && !r->session.point)
		log_warn("rank 0 of %d runs alone: times and memory are those of a rank, but "
			 "activations after the first attention are partial sums, so tokens, "
			 "selections and accuracy are of no model",
			 r->in.model.tp);
}

/* Request i has prompt i, modulo their number, unless a watch says otherwise. */
static enum ar_status set_text(struct run *r, struct ar_err *err)
{
	r->in.text = calloc(r->in.trace->n + 1, sizeof *r->in.text);
	if (!r->in.text)
		return ar_nomem(err);
	if (r->session.watch)
		return r->session.watch->texts(r->session.watch->ctx, r->in.text, err);
	for (size_t i = 0; i < r->in.trace->n; i++) {
		const struct prompt *p = &r->in.prompts.v[i % r->in.prompts.n];

		r->in.text[i] = (struct tokens_text){ .prompt = p->prompt,
						      .n_prompt = p->n_prompt };
	}
	return AR_OK;
}

enum ar_status run_open_tokens(struct run *r, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	if (!r->session.o.weights)
		return AR_OK;
	if (!r->in.text)
		st = set_text(r, err);
	tokens_close(r->session.tokens);
	r->session.tokens = NULL;
	if (st)
		return st;
	st = tokens_open(&r->session.tokens,
			 &(struct tokens_env){
				 .trace = r->in.trace,
				 .text = r->in.text,
				 .vocab = r->in.model.vocab * r->in.model.tp,
				 .n_logits = r->in.model.vocab,
				 .temperature = r->session.o.temperature,
				 .seed = (uint64_t)r->session.o.seed,
				 .see = r->session.watch ? r->session.watch->see : NULL,
				 .ctx = r->session.watch ? r->session.watch->ctx : NULL },
			 err);
	if (st)
		ar_err_prefix(err, "%s", r->session.o.prompts);
	return st;
}

struct run_fit run_prompts_fit(const struct run *r)
{
	struct run_fit f = { 0 };

	for (size_t i = 0; i < r->in.trace->n; i++) {
		uint32_t n = r->in.trace->req[i].prompt_tok;

		f.cut += n < r->in.text[i].n_prompt;
		f.repeated += n > r->in.text[i].n_prompt;
	}
	return f;
}

void run_unload_weights(struct run *r)
{
	tokens_close(r->session.tokens);
	free(r->in.text);
	prompts_release(&r->in.prompts);
	weights_release(&r->in.weights);
}
