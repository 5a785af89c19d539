/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/cost/cost_table.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/order.h"
#include "replay/cost/kdtree.h"

enum {
	TERMS = BATCH_FEATURES + 1, /* of the trend: a constant, then the features */
	NEAREST = 12,		    /* residuals that correct it */
};

struct measured {
	struct batch_shape shape;
	int64_t cost_ns;
	size_t order;
};

/* Equal shapes in the sorted measured[]: [first, first + n). */
struct group {
	size_t first, n, used;
};

/* Of all iterations of equal features: their number, and the mean of cost - trend. */
struct residual {
	double n, mean;
};

struct cost_table {
	struct measured *measured;
	size_t n, cap;
	struct group *group;
	size_t n_group;
	struct residual *residual;
	size_t n_residual;
	struct kd_point *point; /* [n_residual] coordinates of residual[] */
	struct kdtree *tree;	/* over point[] */
	double trend[TERMS];
	double scale[BATCH_FEATURES]; /* factor of each feature in coordinates() */
	int64_t min[BATCH_FEATURES], max[BATCH_FEATURES];
};

enum ar_status cost_table_create(struct cost_table **out, struct ar_err *err)
{
	*out = calloc(1, sizeof **out);
	return *out ? AR_OK : ar_nomem(err);
}

void cost_table_destroy(struct cost_table *t)
{
	if (!t)
		return;
	free(t->measured);
	free(t->group);
	kdtree_destroy(t->tree);
	free(t->point);
	free(t->residual);
	free(t);
}

/* Decodes alone split their keys: how long one of them is costs nothing. */
static struct batch_shape shape_of_costs(const struct batch_shape *s)
{
	struct batch_shape x = *s;

	if (!x.feature[BATCH_PREFILL_TOK])
		x.feature[BATCH_LONGEST_DECODE] = 0;
	return x;
}

enum ar_status cost_table_add(struct cost_table *t, const struct batch_shape *s, int64_t cost_ns,
			      struct ar_err *err)
{
	if (!GROW(t->measured, t->cap, t->n + 1))
		return ar_nomem(err);
	t->measured[t->n] = (struct measured){ shape_of_costs(s), cost_ns, t->n };
	t->n++;
	return AR_OK;
}

/* ---- equal shapes ---- */

static_assert((int)KD_DIMS == (int)BATCH_FEATURES, "a coordinate for each feature");

/* Features first, so that iterations of equal features are adjacent, for make_residuals(). */
static int cmp_shape(const struct batch_shape *a, const struct batch_shape *b)
{
	int c = 0;

	for (int f = 0; f < BATCH_FEATURES && !c; f++)
		c = ORDER(a->feature[f], b->feature[f]);
	if (!c)
		c = ORDER(a->n_entry, b->n_entry);
	return c ? c : ORDER(a->composition, b->composition);
}

static int by_shape(const void *a, const void *b)
{
	const struct measured *x = a, *y = b;
	int c = cmp_shape(&x->shape, &y->shape);

	return c ? c : ORDER(x->order, y->order);
}

static bool same_features(const struct batch_shape *a, const struct batch_shape *b)
{
	return !memcmp(a->feature, b->feature, sizeof a->feature);
}

static struct group *find_group(struct cost_table *t, const struct batch_shape *s)
{
	size_t lo = 0, hi = t->n_group;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		int c = cmp_shape(s, &t->measured[t->group[mid].first].shape);

		if (!c)
			return &t->group[mid];
		if (c < 0)
			hi = mid;
		else
			lo = mid + 1;
	}
	return NULL;
}

static void group_shapes(struct cost_table *t)
{
	for (size_t i = 0; i < t->n; i++) {
		const struct batch_shape *s = &t->measured[i].shape;

		if (i && !cmp_shape(s, &t->measured[i - 1].shape))
			t->group[t->n_group - 1].n++;
		else
			t->group[t->n_group++] = (struct group){ i, 1, 0 };
		for (int f = 0; f < BATCH_FEATURES; f++) {
			if (!i || s->feature[f] < t->min[f])
				t->min[f] = s->feature[f];
			if (!i || s->feature[f] > t->max[f])
				t->max[f] = s->feature[f];
		}
	}
}

/* ---- the trend ---- */

static double trend_at(const struct cost_table *t, const struct batch_shape *s)
{
	double y = t->trend[0];

	for (int f = 0; f < BATCH_FEATURES; f++)
		y += t->trend[f + 1] * (double)s->feature[f];
	return y;
}

