/* SPDX-License-Identifier: Apache-2.0 */
/* Arrival times of requests in open and closed loops. */
#include "config.h"
#include "replay/sched/arrivals.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tests/trace_text.h"

enum { N = 60 };
#define RULE(how, n, ns) ((struct arrival_rule){ .loop = how, .users = n, .think_ns = ns })
static char name[] = "made", sessions[8][4];
static char *session_names[8];

static void make(struct trace *t, struct request *req, size_t n, const int *session)
{
	*t = (struct trace){ .req = req, .n = n, .name = name, .session = session_names };
	for (int s = 0; s < 8; s++) {
		snprintf(sessions[s], sizeof sessions[s], "%d", s);
		session_names[s] = sessions[s];
	}
	for (size_t i = 0; i < n; i++) {
		req[i] = (struct request){ .arrival_ns = 10 * (int64_t)i,
					   .prompt_tok = 1,
					   .output_tok = 1,
					   .session = session[i],
					   .think_ns = -1 };
		if (session[i] >= 0)
			t->n_session = 8;
	}
}

static struct arrivals *start(const struct trace *t, struct arrival_rule rule)
{
	struct arrivals *a;

	if (arrivals_open(&a, t, &rule, NULL))
		bail_out("arrivals do not open");
	return a;
}

/* Serve one request after another, each service_ns long; the log is "id@arrival ...". */
static const char *serve(const struct trace *t, struct arrival_rule rule, int64_t service_ns)
{
	struct arrivals *a = start(t, rule);
	static char text[400];
	int64_t now = 0, at;
	size_t n = 0;
	uint32_t id;

	*text = 0;
	while (arrivals_peek(a, &id, &at)) {
		arrivals_pop(a);
		if (arrivals_at(a, id) != at)
			bail_out("a request has two arrivals");
		n += (size_t)snprintf(text + n, sizeof text - n, "%s%u@%d", n ? " " : "", id,
				      (int)at);
		now = (at > now ? at : now) + service_ns;
		arrivals_done(a, id, now);
	}
	arrivals_close(a);
	return text;
}

static void test_worked(void)
{
	static const int session[] = { 0, 1, -1, 0, 1, 0 };
	struct request req[6];
	struct trace t;

	make(&t, req, 6, session);
	req[5].think_ns = 2;
	is_str(serve(&t, RULE(LOOP_OPEN, 1, 7), 100), "0@0 1@10 2@20 3@30 4@40 5@50",
	       "an open loop has the times of the trace");
	/* 0 ends at 100, 1 at 200, 2 at 300, 3 at 400, 4 at 500 */
	is_str(serve(&t, RULE(LOOP_SESSIONS, 1, 7), 100), "0@0 1@10 2@20 3@107 4@207 5@402",
	       "in a session each request waits for the one before, and for the user");
	is_str(serve(&t, RULE(LOOP_USERS, 1, 7), 100), "0@0 3@107 5@209 1@316 4@423 2@530",
	       "one user goes through one session after another");
	is_str(serve(&t, RULE(LOOP_USERS, 2, 0), 100), "0@0 1@0 3@100 4@200 5@302 2@400",
	       "two users take the sessions in turn");
	is_str(serve(&t, RULE(LOOP_USERS, 9, 0), 100), "0@0 1@0 2@0 3@100 4@200 5@402",
	       "no more users than sessions are active");
	req[3].think_ns = INT64_MAX; /* cut to an int, it is -1 */
	is_str(serve(&t, RULE(LOOP_USERS, 1, 0), 0), "0@0 3@-1 5@-1 1@-1 4@-1 2@-1",
	       "a pause without end ends at the end of time");
}

/* Session 0 is 0, 1, 5, 6.  Request 1 starts session 1 (2, 3), for which 5 waits, and session 2
 * (4), for which nobody does.  The think time of 6 counts from 1. */
