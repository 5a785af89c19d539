/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks are as long as values depend on each other. */
#include "config.h"

#include <math.h>

#include "base/block_length.h"
#include "base/rng.h"
#include "tests/tap.h"

enum { N = 1000, TRIALS = 21 };

static double x[N];

/* A process in which neighbours correlate by r. */
static void make(struct rng *g, double r, size_t n)
{
	double v = rng_normal(g);

	for (size_t i = 0; i < n; i++) {
		x[i] = v;
		v = r * v + sqrt(1 - r * r) * rng_normal(g);
	}
}

static size_t mean_length(double r, size_t n)
{
	struct rng g = { 3 };
	size_t sum = 0;

	for (int k = 0; k < TRIALS; k++) {
		make(&g, r, n);
		sum += block_length(x, n);
	}
	return sum / TRIALS;
}

/* For an AR(1) process the length that the method aims at is known: G / g(0) is 2 r / (1 - r^2). */
static double aimed(double r, size_t n)
{
	double ratio = 2 * r / (1 - r * r);

	return cbrt(1.5 * ratio * ratio * (double)n);
}

int main(void)
{
	size_t free_length = mean_length(0, N), half = mean_length(0.5, N),
	       most = mean_length(0.8, N);

	plan(0);
	diag("mean block of 1000 values, correlation 0: %zu, 0.5: %zu, 0.8: %zu", free_length, half,
	     most);
	ok(free_length <= 3, "independent values need short blocks");
	ok(fabs((double)half / aimed(0.5, N) - 1) < 0.3, "correlation 0.5: %zu, aimed at %.1f",
	   half, aimed(0.5, N));
	ok(fabs((double)most / aimed(0.8, N) - 1) < 0.3, "correlation 0.8: %zu, aimed at %.1f",
	   most, aimed(0.8, N));
	ok(mean_length(0.8, 200) < most, "fewer values, shorter blocks");

	for (size_t i = 0; i < N; i++)
		x[i] = i < N / 2;
	is_int((long long)block_length(x, N), 95, "at most 3 sqrt(n)");
	is_int((long long)block_length(x, 100), 1, "equal values");
	is_int((long long)block_length(x, 1), 1, "one value");
	is_int((long long)block_length(x, 0), 1, "none");
	x[3] = INFINITY;
	is_int((long long)block_length(x, N), 1, "a value that is not finite");
	return done_testing();
}
