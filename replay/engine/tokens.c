/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/engine/tokens.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "base/rng.h"

struct tokens {
	struct tokens_env env;
	struct tokens_text *text; /* [trace->n] */
	int32_t *out;		  /* outputs of all requests */
	size_t *first;		  /* [trace->n] where the outputs of a request begin */
};

enum ar_status tokens_check(const int32_t *id, uint32_t n, int vocab, const char *what,
			    struct ar_err *err)
{
	for (uint32_t i = 0; i < n; i++)
		if (id[i] < 0 || id[i] >= vocab)
			return ar_fail(err, AR_DATA,
				       "token %u of the %s is %d, but the vocabulary has %d; "
				       "encode it with the model's tokenizer",
				       i, what, id[i], vocab);
	return AR_OK;
}

/* Outputs are unknown until the model makes them, but an answer is known from the start. */
static enum ar_status fill_answers(struct tokens *t, struct ar_err *err)
{
	const struct trace *trace = t->env.trace;
	enum ar_status st = AR_OK;
	size_t at = 0;

	for (size_t i = 0; i < trace->n && !st; i++) {
		uint32_t n = trace->req[i].output_tok;

		t->text[i] = t->env.text[i];
		t->first[i] = at;
		st = tokens_check(t->text[i].prompt, t->text[i].n_prompt, t->env.vocab, "prompt",
				  err);
		if (!st && t->text[i].answer)
			st = tokens_check(t->text[i].answer, n, t->env.vocab, "answer", err);
		if (st)
			ar_err_prefix(err, "request %zu", i);
		for (uint32_t k = 0; k < n; k++)
			t->out[at + k] = t->text[i].answer ? t->text[i].answer[k] : -1;
		at += n;
	}
	return st;
}

enum ar_status tokens_open(struct tokens **out, const struct tokens_env *env, struct ar_err *err)
{
	struct tokens *t = calloc(1, sizeof *t);
	size_t n = env->trace->n, n_out = 0;
	enum ar_status st;

	*out = NULL;
	if (!t)
		return ar_nomem(err);
	for (size_t i = 0; i < n; i++)
		n_out += env->trace->req[i].output_tok;
	t->env = *env;
	t->env.n_logits = env->n_logits ? env->n_logits : env->vocab;
	t->text = calloc(n + 1, sizeof *t->text);
	t->first = calloc(n + 1, sizeof *t->first);
	t->out = calloc(n_out + 1, sizeof *t->out);
	st = t->text && t->first && t->out ? fill_answers(t, err) : ar_nomem(err);
	if (st)
		tokens_close(t);
	else
		*out = t;
	return st;
}

void tokens_close(struct tokens *t)
{
	if (!t)
		return;
	free(t->text);
	free(t->first);
	free(t->out);
	free(t);
}

int32_t tokens_id(const struct tokens *t, uint32_t req, int64_t pos)
{
	int64_t prompt = t->env.trace->req[req].prompt_tok;

	if (pos < prompt)
		return t->text[req].prompt[pos % t->text[req].n_prompt];
	assert(pos - prompt < t->env.trace->req[req].output_tok &&
	       t->out[t->first[req] + (size_t)(pos - prompt)] >= 0);
	return t->out[t->first[req] + (size_t)(pos - prompt)];
}

static int32_t most_likely(const float *x, int n)
{
	int best = 0;

	for (int i = 1; i < n; i++)
		if (x[i] > x[best])
			best = i;
	return best;
}

/* Draw from softmax(x / temperature).  The draw depends on the seed, the request and the number of
 * the output only. */
static int32_t draw_token(const struct tokens *t, uint32_t req, uint32_t out, const float *x)
{
	struct rng r = { rng_mix(t->env.seed ^ rng_mix((uint64_t)req << 32 | out)) };
	double top = x[most_likely(x, t->env.n_logits)], sum = 0, left;
	int last = 0;

	for (int i = 0; i < t->env.n_logits; i++)
		sum += exp((x[i] - top) / t->env.temperature);
	left = rng_unit(&r) * sum;
	for (int i = 0; i < t->env.n_logits; i++) {
		double p = exp((x[i] - top) / t->env.temperature);

		if (p > 0)
			last = i;
		left -= p;
		if (left < 0)
			break;
	}
	return last;
}

enum ar_status tokens_put(struct tokens *t, uint32_t req, int64_t pos, const float *logits,
			  struct ar_err *err)
{
	const struct request *q = &t->env.trace->req[req];
	uint32_t out = (uint32_t)(pos + 1 - q->prompt_tok);
	int32_t *next = &t->out[t->first[req] + out];

	assert(pos + 1 >= q->prompt_tok && out <= q->output_tok);
	if (out == q->output_tok)
		return AR_OK;
	for (int i = 0; i < t->env.n_logits; i++)
		if (!isfinite(logits[i]))
			return ar_fail(err, AR_DATA,
				       "request %u: the logit of token %d at position %lld is not "
				       "finite",
				       req, i, (long long)pos);
	if (!t->text[req].answer)
		*next = t->env.temperature > 0 ? draw_token(t, req, out, logits) :
						 most_likely(logits, t->env.n_logits);
	if (!t->env.see)
		return AR_OK;
	return t->env.see(t->env.ctx,
			  &(struct tokens_row){ .req = req,
						.out = out,
						.next = *next,
						.logits = logits,
						.n_logits = t->env.n_logits },
			  err);
}
