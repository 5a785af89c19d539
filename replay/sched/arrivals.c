/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions are linked lists of requests in the order of the trace.  Their heads come in that order,
 * from a cursor over the trace; followers, and the heads that users take, wait in a heap until
 * their time.
 *
 * A session that a request starts is no head: its first request follows that one.  A request that
 * waits for sessions follows the last ones of these.  A tree is a head with all that it starts.
 */
#include "config.h"
#include "replay/sched/arrivals.h"

#include <math.h>
#include <stdlib.h>

#include "base/number.h"
#include "traces/turns.h"

#define NO_REQ TURNS_NONE

/* A request in a closed loop. */
struct step {
	uint32_t next;	  /* the one after it in its session, or NO_REQ */
	uint32_t from;	  /* its think time counts from the end of this one */
	uint32_t join;	  /* the one that waits for its session, whose last it is, or NO_REQ */
	uint32_t tree;	  /* the head of its tree */
	uint32_t n_start; /* first requests that it starts, from starts[start] on */
	uint32_t start;
	uint32_t n_wait;   /* requests without an end that it waits for */
	uint32_t n_left;   /* of a head: requests of the tree without an end */
	int64_t joined_ns; /* when the sessions that it waits for have ended, and the pause after
			    * that has, as in end; -1: it waits for none */
	int64_t join_ns;   /* that pause */
};

struct arrivals {
	const struct trace *trace;
	struct arrival_rule rule;
	int64_t *at;	   /* by request */
	int64_t *end;	   /* ... its end plus moved_ns of then, in a closed loop */
	bool *follows;	   /* ... is no head */
	struct step *step; /* ... in a closed loop */
	uint32_t *starts;
	size_t head;	/* heads before it are taken */
	uint32_t *heap; /* requests whose time is known, by (at, number) */
	size_t n_heap;
	size_t n_live;	  /* taken and not done */
	int64_t last_ns;  /* the last end */
	int64_t moved_ns; /* by which arrivals are earlier */
};

void arrivals_close(struct arrivals *a)
{
	if (!a)
		return;
	free(a->at);
	free(a->end);
	free(a->follows);
	free(a->step);
	free(a->starts);
	free(a->heap);
	free(a);
}

/* ---- the heap ---- */

static bool arrives_before(const struct arrivals *a, uint32_t x, uint32_t y)
{
	return a->at[x] != a->at[y] ? a->at[x] < a->at[y] : x < y;
}

static void push_arrival(struct arrivals *a, uint32_t id, int64_t at_ns)
{
	size_t i = a->n_heap++;

	a->at[id] = at_ns;
	for (; i && arrives_before(a, id, a->heap[(i - 1) / 2]); i = (i - 1) / 2)
		a->heap[i] = a->heap[(i - 1) / 2];
	a->heap[i] = id;
}

static void pop_arrival(struct arrivals *a)
{
	uint32_t *heap = a->heap, id = heap[--a->n_heap];
	size_t n = a->n_heap, i = 0;

	for (size_t child = 1; child < n; child = 2 * i + 1) {
		child += child + 1 < n && arrives_before(a, heap[child + 1], heap[child]);
		if (!arrives_before(a, heap[child], id))
			break;
		heap[i] = heap[child];
		i = child;
	}
	heap[i] = id;
}

/* ---- sessions ---- */

/* The first head that nobody has taken, or NO_REQ. */
static uint32_t next_head(struct arrivals *a)
{
	while (a->head < a->trace->n && a->follows[a->head])
		a->head++;
	return a->head < a->trace->n ? (uint32_t)a->head : NO_REQ;
}

/* A user begins the next session. */
static void take_head(struct arrivals *a, int64_t at_ns)
{
	uint32_t id = next_head(a);

	if (id == NO_REQ)
		return;
	a->head++;
	push_arrival(a, id, at_ns);
}

