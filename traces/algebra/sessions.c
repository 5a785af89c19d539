/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "traces/algebra/sessions.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/number.h"
#include "base/order.h"
#include "base/rng.h"
#include "traces/algebra/shape.h"
#include "traces/turns.h"

const char *const trace_overs[] = { "stop", "drop", "skip", "clip", NULL };
const char *const trace_orders[] = { "file", "shuffle", NULL };

/* ---- requests that are too long ---- */

static bool too_long(const struct request *q, int64_t most)
{
	return (int64_t)q->prompt_tok + q->output_tok > most;
}

/* Mark what one session keeps.  Returns the number of requests that it loses. */
static size_t mark_session(const struct trace *t, const struct turns *turns, size_t s,
			   const struct trace_args *a, bool *kept)
{
	const size_t first = turns->first[s], end = turns->first[s + 1];
	size_t k = first, lost = 0;

	while (k < end && !too_long(&t->req[turns->req[k]], a->longest_request))
		k++;
	if (k == end)
		return 0;
	for (size_t i = a->over_length == OVER_DROP ? first : k; i < end; i++) {
		const struct request *q = &t->req[turns->req[i]];

		kept[turns->req[i]] = a->over_length == OVER_SKIP &&
				      !too_long(q, a->longest_request);
		lost += !kept[turns->req[i]];
	}
	return lost;
}

/* Let session s start after the last turn that is left before its own one.  False: there is none,
 * or its parent stopped before. */
static bool start_again(struct trace *t, const struct turns *turns, size_t s, bool skip,
			const bool *kept)
{
	struct session_link *l = &t->link[s];
	size_t k = turns->first[l->parent];
	bool found = false;
	uint32_t after = 0;

	for (; k < turns->first[l->parent + 1]; k++) {
		const struct request *q = &t->req[turns->req[k]];

		if (q->turn > l->after)
			break;
		if (kept[turns->req[k]]) {
			after = q->turn;
			found = true;
		}
	}
	found = found && (skip || after == l->after);
	l->after = found ? after : l->after;
	return found;
}

/* Drop sessions whose start is left out, and those that they start. */
static void drop_children(struct trace *t, const struct turns *turns, bool skip, bool *kept)
{
	bool again = t->link != NULL;

	while (again) {
		again = false;
		for (size_t s = 0; s < t->n_session; s++) {
			const uint32_t first = turns_first(turns, (int32_t)s);

			if (t->link[s].parent < 0 || first == TURNS_NONE || !kept[first] ||
			    start_again(t, turns, s, skip, kept))
				continue;
			for (size_t k = turns->first[s]; k < turns->first[s + 1]; k++)
				kept[turns->req[k]] = false;
			again = true;
		}
	}
}

static enum ar_status leave_out(struct trace *t, const struct trace_args *a, struct ar_err *err)
{
	bool *kept = malloc(t->n * sizeof *kept), has_first;
	struct turns turns;
	size_t n = 0, sessions = 0;
	enum ar_status st = turns_open(&turns, t) && kept ? AR_OK : ar_nomem(err);

	for (size_t i = 0; i < t->n && !st; i++)
		kept[i] = t->req[i].session >= 0 || !too_long(&t->req[i], a->longest_request);
	for (size_t s = 0; s < t->n_session && !st; s++)
		sessions += mark_session(t, &turns, s, a, kept) > 0;
	if (!st)
		drop_children(t, &turns, a->over_length == OVER_SKIP, kept);
	turns_close(&turns);
	has_first = !st && kept[0];
	for (size_t i = 0; i < t->n && !st; i++)
		if (kept[i])
			t->req[n++] = t->req[i];
	free(kept);
	if (!st && n < t->n)
		log_warn("%s: %zu of %zu requests left out by --over-length %s, with %zu sessions "
			 "that have a request of more than %" PRId64 " tokens",
			 t->name, t->n - n, t->n, trace_overs[a->over_length], sessions,
			 a->longest_request);
	return st ? st : trace_keep_first(t, n, has_first, "--longest-request", err);
}

/* Give q, which is shorter now, the blocks of its prompt: a last one that is cut is its own. */
static bool cut_prompt(struct trace *t, struct request *q, uint64_t *fresh)
{
	const uint32_t full = q->prompt_tok / t->block_tok;
	const struct request old = *q;
	bool done;

	q->run = t->n_run;
	q->n_run = q->n_block = 0;
	done = trace_same_blocks(t, q, &old, full);
	if (q->prompt_tok % t->block_tok)
		done = done && trace_put_block(t, q, (*fresh)++);
	return done;
}