static void make_tree(struct trace *t, struct request *req, struct session_link *link)
{
	static const int session[] = { 0, 0, 1, 1, 2, 0, 0, 3 };
	static const int64_t think_ns[] = { -1, 20, 5, 30, 400, 1000, 950, -1 };
	static const uint32_t turn[] = { 0, 1, 0, 1, 0, 2, 3, 0 };

	make(t, req, 8, session);
	for (int i = 0; i < 8; i++) {
		req[i].think_ns = think_ns[i];
		req[i].turn = turn[i];
		link[i] = session_link_none;
	}
	req[6].back = 2;
	link[1] = (struct session_link){ .parent = 0, .after = 1, .join = 2, .join_ns = 8 };
	link[2] = (struct session_link){ .parent = 0, .after = 1, .join_ns = -1 };
	t->link = link;
}

static void test_trees(void)
{
	struct arrival_rule rule = RULE(LOOP_USERS, 1, 7);
	struct session_link link[8];
	struct request req[8];
	struct trace t;

	make_tree(&t, req, link);
	is_str(serve(&t, RULE(LOOP_OPEN, 1, 7), 1), "0@0 1@10 2@20 3@30 4@40 5@50 6@60 7@70",
	       "an open loop has the times of the trace");
	/* 0 ends at 1, 1 at 22, 2 at 28, 3 at 59, 5 at 68; 4 comes at 22 + 400 */
	is_str(serve(&t, rule, 1), "0@0 1@21 2@27 3@58 5@67 4@422 6@972 7@980",
	       "a user waits for all that a session started");
	is_str(serve(&t, RULE(LOOP_SESSIONS, 1, 7), 1), "0@0 1@21 2@27 3@58 5@67 7@70 4@422 6@972",
	       "sessions that others start follow these");
	rule.think_cap_ns = 100;
	is_str(serve(&t, rule, 1), "0@0 1@21 2@27 3@58 5@67 4@122 6@122 7@131",
	       "long think times are cut");
	rule.think_scale = 0.5;
	is_str(serve(&t, rule, 1), "0@0 1@11 2@15 3@31 5@36 4@62 6@62 7@71",
	       "... before they are scaled");
	rule = RULE(LOOP_SESSIONS, 1, 7);
	rule.idle_cap_ns = 10;
	is_str(serve(&t, rule, 1), "0@0 1@11 2@17 3@28 5@37 7@40 4@51 6@62",
	       "all requests come earlier where none is in flight");
	link[4] = link[1]; /* a session of which nothing is left */
	is_str(serve(&t, rule, 1), "0@0 1@11 2@17 3@28 5@37 7@40 4@51 6@62",
	       "what is not left of a session is not waited for");
	link[4] = session_link_none;
	link[1].parent = 3; /* which comes later */
	is_str(serve(&t, RULE(LOOP_SESSIONS, 1, 7), 1),
	       "0@0 2@20 1@21 3@51 7@70 4@422 5@1022 6@1023",
	       "what the trace does not have starts nothing");
}

static void test_late(void)
{
	static const int session[] = { 0, 0 };
	const int64_t late = INT64_MAX - 100;
	struct request req[2];
	struct arrivals *a;
	struct trace t;
	int64_t at;
	uint32_t id;

	make(&t, req, 2, session);
	a = start(&t, RULE(LOOP_SESSIONS, 1, 7));
	arrivals_pop(a);
	arrivals_done(a, 0, late);
	ok(arrivals_peek(a, &id, &at) && id == 1 && at == late + 7,
	   "a request follows an answer even near the end of time");
	arrivals_close(a);
}