/* Link the requests of each session. */
static void link_turns(struct arrivals *a, const struct turns *turns)
{
	for (size_t s = 0; s < a->trace->n_session; s++)
		for (size_t k = turns->first[s] + 1; k < turns->first[s + 1]; k++) {
			uint32_t before = turns->req[k - 1], id = turns->req[k];
			const struct request *q = &a->trace->req[id];
			uint32_t from = q->back > 1 ?
						turns_find(turns, q->session, q->turn - q->back) :
						NO_REQ;

			a->step[before].next = id;
			a->step[id].from = from < before ? from : before;
			a->step[id].n_wait = 1;
			a->follows[id] = true;
		}
}

/* The request that starts session s, or NO_REQ, also where nothing is left of it. */
static uint32_t starter(const struct arrivals *a, const struct turns *turns, size_t s)
{
	const struct session_link *l = &a->trace->link[s];
	uint32_t by = l->parent < 0 ? NO_REQ : turns_find(turns, l->parent, l->after);
	uint32_t first = turns_first(turns, (int32_t)s);

	return first != NO_REQ && by < first ? by : NO_REQ;
}

/* Link the sessions that others start. */
static void link_starts(struct arrivals *a, const struct turns *turns)
{
	const struct trace *t = a->trace;
	uint32_t n = 0;

	for (size_t s = 0; s < t->n_session; s++)
		if (starter(a, turns, s) != NO_REQ)
			a->step[starter(a, turns, s)].n_start++;
	for (size_t i = 0; i < t->n; i++) {
		a->step[i].start = n;
		n += a->step[i].n_start;
		a->step[i].n_start = 0;
	}
	for (size_t s = 0; s < t->n_session; s++) {
		uint32_t by = starter(a, turns, s), first = turns_first(turns, (int32_t)s);
		uint32_t last = turns_last(turns, (int32_t)s), join;

		if (by == NO_REQ)
			continue;
		a->starts[a->step[by].start + a->step[by].n_start++] = first;
		a->step[first].from = by;
		a->step[first].n_wait = 1;
		a->follows[first] = true;
		if (t->link[s].join_ns < 0)
			continue;
		join = turns_find(turns, t->link[s].parent, t->link[s].join);
		if (join == NO_REQ || join <= by)
			continue;
		a->step[last].join = join;
		a->step[join].n_wait++;
		a->step[join].joined_ns = 0;
		a->step[join].join_ns = t->link[s].join_ns;
	}
}

/* Requests of a tree have numbers above that of what they follow. */
static void count_trees(struct arrivals *a)
{
	for (uint32_t i = 0; i < a->trace->n; i++) {
		struct step *p = &a->step[i];

		p->tree = a->follows[i] ? a->step[p->from].tree : i;
		a->step[p->tree].n_left++;
	}
}

static bool link_sessions(struct arrivals *a)
{
	const struct trace *t = a->trace;
	struct turns turns;

	a->end = calloc(t->n + 1, sizeof *a->end);
	a->step = malloc((t->n + 1) * sizeof *a->step);
	a->starts = malloc((t->n_session + 1) * sizeof *a->starts);
	if (!turns_open(&turns, t) || !a->end || !a->step || !a->starts) {
		turns_close(&turns);
		return false;
	}
	for (size_t i = 0; i < t->n; i++)
		a->step[i] = (struct step){ .next = NO_REQ, .join = NO_REQ, .joined_ns = -1 };
	link_turns(a, &turns);
	if (t->link)
		link_starts(a, &turns);
	count_trees(a);
	turns_close(&turns);
	return true;
}

enum ar_status arrivals_open(struct arrivals **out, const struct trace *t,
			     const struct arrival_rule *rule, struct ar_err *err)
{
	struct arrivals *a;

	*out = NULL;
	a = calloc(1, sizeof *a);
	if (!a)
		return ar_nomem(err);
	a->trace = t;
	a->rule = *rule;
	a->at = malloc((t->n + 1) * sizeof *a->at);
	a->follows = calloc(t->n + 1, sizeof *a->follows);
	a->heap = malloc((t->n + 1) * sizeof *a->heap);
	if (!a->at || !a->follows || !a->heap || (rule->loop != LOOP_OPEN && !link_sessions(a))) {
		arrivals_close(a);
		return ar_nomem(err);
	}
	for (size_t i = 0; i < t->n; i++)
		a->at[i] = t->req[i].arrival_ns;
	for (int64_t u = 0; rule->loop == LOOP_USERS && u < rule->users && a->head < t->n; u++)
		take_head(a, 0);
	*out = a;
	return AR_OK;
}

