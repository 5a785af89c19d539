/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "tests/whole_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/backend-case.h"
#include "tests/tap.h"

enum { BLOCK = 16, PAGE = 128, PROMPT_IDS = 400 };

/* ---- the backend ---- */

static enum ar_status open_tokens(struct whole *x, const struct weights *w,
				  const struct whole_how *how, struct ar_err *err)
{
	return tokens_open(&x->tokens,
			   &(struct tokens_env){ .trace = how->trace,
						 .text = how->text,
						 .vocab = w->model.vocab,
						 .temperature = how->temperature,
						 .seed = how->seed,
						 .see = how->see,
						 .ctx = how->ctx },
			   err);
}

static enum ar_status set_env(struct whole *x, const struct weights *w, const struct whole_how *how,
			      struct ar_err *err)
{
	int n_layers = w->model.n_layers;

	x->layer = calloc((size_t)n_layers, sizeof *x->layer);
	x->req = calloc(how->trace->n, sizeof *x->req);
	if (!x->layer || !x->req)
		return ar_nomem(err);
	for (int i = 0; i < n_layers; i++)
		x->layer[i] = i;
	x->env = (struct backend_env){ .trace = how->trace,
				       .model = &w->model,
				       .weights = w,
				       .tokens = x->tokens,
				       .run_layer = x->layer,
				       .n_run_layers = n_layers,
				       .plan = x->plan,
				       .evict = plan_evict(x->plan),
				       .max_batched_tok = how->max_batched_tok,
				       .max_seqs = (int)how->trace->n + 1,
				       .max_draft_tok = how->max_draft_tok,
				       .block_tok = BLOCK,
				       .blocks = &x->blocks,
				       .seed = 3,
				       .prof = how->prof };
	for (size_t i = 0; i < how->trace->n; i++) {
		const struct request *q = &how->trace->req[i];
		int n = (int)(q->prompt_tok + q->output_tok);

		x->req[i].known = q->prompt_tok;
		x->env.max_len = n > x->env.max_len ? n : x->env.max_len;
		x->env.num_blocks += (n / PAGE + 1) * (PAGE / BLOCK);
	}
	if (how->num_blocks)
		x->env.num_blocks = how->num_blocks;
	return AR_OK;
}

enum ar_status whole_try(struct whole *x, const struct weights *w, struct whole_how how,
			 struct ar_err *err)
{
	void *opts = case_options(how.backend, how.eager ? "enforce-eager" : NULL, "1");
	enum ar_status st;

	*x = (struct whole){ .backend = how.backend };
	st = plan_parse(&x->plan, how.method, err);
	if (!st)
		st = open_tokens(x, w, &how, err);
	if (!st)
		st = set_env(x, w, &how, err);
	if (!st)
		st = backend_open(how.backend, &x->self, opts, &x->env, err);
	if (!st)
		st = backend_start(how.backend, x->self, x->env.num_blocks, err);
	case_options_free(how.backend, opts);
	return st;
}

void whole_open(struct whole *x, const struct weights *w, struct whole_how how)
{
	struct ar_err err = { 0 };

	if (whole_try(x, w, how, &err))
		bail_out("%s: %s", how.method, err.msg);
}

void whole_close(struct whole *x)
{
	if (x->self)
		backend_close(x->backend, x->self);
	blocks_release(&x->blocks);
	tokens_close(x->tokens);
	plan_free(x->plan);
	free(x->layer);
	free(x->req);
	*x = (struct whole){ 0 };
}

struct batch_entry whole_entry(const struct whole *x, uint32_t q, uint32_t start, uint32_t n)
{
	const struct whole_request *r = &x->req[q];

	return (struct batch_entry){ .req = q,
				     .start = start,
				     .n_tok = n,
				     .known = r->known,
				     .kind = n == 1 && start >= x->env.trace->req[q].prompt_tok ?
						     ROW_DECODE :
						     ROW_PREFILL,
				     .n_emit = n && start + n == r->known,
				     .chunk_no = r->chunks };
}

