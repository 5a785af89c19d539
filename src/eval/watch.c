/* SPDX-License-Identifier: Apache-2.0 */
/* Give the runs the texts of their requests, and score their answers. */
#include "config.h"
#include "src/eval/eval.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* ---- prompts ---- */

static enum ar_status check_prompt(const struct eval *e, const struct request *q,
				   const struct prompt *p, struct ar_err *err)
{
	const uint64_t n = (uint64_t)q->prompt_tok + q->output_tok;
	char why[160];
	enum ar_status st;

	if (q->prompt_tok != p->n_prompt || q->output_tok != p->n_answer)
		return ar_fail(err, AR_USAGE,
			       "the prompt has %u tokens and the answer %u, but the run %u and %u; "
			       "leave out the options that change lengths",
			       p->n_prompt, p->n_answer, q->prompt_tok, q->output_tok);
	if (sched_rejects(&e->r.in.limits, q, why, sizeof why))
		return ar_fail(err, AR_DATA, "%s; leave it out with --longest-prompt", why);
	if (sched_goal(&e->r.in.limits, q) < n)
		return ar_fail(err, AR_DATA,
			       "prompt and answer have %" PRIu64
			       " tokens, but the model or --max-model-len "
			       "allows %" PRId64 "; leave it out with --longest-prompt",
			       n, e->r.in.limits.max_len);
	st = tokens_check(p->prompt, p->n_prompt, eval_vocab(e), "prompt", err);
	return st ? st : tokens_check(p->answer, p->n_answer, eval_vocab(e), "answer", err);
}

/* Find the prompt of each request by its line in the file. */
static enum ar_status set_texts(void *ctx, struct tokens_text *text, struct ar_err *err)
{
	struct eval *e = ctx;
	const struct trace *t = e->r.in.trace;
	enum ar_status st = AR_OK;

	e->prompt = calloc(t->n + 1, sizeof *e->prompt);
	if (!e->prompt)
		return ar_nomem(err);
	for (size_t i = 0; i < t->n && !st; i++) {
		const struct prompt *p = prompts_at(&e->r.in.prompts, t->req[i].line);

		if (!p || !p->answer)
			return ar_fail(err, AR_DATA, "%s: changed while it was read",
				       e->r.session.o.prompts);
		st = check_prompt(e, &t->req[i], p, err);
		if (st)
			ar_err_prefix(err, "%s:%" PRIu64, e->r.session.o.prompts, p->line);
		e->prompt[i] = p;
		text[i] = (struct tokens_text){ p->prompt, p->n_prompt, p->answer };
	}
	return st;
}

/* ---- scores ---- */

static enum ar_status watch_token(void *ctx, const struct tokens_row *row, struct ar_err *err)
{
	struct eval *e = ctx;

	(void)err;
	eval_results_add(&e->results, e->at, row);
	return AR_OK;
}

static void watch_begin(void *ctx, size_t i)
{
	struct eval *e = ctx;

	e->at = i;
	eval_results_clear(&e->results, i);
}

static enum ar_status put_tokens(const struct eval *e, size_t i, size_t req, struct store *s,
				 struct ar_err *err)
{
	const size_t from = e->results.first[req], n = e->results.first[req + 1] - from;
	const struct eval_token *t = e->results.token + i * e->results.n_row + from;
	enum ar_status st = AR_OK;

	for (size_t k = 0; k < n && !st; k++)
		st = store_eval_token(s,
				      &(struct row_eval_token){ .req_no = (int64_t)req,
								.out_no = (int64_t)k,
								.gold = t[k].gold,
								.best = t[k].best,
								.rank = t[k].rank,
								.logprob = t[k].logprob,
								.kl = t[k].kl },
				      err);
	return st;
}

static enum ar_status put_prompt(const struct eval *e, size_t i, size_t req, struct store *s,
				 struct ar_err *err)
{
	const struct prompt *p = e->prompt[req];
	struct eval_answer a;
	enum ar_status st;

	if (!eval_results_answer(&e->results, i, req, &a))
		return AR_OK;
	st = store_eval_prompt(s,
			       &(struct row_eval_prompt){ .req_no = (int64_t)req,
							  .task = p->task ? p->task : "",
							  .length = p->length,
							  .n_answer = a.n,
							  .n_best = a.n_best,
							  .exact = a.n_best == a.n,
							  .rank_max = a.rank_max,
							  .logprob = a.logprob,
							  .kl = a.kl,
							  .expected = p->expected },
			       err);
	return st ? st : put_tokens(e, i, req, s, err);
}

static enum ar_status watch_end(void *ctx, size_t i, const struct replay_result *res,
				struct store *s, struct ar_err *err)
{
	struct eval *e = ctx;
	const struct series *ttft = &res->latency[LATENCY_TTFT];
	const struct plan *p = e->r.in.plan[i];
	/* Of prompts, or of decodes where the method changes nothing else. */
	const bool decodes = !p->dense && !p->drop && plan_dense_rows(p, ROW_PREFILL);
	const struct sample_sums *x = &res->sample[decodes ? ROW_DECODE : ROW_PREFILL];
	const double n = (double)x->n_heads, all = (double)x->exec_total;
	enum ar_status st = AR_OK;

	e->results.run[i] = (struct eval_run){
		.ended = true,
		.id = s ? e->r.out.run_id : 0,
		.executed = all > 0 ? (double)x->exec_sel / all * run_pairs_left(&e->r) : NAN,
		.recall = n > 0 ? x->recall_sum / n : NAN,
		.rel_l2 = n > 0 ? x->rel_l2_sum / n : NAN,
		.ttft_ms = ttft->n ? series_mean(ttft) / 1e6 : NAN,
	};
	for (size_t q = 0; q < e->results.n_req && s && !st; q++)
		st = put_prompt(e, i, q, s, err);
	return st;
}

struct run_watch eval_watch(struct eval *e)
{
	return (struct run_watch){ e, set_texts, watch_token, watch_begin, watch_end, eval_json };
}

struct eval_expected eval_expected(const struct eval *e)
{
	struct eval_expected x = { 0 };

	for (size_t q = 0; q < e->results.n_req; q++) {
		const int expected = e->prompt[q]->expected;
		struct eval_answer a;
		bool exact;

		if (expected < 0 || !eval_results_answer(&e->results, 0, q, &a))
			continue;
		exact = a.n_best == a.n;
		x.n++;
		x.agree += exact == expected;
		x.only_here += exact && !expected;
		x.only_in_file += !exact && expected;
	}
	return x;
}