/* The rules, stated again for any order of service. */
static void test_random(uint64_t seed)
{
	struct rng rng = { seed };
	struct arrival_rule rule = RULE((int)(seed % 3), 1 + (int64_t)rng_below(&rng, 5), 0);
	int64_t done[N], came[N], at, now = 0, last = -1;
	uint32_t in[N], id;
	struct request req[N];
	int session[N], bad = 0, n_in = 0, n = 0, before;
	struct arrivals *a;
	struct trace t;

	rule.think_ns = (int64_t)rng_below(&rng, 50);
	for (int i = 0; i < N; i++) {
		session[i] = (int)rng_below(&rng, 10) - 2;
		session[i] = session[i] < 0 ? -1 : session[i];
		done[i] = came[i] = -1;
	}
	make(&t, req, N, session);
	a = start(&t, rule);
	while (n_in || arrivals_peek(a, &id, &at)) {
		if (n_in && (!arrivals_peek(a, &id, &at) || at > now || !rng_below(&rng, 2))) {
			int k = (int)rng_below(&rng, (uint64_t)n_in);

			now += (int64_t)rng_below(&rng, 30);
			done[in[k]] = now;
			arrivals_done(a, in[k], now);
			in[k] = in[--n_in];
			continue;
		}
		if (at > now)
			now = at;
		arrivals_pop(a);
		bad += came[id] >= 0 || arrivals_at(a, id) != at || at < last;
		last = at;
		came[id] = at;
		in[n_in++] = id;
		n++;
		if (rule.loop == LOOP_USERS)
			bad += n_in > rule.users;
		for (before = (int)id - 1; before >= 0; before--)
			if (session[id] >= 0 && session[before] == session[id])
				break;
		if (rule.loop == LOOP_OPEN || (rule.loop == LOOP_SESSIONS && before < 0))
			bad += at != req[id].arrival_ns;
		else if (before >= 0)
			bad += done[before] < 0 || at != done[before] + rule.think_ns;
	}
	arrivals_close(a);
	ok(!bad && n == N, "seed %d: every request comes once, by the rules of loop %d", (int)seed,
	   rule.loop);
}

/* ---- sessions of agents ---- */

enum { SESSIONS = 5, TURNS = 14 };

/* A request that took cs hundredths of a second, which is its output as well. */
static double put_call(FILE *f, struct rng *r, double t, double think)
{
	const int cs = 20 + (int)rng_below(r, 900);

	fprintf(f,
		"{\"t\":%.0f,\"type\":\"n\",\"in\":9,\"out\":%d,\"hash_ids\":[],"
		"\"api_time\":%d.%02d,\"think_time\":%.0f}",
		floor(t), cs, cs / 100, cs % 100, floor(think + 0.5));
	return cs / 100.0;
}

/* A sub-agent of two requests, for which the next request waits or not.  Returns its end. */
static double put_agent(FILE *f, struct rng *r, double from, int number, bool waits)
{
	const double pause = (double)rng_below(r, 400) / 100;
	char *text = NULL;
	size_t n;
	FILE *in = open_memstream(&text, &n);
	double took = put_call(in, r, 0, 0) + pause;

	fprintf(in, ",");
	took += put_call(in, r, took, pause);
	fclose(in);
	fprintf(f,
		",{\"t\":%.3f,\"type\":\"subagent\",\"agent_id\":\"a%d\",\"status\":\"%s\","
		"\"duration_ms\":%.0f,\"requests\":[%s]}",
		waits ? from + took : from, number, waits ? "completed" : "async_launched",
		1000 * took, text);
	free(text);
	return from + took;
}

/* Sessions as kv-cache-tester records them: starts and think times are whole seconds. */
static struct trace *agents(uint64_t seed, const struct trace_args *a)
{
	struct rng r = { seed };
	struct ar_err err;
	struct trace *t;
	char *text = NULL;
	size_t n;
	FILE *f = open_memstream(&text, &n);

	for (int s = 0; s < SESSIONS; s++) {
		double at = 0, end = 0;

		fprintf(f,
			"{\"id\":\"s%d\",\"block_size\":64,\"hash_id_scope\":\"local\","
			"\"requests\":[",
			s);
		for (int k = 0; k < TURNS; k++) {
			double next;

			fprintf(f, k ? "," : "");
			end = at + put_call(f, &r, at, at - end);
			next = end;
			for (int i = 0; i < 2 && rng_below(&r, 3) == 0 && k + 1 < TURNS; i++) {
				bool waits = rng_below(&r, 3) != 0;
				double to = put_agent(f, &r, end + 0.4, 2 * k + i, waits);

				next = waits && to > next ? to : next;
			}
			at = next + (double)rng_below(&r, 3000) / 100;
		}
		fprintf(f, "]}\n");
	}
	fclose(f);
	t = read_with(text, a, &err);
	if (!t)
		bail_out("%s", err.msg);
	free(text);
	return t;
}
/* Arrival and end of each request of a replay. */
struct replay {
	int64_t *at, *end;
};