/* Normal equations a x = b.  c: sum of squares of the right sides of the equations. */
struct normal {
	double a[TERMS][TERMS], b[TERMS], c;
};

/* Add the equation of m.  Features are divided by their maximum, the equation by its cost. */
static void normal_add(struct normal *e, const struct cost_table *t, const struct measured *m)
{
	double cost = m->cost_ns > 0 ? (double)m->cost_ns : 1, x[TERMS] = { 1 / cost };

	for (int f = 0; f < BATCH_FEATURES; f++)
		if (t->max[f])
			x[f + 1] = (double)m->shape.feature[f] / (double)t->max[f] / cost;
	for (int i = 0; i < TERMS; i++) {
		for (int j = 0; j < TERMS; j++)
			e->a[i][j] += x[i] * x[j];
		e->b[i] += x[i] * (double)m->cost_ns / cost;
	}
	e->c += (double)m->cost_ns / cost * ((double)m->cost_ns / cost);
}

/* Solve for the terms in set, by Cholesky decomposition; the others are 0.  False: the terms are
 * linearly dependent. */
static bool solve_terms(const struct normal *e, unsigned set, double *x)
{
	double l[TERMS][TERMS] = { 0 }, y[TERMS];
	int term[TERMS], n = 0;

	for (int i = 0; i < TERMS; i++) {
		x[i] = 0;
		if (set & 1u << i)
			term[n++] = i;
	}
	for (int i = 0; i < n; i++) {
		for (int j = 0; j <= i; j++) {
			double s = e->a[term[i]][term[j]];

			for (int k = 0; k < j; k++)
				s -= l[i][k] * l[j][k];
			if (i != j) {
				l[i][j] = s / l[j][j];
				continue;
			}
			if (!(s > 1e-9 * e->a[term[i]][term[i]]))
				return false;
			l[i][i] = sqrt(s);
		}
	}
	for (int i = 0; i < n; i++) {
		y[i] = e->b[term[i]];
		for (int k = 0; k < i; k++)
			y[i] -= l[i][k] * y[k];
		y[i] /= l[i][i];
	}
	for (int i = n - 1; i >= 0; i--) {
		for (int k = i + 1; k < n; k++)
			y[i] -= l[k][i] * x[term[k]];
		x[term[i]] = y[i] / l[i][i];
	}
	return true;
}

/* Least squares with coefficients >= 0.  The solution is the unconstrained one over its terms that
 * are not 0.  So try all sets of terms, and take the best result without a negative one. */
static void fit_trend(struct cost_table *t)
{
	struct normal e = { 0 };
	double least = DBL_MAX, x[TERMS];

	for (size_t i = 0; i < t->n; i++)
		normal_add(&e, t, &t->measured[i]);
	for (unsigned set = 1; set < 1u << TERMS; set++) {
		double rest = e.c;
		bool fits = solve_terms(&e, set, x);

		for (int i = 0; i < TERMS; i++) {
			fits = fits && x[i] >= 0;
			rest -= e.b[i] * x[i];
		}
		if (!fits || rest >= least)
			continue;
		least = rest;
		memcpy(t->trend, x, sizeof x);
	}
	for (int f = 0; f < BATCH_FEATURES; f++)
		if (t->max[f])
			t->trend[f + 1] /= (double)t->max[f];
}

/* ---- residuals of the trend ---- */

/* log2(x), x >= 1, linear between the powers of two: log2() itself differs between C libraries. */
static double doublings(double x)
{
	int e;
	double m = frexp(x, &e);

	return e - 1 + (2 * m - 1);
}

/* Coordinates of a shape, for distances.  A feature above 0 adds one doubling of its own, as
 * kernels run for it. */
static void coordinates(const struct cost_table *t, const struct batch_shape *s, double *at)
{
	for (int f = 0; f < BATCH_FEATURES; f++)
		at[f] = !!s->feature[f] + doublings(1 + t->scale[f] * (double)s->feature[f]);
}

/* The scale of a feature is its coefficient in the trend, in units of a quarter of the least cost.
 * So little work of any kind is near to none.  A feature whose coefficient is 0 has one doubling
 * over its range. */
