/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session has turns.  Each prompt begins with the full blocks of the one before it and adds new
 * tokens.  One that would be longer than all that were seen begins anew, as agents do that sum up
 * their context.
 */
#include "config.h"
#include "traces/algebra/synth_sessions.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/grow.h"
#include "base/number.h"
#include "base/order.h"
#include "base/rng.h"
#include "traces/algebra/summary.h"

enum figure { TURNS, FIRST, FRESH, OUTPUT, THINK, N_FIGURES };

enum { N_POINTS = 6, BLOCK_TOK = 64 };
static const double share[N_POINTS] = { 0, 0.1, 0.5, 0.9, 0.99, 1 };

/* Quantiles of 710 sessions of coding agents, callanjfox/kv-cache-tester at commit 94f6046.  Think
 * times are in seconds. */
static const double quantiles[N_FIGURES][N_POINTS] = {
	[TURNS] = { 3, 7, 45, 155, 329, 514 },
	[FIRST] = { 6343, 15458, 24454, 258903, 708057, 851858 },
	[FRESH] = { 18, 230, 705, 4064, 61165, 697351 },
	[OUTPUT] = { 1, 105, 216, 899, 3663, 18195 },
	[THINK] = { 0, 4, 10, 171, 3040, 77589 },
};
static const uint32_t longest_prompt = 894371; /* of them */

/* What sessions are drawn from. */
struct source {
	double *v[N_FIGURES]; /* values of a trace, owned; NULL: the quantiles */
	size_t n[N_FIGURES];
	uint32_t longest;
	uint32_t block_tok;
};

static double draw(const struct source *s, enum figure f, struct rng *r)
{
	const double *q = quantiles[f];
	double u = rng_unit(r);
	int i = 1;

	if (s->v[f])
		return s->v[f][(size_t)(u * (double)s->n[f])];
	while (u >= share[i])
		i++;
	u = (u - share[i - 1]) / (share[i] - share[i - 1]);
	return expm1(log1p(q[i - 1]) + u * (log1p(q[i]) - log1p(q[i - 1])));
}

/* ---- a trace as the source ---- */

static void put_value(struct source *s, enum figure f, double x)
{
	s->v[f][s->n[f]++] = x;
}

/* turns: room for one value per session. */
static void take_values(struct source *s, const struct trace *t, const uint64_t *reused,
			double *turns)
{
	for (size_t i = 0; i < t->n; i++) {
		const struct request *q = &t->req[i];

		if (q->session < 0)
			continue;
		turns[q->session]++;
		put_value(s, OUTPUT, q->output_tok);
		if (q->turn)
			put_value(s, FRESH, (double)q->prompt_tok - (double)reused[i]);
		else
			put_value(s, FIRST, q->prompt_tok);
		if (q->turn && q->think_ns >= 0)
			put_value(s, THINK, (double)q->think_ns * 1e-9);
		s->longest = q->prompt_tok > s->longest ? q->prompt_tok : s->longest;
	}
	for (size_t k = 0; k < t->n_session; k++)
		if (turns[k] > 0)
			put_value(s, TURNS, turns[k]);
}

static enum ar_status find_values(struct source *s, const struct trace *t, struct ar_err *err)
{
	const size_t room = t->n + t->n_session + 1;
	uint64_t *reused = malloc(room * sizeof *reused);
	double *turns = calloc(room, sizeof *turns);
	bool all = reused && turns;
	enum ar_status st;

	for (int f = 0; f < N_FIGURES; f++) {
		s->v[f] = malloc(room * sizeof *s->v[f]);
		all = all && s->v[f];
	}
	st = all ? trace_reuse(t, reused, err) : ar_nomem(err);
	if (!st)
		take_values(s, t, reused, turns);
	free(reused);
	free(turns);
	return st;
}

static enum ar_status open_source(struct source *s, const struct trace *t, struct ar_err *err)
{
	*s = (struct source){ .longest = longest_prompt, .block_tok = BLOCK_TOK };
	if (!t->n)
		return AR_OK;
	if (!t->n_session || !t->n_run)
		return ar_fail(err, AR_USAGE, "%s: --sessions needs a trace with %s, or none",
			       t->name, t->n_session ? "prefix blocks" : "sessions");
	s->longest = 0;
	s->block_tok = t->block_tok;
	return find_values(s, t, err);
}