/* Serve all at once; a request takes its output in hundredths of a second. */
static struct replay serve_all(const struct trace *t)
{
	struct replay r = { calloc(t->n, sizeof *r.at), malloc(t->n * sizeof *r.end) };
	struct arrivals *a = start(t, RULE(LOOP_SESSIONS, 1, 0));
	size_t n_in = 0;
	uint32_t *in = malloc(t->n * sizeof *in), id;
	int64_t at;

	while (n_in || arrivals_peek(a, &id, &at)) {
		size_t k = 0;

		for (size_t i = 1; i < n_in; i++)
			k = r.end[in[i]] < r.end[in[k]] ? i : k;
		if (n_in && (!arrivals_peek(a, &id, &at) || at > r.end[in[k]])) {
			id = in[k];
			in[k] = in[--n_in];
			arrivals_done(a, id, r.end[id]);
			continue;
		}
		arrivals_pop(a);
		r.at[id] = at;
		r.end[id] = at + 10000000 * (int64_t)t->req[id].output_tok;
		in[n_in++] = id;
	}
	arrivals_close(a);
	free(in);
	return r;
}

static void free_replay(struct replay r)
{
	free(r.at);
	free(r.end);
}

/* Turns before request q in its session, and in the one that started this. */
static uint32_t turns_before(const struct trace *t, const struct request *q)
{
	const struct session_link *l = &t->link[q->session];

	return q->turn + (l->parent >= 0 ? l->after + 1 : 0);
}

/* The last end of the sub-agents that request q waits for, or -1. */
static int64_t joined(const struct trace *t, const struct replay *r, const struct request *q)
{
	int64_t end = -1;

	for (size_t i = 0; i < t->n; i++) {
		const struct session_link *l = &t->link[t->req[i].session];

		if (l->parent == q->session && l->join_ns >= 0 && l->join == q->turn &&
		    r->end[i] > end)
			end = r->end[i];
	}
	return end;
}

/* Whole seconds round each turn by less than a second: a replay that takes as long as the source
 * did drifts by no more. */
static void test_agents(uint64_t seed)
{
	struct trace *t = agents(seed, &whole);
	struct replay r = serve_all(t);
	size_t late = 0, early = 0, waits = 0;

	for (size_t i = 0; i < t->n; i++) {
		const struct request *q = &t->req[i];
		const int64_t end = joined(t, &r, q);

		late += llabs(r.at[i] - q->arrival_ns) >=
			1000000000 * (1 + (int64_t)turns_before(t, q));
		early += r.at[i] < end;
		waits += end >= 0;
	}
	is_int((long long)late, 0,
	       "seed %d: a closed loop has the starts of an open one, to 1 s and 1 s a turn",
	       (int)seed);
	ok(waits > 5 && !early, "seed %d: none of %zu requests comes before its sub-agents end",
	   (int)seed, waits);
	free_replay(r);
	trace_free(t);
}

/* Starts that are drawn depend on the seed alone, and so do all arrivals after them. */
static void test_same_order(void)
{
	char *text[3], starts[] = "poisson:0.1";

	for (int i = 0; i < 3; i++) {
		struct trace_args args = { .session_starts = starts, .seed = i / 2 };
		struct trace *t = agents(7, &args);
		struct replay r = serve_all(t);
		size_t n;
		FILE *f = open_memstream(&text[i], &n);

		for (size_t k = 0; k < t->n; k++)
			fprintf(f, "%lld ", (long long)r.at[k]);
		fclose(f);
		free_replay(r);
		trace_free(t);
	}
	ok(!strcmp(text[0], text[1]), "the same seed and costs give the same arrivals");
	ok(strcmp(text[0], text[2]) != 0, "another seed gives others");
	for (int i = 0; i < 3; i++)
		free(text[i]);
}

