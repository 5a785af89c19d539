/* SPDX-License-Identifier: Apache-2.0 */
/* Intervals of the bootstrap hold the true percentile as often as they say. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/stats.h"
#include "src/stats/bootstrap.h"
#include "tests/alloc_fault.h"
#include "tests/tap.h"

enum { N = 300, REPEATS = 200, RESAMPLES = 200 };

static struct ar_err err;
static double draw[4000], x[N], y[N];

static void interval(const double *of, size_t n, double p, struct bootstrap b, double *lo,
		     double *hi)
{
	struct sample s;

	if (sample_of_values(&s, of, n, &err) || bootstrap_draw(&b, &s, p, draw, &err))
		bail_out("%s", err.msg);
	sample_release(&s);
	bootstrap_interval(draw, b.resamples, 0.95, lo, hi);
}

/* A process of mean 0 and variance 1 in which neighbours correlate by r. */
static void make(struct rng *g, double r)
{
	double v = rng_normal(g);

	for (int i = 0; i < N; i++) {
		x[i] = v;
		v = r * v + sqrt(1 - r * r) * rng_normal(g);
	}
}

/* How often an interval of percentile p holds the true value, in percent. */
static int coverage(double r, double p, double is, size_t block)
{
	struct rng g = { 7 };
	int held = 0;

	for (int i = 0; i < REPEATS; i++) {
		double lo, hi;

		make(&g, r);
		interval(x, N, p, (struct bootstrap){ RESAMPLES, (uint64_t)i, block }, &lo, &hi);
		held += lo <= is && is <= hi;
	}
	return held * 100 / REPEATS;
}

static void test_coverage(void)
{
	const double z90 = 1.2815515655446004;
	int c, naive;

	for (size_t block = 0; block < 2; block++) {
		c = coverage(0, 50, 0, block);
		ok(c >= 91 && c <= 98, "%s: %d %% of the intervals hold the median",
		   block ? "drawn by position" : "drawn by order statistics", c);
		c = coverage(0, 90, z90, block);
		ok(c >= 90 && c <= 98, "... and %d %% the 90th percentile", c);
	}
	naive = coverage(0.8, 50, 0, 0);
	c = coverage(0.8, 50, 0, 20);
	ok(naive < 70, "where neighbours correlate, too few intervals hold it: %d %%", naive);
	ok(c > 85, "... but those of blocks do: %d %%", c);
}

/* Both ways of drawing give one distribution, that of the resampled percentile. */
static void test_ways(void)
{
	const double p[] = { 0, 10, 50, 99, 100 };
	const struct bootstrap way[] = { { 4000, 1, 0 }, { 4000, 2, 1 } };
	struct rng g = { 3 };
	struct sample s;

	make(&g, 0);
	if (sample_of_values(&s, x, N, &err))
		bail_out("%s", err.msg);
	memcpy(y, x, sizeof y);
	stats_sort(y, N);
	for (size_t i = 0; i < sizeof p / sizeof *p; i++) {
		double mean[2] = { 0 }, lo[2], hi[2];

		for (int k = 0; k < 2; k++) {
			if (bootstrap_draw(&way[k], &s, p[i], draw, &err))
				bail_out("%s", err.msg);
			for (int j = 0; j < 4000; j++)
				mean[k] += draw[j] / 4000;
			bootstrap_interval(draw, 4000, 0.95, &lo[k], &hi[k]);
		}
		ok(fabs(mean[0] - mean[1]) < 0.02 && fabs(lo[0] - lo[1]) < 0.08 &&
			   fabs(hi[0] - hi[1]) < 0.08,
		   "p%g: by order statistics %.3f (%.3f to %.3f), by position %.3f (%.3f to %.3f)",
		   p[i], mean[0], lo[0], hi[0], mean[1], lo[1], hi[1]);
		ok(fabs(sample_percentile(&s, p[i]) - stats_percentile(y, N, p[i])) < 1e-12,
		   "... the percentile is that of all reports");
	}
	sample_release(&s);
}