static enum ar_status clip_requests(struct trace *t, const struct trace_args *a, struct ar_err *err)
{
	uint64_t fresh = trace_fresh_id(t);
	size_t n = 0;

	for (size_t i = 0; i < t->n; i++) {
		struct request *q = &t->req[i];
		int64_t left = a->longest_request - q->output_tok;

		if (!too_long(q, a->longest_request))
			continue;
		n++;
		q->prompt_tok = left > 1 ? (uint32_t)left : 1;
		if (left < 1)
			q->output_tok = (uint32_t)a->longest_request - 1;
		if (q->n_block && !cut_prompt(t, q, &fresh))
			return ar_nomem(err);
	}
	if (n)
		log_warn("%s: %zu of %zu requests cut to %" PRId64 " tokens by --over-length clip",
			 t->name, n, t->n, a->longest_request);
	return AR_OK;
}

enum ar_status trace_over_length(struct trace *t, const struct trace_args *a, struct ar_err *err)
{
	enum ar_status st;

	if (!a->longest_request)
		return AR_OK;
	st = a->over_length == OVER_CLIP ? clip_requests(t, a, err) : leave_out(t, a, err);
	return st ? st :
		    trace_note(t, err, "longest-request=%" PRId64 ",over-length=%s",
			       a->longest_request, trace_overs[a->over_length]);
}

/* ---- trees ---- */

/* A session with all that it starts, or a request without a session. */
struct tree {
	int64_t first_ns, start_ns; /* in the trace, and as asked for */
	int64_t middle_ns;	    /* in the trace: where it begins; -1: with its first request */
	uint32_t rank;
};

/* A request of a tree. */
struct place {
	int64_t at_ns;
	uint32_t rank, req;
};

static int by_time(const void *a, const void *b)
{
	const struct place *x = a, *y = b;
	int c = ORDER(x->at_ns, y->at_ns);

	if (!c)
		c = ORDER(x->rank, y->rank);
	return c ? c : ORDER(x->req, y->req);
}

/* tree_of[i]: the tree of request i; trees are numbered by their first requests.  *n: trees. */
static enum ar_status find_trees(const struct trace *t, uint32_t *tree_of, size_t *n,
				 struct ar_err *err)
{
	uint32_t *of = malloc((t->n_session + 1) * sizeof *of);

	if (!of)
		return ar_nomem(err);
	memset(of, -1, (t->n_session + 1) * sizeof *of);
	*n = 0;
	for (size_t i = 0; i < t->n; i++) {
		int32_t s = t->req[i].session;

		if (s < 0) {
			tree_of[i] = (uint32_t)(*n)++;
			continue;
		}
		s = trace_root(t, s);
		if (of[s] == UINT32_MAX)
			of[s] = (uint32_t)(*n)++;
		tree_of[i] = of[s];
	}
	free(of);
	return AR_OK;
}

/* ---- starts in the middle ---- */

/* Read "A:B", shares with 0 <= A <= B <= 1. */
static bool parse_within(const char *text, double *a, double *b)
{
	char low[32];
	const size_t n = strcspn(text, ":");

	if (!text[n] || n >= sizeof low)
		return false;
	memcpy(low, text, n);
	low[n] = 0;
	return num_real(low, a) && num_real(text + n + 1, b) && *a >= 0 && *a <= *b && *b <= 1;
}

/* Draw where tree i, whose root is session s, begins: with the last turn at or before that, but one
 * that has a turn after it. */
static void draw_middle(const struct trace *t, const struct turns *turns, size_t s,
			const struct trace_args *a, double low, double high, struct tree *tree,
			size_t i)
{
	struct rng rng = { rng_mix((uint64_t)a->seed ^ rng_mix(0x317d1e ^ i)) };
	const size_t first = turns->first[s], n = turns->first[s + 1] - first;
	const uint32_t *req = turns->req + first;
	size_t k = n - 1;
	double at;

	if (n < 2)
		return;
	at = (double)(t->req[req[n - 1]].arrival_ns - t->req[req[0]].arrival_ns) *
	     (low + (high - low) * rng_unit(&rng));
	while (k && (k + 1 == n || (double)(t->req[req[k]].arrival_ns - tree->first_ns) > at))
		k--;
	tree->middle_ns = tree->first_ns + (int64_t)at;
	if (tree->middle_ns < t->req[req[k]].arrival_ns)
		tree->middle_ns = t->req[req[k]].arrival_ns;
	if (tree->middle_ns >= t->req[req[k + 1]].arrival_ns)
		tree->middle_ns = t->req[req[k + 1]].arrival_ns - 1;
}