static void close_source(struct source *s)
{
	for (int f = 0; f < N_FIGURES; f++)
		free(s->v[f]);
}

/* ---- sessions ---- */

struct maker {
	struct source from;
	struct request *req;
	size_t n, cap;
	uint64_t fresh; /* the next id of a block */
};

/* Tokens of a prompt: the full blocks of the one before it, tok, and new ones. */
static uint32_t grow(const struct maker *m, uint32_t tok, struct rng *r, uint32_t *same)
{
	double fresh = floor(draw(&m->from, FRESH, r) + 0.5);

	*same = tok / m->from.block_tok;
	tok = *same * m->from.block_tok;
	if (fresh < 1)
		fresh = 1;
	if (tok && tok + fresh <= m->from.longest)
		return tok + (uint32_t)fresh;
	*same = 0;
	return (uint32_t)fmax(floor(draw(&m->from, FIRST, r) + 0.5), 1);
}

/* Add the turns of session i; those before it are those of t as well. */
static bool add_session(struct maker *m, struct trace *t, int32_t i, int64_t at_ns, struct rng r)
{
	const int turns = (int)floor(draw(&m->from, TURNS, &r) + 0.5);
	struct request last = { 0 };
	bool done = true;

	for (int k = 0; k < turns && done; k++) {
		struct request q = request_none;
		uint32_t same;

		q.prompt_tok = grow(m, last.prompt_tok, &r, &same);
		q.output_tok = (uint32_t)fmax(floor(draw(&m->from, OUTPUT, &r) + 0.5), 1);
		if (k && (!m->from.v[THINK] || m->from.n[THINK]))
			q.think_ns = (int64_t)(draw(&m->from, THINK, &r) * 1e9);
		at_ns = num_add(at_ns, q.think_ns > 0 ? q.think_ns : 0);
		q.arrival_ns = at_ns;
		q.session = i;
		q.turn = (uint32_t)k;
		q.run = t->n_run;
		done = trace_same_blocks(t, &q, &last, same);
		same = (q.prompt_tok + m->from.block_tok - 1) / m->from.block_tok - same;
		done = done && (!same || trace_put_blocks(t, &q, m->fresh, same)) &&
		       GROW(m->req, m->cap, m->n + 1);
		m->fresh += same;
		if (done)
			m->req[m->n++] = last = q;
	}
	return done;
}

static int by_arrival(const void *a, const void *b)
{
	const struct request *x = a, *y = b;
	int c = ORDER(x->arrival_ns, y->arrival_ns);

	if (!c)
		c = ORDER(x->session, y->session);
	return c ? c : ORDER(x->turn, y->turn);
}

/* Leave nothing of t but its name, sources and changes. */
static void empty(struct trace *t)
{
	for (size_t i = 0; i < t->n_session; i++)
		free(t->session[i]);
	for (size_t i = 0; i < t->n_type; i++)
		free(t->type[i]);
	free(t->session);
	free(t->type);
	free(t->link);
	t->session = t->type = NULL;
	t->link = NULL;
	t->n = t->n_session = t->n_type = t->n_run = 0;
}

static bool name_sessions(struct trace *t, size_t n)
{
	char name[24];

	t->session = calloc(n + 1, sizeof *t->session);
	for (size_t i = 0; t->session && i < n; i++) {
		snprintf(name, sizeof name, "s%zu", i);
		t->session[i] = strdup(name);
		if (!t->session[i])
			return false;
		t->n_session++;
	}
	return t->session;
}

enum ar_status trace_make_sessions(struct trace *t, const int64_t *start_ns, size_t n,
				   uint64_t seed, struct ar_err *err)
{
	struct maker m = { 0 };
	enum ar_status st = open_source(&m.from, t, err);

	if (!st) {
		empty(t);
		st = name_sessions(t, n) ? AR_OK : ar_nomem(err);
	}
	t->block_tok = m.from.block_tok;
	for (size_t i = 0; i < n && !st; i++)
		if (!add_session(&m, t, (int32_t)i, start_ns[i],
				 (struct rng){ rng_mix(seed ^ rng_mix(i)) }))
			st = ar_nomem(err);
	close_source(&m.from);
	if (st) {
		free(m.req);
		return st;
	}
	qsort(m.req, m.n, sizeof *m.req, by_arrival);
	free(t->req);
	t->req = m.req;
	t->n = m.n;
	return trace_check_end(t, (double)t->req[t->n - 1].arrival_ns, err);
}
