/* SPDX-License-Identifier: Apache-2.0 */
/* The inputs of run --weights: weights, prompts and the tokens of requests. */
#include "config.h"
#include "src/run/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/alloc_fault.h"
#include "tests/file.h"
#include "tests/tap.h"
#include "tests/tiny_model.h"

static char dir[] = "/tmp/t-run-tokens-XXXXXX";
static char prompts[64];
static struct request requests[] = { { .prompt_tok = 3, .output_tok = 2 },
				     { .prompt_tok = 5, .output_tok = 1 },
				     { .prompt_tok = 2, .output_tok = 1 } };
static struct trace trace = { .req = requests, .n = 3 };

/* Set the inputs that 'run' has read before its weights. */
static enum ar_status begin(struct run *r, const char *model, struct ar_err *err)
{
	*r = (struct run){ .in.trace = &trace };
	r->session.o.weights = dir;
	r->session.o.prompts = prompts;
	r->session.o.model = (char *)(uintptr_t)model;
	r->session.o.tp = 1;
	return model_load(&r->in.model, model ? model : dir, err);
}

static enum ar_status load(struct run *r, struct ar_err *err)
{
	enum ar_status st = begin(r, NULL, err);

	if (!st)
		st = run_load_weights(&r->in, &r->session, err);
	return st ? st : run_load_tokens(&r->in, &r->session, err);
}

static void end(struct run *r)
{
	tokens_close(r->session.tokens);
	run_unload_weights(&r->in);
	model_release(&r->in.model);
}

/* Requests take the prompts 1 2 3 and 4 5 6 in turn. */
static void test_tokens(void)
{
	static const int32_t want[3][5] = { { 1, 2, 3 }, { 4, 5, 6, 4, 5 }, { 1, 2 } };
	float logits[TINY_VOCAB] = { [9] = 1 };
	struct ar_err err = { 0 };
	struct run_fit fit;
	struct run r;
	int wrong = 0;

	if (load(&r, &err))
		bail_out("%s", err.msg);
	for (uint32_t q = 0; q < 3; q++)
		for (uint32_t i = 0; i < requests[q].prompt_tok; i++)
			wrong += tokens_id(r.session.tokens, q, i) != want[q][i];
	is_int(wrong, 0, "requests take the prompts in turn, repeated or cut");
	fit = run_prompts_fit(&r.in);
	ok(fit.cut == 1 && fit.repeated == 1, "... which is counted");
	is_int(tokens_put(r.session.tokens, 0, 2, logits, &err), AR_OK, "a token is output");
	is_int(run_open_tokens(&r.in, &r.session, &err), AR_OK, "the next method begins");
	logits[9] = 0;
	logits[8] = 1;
	is_int(tokens_put(r.session.tokens, 0, 2, logits, &err), AR_OK, "... and outputs another");
	is_int(tokens_id(r.session.tokens, 0, 3), 8, "... which counts");
	end(&r);
}

static void test_model(void)
{
	struct ar_err err = { 0 };
	struct model m[TINY_MODELS];
	struct run r;
	int wrong = 0;

	for (int i = 0; i < TINY_MODELS; i++) {
		tiny_config(dir, &tiny_models[i]);
		if (model_load(&m[i], dir, &err))
			bail_out("%s", err.msg);
	}
	for (int i = 0; i < TINY_MODELS; i++)
		for (int k = 0; k < TINY_MODELS; k++)
			wrong += model_alike(&m[i], &m[k]) != (i == k);
	is_int(wrong, 0, "each model is like itself and no other");
	for (int i = 0; i < TINY_MODELS; i++)
		model_release(&m[i]);
	tiny_config(dir, &tiny_models[0]);
	if (begin(&r, "niah-llama-14m", &err))
		bail_out("%s", err.msg);
	ok(run_load_weights(&r.in, &r.session, &err) == AR_USAGE &&
		   strstr(err.msg, "model 'niah-llama-14m' is not that of /tmp/t-run-tokens-"),
	   "weights of another model than --model: %s", err.msg);
	end(&r);
}

static void test_nothing(void)
{
	struct run r = { .in.trace = &trace };
	struct ar_err err = { 0 };

	ok(run_load_tokens(&r.in, &r.session, &err) == AR_OK &&
		   run_open_tokens(&r.in, &r.session, &err) == AR_OK && !r.session.tokens,
	   "without weights there are no tokens");
	run_unload_weights(&r.in);
}

static void test_faults(void)
{
	bool failed = true;
	int bad = 0;
	long k = 0;

	for (; failed; k += fault_stride(7)) {
		struct ar_err err = { 0 };
		enum ar_status st;
		struct run r;

		fault_arm(k);
		st = load(&r, &err);
		failed = fault_disarm();
		bad += st != (failed ? AR_NOMEM : AR_OK);
		end(&r);
	}
	ok(!bad && k > 100, "each of %ld allocations fails cleanly, %d did not", k, bad);
}

static void write_model(void)
{
	static const char text[] = "[1,2,3]\n{\"prompt\":[4,5,6],\"answer\":[7]}\n";

	if (!mkdtemp(dir))
		bail_out("cannot make a folder");
	snprintf(prompts, sizeof prompts, "%s/prompts.jsonl", dir);
	file_write(prompts, text, sizeof text - 1);
	tiny_folder(dir, &tiny_models[0]);
}

static void clean(void)
{
	char path[96];

	tiny_remove(dir);
	snprintf(path, sizeof path, "%s/prompts.jsonl", dir);
	remove(path);
	rmdir(dir);
}

int main(void)
{
	plan(0);
	write_model();
	test_tokens();
	test_model();
	test_nothing();
	test_faults();
	clean();
	return done_testing();
}