struct batch_entry whole_next(const struct whole *x, uint32_t q, uint32_t budget)
{
	const struct request *t = &x->env.trace->req[q];
	const struct whole_request *r = &x->req[q];
	uint32_t left = r->known == t->prompt_tok + t->output_tok ? 0 : r->known - r->have;

	return whole_entry(x, q, r->have, left < budget ? left : budget);
}

enum ar_status whole_try_step(struct whole *x, struct batch_entry *e, size_t n,
			      struct iter_cost *cost, struct ar_err *err)
{
	struct batch b = { .entry = e, .n = n, .blocks = &x->blocks };
	enum ar_status st;

	for (size_t i = 0; i < n; i++)
		*(e[i].kind == ROW_DECODE ? &b.decode_tok : &b.prefill_tok) += e[i].n_tok;
	st = backend_run(x->backend, x->self, &b, cost, err);
	for (size_t i = 0; i < n && !st; i++) {
		struct whole_request *r = &x->req[e[i].req];

		r->have = e[i].start + e[i].n_tok;
		r->known += e[i].n_emit;
		r->chunks++;
	}
	return st;
}

struct iter_cost whole_step(struct whole *x, struct batch_entry *e, size_t n)
{
	struct iter_cost cost;
	struct ar_err err;

	if (whole_try_step(x, e, n, &cost, &err))
		bail_out("%s", err.msg);
	return cost;
}

void whole_drop(struct whole *x, uint32_t q)
{
	blocks_leave(&x->blocks, q);
	backend_drop(x->backend, x->self, q);
	x->req[q].have = 0;
}

void whole_serve(struct whole *x, unsigned mask, uint32_t chunk)
{
	for (;;) {
		struct batch_entry e[WHOLE_REQS];
		uint32_t left = (uint32_t)x->env.max_batched_tok;
		size_t n = 0;

		for (uint32_t q = 0; q < x->env.trace->n && left; q++) {
			e[n] = whole_next(x, q, chunk < left ? chunk : left);
			if (!(mask & 1u << q) || !e[n].n_tok)
				continue;
			left -= e[n++].n_tok;
		}
		if (!n)
			return;
		whole_step(x, e, n);
	}
}

void whole_run(const struct weights *w, struct whole_how how, uint32_t chunk)
{
	struct whole x;

	whole_open(&x, w, how);
	whole_serve(&x, ~0u, chunk);
	whole_close(&x);
}

/* ---- three requests ---- */

static char dir[] = "/tmp/t-weights-XXXXXX";
static int32_t prompt[PROMPT_IDS];
struct request whole_requests[WHOLE_REQS] = { { .prompt_tok = 290, .output_tok = 5 },
					      { .prompt_tok = 40, .output_tok = 6 },
					      { .prompt_tok = 131, .output_tok = 1 } };
static const struct trace three = { .req = whole_requests, .n = WHOLE_REQS };
const struct tokens_text whole_text[WHOLE_REQS] = { { .prompt = prompt, .n_prompt = PROMPT_IDS },
						    { .prompt = prompt + 7, .n_prompt = 23 },
						    { .prompt = prompt + 100,
						      .n_prompt = PROMPT_IDS - 100 } };

void whole_begin(void)
{
	if (!mkdtemp(dir))
		bail_out("cannot make a folder");
	for (int i = 0; i < PROMPT_IDS; i++)
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

static enum ar_status see(void *ctx, const struct tokens_row *row, struct ar_err *err)
{
	struct whole_outputs *o = ctx;

	(void)err;
	memcpy(o->logit[row->req][row->out], row->logits, sizeof o->logit[0][0]);
	o->token[row->req][row->out] = row->next;
	o->n[row->req]++;
	return AR_OK;
}

struct whole_how whole_three(const char *method, struct whole_outputs *o)
{
	memset(o, 0, sizeof *o);
	return (struct whole_how){ .method = method,
				   .backend = &backend_cpu,
				   .trace = &three,
				   .text = whole_text,
				   .max_batched_tok = WHOLE_BUDGET,
				   .see = see,
				   .ctx = o };
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