static void set_scale(struct cost_table *t)
{
	double least = (double)t->measured[0].cost_ns;

	for (size_t i = 1; i < t->n; i++)
		if ((double)t->measured[i].cost_ns < least)
			least = (double)t->measured[i].cost_ns;
	if (least < 1)
		least = 1;
	for (int f = 0; f < BATCH_FEATURES; f++) {
		double all = t->max[f] ? 1 / (double)t->max[f] : 0;
		double part = 4 * t->trend[f + 1] / least;

		t->scale[f] = part > all ? part : all;
	}
}

static void make_residuals(struct cost_table *t)
{
	size_t n = 0;

	for (size_t i = 0; i < t->n; i++) {
		const struct measured *m = &t->measured[i];
		struct residual *p;

		if (!i || !same_features(&m->shape, &m[-1].shape)) {
			t->point[n].id = n;
			coordinates(t, &m->shape, t->point[n].at);
			t->residual[n++] = (struct residual){ 0 };
		}
		p = &t->residual[n - 1];
		p->n++;
		p->mean += ((double)m->cost_ns - trend_at(t, &m->shape) - p->mean) / p->n;
	}
	t->n_residual = n;
}

/* The mean residual at the nearest points, with weights 1 / (d^2 + 1 / (64 n)).  d: distance in
 * doublings; n: iterations of the point.  The second term, (1/8 doubling)^2 for n = 1, averages
 * noise out over near points. */
static double residual_at(const struct cost_table *t, const struct batch_shape *s)
{
	struct kd_found found[NEAREST];
	double sum = 0, weights = 0, at[BATCH_FEATURES];
	size_t n;

	coordinates(t, s, at);
	n = kdtree_nearest(t->tree, at, found, NEAREST);
	for (size_t i = 0; i < n; i++) {
		const struct residual *p = &t->residual[found[i].id];
		double w = 1 / (found[i].dist + 1 / (64 * p->n));

		sum += w * p->mean;
		weights += w;
	}
	return sum / weights;
}

/* ---- costs ---- */

enum ar_status cost_table_build(struct cost_table *t, struct ar_err *err)
{
	assert(t->n && !t->group);
	t->group = malloc(t->n * sizeof *t->group);
	t->residual = malloc(t->n * sizeof *t->residual);
	t->point = malloc(t->n * sizeof *t->point);
	if (!t->group || !t->residual || !t->point)
		return ar_nomem(err);
	qsort(t->measured, t->n, sizeof *t->measured, by_shape);
	group_shapes(t);
	fit_trend(t);
	set_scale(t);
	make_residuals(t);
	return kdtree_build(&t->tree, t->point, t->n_residual, err);
}

enum cost_source cost_table_find(struct cost_table *t, const struct batch_shape *shape,
				 int64_t *cost_ns, int *outside)
{
	const struct batch_shape x = shape_of_costs(shape), *s = &x;
	struct group *g = find_group(t, s);
	double cost;

	if (g) {
		*cost_ns = t->measured[g->first + g->used].cost_ns;
		g->used += g->used + 1 < g->n;
		return COST_MEASURED;
	}
	cost = trend_at(t, s) + residual_at(t, s);
	*cost_ns = cost <= 0 ? 0 : cost < COST_MOST_NS ? (int64_t)(cost + 0.5) : COST_MOST_NS;
	for (int f = 0; f < BATCH_FEATURES; f++)
		if (s->feature[f] < t->min[f] || s->feature[f] > t->max[f]) {
			*outside = f;
			return COST_EXTRAPOLATED;
		}
	return COST_INTERPOLATED;
}

double cost_table_beyond(const struct cost_table *t, const struct batch_shape *shape)
{
	const struct batch_shape x = shape_of_costs(shape);
	struct batch_shape near = x;
	double at[BATCH_FEATURES], within[BATCH_FEATURES], sum = 0;

	for (int f = 0; f < BATCH_FEATURES; f++) {
		if (x.feature[f] < t->min[f])
			near.feature[f] = t->min[f];
		if (x.feature[f] > t->max[f])
			near.feature[f] = t->max[f];
	}
	coordinates(t, &x, at);
	coordinates(t, &near, within);
	for (int f = 0; f < BATCH_FEATURES; f++)
		sum += fabs(at[f] - within[f]);
	return sum;
}

void cost_table_rewind(struct cost_table *t)
{
	for (size_t i = 0; i < t->n_group; i++)
		t->group[i].used = 0;
}

size_t cost_table_size(const struct cost_table *t)
{
	return t->n;
}

void cost_table_range(const struct cost_table *t, int feature, int64_t *min, int64_t *max)
{
	*min = t->min[feature];
	*max = t->max[feature];
}