/* ---- the order ---- */

/* The next request and its time; a head of the trace has not moved so far. */
static uint32_t next_request(struct arrivals *a, int64_t *at_ns)
{
	uint32_t head = a->rule.loop == LOOP_USERS ? NO_REQ : next_head(a);
	uint32_t id = a->n_heap ? a->heap[0] : NO_REQ;

	if (head != NO_REQ) {
		*at_ns = a->at[head] - a->moved_ns;
		if (id == NO_REQ || *at_ns < a->at[id] || (*at_ns == a->at[id] && head < id))
			return head;
	}
	if (id != NO_REQ)
		*at_ns = a->at[id];
	return id;
}

/* With nothing in flight, let the next request, at *at_ns, come no later than the rule says. */
static void skip_idle(struct arrivals *a, int64_t *at_ns)
{
	int64_t most = num_add(a->last_ns, a->rule.idle_cap_ns), by = *at_ns - most;

	if (!a->rule.idle_cap_ns || a->n_live || by <= 0)
		return;
	a->moved_ns += by;
	for (size_t i = 0; i < a->n_heap; i++)
		a->at[a->heap[i]] -= by;
	*at_ns = most;
}

bool arrivals_peek(struct arrivals *a, uint32_t *id, int64_t *at_ns)
{
	*id = next_request(a, at_ns);
	if (*id == NO_REQ)
		return false;
	skip_idle(a, at_ns);
	return true;
}

void arrivals_pop(struct arrivals *a)
{
	int64_t at_ns;
	uint32_t id;

	if (!arrivals_peek(a, &id, &at_ns))
		return;
	a->at[id] = at_ns;
	a->n_live++;
	if (a->n_heap && a->heap[0] == id)
		pop_arrival(a);
	else
		a->head++;
}

/* A think time of the trace, as the rule changes it; -1: the trace has none. */
static int64_t think_time(const struct arrivals *a, int64_t ns)
{
	const struct arrival_rule *r = &a->rule;
	double x;

	if (ns < 0)
		return r->think_ns;
	if (r->think_cap_ns && ns > r->think_cap_ns)
		ns = r->think_cap_ns;
	x = r->think_scale > 0 && r->think_scale != 1 ? floor((double)ns * r->think_scale + 0.5) :
							-1;
	return x < 0 ? ns : x < 9.2e18 ? (int64_t)x : INT64_MAX;
}

static int64_t later(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* One thing less that request id waits for.  After the last one its time is known. */
static void wait_less(struct arrivals *a, uint32_t id, int64_t now_ns)
{
	struct step *p = &a->step[id];
	int64_t at_ns = p->joined_ns;

	if (--p->n_wait)
		return;
	if (at_ns < 0)
		at_ns = num_add(a->end[p->from], think_time(a, a->trace->req[id].think_ns));
	push_arrival(a, id, later(at_ns - a->moved_ns, now_ns));
}

void arrivals_done(struct arrivals *a, uint32_t id, int64_t now_ns)
{
	struct step *p;

	a->n_live--;
	a->last_ns = later(a->last_ns, now_ns);
	if (a->rule.loop == LOOP_OPEN)
		return;
	p = &a->step[id];
	a->end[id] = num_add(now_ns, a->moved_ns);
	if (p->next != NO_REQ)
		wait_less(a, p->next, now_ns);
	for (uint32_t i = 0; i < p->n_start; i++)
		wait_less(a, a->starts[p->start + i], now_ns);
	if (p->join != NO_REQ) {
		struct step *q = &a->step[p->join];

		q->joined_ns = later(q->joined_ns, num_add(a->end[id], think_time(a, q->join_ns)));
		wait_less(a, p->join, now_ns);
	}
	if (!--a->step[p->tree].n_left && a->rule.loop == LOOP_USERS)
		take_head(a, num_add(now_ns, a->rule.think_ns));
}

int64_t arrivals_at(const struct arrivals *a, uint32_t id)
{
	return a->at[id];
}
