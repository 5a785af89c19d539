/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/calibrate/roofline_fit.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/order.h"

enum { RIDGES = 128, ROUNDS = 30, A = 0, B = 1, C = 2, VARS = 3 };

/* Limits of inverse shares: peak, the hardware's; most, a share so low that something else must be
 * the bound.  better: a ridge replaces another only if its loss is below better times the other's.
 * So of two equal ones, the one with more points bound by memory stays. */
static const double peak = 1, most = 20, better = 0.999;

/* A line of the model: time = x[A] compute + x[B] memory + x[C] of a point bound by one of both. */
struct fit {
	const struct roofline_point *p;
	size_t n, ridge; /* points before ridge are bound by memory */
	double x[VARS];	 /* a = 1 / compute share, b = 1 / memory share, fixed */
	unsigned told;	 /* bits of the variables that were fitted */
	double loss;
};

double roofline_fit_ns(const struct roofline_rate *r, const struct roofline_point *p)
{
	return fmax(p->compute / r->compute, p->memory / r->memory) + (double)r->fixed_ns;
}

static int by_intensity(const void *a, const void *b)
{
	const struct roofline_point *p = a, *q = b;

	return ORDER(p->compute / p->memory, q->compute / q->memory);
}

/* The sum of squared relative errors. */
static double loss(const struct fit *f)
{
	double sum = 0;

	for (size_t i = 0; i < f->n; i++) {
		const struct roofline_point *p = &f->p[i];
		double t = fmax(f->x[A] * p->compute, f->x[B] * p->memory) + f->x[C];
		double e = t / p->measured - 1;

		sum += e * e;
	}
	return sum;
}

/* Weighted sums of products: sum[i][j] of the terms i and j, VARS being the measured time. */
static void add_up(const struct fit *f, double sum[VARS + 1][VARS + 1])
{
	memset(sum, 0, (VARS + 1) * sizeof *sum);
	for (size_t k = 0; k < f->n; k++) {
		const struct roofline_point *p = &f->p[k];
		bool compute = k >= f->ridge;
		const double term[VARS + 1] = { compute ? p->compute / p->measured : 0,
						compute ? 0 : p->memory / p->measured,
						1 / p->measured, 1 };

		for (int i = 0; i <= VARS; i++)
			for (int j = 0; j <= VARS; j++)
				sum[i][j] += term[i] * term[j];
	}
}

/* Solve for the variables in set; the others stay.  False: they cannot be told apart, or one is out
 * of range. */
static bool solve_variables(const double sum[VARS + 1][VARS + 1], unsigned set, double x[VARS])
{
	double a[VARS][VARS + 1], full[VARS];
	int var[VARS], n = 0;

	for (int i = 0; i < VARS; i++)
		if (set >> i & 1)
			var[n++] = i;
	for (int i = 0; i < n; i++) {
		for (int j = 0; j < n; j++)
			a[i][j] = sum[var[i]][var[j]];
		a[i][n] = sum[var[i]][VARS];
		for (int j = 0; j < VARS; j++)
			if (!(set >> j & 1))
				a[i][n] -= sum[var[i]][j] * x[j];
		full[i] = a[i][i];
	}
	for (int k = 0; k < n; k++) {
		if (!(a[k][k] > 1e-12 * full[k]))
			return false;
		for (int i = 0; i < n; i++) {
			double q = i == k ? 0 : a[i][k] / a[k][k];

			for (int j = k; j <= n && q != 0; j++)
				a[i][j] -= q * a[k][j];
		}
	}
	for (int i = 0; i < n; i++) {
		double min = var[i] == C ? 0 : peak;

		x[var[i]] = a[i][n] / a[i][i];
		if (!(x[var[i]] >= min && x[var[i]] <= (var[i] == C ? 1e9 : most)))
			return false;
	}
	return true;
}

/* Fit the variables in set.  Variables in pin are at the peak, the others as in keep. */
static void try_set(struct fit *f, const double sum[VARS + 1][VARS + 1], unsigned set, unsigned pin,
		    const double keep[VARS], struct fit *best)
{
	for (int i = 0; i < VARS; i++)
		f->x[i] = pin >> i & 1 ? peak : keep[i];
	if (!solve_variables(sum, set, f->x))
		return;
	f->told = set | pin;
	f->loss = loss(f);
	if (f->loss < better * best->loss)
		*best = *f;
}

/* Fit the variables with points on their side of the ridge; keep the best in *best. */
static void try_ridge(struct fit *f, const double keep[VARS], struct fit *best)
{
	double sum[VARS + 1][VARS + 1];
	unsigned can = 1 << C;

	can |= f->ridge < f->n ? 1 << A : 0;
	can |= f->ridge ? 1 << B : 0;
	add_up(f, sum);
	for (unsigned set = can; set; set = (set - 1) & can) {
		unsigned rest = can & ~set & ~(1u << C);

		try_set(f, sum, set, 0, keep, best);
		for (unsigned pin = rest; pin; pin = (pin - 1) & rest)
			try_set(f, sum, set, pin, keep, best);
	}
}

/* The ridge that the shares of *f make. */
static size_t ridge_of(const struct fit *f)
{
	size_t i = 0;

	while (i < f->n && f->x[A] * f->p[i].compute <= f->x[B] * f->p[i].memory)
		i++;
	return i;
}

void roofline_fit(struct roofline_point *p, size_t n, struct roofline_rate *r,
		  struct roofline_told *told)
{
	const double keep[VARS] = { 1 / r->compute, 1 / r->memory, 0 };
	struct fit f = { .p = p, .n = n }, best = { .p = p, .n = n, .loss = INFINITY };
	size_t n_ridge = n < RIDGES ? n : RIDGES;

	qsort(p, n, sizeof *p, by_intensity);
	for (size_t i = n_ridge + 1; i-- > 0;) {
		f.ridge = n * i / n_ridge;
		if (f.ridge == n || p[f.ridge].compute > 0)
			try_ridge(&f, keep, &best);
	}
	for (int round = 0; round < ROUNDS; round++) {
		double before = best.loss;

		f.ridge = ridge_of(&best);
		try_ridge(&f, keep, &best);
		if (best.loss >= before)
			break;
	}
	if (!(best.loss < INFINITY))
		return;
	*told = (struct roofline_told){ best.told >> A & 1, best.told >> B & 1 };
	r->compute = told->compute ? 1 / best.x[A] : r->compute;
	r->memory = told->memory ? 1 / best.x[B] : r->memory;
	r->fixed_ns = llround(best.x[C]);
}
