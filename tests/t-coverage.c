/* SPDX-License-Identifier: Apache-2.0 */
/* Intervals from resamples hold the truth of known processes, as often as they are asked to: the
 * waits and services of a queue with one server, with and without bursts. */
#include "config.h"

#include <math.h>
#include <stdlib.h>

#include "base/bootstrap.h"
#include "base/rng.h"
#include "base/stats.h"
#include "tests/tap.h"
#include "traces/algebra/resample.h"

enum { MOST = 300, TRIALS = 40, DRAWS = 60, TRUTH = 101, PLACES = 3, MEAN_TOK = 100 };

static const double place[PLACES] = { 50, 90, 99 };

struct process {
	const char *name;
	size_t n;
	double load;	   /* requests in a mean service, which takes 100 tokens of 1 ms */
	double change;	   /* mean time between rates of 1.6 and 0.4, in services; 0: one rate */
	double follow;	   /* correlation of lengths with those before, -1: exponential lengths */
	int least[PLACES]; /* of TRIALS, the intervals that hold the truth or are refused */
	int refused;	   /* at most */
};

static double exponential(struct rng *r, double mean)
{
	return -mean * log(1 - rng_unit(r));
}

static double normal(struct rng *r)
{
	const double far = sqrt(-2 * log(1 - rng_unit(r)));

	return far * cos(8 * atan(1) * rng_unit(r));
}

/* The next arrival of rates that change at *until. */
static double next_arrival(struct rng *r, const struct process *p, double now, double *until,
			   bool *high)
{
	for (;;) {
		const double rate = p->load * (!p->change ? 1 : *high ? 1.6 : 0.4);
		const double at = now + exponential(r, MEAN_TOK / rate);

		if (!p->change || at < *until)
			return at;
		now = *until;
		*until += exponential(r, MEAN_TOK * p->change);
		*high = !*high;
	}
}

static void make_requests(const struct process *p, uint64_t seed, struct request *q)
{
	struct rng r = { rng_mix(seed) };
	bool high = rng_unit(&r) < 0.5;
	double now = 0, until = exponential(&r, MEAN_TOK * p->change), z = normal(&r);

	for (size_t i = 0; i < p->n; i++) {
		double length = exponential(&r, MEAN_TOK);

		if (p->follow >= 0) {
			z = p->follow * z + sqrt(1 - p->follow * p->follow) * normal(&r);
			length = MEAN_TOK * exp(0.8 * z - 0.32);
		}
		now = next_arrival(&r, p, now, &until, &high);
		q[i] = request_none;
		q[i].arrival_ns = (int64_t)(now * 1e6);
		q[i].prompt_tok = (uint32_t)fmax(1, length);
		q[i].output_tok = 1;
	}
}

/* Percentiles of waits with services, in ms. */
static void serve(const struct request *q, size_t n, double out[PLACES])
{
	double took[MOST], idle = 0;

	for (size_t i = 0; i < n; i++) {
		const double now = (double)q[i].arrival_ns / 1e6;

		idle = fmax(idle, now) + q[i].prompt_tok;
		took[i] = idle - now;
	}
	stats_sort(took, n);
	for (int k = 0; k < PLACES; k++)
		out[k] = stats_percentile(took, n, place[k]);
}

static void find_truth(const struct process *p, double out[PLACES])
{
	static double x[PLACES][TRUTH];
	static struct request q[MOST];

	for (size_t i = 0; i < TRUTH; i++) {
		double at[PLACES];

		make_requests(p, 100000 + i, q);
		serve(q, p->n, at);
		for (int k = 0; k < PLACES; k++)
			x[k][i] = at[k];
	}
	for (int k = 0; k < PLACES; k++) {
		stats_sort(x[k], TRUTH);
		out[k] = stats_percentile(x[k], TRUTH, 50);
	}
}

/* Draw the replicates of own: x[k], sorted. */
static void draw_figures(const struct resampler *r, const struct resample_plan *plan,
			 const double own[PLACES], double x[PLACES][DRAWS])
{
	for (size_t i = 0; i < DRAWS; i++) {
		struct trace t;
		struct ar_err err;
		double at[PLACES];

		if (resample_draw(r, i, 1, &t, &err))
			bail_out("%s", err.msg);
		serve(t.req, t.n, at);
		resample_release(&t);
		for (int k = 0; k < PLACES; k++)
			x[k][i] = resample_spread(plan, own[k], at[k]);
	}
}

/* Add to held[k] whether the interval of the trial holds the truth.  True: it is refused. */
static bool try_once(const struct process *p, uint64_t seed, const double truth[PLACES],
		     int held[PLACES])
{
	static struct request q[MOST];
	static double x[PLACES][DRAWS];
	static char name[] = "t";
	struct trace t = { .req = q, .n = p->n, .name = name };
	struct resample_plan plan;
	struct resampler *r;
	struct ar_err err;
	double own[PLACES];
	bool refused;

	make_requests(p, seed, q);
	snprintf(t.sha256, sizeof t.sha256, "%llu", (unsigned long long)seed);
	serve(q, p->n, own);
	if (resample_open(&r, &t, false, true, &err))
		bail_out("%s", err.msg);
	plan = resample_plan(r);
	refused = plan.drifts;
	if (!refused)
		draw_figures(r, &plan, own, x);
	for (int k = 0; k < PLACES && !refused; k++) {
		double lo, hi;

		bootstrap_interval(x[k], DRAWS, 0.95, &lo, &hi);
		held[k] += lo <= truth[k] && truth[k] <= hi;
	}
	resample_close(r);
	return refused;
}

static void test_process(const struct process *p)
{
	double truth[PLACES];
	int held[PLACES] = { 0 }, refused = 0;

	find_truth(p, truth);
	for (uint64_t seed = 1; seed <= TRIALS; seed++)
		refused += try_once(p, seed, truth, held);
	for (int k = 0; k < PLACES; k++)
		ok(held[k] >= p->least[k] * (TRIALS - refused) / TRIALS,
		   "%s: p%g is held by %d of %d", p->name, place[k], held[k], TRIALS - refused);
	ok(refused <= p->refused, "... %d of %d have no interval", refused, TRIALS);
}

int main(void)
{
	static const struct process processes[] = {
		{ "one rate", 100, 0.8, 0, -1, { 37, 37, 37 }, 3 },
		{ "rates that change every 50 services", 300, 0.6, 50, -1, { 36, 36, 36 }, 3 },
		{ "rates that change every 300", 300, 0.6, 300, -1, { 34, 34, 34 }, 8 },
		{ "lengths that follow each other", 300, 0.7, 0, 0.8, { 36, 34, 34 }, 3 },
	};

	plan(0);
	for (size_t i = 0; i < sizeof processes / sizeof *processes; i++)
		test_process(&processes[i]);
	return done_testing();
}
