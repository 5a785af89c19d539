/* SPDX-License-Identifier: Apache-2.0 */
/* A k-d tree: the nearest of many points in KD_DIMS dimensions, by Euclidean distance. */
#ifndef AR_KDTREE_H
#define AR_KDTREE_H

#include <stddef.h>

#include "base/status.h"

enum { KD_DIMS = 5 };

struct kd_point {
	double at[KD_DIMS];
	size_t id; /* the caller's, different for each */
};

struct kd_found {
	double dist; /* squared */
	size_t id;
};

struct kdtree;

/* Build a tree over p[0 .. n), n > 0.  It changes the order of p; p must outlive the tree. */
enum ar_status kdtree_build(struct kdtree **out, struct kd_point *p, size_t n, struct ar_err *err);
void kdtree_destroy(struct kdtree *t); /* NULL is fine */

/* Find the k > 0 points nearest to at[KD_DIMS], nearest first; at equal distance, the smaller id
 * first.  found: [k].  Returns their number, min(k, n). */
size_t kdtree_nearest(const struct kdtree *t, const double *at, struct kd_found *found, size_t k);

#endif
