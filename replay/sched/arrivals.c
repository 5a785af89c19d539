/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions are linked lists of requests in the order of the trace.  Their heads come in that order,
 * from a cursor over the trace; followers, and the heads that users take, wait in a heap until
 * their time.
 */
#include "config.h"
#include "replay/sched/arrivals.h"

#include <stdlib.h>

#include "base/number.h"

#define NO_REQ UINT32_MAX

struct arrivals {
	const struct trace *trace;
	struct arrival_rule rule;
	int64_t *at;	/* by request */
	uint32_t *next; /* ... the one after it in its session, or NO_REQ */
	bool *follows;	/* ... is not the first of its session */
	size_t head;	/* heads before it are taken */
	uint32_t *heap; /* requests whose time is known, by (at, number) */
	size_t n_heap;
};

void arrivals_close(struct arrivals *a)
{
	if (!a)
		return;
	free(a->at);
	free(a->next);
	free(a->follows);
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

static bool link_sessions(struct arrivals *a)
{
	const struct trace *t = a->trace;
	uint32_t *last = malloc((t->n_session + 1) * sizeof *last);

	if (!last)
		return false;
	for (size_t s = 0; s < t->n_session; s++)
		last[s] = NO_REQ;
	for (size_t i = 0; i < t->n; i++) {
		int32_t s = t->req[i].session;

		if (s < 0 || a->rule.loop == LOOP_OPEN)
			continue;
		if (last[s] != NO_REQ) {
			a->next[last[s]] = (uint32_t)i;
			a->follows[i] = true;
		}
		last[s] = (uint32_t)i;
	}
	free(last);
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
	a->next = malloc((t->n + 1) * sizeof *a->next);
	a->follows = calloc(t->n + 1, sizeof *a->follows);
	a->heap = malloc((t->n + 1) * sizeof *a->heap);
	if (!a->at || !a->next || !a->follows || !a->heap)
		goto nomem;
	for (size_t i = 0; i < t->n; i++) {
		a->at[i] = t->req[i].arrival_ns;
		a->next[i] = NO_REQ;
	}
	if (!link_sessions(a))
		goto nomem;
	for (int64_t u = 0; rule->loop == LOOP_USERS && u < rule->users && a->head < t->n; u++)
		take_head(a, 0);
	*out = a;
	return AR_OK;
nomem:
	arrivals_close(a);
	return ar_nomem(err);
}

/* ---- the order ---- */

bool arrivals_peek(struct arrivals *a, uint32_t *id, int64_t *at_ns)
{
	uint32_t head = a->rule.loop == LOOP_USERS ? NO_REQ : next_head(a);

	*id = a->n_heap ? a->heap[0] : NO_REQ;
	if (head != NO_REQ && (*id == NO_REQ || arrives_before(a, head, *id)))
		*id = head;
	if (*id == NO_REQ)
		return false;
	*at_ns = a->at[*id];
	return true;
}

void arrivals_pop(struct arrivals *a)
{
	int64_t at_ns;
	uint32_t id;

	if (!arrivals_peek(a, &id, &at_ns))
		return;
	if (a->n_heap && a->heap[0] == id)
		pop_arrival(a);
	else
		a->head++;
}

void arrivals_done(struct arrivals *a, uint32_t id, int64_t now_ns)
{
	uint32_t next = a->next[id];

	if (next != NO_REQ) {
		int64_t think_ns = a->trace->req[next].think_ns;

		push_arrival(a, next, num_add(now_ns, think_ns >= 0 ? think_ns : a->rule.think_ns));
	} else if (a->rule.loop == LOOP_USERS) {
		take_head(a, num_add(now_ns, a->rule.think_ns));
	}
}

int64_t arrivals_at(const struct arrivals *a, uint32_t id)
{
	return a->at[id];
}