/* The request of a turn of a session with the same name. */
static const struct request *same_turn(const struct trace *t, const char *session, uint32_t turn)
{
	for (size_t i = 0; i < t->n; i++)
		if (t->req[i].turn == turn && !strcmp(t->session[t->req[i].session], session))
			return &t->req[i];
	bail_out("no turn %u of session %s", turn, session);
}

/* Sessions begin in their middle, at the turn before a random time. */
static void test_within(uint64_t seed, int64_t users)
{
	char zero[] = "zero", within[] = "0.25:0.75";
	const struct trace_args all = { .session_starts = zero };
	struct trace_args a = { .session_starts = zero,
				.start_within = within,
				.start_first = users,
				.seed = (int64_t)seed };
	struct trace *t = agents(seed, &a), *before = agents(seed, &all), *again;
	char *text, *same;
	struct replay r = serve_all(t);
	size_t bad = 0, roots = 0, left = 0;

	for (size_t i = 0; i < t->n; i++) {
		const struct request *q = &t->req[i], *next;
		const bool root = t->link[q->session].parent < 0;
		const char *whose = t->session[q->session];
		const struct request *was = same_turn(before, whose, q->turn);
		double span;

		left += r.end[i] > 0;
		if (!q->warmup) {
			bad += q->output_tok != was->output_tok || q->back != was->back;
			continue;
		}
		bad += q->output_tok != 1 || q->arrival_ns || q->prompt_tok != was->prompt_tok;
		if (!root)
			continue;
		roots++;
		next = same_turn(before, whose, q->turn + 1);
		span = (double)same_turn(before, whose, TURNS - 1)->arrival_ns;
		bad += (double)was->arrival_ns > 0.75 * span ||
		       (double)next->arrival_ns < 0.25 * span ||
		       same_turn(t, whose, q->turn + 1)->arrival_ns !=
			       next->arrival_ns - was->arrival_ns;
	}
	is_int((long long)bad, 0, "seed %d: warm-ups, and what comes after them", (int)seed);
	is_int((long long)roots, users ? users : SESSIONS, "... one a session that begins so");
	ok(left == t->n && t->n < before->n, "... and a closed loop serves all that is left");
	text = canonical(t);
	again = read_text(text);
	same = canonical(again);
	is_str(same, text, "... which the canonical form keeps");
	free(same);
	free(text);
	trace_free(again);
	free_replay(r);
	trace_free(before);
	trace_free(t);
}

static void test_failures(void)
{
	static const int session[] = { 0, 0, -1 };
	struct arrival_rule rule = RULE(LOOP_SESSIONS, 1, 0);
	struct request req[3];
	struct arrivals *a;
	struct ar_err err;
	struct trace t;
	long n = 0, bad = 0;

	make(&t, req, 3, session);
	for (;; n++) {
		enum ar_status st;
		bool fired;

		fault_arm(n);
		st = arrivals_open(&a, &t, &rule, &err);
		fired = fault_disarm();
		if (!fired)
			break;
		bad += st != AR_NOMEM || a;
	}
	arrivals_close(a);
	ok(n == 9 && !bad, "each of %ld allocations fails cleanly", n);
	t.n = 0;
	a = start(&t, RULE(LOOP_USERS, 3, 0));
	arrivals_pop(a);
	ok(!arrivals_peek(a, &(uint32_t){ 0 }, &(int64_t){ 0 }), "an empty trace has no arrivals");
	arrivals_close(a);
}

int main(void)
{
	plan(0);
	text_begin();
	test_worked();
	test_trees();
	test_late();
	for (uint64_t seed = 1; seed <= 30; seed++)
		test_random(seed);
	for (uint64_t seed = 1; seed <= 6; seed++)
		test_agents(seed);
	test_same_order();
	for (uint64_t seed = 1; seed <= 6; seed++)
		test_within(seed, seed % 3);
	test_failures();
	text_end();
	return done_testing();
}
