/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/engine/engine_join.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/order.h"

/* A request of either log. */
struct one {
	uint32_t prompt, output;
	int64_t at_ns;
	int32_t i;
};

static int by_length(const struct one *a, const struct one *b)
{
	const int c = ORDER(a->prompt, b->prompt);

	return c ? c : ORDER(a->output, b->output);
}

static int in_order(const void *a, const void *b)
{
	const struct one *x = a, *y = b;
	const int length = by_length(x, y), at = ORDER(x->at_ns, y->at_ns);

	return length ? length : at ? at : ORDER(x->i, y->i);
}

/* List the requests of a log that have an output, sorted.  The caller frees *out. */
static enum ar_status list(const struct engine_log *log, struct one **out, size_t *n,
			   struct ar_err *err)
{
	struct one *v = calloc(log->n_request + 1, sizeof *v);

	*out = v;
	*n = 0;
	if (!v)
		return ar_nomem(err);
	for (size_t i = 0; i < log->n_request; i++) {
		const struct engine_request *q = &log->request[i];

		if (!q->output_tok)
			continue;
		if (!q->prompt_tok || q->arrival_ns < 0)
			return ar_fail(err, AR_DATA,
				       "%s: request %zu has no prompt length or no time of its "
				       "start, so it cannot be found in another log",
				       log->name, i);
		v[(*n)++] = (struct one){ q->prompt_tok, q->output_tok, q->arrival_ns, (int32_t)i };
	}
	qsort(v, *n, sizeof *v, in_order);
	return AR_OK;
}

/* The requests at v that are as long as the first, of n. */
static size_t same_length(const struct one *v, size_t n)
{
	size_t same = 0;

	while (same < n && !by_length(v, v + same))
		same++;
	return same;
}

struct match {
	const struct engine_log *steps, *client;
	int32_t *client_of; /* [steps->n_request] -1: of no client */
	int64_t shift_ns;   /* of the clients' clock to the engine's; INT64_MAX: not known */
};

/* Find the n requests c of clients, which are of one length, among the n_engine e of the engine. */
static enum ar_status match_class(struct match *m, const struct one *c, size_t n,
				  const struct one *e, size_t n_engine, struct ar_err *err)
{
	if (n_engine < n)
		return ar_fail(err, AR_DATA,
			       "%s: %zu requests have %" PRIu32 " prompt and %" PRIu32
			       " output tokens, but in %s %zu have; give --steps the log of the "
			       "engine that served them",
			       m->client->name, n, c->prompt, c->output, m->steps->name, n_engine);
	e += n_engine - n;
	for (size_t k = 0; k < n; k++) {
		const int64_t shift = e[k].at_ns - c[k].at_ns;

		m->client_of[e[k].i] = c[k].i;
		m->shift_ns = shift < m->shift_ns ? shift : m->shift_ns;
	}
	return AR_OK;
}

static enum ar_status match_all(struct match *m, const struct one *c, size_t n_client,
				const struct one *e, size_t n_engine, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (size_t n; n_client && !st; c += n, n_client -= n) {
		n = same_length(c, n_client);
		while (n_engine && by_length(e, c) < 0)
			e++, n_engine--;
		st = match_class(m, c, n, e,
				 n_engine && !by_length(e, c) ? same_length(e, n_engine) : 0, err);
	}
	return st;
}

static void shift(int64_t *at_ns, int64_t by_ns)
{
	if (*at_ns >= 0)
		*at_ns = *at_ns > by_ns ? *at_ns - by_ns : 0;
}

/* Renumber the requests of a step.  False: it ran none of a client's. */
static bool renumber(struct engine_log *log, const struct engine_step *s, const int32_t *client_of)
{
	bool any = false;

	for (size_t k = s->first; k < s->first + s->n_entry; k++) {
		struct engine_entry *x = &log->entry[k];

		x->req = x->req >= 0 ? client_of[x->req] : -1;
		any = any || x->req >= 0;
	}
	return any;
}

static void keep_steps(struct engine_log *log, const struct match *m)
{
	size_t n = 0;

	for (size_t i = 0; i < log->n_step; i++) {
		struct engine_step s = log->step[i];

		if (!renumber(log, &s, m->client_of))
			continue;
		shift(&s.begin_ns, m->shift_ns);
		shift(&s.end_ns, m->shift_ns);
		shift(&s.seen_ns, m->shift_ns);
		log->step[n++] = s;
	}
	log->n_step = n;
}

/* Let steps have the requests of the clients, with what the engine alone knows of them. */
static void take_requests(struct engine_log *steps, struct engine_log *client,
			  const struct match *m)
{
	struct engine_request *of_engine = steps->request;
	const size_t n = steps->n_request;
	char *name = steps->name;

	for (size_t i = 0; i < n; i++) {
		struct engine_request *q;

		if (m->client_of[i] < 0)
			continue;
		q = &client->request[m->client_of[i]];
		q->admit_ns = of_engine[i].admit_ns;
		q->received_ns = of_engine[i].received_ns;
		shift(&q->received_ns, m->shift_ns);
	}
	steps->request = client->request;
	steps->n_request = client->n_request;
	steps->name = client->name;
	client->request = of_engine;
	client->n_request = n;
	client->name = name;
}

enum ar_status engine_join(struct engine_log *steps, struct engine_log *client, struct ar_err *err)
{
	struct match m = { steps, client, malloc((steps->n_request + 1) * sizeof *m.client_of),
			   INT64_MAX };
	struct one *c = NULL, *e = NULL;
	size_t n_client = 0, n_engine = 0;
	enum ar_status st = m.client_of ? list(client, &c, &n_client, err) : ar_nomem(err);

	for (size_t i = 0; m.client_of && i < steps->n_request; i++)
		m.client_of[i] = -1;
	if (!st)
		st = list(steps, &e, &n_engine, err);
	if (!st && client->n_step)
		st = ar_fail(err, AR_DATA, "%s: the log has steps of its own; leave --steps out",
			     client->name);
	if (!st && !n_client)
		st = ar_fail(err, AR_DATA, "%s: no request has an output, so none has a step",
			     client->name);
	if (!st)
		st = match_all(&m, c, n_client, e, n_engine, err);
	if (!st) {
		keep_steps(steps, &m);
		take_requests(steps, client, &m);
	}
	free(m.client_of);
	free(c);
	free(e);
	return st;
}
