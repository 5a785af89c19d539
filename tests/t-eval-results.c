/* SPDX-License-Identifier: Apache-2.0 */
/* Results of an evaluation: fed through tokens_put() as a backend does, also from other
 * processes. */
#include "config.h"
#include "src/eval/results.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "tests/alloc_fault.h"
#include "tests/tap.h"

enum { VOCAB = 4, RUNS = 3 };

static struct request requests[] = { { .prompt_tok = 3, .output_tok = 2 },
				     { .prompt_tok = 2, .output_tok = 1 } };
static const struct trace trace = { .req = requests, .n = 2 };
static const int32_t prompt[] = { 3, 1, 0 }, answer[] = { 2, 0 }, other[] = { 1 };
static const struct tokens_text text[] = {
	{ .prompt = prompt, .n_prompt = 3, .answer = answer },
	{ .prompt = prompt, .n_prompt = 2, .answer = other },
};

/* The answer's token 2 is the first, 0 the first of equals, 1 the third. */
static const float at_2[VOCAB] = { 0, 0, 2, 1 }, at_0[VOCAB] = { 1, 1, 0, 0 },
		   at_1[VOCAB] = { 3, 1, 2, 0 };

struct watch {
	struct eval_results *e;
	size_t i;
};

static enum ar_status see(void *ctx, const struct tokens_row *row, struct ar_err *err)
{
	const struct watch *w = ctx;

	(void)err;
	eval_results_add(w->e, w->i, row);
	return AR_OK;
}

/* Run i has these logits for the tokens 0 and 1 of request 0, and for that of request 1; NULL: it
 * does not get so far. */
static void feed(struct eval_results *e, size_t i, const float *a, const float *b, const float *c)
{
	struct watch w = { e, i };
	struct ar_err err = { 0 };
	struct tokens *t;

	if (tokens_open(
		    &t,
		    &(struct tokens_env){
			    .trace = &trace, .text = text, .vocab = VOCAB, .see = see, .ctx = &w },
		    &err) ||
	    (a && tokens_put(t, 0, 2, a, &err)) || (b && tokens_put(t, 0, 3, b, &err)) ||
	    (c && tokens_put(t, 1, 1, c, &err)))
		bail_out("%s", err.msg);
	tokens_close(t);
}

/* The same in a process of its own. */
static void feed_apart(struct eval_results *e, size_t i, const float *a, const float *b,
		       const float *c)
{
	pid_t child = fork();
	int ended;

	if (!child) {
		feed(e, i, a, b, c);
		_exit(0);
	}
	if (child < 0 || waitpid(child, &ended, 0) != child || ended)
		bail_out("no child");
}

static struct eval_results opened(const char *dir)
{
	struct eval_results e;
	struct ar_err err = { 0 };

	if (eval_results_open(&e, &trace, VOCAB, RUNS, dir, &err))
		bail_out("%s", err.msg);
	return e;
}

static bool near(double a, double b)
{
	return fabs(a - b) < 1e-12;
}

static void test_runs(void)
{
	struct eval_results e = opened("/tmp");
	struct eval_token want[3];
	struct eval_summary s;
	struct eval_answer a;

	ok(!eval_results_answer(&e, 0, 0, &a), "before it runs no answer is there");
	feed_apart(&e, 0, at_2, at_0, at_1);
	ok(eval_results_answer(&e, 0, 0, &a) && a.n == 2 && a.n_best == 2 && !a.rank_max,
	   "another process's answer is exact");
	want[0] = eval_score(at_2, NULL, VOCAB, 2);
	want[1] = eval_score(at_0, NULL, VOCAB, 0);
	ok(near(a.logprob, want[0].logprob + want[1].logprob) && a.kl == 0,
	   "... with the sum of the log-probabilities, and no KL to itself");
	ok(eval_results_answer(&e, 0, 1, &a) && a.n_best == 0 && a.rank_max == 2,
	   "... and the next one is not");
	feed_apart(&e, 1, at_1, at_0, at_2);
	ok(eval_results_answer(&e, 1, 0, &a), "a second run");
	want[0] = eval_score(at_1, at_2, VOCAB, 2);
	want[1] = eval_score(at_0, at_0, VOCAB, 0);
	want[2] = eval_score(at_2, at_1, VOCAB, 1);
	ok(a.n_best == 1 && a.rank_max == 1 && near(a.logprob, want[0].logprob + want[1].logprob) &&
		   near(a.kl, want[0].kl) && a.kl > 0,
	   "... is compared with the first one's logits");
	s = eval_results_summary(&e, 1);
	ok(s.n == 2 && !s.exact && s.n_pair == 2 && s.lost == 1 && !s.won && s.p == 1,
	   "its summary counts answers");
	ok(near(s.logprob, (a.logprob / 2 + want[2].logprob) / 2) &&
		   near(s.kl, (a.kl / 2 + want[2].kl) / 2),
	   "... weighs prompts alike, whatever their answers' lengths");
	ok(near(s.diff, s.logprob - eval_results_summary(&e, 0).logprob),
	   "... and has the distance to the first run's");
	feed(&e, 2, at_2, NULL, at_2);
	s = eval_results_summary(&e, 2);
	ok(!eval_results_answer(&e, 2, 0, &a) && s.n == 1 && s.n_pair == 1 && !s.lost,
	   "an answer that broke off does not count");
	ok(isnan(s.run.executed) && isnan(s.run.ttft_ms), "what nobody told is not known");
	eval_results_clear(&e, 2);
	ok(!eval_results_summary(&e, 2).n && isnan(eval_results_summary(&e, 2).diff),
	   "a run can begin again");
	eval_results_close(&e);
	eval_results_close(&e);
}

static void test_no_logits(void)
{
	struct eval_results e = opened(NULL);
	struct eval_answer a;

	feed(&e, 0, at_2, at_0, at_1);
	feed(&e, 1, at_1, at_0, at_2);
	ok(eval_results_answer(&e, 1, 0, &a) && isnan(a.kl) && a.n_best == 1,
	   "without dense logits there is no KL, but all else");
	eval_results_close(&e);
	e = opened("/tmp");
	feed(&e, 0, at_2, NULL, NULL);
	feed(&e, 1, at_1, at_0, at_2);
	ok(eval_results_answer(&e, 1, 0, &a) && isnan(a.kl),
	   "... nor where the dense run broke off");
	eval_results_close(&e);
	log_level = LOG_ERROR;
	e = opened("/no/such/folder");
	log_level = LOG_INFO;
	ok(!e.dense && e.scored, "where the logits cannot be kept, the scores are");
	eval_results_close(&e);
}

static void test_memory(void)
{
	int n = 0;

	for (;; n++) {
		struct eval_results e;
		struct ar_err err = { 0 };
		enum ar_status st;

		fault_arm(n);
		st = eval_results_open(&e, &trace, VOCAB, RUNS, "/tmp", &err);
		eval_results_close(&e);
		if (!fault_disarm())
			break;
		if (st != AR_NOMEM)
			bail_out("allocation %d: status %d", n, st);
	}
	is_int(n, 1, "each of %d allocations fails cleanly", n);
}

int main(void)
{
	plan(0);
	test_runs();
	test_no_logits();
	test_memory();
	return done_testing();
}