/* Mark what session s keeps if its tree begins at at_ns: the last turn until then as warm-up, and
 * all after it.  A sub-agent with no turn after it has ended. */
static void keep_from(struct trace *t, const struct turns *turns, size_t s, int64_t at_ns,
		      bool *kept)
{
	const size_t first = turns->first[s], end = turns->first[s + 1];
	struct request *q;
	size_t k = first;

	while (k < end && t->req[turns->req[k]].arrival_ns <= at_ns)
		k++;
	for (size_t i = first; i < end; i++)
		kept[turns->req[i]] = k < end && i + 1 >= k;
	if (k == first || k == end)
		return;
	q = &t->req[turns->req[k - 1]];
	q->warmup = true;
	q->output_tok = 1;
	q->think_ns = t->link && t->link[s].parent >= 0 ? 0 : -1;
	q->back = 0;
}

/* Let sub-agents start after a turn that is left. */
static void move_links(struct trace *t, const struct turns *turns, const bool *kept)
{
	for (size_t s = 0; s < t->n_session && t->link; s++) {
		struct session_link *l = &t->link[s];

		if (l->parent < 0)
			continue;
		for (size_t k = turns->first[l->parent]; k < turns->first[l->parent + 1]; k++) {
			const struct request *q = &t->req[turns->req[k]];

			if (!kept[turns->req[k]])
				continue;
			if (q->turn > l->after)
				l->after = q->turn;
			break;
		}
	}
}

/* Begin the first trees in their middle, and leave out what was before.  A warm-up comes with that
 * of its root. */
static enum ar_status start_within(struct trace *t, const struct trace_args *a, struct tree *tree,
				   uint32_t *tree_of, struct ar_err *err)
{
	bool *kept = malloc(t->n * sizeof *kept);
	struct turns turns;
	size_t n = 0;
	double low, high;
	enum ar_status st = turns_open(&turns, t) && kept ? AR_OK : ar_nomem(err);

	if (!st && !parse_within(a->start_within, &low, &high))
		st = ar_fail(
			err, AR_USAGE,
			"--start-within '%s': want A:B, shares of a session with 0 <= A <= B <= "
			"1",
			a->start_within);
	for (size_t i = 0; i < t->n && !st; i++)
		kept[i] = true;
	for (size_t s = 0; s < t->n_session && !st; s++) {
		const uint32_t first = turns_first(&turns, (int32_t)s);
		struct tree *of = first == TURNS_NONE ? NULL : &tree[tree_of[first]];

		if (of && trace_root(t, (int32_t)s) == (int32_t)s &&
		    (!a->start_first || of->rank < a->start_first))
			draw_middle(t, &turns, s, a, low, high, of, tree_of[first]);
	}
	for (size_t s = 0; s < t->n_session && !st; s++) {
		const uint32_t first = turns_first(&turns, (int32_t)s);

		if (first != TURNS_NONE && tree[tree_of[first]].middle_ns >= 0)
			keep_from(t, &turns, s, tree[tree_of[first]].middle_ns, kept);
	}
	if (!st) {
		move_links(t, &turns, kept);
		drop_children(t, &turns, true, kept);
	}
	for (size_t s = 0; s < t->n_session && !st; s++)
		for (size_t k = turns.first[s]; k < turns.first[s + 1]; k++) {
			const uint32_t i = turns.req[k];

			if (kept[i] && t->req[i].warmup && trace_root(t, (int32_t)s) == (int32_t)s)
				tree[tree_of[i]].first_ns = t->req[i].arrival_ns;
		}
	for (size_t i = 0; i < t->n && !st; i++) {
		struct request *q = &t->req[i];

		if (!kept[i])
			continue;
		if (q->warmup)
			q->arrival_ns = tree[tree_of[i]].first_ns;
		t->req[n] = *q;
		tree_of[n++] = tree_of[i];
	}
	turns_close(&turns);
	free(kept);
	t->n = st ? t->n : n;
	return st ? st : trace_note(t, err, "start-within=%s", a->start_within);
}

