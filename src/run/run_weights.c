/* SPDX-License-Identifier: Apache-2.0 */
/* The inputs of --weights: the model's weights, and the tokens of the requests. */
#include "config.h"
#include "src/run/run.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "traces/token_blocks.h"

/* Check the options of a run with real weights: it needs prompts from a file. */
static enum ar_status check_options(const struct run_options *o, struct ar_err *err)
{
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

enum ar_status run_load_weights(struct run_inputs *in, const struct run_session *s,
				struct ar_err *err)
{
	const struct run_options *o = &s->o;
	enum ar_status st = check_options(o, err);

	if (!st)
		st = prompts_read_limited(&in->prompts, o->prompts, o->trace_args.in.max_memory,
					  err);
	if (!st)
		st = weights_open_rank(&in->weights, o->weights, (int)o->tp, s->place.rank, err);
	if (!st && !model_alike(&in->weights.model, &in->model))
		st = ar_fail(err, AR_USAGE,
			     "model '%s' is not that of %s/config.json; leave --model out",
			     o->model, o->weights);
	return st;
}

enum ar_status run_take_slices(struct run_inputs *in, const struct run_session *s,
			       struct ar_err *err)
{
	const int rank = s->world ? world_rank(s->world) : 0;

	if (!s->o.weights || rank == s->place.rank)
		return AR_OK;
	weights_release(&in->weights);
	return weights_open_rank(&in->weights, s->o.weights, (int)s->o.tp, rank, err);
}

void run_warn_rank(const struct run *r)
{
	const struct run_session *s = &r->session;

	if (s->o.weights && s->o.ranks == RUN_RANKS_ONE && r->in.model.tp > 1 && !s->point)
		log_warn("rank 0 of %d runs alone: times and memory are those of a rank, but "
			 "activations after the first attention are partial sums, so tokens, "
			 "selections and accuracy are of no model",
			 r->in.model.tp);
}

/* Request i has prompt i, modulo their number, unless a watch says otherwise. */
static enum ar_status set_text(struct run_inputs *in, const struct run_watch *watch,
			       struct ar_err *err)
{
	in->text = calloc(in->trace->n + 1, sizeof *in->text);
	if (!in->text)
		return ar_nomem(err);
	if (watch)
		return watch->texts(watch->ctx, in->text, err);
	for (size_t i = 0; i < in->trace->n; i++) {
		const struct prompt *p = &in->prompts.v[i % in->prompts.n];

		in->text[i] = (struct tokens_text){ .prompt = p->prompt, .n_prompt = p->n_prompt };
	}
	return AR_OK;
}

/* Requests share blocks of the prefix cache where their tokens are equal, as in an engine. */
static enum ar_status name_blocks(struct run_inputs *in, struct ar_err *err)
{
	struct token_blocks *b;
	enum ar_status st = token_blocks_open(&b, in->trace, err);

	for (size_t i = 0; i < in->trace->n && !st; i++)
		st = token_blocks_add(b, in->text[i].prompt, in->text[i].n_prompt, err);
	token_blocks_close(b);
	return st;
}

enum ar_status run_load_tokens(struct run_inputs *in, struct run_session *s, struct ar_err *err)
{
	enum ar_status st;

	if (!s->o.weights)
		return AR_OK;
	st = set_text(in, s->watch, err);
	if (!st && in->limits.prefix_cache && !in->lent_trace)
		st = name_blocks(in, err);
	return st ? st : run_open_tokens(in, s, err);
}

enum ar_status run_open_tokens(struct run_inputs *in, struct run_session *s, struct ar_err *err)
{
	enum ar_status st;

	if (!s->o.weights)
		return AR_OK;
	tokens_close(s->tokens);
	s->tokens = NULL;
	st = tokens_open(&s->tokens,
			 &(struct tokens_env){ .trace = in->trace,
					       .text = in->text,
					       .vocab = in->model.vocab * in->model.tp,
					       .n_logits = in->model.vocab *
							   (s->world ? in->model.tp : 1),
					       .temperature = s->o.temperature,
					       .seed = (uint64_t)s->o.seed,
					       .see = s->watch && !s->muted ? s->watch->see : NULL,
					       .ctx = s->watch ? s->watch->ctx : NULL },
			 err);
	if (st)
		ar_err_prefix(err, "%s", s->o.prompts);
	return st;
}

struct run_fit run_prompts_fit(const struct run_inputs *in)
{
	struct run_fit f = { 0 };

	for (size_t i = 0; i < in->trace->n; i++) {
		uint32_t n = in->trace->req[i].prompt_tok;

		f.cut += n < in->text[i].n_prompt;
		f.repeated += n > in->text[i].n_prompt;
	}
	return f;
}

void run_unload_weights(struct run_inputs *in)
{
	free(in->text);
	prompts_release(&in->prompts);
	weights_release(&in->weights);
}
