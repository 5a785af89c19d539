/* SPDX-License-Identifier: Apache-2.0 */
/* Resamples keep units whole, their gaps and their prefixes, and draws are keyed. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tests/alloc_fault.h"
#include "tests/tap.h"
#include "traces/algebra/resample.h"

enum { N = 60, BLOCKS = 4 };

static struct ar_err err;
static struct request req[N];
static struct block_run run[N * BLOCKS];
static char name[] = "t", *names[N];

static struct trace make_trace(void)
{
	struct trace t = { .req = req,
			   .n = N,
			   .name = name,
			   .run = run,
			   .cap_run = (size_t)N * BLOCKS,
			   .block_tok = 16 };
	struct rng r = { 5 };
	int64_t now = 1000;

	strcpy(t.sha256, "abc");
	for (uint32_t i = 0; i < N; i++) {
		req[i] = request_none;
		req[i].arrival_ns = now;
		req[i].prompt_tok = 100 + i;
		req[i].output_tok = 1 + i;
		now += (int64_t)(1 + rng_below(&r, 1000));
	}
	return t;
}

/* Sessions of four turns, each behind the one before it. */
static struct trace make_sessions(void)
{
	struct trace t = make_trace();

	for (uint32_t i = 0; i < N; i++) {
		req[i].session = (int32_t)(i % (N / 4));
		req[i].turn = i / (N / 4);
	}
	t.session = names;
	t.n_session = N / 4;
	return t;
}

/* Requests share prefix 7; pairs of them share a longer one. */
static struct trace make_tree(void)
{
	struct trace t = make_trace();

	for (uint32_t i = 0; i < N; i++) {
		const uint64_t id[BLOCKS] = { 7, 100 + i / 2, 200 + i, 300 + i };

		req[i].run = t.n_run;
		for (int k = 0; k < BLOCKS; k++)
			trace_put_block(&t, &req[i], id[k]);
	}
	return t;
}

static struct resampler *open_or_die(const struct trace *t, bool prefixes)
{
	struct resampler *r;

	if (resample_open(&r, t, prefixes, true, &err))
		bail_out("%s", err.msg);
	return r;
}

static struct trace draw_or_die(const struct resampler *r, uint64_t k, size_t times)
{
	struct trace out;

	if (resample_draw(r, k, times, &out, &err))
		bail_out("%s", err.msg);
	return out;
}

static bool is_sorted(const struct trace *t)
{
	for (size_t i = 1; i < t->n; i++)
		if (t->req[i].arrival_ns < t->req[i - 1].arrival_ns)
			return false;
	return true;
}

/* The request of the trace that a drawn one is a copy of: prompts tell. */
static size_t origin(const struct request *q)
{
	return q->prompt_tok - 100;
}

static void test_requests(void)
{
	struct trace t = make_trace(), out, again, next;
	struct resampler *r = open_or_die(&t, false);
	const struct resample_plan p = resample_plan(r);
	bool gaps = true;
	size_t twice = 0, count[N] = { 0 };

	is_int(p.unit, RESAMPLE_REQUEST, "requests are units");
	is_int((long long)p.n_unit, N, "as many as there are");
	out = draw_or_die(r, 3, 1);
	again = draw_or_die(r, 3, 1);
	next = draw_or_die(r, 4, 1);
	is_int((long long)out.n, N, "a resample has as many");
	ok(!memcmp(out.req, again.req, N * sizeof *req), "a number draws the same again");
	ok(memcmp(out.req, next.req, N * sizeof *req), "another number draws others");
	ok(is_sorted(&out), "by arrival");
	is_int(out.req[0].arrival_ns, 0, "from 0 on");
	for (size_t i = 1; i < N; i++) {
		size_t o = origin(&out.req[i]);
		int64_t gap = o ? req[o].arrival_ns - req[o - 1].arrival_ns :
				  (req[N - 1].arrival_ns - req[0].arrival_ns) / (N - 1);

		gaps = gaps && out.req[i].arrival_ns - out.req[i - 1].arrival_ns == gap;
		gaps = gaps && out.req[i].output_tok == req[o].output_tok;
		twice += count[o]++ > 0;
	}
	ok(gaps, "each with its lengths and the gap before it");
	ok(twice > 5, "drawn with replacement: %zu of %d again", twice, N);
	resample_release(&next);
	next = draw_or_die(r, 4, 4);
	is_int((long long)next.n, 4L * N, "four times as many, if asked");
	resample_release(&out);
	resample_release(&again);
	resample_release(&next);
	resample_close(r);

	strcpy(t.sha256, "abd");
	r = open_or_die(&t, false);
	ok(resample_plan(r).key != p.key, "another file has other draws");
	resample_close(r);
}