/* Pairs tell a small difference, where two samples do not. */
static void test_pairs(void)
{
	struct rng g = { 5 };
	double ratio[RESAMPLES], lo, hi, other[RESAMPLES];
	struct bootstrap b = { RESAMPLES, 9, 4 };

	make(&g, 0.5);
	for (int i = 0; i < N; i++) {
		x[i] = exp(x[i]);
		y[i] = x[i] * (1.02 + 0.002 * rng_normal(&g));
	}
	for (int pass = 0; pass < 2; pass++) {
		struct sample s;

		b.seed = 9 + (uint64_t)pass;
		sample_of_values(&s, x, N, &err);
		bootstrap_draw(&(struct bootstrap){ RESAMPLES, 9, 4 }, &s, 50, other, &err);
		sample_release(&s);
		sample_of_values(&s, y, N, &err);
		bootstrap_draw(&b, &s, 50, draw, &err);
		sample_release(&s);
		for (int i = 0; i < RESAMPLES; i++)
			ratio[i] = draw[i] / other[i];
		bootstrap_interval(ratio, RESAMPLES, 0.95, &lo, &hi);
		ok(pass ? lo < 1 : lo > 1.01 && hi < 1.03, "%s: the ratio is %.3f to %.3f",
		   pass ? "with another seed, two samples" : "with one seed, pairs", lo, hi);
	}
}

/* Values that are counted are as values that are listed. */
static void test_counts(void)
{
	const double v[] = { 1, 2, 5 };
	const int64_t times[] = { 3, 1, 6 };
	const double listed[] = { 1, 1, 1, 2, 5, 5, 5, 5, 5, 5 };
	const struct bootstrap b = { 50, 4, 0 };
	double want[50];
	struct sample s, t;

	if (sample_of_counts(&s, v, times, 3, &err) || sample_of_values(&t, listed, 10, &err))
		bail_out("%s", err.msg);
	is_int((int)s.n, 10, "ten values, of which three are stored");
	for (int p = 0; p <= 100; p += 20) {
		bootstrap_draw(&b, &s, p, draw, &err);
		bootstrap_draw(&b, &t, p, want, &err);
		ok(!memcmp(draw, want, sizeof want) &&
			   fabs(sample_percentile(&s, p) - sample_percentile(&t, p)) < 1e-12,
		   "p%d: counts are as a list", p);
	}
	bootstrap_draw(&b, &t, 50, draw, &err);
	ok(memcmp(draw, want, sizeof want), "another percentile has other draws");
	bootstrap_draw(&b, &t, 100, draw, &err);
	ok(!memcmp(draw, want, sizeof want), "the same again is the same");
	sample_release(&s);
	sample_release(&t);
}

/* A window that leaves values out changes no draw; one value is its percentile. */
static void test_large(void)
{
	enum { LARGE = 60000 };
	double *v = malloc(LARGE * sizeof *v), lo, hi, one = 3;
	struct rng g = { 11 };

	if (!v)
		bail_out("no memory");
	for (int i = 0; i < LARGE; i++)
		v[i] = rng_unit(&g);
	interval(v, LARGE, 99, (struct bootstrap){ 300, 1, 40 }, &lo, &hi);
	ok(lo > 0.9875 && lo < 0.99 && hi > 0.99 && hi < 0.9925,
	   "p99 of many uniform values is %.4f to %.4f", lo, hi);
	interval(&one, 1, 50, (struct bootstrap){ 9, 1, 1 }, &lo, &hi);
	ok(lo >= 3 && hi <= 3, "one value is all percentiles");
	interval(&one, 1, 50, (struct bootstrap){ 9, 1, 0 }, &lo, &hi);
	ok(lo >= 3 && hi <= 3, "... either way");
	is_int((int)bootstrap_block(1000000), 100, "a million values have blocks of 100");
	free(v);
}

static void test_memory(void)
{
	const int64_t times[] = { 1, 1 };
	long k = 0;
	int bad = 0;

	for (;; k++) {
		struct sample s, t = { 0 };
		enum ar_status st;

		fault_arm(k);
		st = sample_of_values(&s, x, N, &err);
		if (!st)
			st = sample_of_counts(&t, x, times, 2, &err);
		if (!st)
			st = bootstrap_draw(&(struct bootstrap){ 2, 1, 3 }, &s, 50, draw, &err);
		sample_release(&s);
		sample_release(&t);
		if (!fault_disarm())
			break;
		bad += st != AR_NOMEM;
	}
	ok(!bad && k == 9, "each of %ld allocations fails cleanly", k);
}

int main(void)
{
	plan(0);
	test_coverage();
	test_ways();
	test_pairs();
	test_counts();
	test_large();
	test_memory();
	return done_testing();
}
