/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scores of the answers' tokens, of all runs of an evaluation.
 *
 * Run 0 is the dense one.  Its logits are kept, so that the others can be compared with them.
 * Each run may be in a process of its own (run_method_apart()): the results are in memory that
 * the processes share, the logits in a file without a name.
 */
#ifndef AR_EVAL_RESULTS_H
#define AR_EVAL_RESULTS_H

#include <stdbool.h>
#include <stddef.h>

#include "replay/engine/tokens.h"
#include "src/eval/score.h"

/* Results of a run, beside the scores. */
struct eval_run {
	bool ended;	       /* complete or interrupted */
	int64_t id;	       /* in the database; 0: none */
	double executed;       /* share of the attention: of the sampled chunks, times the share
				* that a dropper left; NaN: not known */
	double recall, rel_l2; /* means over the samples; NaN: there are none */
	double ttft_ms;	       /* mean; NaN: of no request */
};

struct eval_results {
	size_t n_run, n_req, n_row;
	int vocab;
	size_t *first;		  /* [n_req + 1] the first row of each request; a row is a token */
	bool *scored;		  /* [n_run][n_row] */
	struct eval_token *token; /* [n_run][n_row], of scored rows */
	struct eval_run *run;	  /* [n_run] */
	float *dense;		  /* [n_row][vocab]; NULL: not kept, KL is not known */
	void *shared;		  /* the mapping of scored, token and run */
	size_t n_shared, n_dense; /* bytes */
};

/* dir: folder for the logits of run 0; NULL: they are not kept.  A warning says if there is no
 * room for them.  AR_NOMEM. */
enum ar_status eval_results_open(struct eval_results *e, const struct trace *trace, int vocab,
				 size_t n_run, const char *dir, struct ar_err *err);
void eval_results_close(struct eval_results *e); /* may be called twice */

/* Score a row of run i.  The answer's token is row->next. */
void eval_results_add(struct eval_results *e, size_t i, const struct tokens_row *row);
/* Forget the results of run i. */
void eval_results_clear(struct eval_results *e, size_t i);

/* The answer of a request: sums over its tokens. */
struct eval_answer {
	uint32_t n, n_best;
	int32_t rank_max;
	double logprob, kl;
};
/* False: run i has not scored all of its tokens. */
bool eval_results_answer(const struct eval_results *e, size_t i, size_t req, struct eval_answer *a);

/* A run over all prompts that it answered.  Log-probabilities and KL are in nats a token: means
 * over the tokens of an answer, then over the prompts. */
struct eval_summary {
	size_t n, exact;
	double logprob, kl;
	/* Against run 0, over the prompts that both answered. */
	size_t n_pair, lost, won; /* answers that run 0 alone has, and that it alone has not */
	double p;		  /* of McNemar's exact test */
	double diff;		  /* of the log-probability, run i less run 0 */
	struct eval_run run;
};
struct eval_summary eval_results_summary(const struct eval_results *e, size_t i);

#endif