static void test_bursts(void)
{
	struct trace t = make_trace(), out;
	struct resampler *r;
	size_t next = 0;
	long long lengths;

	r = open_or_die(&t, false);
	lengths = (long long)resample_plan(r).block; /* gaps are independent here */
	resample_close(r);
	for (size_t i = 1; i < N; i++)
		req[i].arrival_ns = req[i - 1].arrival_ns + (i / 15 % 2 ? 1 : 1000);
	r = open_or_die(&t, false);
	ok(resample_plan(r).block > 4, "bursts make long blocks: %zu", resample_plan(r).block);
	out = draw_or_die(r, 0, 1);
	for (size_t i = 1; i < out.n; i++)
		next += origin(&out.req[i]) == (origin(&out.req[i - 1]) + 1) % N;
	ok(next >= N - 1 - N / 4, "in which requests follow each other: %zu", next);
	resample_release(&out);
	resample_close(r);
	for (size_t i = N / 2; i < N; i++)
		req[i].arrival_ns += 1000000000;
	r = open_or_die(&t, false);
	is_int((long long)resample_plan(r).block, N / 10,
	       "... also beside a pause that is longer than all of them");
	resample_close(r);
	if (resample_open(&r, &t, false, false, &err))
		bail_out("%s", err.msg);
	is_int((long long)resample_plan(r).block, lengths, "without gaps, lengths alone count");
	resample_close(r);
}

static void test_sessions(void)
{
	struct trace t = make_sessions(), out;
	struct resampler *r = open_or_die(&t, false);
	int turns[N] = { 0 };
	bool whole = true;

	is_int(resample_plan(r).unit, RESAMPLE_SESSION, "sessions are units");
	is_int((long long)resample_plan(r).n_unit, N / 4, "as many as there are");
	out = draw_or_die(r, 0, 1);
	for (size_t i = 0; i < out.n; i++) {
		const struct request *q = &out.req[i];

		whole = whole && (int)q->turn == turns[q->session]++;
	}
	for (size_t s = 0; s < out.n_session; s++)
		whole = whole && turns[s] == 4;
	ok(whole && out.n == N, "each drawn with all of its turns, as a session of its own");
	ok(is_sorted(&out), "by arrival");
	resample_release(&out);
	resample_close(r);
}

/* Sessions 0 and 1 start sessions 2 and 3. */
static void test_links(void)
{
	struct session_link link[N / 4];
	struct trace t = make_sessions(), out;
	struct resampler *r;
	size_t bad = 0, linked = 0;

	for (int s = 0; s < N / 4; s++)
		link[s] = session_link_none;
	link[2].parent = 0;
	link[3].parent = 1;
	t.link = link;
	r = open_or_die(&t, false);
	is_int((long long)resample_plan(r).n_unit, N / 4 - 2,
	       "a session and its parent are one unit");
	out = draw_or_die(r, 1, 3);
	for (size_t i = 0; i < out.n; i++) {
		const int32_t own = out.req[i].session,
			      old = (int32_t)(origin(&out.req[i]) % (N / 4));
		const int32_t parent = out.link[own].parent;

		bad += own >= (int32_t)out.n_session || (parent >= 0) != (old == 2 || old == 3);
		for (size_t k = 0; k < out.n && parent >= 0; k++)
			if (out.req[k].session == parent)
				bad += (int32_t)(origin(&out.req[k]) % (N / 4)) != old - 2;
		linked += parent >= 0;
	}
	ok(!bad && linked, "copies of sessions have the copies of their parents: %zu", linked);
	resample_release(&out);
	resample_close(r);
}

