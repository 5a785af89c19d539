/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/cost/kdtree.h"

#include <stdbool.h>
#include <stdlib.h>

enum { LEAF = 8 }; /* points that are not divided further */

/* Nodes are in preorder: the left child is the next node.  Points with equal coordinates are never
 * divided.  Most points can agree in one, as batches without prefill do; if these were divided,
 * both halves would have to be searched. */
struct node {
	size_t n; /* points of a leaf; 0: inner node */
	const struct kd_point *p;
	int d;		     /* the coordinate that divides */
	double below, above; /* the left side's largest, the right side's smallest */
	size_t right;
};

struct kdtree {
	struct node *node;
	size_t n;
};

static void swap_points(struct kd_point *a, struct kd_point *b)
{
	struct kd_point c = *a;

	*a = *b;
	*b = c;
}

/* Partition p[0 .. n) by the median of coordinate d: [*less, *equal) are equal to it, smaller ones
 * before, larger ones behind. */
static void divide(struct kd_point *p, size_t n, int d, size_t *less, size_t *equal)
{
	size_t from = 0, to = n;

	for (;;) {
		const double pivot = p[from + (to - from) / 2].at[d];

		*less = *equal = from;
		for (size_t i = from; i < to; i++)
			if (p[i].at[d] < pivot)
				swap_points(&p[i], &p[(*less)++]);
		*equal = *less;
		for (size_t i = *less; i < to; i++)
			if (p[i].at[d] == pivot)
				swap_points(&p[i], &p[(*equal)++]);
		if (n / 2 < *less)
			to = *less;
		else if (n / 2 >= *equal)
			from = *equal;
		else
			return;
	}
}

static void range(const struct kd_point *p, size_t n, int d, double *min, double *max)
{
	*min = *max = p[0].at[d];
	for (size_t i = 1; i < n; i++) {
		*min = p[i].at[d] < *min ? p[i].at[d] : *min;
		*max = p[i].at[d] > *max ? p[i].at[d] : *max;
	}
}

/* The coordinate with the largest range; -1: all points are equal. */
static int widest(const struct kd_point *p, size_t n)
{
	double most = 0, min, max;
	int d = -1;

	for (int i = 0; i < KD_DIMS; i++) {
		range(p, n, i, &min, &max);
		if (max - min > most) {
			most = max - min;
			d = i;
		}
	}
	return d;
}

static void build_tree(struct kdtree *t, struct kd_point *p, size_t n)
{
	struct node *node = &t->node[t->n++];
	size_t less, equal;
	double unused;
	int d = n > LEAF ? widest(p, n) : -1;

	if (d < 0) {
		*node = (struct node){ .n = n, .p = p };
		return;
	}
	divide(p, n, d, &less, &equal);
	if (!less)
		less = equal;
	*node = (struct node){ .d = d };
	range(p, less, d, &unused, &node->below);
	range(p + less, n - less, d, &node->above, &unused);
	build_tree(t, p, less);
	node->right = t->n;
	build_tree(t, p + less, n - less);
}

enum ar_status kdtree_build(struct kdtree **out, struct kd_point *p, size_t n, struct ar_err *err)
{
	struct kdtree *t = calloc(1, sizeof *t);

	*out = NULL;
	if (t)
		t->node = malloc((2 * n - 1) * sizeof *t->node);
	if (!t || !t->node) {
		kdtree_destroy(t);
		return ar_nomem(err);
	}
	build_tree(t, p, n);
	*out = t;
	return AR_OK;
}

void kdtree_destroy(struct kdtree *t)
{
	if (!t)
		return;
	free(t->node);
	free(t);
}

/* ---- searching ---- */

struct query {
	const struct kdtree *t;
	const double *at;
	double off[KD_DIMS];	/* from the query to the box of the node, by coordinate */
	struct kd_found *found; /* [n] nearest first */
	size_t n, k;
};

/* Squared length.  The order of the sum is fixed, so that rounding cannot make a box farther than
 * a point in it. */
static double length(const double *off)
{
	double sum = 0;

	for (int d = 0; d < KD_DIMS; d++)
		sum += off[d] * off[d];
	return sum;
}

static bool nearer(const struct kd_found *a, const struct kd_found *b)
{
	return a->dist < b->dist || (a->dist == b->dist && a->id < b->id);
}

static void offer(struct query *q, const struct kd_point *p)
{
	struct kd_found f = { .id = p->id };
	double off[KD_DIMS];
	size_t i;

	for (int d = 0; d < KD_DIMS; d++)
		off[d] = p->at[d] - q->at[d];
	f.dist = length(off);
	if (q->n == q->k && !nearer(&f, &q->found[q->k - 1]))
		return;
	q->n += q->n < q->k;
	for (i = q->n - 1; i > 0 && nearer(&f, &q->found[i - 1]); i--)
		q->found[i] = q->found[i - 1];
	q->found[i] = f;
}

static void kdtree_search(struct query *q, size_t index)
{
	const struct node *node = &q->t->node[index];
	double x, to_left, to_right, old;
	bool left;

	if (q->n == q->k && length(q->off) > q->found[q->k - 1].dist)
		return;
	for (size_t i = 0; i < node->n; i++)
		offer(q, &node->p[i]);
	if (node->n)
		return;
	old = q->off[node->d];
	x = q->at[node->d];
	to_left = x > node->below ? x - node->below : old;
	to_right = x < node->above ? node->above - x : old;
	left = to_left < to_right;
	q->off[node->d] = left ? to_left : to_right;
	kdtree_search(q, left ? index + 1 : node->right);
	q->off[node->d] = left ? to_right : to_left;
	kdtree_search(q, left ? node->right : index + 1);
	q->off[node->d] = old;
}

size_t kdtree_nearest(const struct kdtree *t, const double *at, struct kd_found *found, size_t k)
{
	struct query q = { .t = t, .at = at, .found = found, .k = k };

	kdtree_search(&q, 0);
	return q.n;
}