/* ---- starts ---- */

/* Read "zero", "poisson:RATE" or "constant:RATE".  *rate 0: all at once. */
static bool parse_starts(const char *text, bool *random, double *rate)
{
	const size_t n = strcspn(text, ":");

	*random = !strncmp(text, "poisson:", n + 1);
	*rate = 0;
	if (!strcmp(text, "zero"))
		return true;
	return (*random || !strncmp(text, "constant:", n + 1)) && num_real(text + n + 1, rate) &&
	       *rate > 0;
}

/* Set rank and start_ns of n trees.  order: room for n. */
static void draw_starts(struct tree *tree, uint32_t *order, size_t n, const struct trace_args *a,
			bool random, double rate)
{
	struct rng rng = { rng_mix((uint64_t)a->seed ^ 0x5e55) };
	double at = 0;

	for (size_t i = 0; i < n; i++)
		order[i] = (uint32_t)i;
	for (size_t i = n; i > 1 && a->session_order; i--) {
		size_t k = rng_below(&rng, i);
		uint32_t other = order[k];

		order[k] = order[i - 1];
		order[i - 1] = other;
	}
	for (size_t i = 0; i < n; i++) {
		tree[order[i]].rank = (uint32_t)i;
		tree[order[i]].start_ns = at < 9.2e18 ? (int64_t)at : INT64_MAX;
		if (rate > 0)
			at += floor((random ? -log(1 - rng_unit(&rng)) : 1) * 1e9 / rate + 0.5);
	}
}

/* Move the requests to the starts of their trees, and sort them. */
static enum ar_status move_requests(struct trace *t, const struct tree *tree,
				    const uint32_t *tree_of, struct ar_err *err)
{
	struct place *p = malloc(t->n * sizeof *p);
	struct request *req = malloc(t->n * sizeof *req);
	int64_t last = 0;

	for (size_t i = 0; i < t->n && p && req; i++) {
		const struct tree *of = &tree[tree_of[i]];

		p[i] = (struct place){ num_add(of->start_ns, t->req[i].arrival_ns - of->first_ns),
				       of->rank, (uint32_t)i };
		last = p[i].at_ns > last ? p[i].at_ns : last;
	}
	if (p && req)
		qsort(p, t->n, sizeof *p, by_time);
	for (size_t i = 0; i < t->n && p && req; i++) {
		req[i] = t->req[p[i].req];
		req[i].arrival_ns = p[i].at_ns;
	}
	free(p);
	if (!p || !req) {
		free(req);
		return ar_nomem(err);
	}
	free(t->req);
	t->req = req;
	t->has_epoch = false;
	t->epoch_ns = 0;
	return trace_check_end(t, (double)last, err);
}

enum ar_status trace_session_starts(struct trace *t, const struct trace_args *a, struct ar_err *err)
{
	uint32_t *tree_of, *order;
	struct tree *tree;
	bool random;
	double rate;
	size_t n = 0;
	enum ar_status st;

	if (!a->session_starts)
		return AR_OK;
	if (!parse_starts(a->session_starts, &random, &rate))
		return ar_fail(err, AR_USAGE,
			       "--session-starts '%s': want zero, poisson:RATE or constant:RATE, "
			       "with sessions a second",
			       a->session_starts);
	tree_of = malloc(t->n * sizeof *tree_of);
	order = malloc(t->n * sizeof *order);
	tree = malloc(t->n * sizeof *tree);
	st = tree_of && order && tree ? find_trees(t, tree_of, &n, err) : ar_nomem(err);
	for (size_t i = t->n; i > 0 && !st; i--) {
		tree[tree_of[i - 1]].first_ns = t->req[i - 1].arrival_ns;
		tree[tree_of[i - 1]].middle_ns = -1;
	}
	if (!st)
		draw_starts(tree, order, n, a, random, rate);
	if (!st && a->start_within)
		st = start_within(t, a, tree, tree_of, err);
	if (!st)
		st = move_requests(t, tree, tree_of, err);
	free(tree_of);
	free(order);
	free(tree);
	return st ? st :
		    trace_note(t, err, "session-starts=%s,session-order=%s,trace-seed=%" PRId64,
			       a->session_starts, trace_orders[a->session_order], a->seed);
}
