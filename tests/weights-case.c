/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "tests/weights-case.h"

#include <stdlib.h>

#include "tests/backend-case.h"
#include "tests/tap.h"

enum { BLOCK = 16, PAGE = 128 };

static void *array(int n, size_t size)
{
	void *p = calloc((size_t)n + 1, size);

	if (!p)
		bail_out("out of memory");
	return p;
}

static void open_tokens(struct weights_case *c, const struct weights *w,
			const struct weights_how *how)
{
	struct tokens_text *text = array(how->n_text, sizeof *text);
	struct ar_err err;

	c->trace = (struct trace){ .req = array(how->n_text, sizeof *c->trace.req),
				   .n = (size_t)how->n_text };
	for (int i = 0; i < how->n_text; i++) {
		const struct weights_text *t = &how->text[i];

		c->trace.req[i] = request_none;
		c->trace.req[i].prompt_tok = (uint32_t)t->n_prompt;
		c->trace.req[i].output_tok = (uint32_t)t->n_out;
		text[i] = (struct tokens_text){ .prompt = t->id,
						.n_prompt = (uint32_t)t->n_prompt,
						.answer = t->answered ? t->id + t->n_prompt :
									NULL };
	}
	if (tokens_open(&c->tokens,
			&(struct tokens_env){ .trace = &c->trace,
					      .text = text,
					      .vocab = w->model.vocab,
					      .see = how->see,
					      .ctx = how->ctx },
			&err))
		bail_out("%s", err.msg);
	free(text);
}

static void set_env(struct weights_case *c, const struct weights *w, const struct weights_how *how)
{
	int n_layers = w->model.n_layers;

	c->layer = array(n_layers, sizeof *c->layer);
	for (int i = 0; i < n_layers; i++)
		c->layer[i] = i;
	c->env = (struct backend_env){ .trace = &c->trace,
				       .model = &w->model,
				       .weights = w,
				       .tokens = c->tokens,
				       .run_layer = c->layer,
				       .n_run_layers = n_layers,
				       .plan = c->plan,
				       .max_batched_tok = how->max_batched_tok,
				       .max_seqs = how->n_text + 1,
				       .block_tok = BLOCK,
				       .seed = 3,
				       .prof = how->prof };
	for (int i = 0; i < how->n_text; i++) {
		int n = how->text[i].n_prompt + how->text[i].n_out;

		c->env.max_len = n > c->env.max_len ? n : c->env.max_len;
		c->env.num_blocks += (n / PAGE + 1) * (PAGE / BLOCK);
	}
}

enum ar_status weights_case_open(struct weights_case *c, const struct backend *b,
				 const struct weights *w, const struct weights_how *how,
				 struct ar_err *err)
{
	void *opts = case_options(b, how->eager ? "enforce-eager" : NULL, "1");
	enum ar_status st;

	*c = (struct weights_case){ .backend = b };
	if (plan_parse(&c->plan, how->method, err))
		bail_out("%s", err->msg);
	open_tokens(c, w, how);
	set_env(c, w, how);
	c->n_out = array(how->n_text, sizeof *c->n_out);
	st = b->open(&c->self, opts, &c->env, err);
	case_options_free(b, opts);
	if (!st && b->start(c->self, c->env.num_blocks, err))
		bail_out("%s", err->msg);
	return st;
}

void weights_case_close(struct weights_case *c)
{
	if (c->self)
		c->backend->close(c->self);
	plan_free(c->plan);
	tokens_close(c->tokens);
	free(c->trace.req);
	free(c->layer);
	free(c->n_out);
}

struct batch_entry weights_entry(const struct weights_case *c, int req, int start, int n)
{
	int prompt = (int)c->trace.req[req].prompt_tok, known = prompt + c->n_out[req];

	return (struct batch_entry){ .req = (uint32_t)req,
				     .start = (uint32_t)start,
				     .n_tok = (uint32_t)n,
				     .known = (uint32_t)known,
				     .decode = n == 1 && start >= prompt,
				     .emit = start + n == known };
}

struct iter_cost weights_case_run(struct weights_case *c, struct batch_entry *e, size_t n)
{
	struct batch b = { .entry = e, .n = n };
	struct iter_cost cost;
	struct ar_err err;

	for (size_t i = 0; i < n; i++)
		*(e[i].decode ? &b.decode_tok : &b.prefill_tok) += e[i].n_tok;
	if (c->backend->run(c->self, &b, &cost, &err))
		bail_out("%s", err.msg);
	for (size_t i = 0; i < n; i++)
		c->n_out[e[i].req] += e[i].emit;
	return cost;
}

void weights_case_drop(struct weights_case *c, int req)
{
	c->backend->drop(c->self, (uint32_t)req);
}
