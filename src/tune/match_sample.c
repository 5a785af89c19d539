/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/tune/match_sample.h"

#include <stdlib.h>

#include "base/grow.h"
#include "base/order.h"

struct chunks {
	struct plan_chunk *v;
	size_t n, cap;
};

static int by_context(const void *a, const void *b)
{
	const struct plan_chunk *x = a, *y = b;

	return x->from != y->from	? ORDER(x->from, y->from) :
	       x->to != y->to		? ORDER(x->to, y->to) :
	       x->capture != y->capture ? ORDER(x->capture, y->capture) :
					  ORDER(x->prompt, y->prompt);
}

/* Most tokens of a chunk, where a request has the budget alone. */
static int64_t longest_chunk(const struct sched_limits *l)
{
	const int64_t cap = l->long_prefill_tok, budget = l->max_batched_tok;

	if (l->chunks == SCHED_CHUNKS_NONE)
		return UINT32_MAX;
	return cap && cap < budget ? cap : budget;
}

/* Add the chunks of a prompt, each cut to its last MATCH_CHUNK_TOK tokens. */
static enum ar_status add_prompt(struct chunks *c, size_t capture, int64_t prompt, int64_t chunk,
				 struct ar_err *err)
{
	for (int64_t from = 0; from < prompt; from += chunk) {
		int64_t to = from + chunk < prompt ? from + chunk : prompt;
		int64_t cut = to - from > MATCH_CHUNK_TOK ? to - MATCH_CHUNK_TOK : from;

		if (!GROW(c->v, c->cap, c->n + 1))
			return ar_nomem(err);
		c->v[c->n++] = (struct plan_chunk){ capture, cut, to, prompt };
	}
	return AR_OK;
}

static enum ar_status all_chunks(struct chunks *c, const struct run *r,
				 const struct calib_input *in, struct ar_err *err)
{
	const struct sched_limits *l = &r->in.limits;
	enum ar_status st = AR_OK;
	char why[160];

	for (size_t i = 0; i < r->in.trace->n && !st; i++) {
		const struct request *q = &r->in.trace->req[i];
		const size_t capture = r->in.prep.capture_of[i] % in->n;
		const int64_t held = calib_tokens(in, in->capture[capture]);

		if (!sched_rejects(l, q, why, sizeof why))
			st = add_prompt(c, capture, q->prompt_tok < held ? q->prompt_tok : held,
					longest_chunk(l), err);
	}
	return st;
}

static double pairs(const struct plan_chunk *c)
{
	return (double)(c->to - c->from) * (double)c->to;
}

static size_t sample_size(const struct chunks *c)
{
	double sum = 0, most = 0, n;

	for (size_t i = 0; i < c->n; i++) {
		sum += pairs(&c->v[i]);
		most = pairs(&c->v[i]) > most ? pairs(&c->v[i]) : most;
	}
	n = MATCH_LONG * most / (sum / (double)c->n);
	n = n < MATCH_LEAST ? MATCH_LEAST : n > MATCH_MOST ? MATCH_MOST : n;
	return n < (double)c->n ? (size_t)n : c->n;
}

enum ar_status match_sample(struct match_chunks *out, const struct run *r,
			    const struct calib_input *in, struct ar_err *err)
{
	struct chunks c = { 0 };
	enum ar_status st = all_chunks(&c, r, in, err);

	*out = (struct match_chunks){ .v = c.v, .of = c.n };
	if (st || !c.n)
		return st ? st : ar_fail(err, AR_USAGE, "match: no request has a prompt to run");
	qsort(c.v, c.n, sizeof *c.v, by_context);
	out->n = sample_size(&c);
	for (size_t i = 0; i < out->n; i++) /* each is at i or behind it */
		c.v[i] = c.v[match_spaced(c.n, out->n, i)];
	for (size_t i = 0; i < out->n; i++)
		if (c.v[i].to - c.v[i].from > out->longest)
			out->longest = c.v[i].to - c.v[i].from;
	return AR_OK;
}

size_t match_spaced(size_t n, size_t k, size_t i)
{
	return n <= k ? i : (2 * i + 1) * n / (2 * k);
}