static void test_trees(void)
{
	struct trace t = make_tree(), out;
	struct resampler *r = open_or_die(&t, true);
	size_t shared = 0, own = 0, copies = 0;
	bool common = true, apart = true;

	is_int(resample_plan(r).unit, RESAMPLE_TREE, "trees are units");
	is_int((long long)resample_plan(r).n_unit, N / 2, "a prefix of all requests makes none");
	out = draw_or_die(r, 0, 1);
	for (size_t i = 0; i < out.n; i++) {
		const struct request *b = &out.req[i];

		common = common && trace_block(&out, b, 0) == 7;
		own += trace_block(&out, b, 1) == 100 + origin(b) / 2;
		copies += trace_block(&out, b, 1) >= 100 + N;
		for (size_t k = 0; k < i; k++) {
			const struct request *c = &out.req[k];

			shared += trace_block(&out, b, 1) == trace_block(&out, c, 1);
			apart = apart && trace_block(&out, b, 2) != trace_block(&out, c, 2) &&
				trace_block(&out, b, 3) != trace_block(&out, c, 3);
		}
	}
	ok(common, "all copies share it");
	ok(own + copies == N && copies > 5, "copies have prefixes of their own: %zu", copies);
	is_int((long long)shared, N / 2, "which the two requests of a copy share");
	ok(apart, "and no others");
	resample_release(&out);
	resample_close(r);
	r = open_or_die(&t, false);
	is_int(resample_plan(r).unit, RESAMPLE_REQUEST,
	       "where prefixes do not count there are no trees");
	resample_close(r);
}

static enum ar_status draw_one(const struct trace *t)
{
	struct resampler *r;
	struct trace out;
	enum ar_status st = resample_open(&r, t, true, true, &err);

	if (!st)
		st = resample_draw(r, 0, 1, &out, &err);
	if (!st)
		resample_release(&out);
	resample_close(r);
	return st;
}

static void test_errors(void)
{
	struct trace t = make_tree(), out;
	enum ar_status st = AR_OK;
	struct resampler *r;
	int failed = 0;

	for (long k = 0, faults = true; faults; k++) {
		fault_arm(k);
		failed += draw_one(&t) == AR_NOMEM;
		faults = fault_disarm();
	}
	t = make_trace();
	for (size_t i = 0; i < N; i++)
		req[i].arrival_ns = i < N - 1 ? 0 : INT64_MAX - 1;
	r = open_or_die(&t, false);
	for (uint64_t k = 0; k < 20 && !st; k++) {
		st = resample_draw(r, k, 1, &out, &err);
		if (!st)
			resample_release(&out);
	}
	is_int(st, AR_DATA, "times beyond the clock are an error");
	is_str(err.msg, "t: a resample is too long", "that says so");
	resample_close(r);
}

/* Exponential gaps, ten times as long in the second half. */
static void test_drift(void)
{
	enum { MANY = 200 };
	static struct request many[MANY];
	struct trace t = make_trace();
	struct rng r = { 7 };
	struct resampler *made;

	t.req = many;
	t.n = MANY;
	for (int longer = 0; longer < 2; longer++) {
		double now = 0;

		for (int i = 0; i < MANY; i++) {
			many[i] = request_none;
			many[i].prompt_tok = many[i].output_tok = 9;
			now -= 1e9 * log(1 - rng_unit(&r)) * (longer && i >= MANY / 2 ? 10 : 1);
			many[i].arrival_ns = (int64_t)now;
		}
		made = open_or_die(&t, false);
		is_int(resample_plan(made).drifts, longer,
		       longer ? "a rate that changes half-way is noticed" :
				"one that stays does not drift");
		resample_close(made);
	}
}

static void test_spread(void)
{
	const struct resample_plan p = { .n_unit = 140, .block = 20 };

	ok(fabs(resample_spread(&p, 10, 20) - 40) < 1e-9,
	   "seven blocks: twice as much is four times as much");
	ok(fabs(resample_spread(&p, 20, 10) - 5) < 1e-9, "... and half as much a quarter");
	ok(resample_spread(&p, 10, 0) == 0 && resample_spread(&p, 0, 3) == 3,
	   "... but for figures of 0");
}

int main(void)
{
	plan(0);
	test_spread();
	test_drift();
	test_requests();
	test_bursts();
	test_sessions();
	test_links();
	test_trees();
	test_errors();
	return done_testing();
}
