/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "tests/whole_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/backend-case.h"
#include "tests/tap.h"

static char dir[] = "/tmp/t-weights-XXXXXX";
struct request whole_requests[WHOLE_REQS] = { { .prompt_tok = 290, .output_tok = 5 },
					      { .prompt_tok = 40, .output_tok = 6 },
					      { .prompt_tok = 131, .output_tok = 1 } };
static const struct trace trace = { .req = whole_requests, .n = WHOLE_REQS };
static int32_t prompt[WHOLE_LEN];
const struct tokens_text whole_text[WHOLE_REQS] = { { .prompt = prompt, .n_prompt = WHOLE_LEN },
						    { .prompt = prompt + 7, .n_prompt = 23 },
						    { .prompt = prompt + 100,
						      .n_prompt = WHOLE_LEN - 100 } };

static enum ar_status see(void *ctx, const struct tokens_row *row, struct ar_err *err)
{
	struct whole_outputs *o = ctx;

	(void)err;
	memcpy(o->logit[row->req][row->out], row->logits, sizeof o->logit[0][0]);
	o->token[row->req][row->out] = row->next;
	o->n[row->req]++;
	return AR_OK;
}

/* ---- models ---- */

void whole_begin(void)
{
	if (!mkdtemp(dir))
		bail_out("cannot make a folder");
	for (int i = 0; i < WHOLE_LEN; i++)
		prompt[i] = (i * i + 3 * i + 1) % TINY_VOCAB;
}

void whole_end(void)
{
	tiny_remove(dir);
	rmdir(dir);
}

void whole_load(struct weights *w, const struct tiny *m)
{
	struct ar_err err = { 0 };

	tiny_folder(dir, m);
	if (weights_open(w, dir, &err))
		bail_out("no model: %s", err.msg);
	w->model.max_len = WHOLE_LEN;
}

/* ---- the backend ---- */

enum ar_status whole_try(struct whole *x, const struct weights *w, const struct whole_how *how,
			 struct whole_outputs *o, struct ar_err *err)
{
	enum ar_status st = plan_parse(&x->plan, how->method, err);

	for (int i = 0; i < TINY_LAYERS; i++)
		x->layer[i] = i;
	if (!st)
		st = tokens_open(&x->tokens,
				 &(struct tokens_env){ .trace = &trace,
						       .text = whole_text,
						       .vocab = TINY_VOCAB,
						       .temperature = how->temperature,
						       .seed = how->seed,
						       .see = see,
						       .ctx = o },
				 err);
	x->env = (struct backend_env){ .trace = &trace,
				       .model = &w->model,
				       .weights = w,
				       .tokens = x->tokens,
				       .run_layer = x->layer,
				       .n_run_layers = TINY_LAYERS,
				       .plan = x->plan,
				       .max_batched_tok = WHOLE_BUDGET,
				       .max_seqs = WHOLE_REQS,
				       .max_len = WHOLE_LEN,
				       .num_blocks = how->num_blocks ? how->num_blocks : 120,
				       .block_tok = 16 };
	if (!st)
		st = backend_cpu.open(&x->self, NULL, &x->env, err);
	return st ? st : backend_cpu.start(x->self, x->env.num_blocks, err);
}

void whole_close(struct whole *x)
{
	backend_cpu.close(x->self);
	tokens_close(x->tokens);
	plan_free(x->plan);
	*x = (struct whole){ 0 };
}

void whole_open(struct whole *x, const struct weights *w, const struct whole_how *how,
		struct whole_outputs *o)
{
	struct ar_err err = { 0 };

	*x = (struct whole){ 0 };
	memset(o, 0, sizeof *o);
	if (whole_try(x, w, how, o, &err))
		bail_out("%s: %s", how->method, err.msg);
	for (int q = 0; q < WHOLE_REQS; q++)
		x->known[q] = whole_requests[q].prompt_tok;
}

struct batch_entry whole_next(const struct whole *x, uint32_t q, uint32_t budget)
{
	uint32_t goal = whole_requests[q].prompt_tok + whole_requests[q].output_tok;
	uint32_t left = x->known[q] - x->have[q];
	struct batch_entry e = { .req = q, .start = x->have[q], .known = x->known[q] };

	e.n_tok = x->known[q] == goal ? 0 : left < budget ? left : budget;
	e.decode = e.n_tok == 1 && e.start >= whole_requests[q].prompt_tok;
	e.emit = e.n_tok && e.start + e.n_tok == e.known;
	e.chunk_no = x->chunks[q];
	return e;
}

enum ar_status whole_step(struct whole *x, struct batch_entry *e, size_t n, struct iter_cost *cost,
			  struct ar_err *err)
{
	enum ar_status st = backend_cpu.run(x->self, &(struct batch){ .entry = e, .n = n }, cost,
					    err);

	for (size_t i = 0; i < n && !st; i++) {
		x->have[e[i].req] = e[i].start + e[i].n_tok;
		x->known[e[i].req] += e[i].emit;
		x->chunks[e[i].req]++;
	}
	return st;
}

void whole_serve(struct whole *x, unsigned mask, uint32_t chunk)
{
	for (;;) {
		struct batch_entry e[WHOLE_REQS];
		struct ar_err err = { 0 };
		struct iter_cost cost;
		uint32_t left = WHOLE_BUDGET;
		size_t n = 0;

		for (uint32_t q = 0; q < WHOLE_REQS && left; q++) {
			e[n] = whole_next(x, q, chunk < left ? chunk : left);
			if (!(mask & 1u << q) || !e[n].n_tok)
				continue;
			left -= e[n++].n_tok;
		}
		if (!n)
			return;
		if (whole_step(x, e, n, &cost, &err))
			bail_out("%s", err.msg);
	}
}

void whole_run(const struct weights *w, const struct whole_how *how, uint32_t chunk,
	       struct whole_outputs *o)
{
	struct whole x;

	whole_open(&x, w, how, o);
	whole_serve(&x, 7, chunk);
	whole_close(&x);
}

double outputs_distance(const struct whole_outputs *a, const struct whole_outputs *b)
{
	double most = 0;

	for (int q = 0; q < WHOLE_REQS; q++)
		for (int k = 0; k < (int)whole_requests[q].output_tok; k++)
			for (int i = 0; i < TINY_VOCAB; i++)
				most = fmax(most, fabs((double)a->logit[q][k][i] -
						       (double)b->logit[q][k][i]));
	return most;
}

double outputs_largest(const struct whole_outputs *a)
{
	static const struct whole_outputs zero;

	return outputs_distance(a, &zero);
}

bool outputs_same_tokens(const struct whole_outputs *a, const struct whole_outputs *b)
{
	return !memcmp(a->token, b->token, sizeof a->token);
}

bool outputs_same(const struct whole_outputs *a, const struct whole_outputs *b)
{
	return outputs_same_tokens(a, b) && !memcmp(a->n, b->n, sizeof a->n) &&
	       !memcmp(a->logit, b->logit, sizeof a->logit);
}

/* ---- a backend that runs a model with real weights ---- */

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
	int first = (int)c->trace.req[req].prompt_tok, known = first + c->n_out[req];

	return (struct batch_entry){ .req = (uint32_t)req,
				     .start = (uint32_t)start,
				     .n_tok = (uint32_t)n,
				     .known = (uint32_t)known,
				     .decode = n == 1 && start >= first,
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
