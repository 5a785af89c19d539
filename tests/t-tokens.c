/* SPDX-License-Identifier: Apache-2.0 */
/* Ids of prompts and outputs, and how the next one is chosen. */
#include "config.h"
#include "replay/engine/tokens.h"

#include <math.h>
#include <string.h>

#include "tests/alloc_fault.h"
#include "tests/tap.h"

enum { VOCAB = 5 };

static struct request requests[] = { { .prompt_tok = 5, .output_tok = 2 },
				     { .prompt_tok = 2, .output_tok = 3 } };
static const struct trace trace = { .req = requests, .n = 2 };
static const int32_t prompt[] = { 3, 1, 4 }, answer[] = { 2, 0, 2 };
static const struct tokens_text text[] = { { .prompt = prompt, .n_prompt = 3 },
					   { .prompt = prompt, .n_prompt = 3, .answer = answer } };
static const float logits[VOCAB] = { 0, 3, 1, 3, -1 };

struct seen {
	int n;
	struct tokens_row last;
};

static enum ar_status see(void *ctx, const struct tokens_row *row, struct ar_err *err)
{
	struct seen *s = ctx;

	s->n++;
	s->last = *row;
	return row->out == 1 ? ar_fail(err, AR_USAGE, "enough") : AR_OK;
}

static struct tokens *opened(double temperature, uint64_t seed, struct seen *s)
{
	struct ar_err err = { 0 };
	struct tokens *t;

	if (tokens_open(&t,
			&(struct tokens_env){ .trace = &trace,
					      .text = text,
					      .vocab = VOCAB,
					      .temperature = temperature,
					      .seed = seed,
					      .see = s ? see : NULL,
					      .ctx = s },
			&err))
		bail_out("%s", err.msg);
	return t;
}

static void test_ids(void)
{
	struct tokens *t = opened(0, 0, NULL);
	int good = 0;

	for (int64_t p = 0; p < 5; p++)
		good += tokens_id(t, 0, p) == prompt[p % 3];
	is_int(good, 5, "a short prompt repeats");
	is_int(tokens_id(t, 1, 1), 1, "a long one is cut");
	is_int(tokens_id(t, 1, 4), 2, "an answer is known from the start");
	tokens_close(t);
	tokens_close(NULL);
}

/* The tokens of a prompt may be of all ranks; the next token is of the first rank. */
static void test_rank(void)
{
	static const float some[2] = { 1, 2 };
	const struct tokens_env e = {
		.trace = &trace, .text = text, .vocab = VOCAB, .n_logits = 2
	};
	struct ar_err err = { 0 };
	struct tokens *t;

	is_int(tokens_open(&t, &e, &err), AR_OK, "ids that have no logits");
	is_int(tokens_id(t, 0, 2), 4, "... are in prompts");
	is_int(tokens_put(t, 0, 4, some, &err), AR_OK, "logits of a part of the vocabulary");
	is_int(tokens_id(t, 0, 5), 1, "... choose among them");
	tokens_close(t);
}

static void test_choice(void)
{
	struct ar_err err = { 0 };
	struct seen s = { 0 };
	struct tokens *t = opened(0, 0, &s);

	is_int(tokens_put(t, 0, 4, logits, &err), AR_OK, "logits of the last token of a prompt");
	is_int(tokens_id(t, 0, 5), 1, "the first of the most likely tokens is next");
	ok(s.n == 1 && s.last.req == 0 && s.last.out == 0 && s.last.next == 1 &&
		   s.last.logits == logits && s.last.n_logits == VOCAB,
	   "the row is shown");
	is_int(tokens_put(t, 1, 1, logits, &err), AR_OK, "logits with an answer");
	ok(s.last.next == 2 && tokens_id(t, 1, 2) == 2, "the answer's token is next");
	is_int(tokens_put(t, 1, 4, logits, &err), AR_OK, "a row past the last output");
	is_int(s.n, 2, "... gives none");
	is_int(tokens_put(t, 1, 2, logits, &err), AR_USAGE, "an error of see() is passed on");
	is_str(err.msg, "enough", "... with its message");
	tokens_close(t);
}

/* The shares of 4000 draws are the softmax's, to five deviations. */
static void test_draws(void)
{
	int n[VOCAB] = { 0 }, good = 0, again = 0;
	struct ar_err err = { 0 };
	double sum = 0;

	for (int i = 0; i < 4000; i++) {
		struct tokens *t = opened(2, (uint64_t)i, NULL),
			      *same = opened(2, (uint64_t)i, NULL);

		if (tokens_put(t, 0, 4, logits, &err) || tokens_put(same, 0, 4, logits, &err))
			bail_out("%s", err.msg);
		n[tokens_id(t, 0, 5)]++;
		again += tokens_id(t, 0, 5) == tokens_id(same, 0, 5);
		tokens_close(t);
		tokens_close(same);
	}
	for (int i = 0; i < VOCAB; i++)
		sum += exp(logits[i] / 2);
	for (int i = 0; i < VOCAB; i++) {
		double p = exp(logits[i] / 2) / sum;

		good += fabs(n[i] - 4000 * p) < 5 * sqrt(4000 * p * (1 - p));
	}
	is_int(good, VOCAB, "draws follow the softmax at the temperature");
	is_int(again, 4000, "... and a seed gives the same one again");
}

static void test_refusals(void)
{
	static const float bad[VOCAB] = { 0, 0, NAN, 0, 0 };
	static const int32_t high[] = { 1, VOCAB }, low[] = { -1, 0, 0 };
	const struct tokens_text prompts[] = { { .prompt = high, .n_prompt = 2 }, text[1] };
	const struct tokens_text answers[] = { text[0],
					       { .prompt = prompt, .n_prompt = 3, .answer = low } };
	struct tokens_env e = { .trace = &trace, .text = prompts, .vocab = VOCAB };
	struct ar_err err = { 0 };
	struct tokens *t;

	is_int(tokens_open(&t, &e, &err), AR_DATA, "an id past the vocabulary");
	is_str(err.msg,
	       "request 0: token 1 of the prompt is 5, but the vocabulary has 5; encode it with "
	       "the model's tokenizer",
	       "... is named");
	e.text = answers;
	is_int(tokens_open(&t, &e, &err), AR_DATA, "an id below 0 in an answer");
	is_str(err.msg,
	       "request 1: token 0 of the answer is -1, but the vocabulary has 5; encode it with "
	       "the model's tokenizer",
	       "... is named");
	t = opened(0, 0, NULL);
	is_int(tokens_put(t, 0, 4, bad, &err), AR_DATA, "a logit that is not finite");
	is_str(err.msg, "request 0: the logit of token 2 at position 4 is not finite",
	       "... is named");
	tokens_close(t);
}

static void test_memory(void)
{
	const struct tokens_env e = { .trace = &trace, .text = text, .vocab = VOCAB };
	int n = 0;

	for (;; n++) {
		struct ar_err err = { 0 };
		struct tokens *t;
		enum ar_status st;

		fault_arm(n);
		st = tokens_open(&t, &e, &err);
		tokens_close(t);
		if (!fault_disarm())
			break;
		if (st != AR_NOMEM)
			bail_out("allocation %d: status %d", n, st);
	}
	is_int(n, 4, "each of %d allocations fails cleanly", n);
}

int main(void)
{
	plan(0);
	test_ids();
	test_rank();
	test_choice();
	test_draws();
	test_refusals();
	test_memory();
	return done_testing();
}
