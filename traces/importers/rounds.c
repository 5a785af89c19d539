/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rounds: requests of sessions with the times of their starts and ends, as agents and tracers
 * record them, in any order.
 *
 * Such records have no ids of blocks.  What a prompt shares with the one before it in its session
 * follows from their lengths, or from what a cache held at the source.  All else is its own.
 */
#include "config.h"
#include "traces/importers/import.h"

#include <stdlib.h>

#include "base/grow.h"
#include "base/order.h"

enum ar_status import_round(struct import *im, const struct round *r, struct ar_err *err)
{
	enum ar_status st;

	if (!r->prompt_tok) {
		import_warn(im, WARN_NO_PROMPT);
		return AR_OK;
	}
	st = import_room(im, &im->round, im->n_round, &im->cap_round, sizeof *r, err);
	if (st)
		return st;
	im->round[im->n_round] = *r;
	im->round[im->n_round].line = im->line;
	if (!r->output_tok) {
		import_warn(im, WARN_ONE_OUTPUT);
		im->round[im->n_round].output_tok = 1;
	}
	im->n_round++;
	return AR_OK;
}

/* Rounds that are equal in all of this are alike. */
static int by_session(const void *a, const void *b)
{
	const struct round *x = a, *y = b;
	int c = ORDER(x->session, y->session);

	if (!c)
		c = ORDER(x->start_ns, y->start_ns);
	if (!c)
		c = ORDER(x->line, y->line);
	if (!c)
		c = ORDER(x->end_ns, y->end_ns);
	if (!c)
		c = ORDER(x->prompt_tok, y->prompt_tok);
	return c ? c : ORDER(x->output_tok, y->output_tok);
}

/* Rounds one after the other: a session, or one of those that overlap in it. */
struct lane {
	uint32_t session;
	int64_t end_ns;
	size_t last; /* its last request */
};

static enum ar_status add_round(struct import *im, struct lane *l, const struct round *r,
				struct ar_err *err)
{
	struct request q = request_none;
	struct import_session *ses;
	uint32_t same = 0;
	enum ar_status st;

	im->line = r->line;
	q.arrival_ns = r->start_ns;
	q.prompt_tok = r->prompt_tok;
	q.output_tok = r->output_tok;
	q.type = r->type;
	st = import_turn(im, l->session, &q, &ses, err);
	if (st)
		return st;
	if (q.turn) {
		const uint32_t before = im->t->req[l->last].prompt_tok;

		q.think_ns = r->start_ns - l->end_ns;
		same = r->grows && r->prompt_tok >= before ? before : r->cached_tok;
		same = same < before ? same : before;
		same = same < r->prompt_tok ? same : r->prompt_tok;
		st = import_same_blocks(im, l->last, same / im->t->block_tok, err);
	}
	if (!st)
		st = import_own_blocks(im, r->prompt_tok, err);
	l->last = im->t->n;
	l->end_ns = r->end_ns;
	return st ? st : import_add_apart(im, &q, err);
}

/* Find the first lane that is free when r starts, or begin one. */
static enum ar_status find_lane(struct import *im, const struct round *r, struct lane **lane,
				size_t *n, size_t *cap, size_t *at, struct ar_err *err)
{
	for (*at = 0; *at < *n; ++*at)
		if ((*lane)[*at].end_ns <= r->start_ns)
			return AR_OK;
	if (!GROW(*lane, *cap, *n + 1))
		return ar_nomem(err);
	(*lane)[*at] = (struct lane){ .session = r->session };
	++*n;
	if (!*at)
		return AR_OK;
	im->line = r->line;
	import_warn(im, WARN_OVERLAP);
	(*lane)[*at].session = (uint32_t)im->session.n;
	return intern_put_new(&im->session, im->session.v[r->session], 2) ? AR_OK : ar_nomem(err);
}

enum ar_status import_rounds_end(struct import *im, struct ar_err *err)
{
	struct lane *lane = NULL;
	size_t n = 0, cap = 0, at;
	enum ar_status st = AR_OK;

	if (im->n_round)
		qsort(im->round, im->n_round, sizeof *im->round, by_session);
	for (size_t i = 0; i < im->n_round && !st; i++) {
		const struct round *r = &im->round[i];

		if (i && r->session != r[-1].session)
			n = 0;
		st = find_lane(im, r, &lane, &n, &cap, &at, err);
		if (!st)
			st = add_round(im, &lane[at], r, err);
	}
	free(lane);
	return st;
}
