/* SPDX-License-Identifier: Apache-2.0 */
/* Tuning: the search of a threshold on functions that are known. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "src/tune/threshold.h"
#include "tests/tap.h"

/* ---- the search ---- */

typedef double figure_fn(double x);

static double rising(double x)
{
	return sqrt(x);
}

static double falling(double x)
{
	return 1 - x * x * x;
}

/* As a recall over alpha: most of it happens near 0. */
static double near_zero(double x)
{
	return 1 / (1 + 2000 * x);
}

/* As a recall over a mass: most of it happens near 1. */
static double near_one(double x)
{
	return 1 - sqrt(1 - x);
}

static double stairs(double x)
{
	return floor(10 * x) / 10;
}

/* Rises, falls and rises again. */
static double bent(double x)
{
	return 0.5 + 0.7 * (x - 0.5) + 0.4 * sin(4 * M_PI * x);
}

static double flat(double x)
{
	return 0 * x + 0.3;
}

static double nothing(double x)
{
	return 0 * x + NAN;
}

static struct threshold search(figure_fn *f, double want, double near)
{
	struct threshold t;
	double x, tried[40];

	threshold_init(&t, 0, 1, want, near);
	while (threshold_next(&t, &x)) {
		char text[32];

		for (int i = 0; i < t.steps; i++)
			if (tried[i] == x)
				bail_out("%.17g is asked for twice", x);
		snprintf(text, sizeof text, "%.8g", x);
		if (strtod(text, NULL) != x || x < 0 || x > 1 || t.steps == 40)
			bail_out("value %d is %.17g", t.steps, x);
		tried[t.steps] = x;
		threshold_tell(&t, f(x));
	}
	return t;
}

static void test_found(void)
{
	static const struct {
		figure_fn *f;
		const char *name;
	} v[] = { { rising, "rising" },
		  { falling, "falling" },
		  { near_zero, "steep near 0" },
		  { near_one, "steep near 1" } };

	for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
		int bad = 0, most = 0;

		for (double want = 0.05; want < 0.999; want += 0.03) {
			struct threshold t = search(v[i].f, want, 0.001);

			bad += !threshold_reached(&t) || threshold_beyond(&t) || t.bends ||
			       fabs(v[i].f(t.best.value) - want) > 0.001 ||
			       t.best.figure != v[i].f(t.best.value);
			most = t.steps > most ? t.steps : most;
		}
		ok(!bad && most <= 18, "%s: every figure is found, in at most %d steps", v[i].name,
		   most);
	}
}

static void test_random(void)
{
	struct rng rng = { 5 };
	int bad = 0;

	/* Powers of x and of 1 - x, with a slope of either sign and any range. */
	for (int k = 0; k < 2000; k++) {
		double power = exp(2 * rng_unit(&rng) - 1), x;
		double want = 0.03 + 0.94 * rng_unit(&rng);
		double min = 10 * rng_unit(&rng), max = min + 0.1 + rng_unit(&rng);
		bool down = rng_unit(&rng) < 0.5, mirror = rng_unit(&rng) < 0.5;
		struct threshold t;

		threshold_init(&t, min, max, want, 0.02);
		while (threshold_next(&t, &x)) {
			double u = (x - min) / (max - min);
			double y = pow(mirror ? 1 - u : u, power);

			bad += x < min || x > max;
			threshold_tell(&t, down ? 1 - y : y);
		}
		bad += !threshold_reached(&t) || t.bends || t.steps > 32;
	}
	is_int(bad, 0, "random monotone functions reach random figures");
}

static void test_not_found(void)
{
	struct threshold t = search(rising, 1.2, 0.001);

	ok(!threshold_reached(&t) && threshold_beyond(&t) && t.best.value == 1 && t.steps == 2,
	   "a figure beyond both ends is told, with the nearer end");
	t = search(falling, -1, 0.001);
	ok(threshold_beyond(&t) && t.best.value == 1, "... below as well");
	t = search(flat, 0.5, 0.001);
	ok(threshold_beyond(&t) && t.best.figure == 0.3, "a value without effect");
	t = search(nothing, 0.5, 0.001);
	ok(!threshold_reached(&t) && t.steps == 2, "no figure at all");
	t = search(stairs, 0.75, 0.001);
	ok(!threshold_reached(&t) && !threshold_beyond(&t) && !t.bends &&
		   fabs(t.best.figure - 0.75) < 0.051 && t.hi.value - t.lo.value < 1e-3,
	   "a figure inside a jump: the nearest is %g, the gap closes at %g", t.best.figure,
	   t.lo.value);
	t = search(rising, 1, 0.001);
	ok(threshold_reached(&t) && t.best.value == 1 && t.steps == 2,
	   "an end may have the figure");
}

static void test_bends(void)
{
	int seen = 0, wrong = 0;

	for (double want = 0.2; want < 0.8; want += 0.02) {
		struct threshold t = search(bent, want, 0.001);

		seen += t.bends;
		wrong += !threshold_reached(&t);
	}
	ok(!wrong && seen > 10, "a function that bends reaches figures, and it is told (%d times)",
	   seen);
}

int main(void)
{
	plan(0);
	test_found();
	test_random();
	test_not_found();
	test_bends();
	return done_testing();
}
