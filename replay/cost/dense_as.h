/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dense attention at the cost of an engine's own kernels: factors by which the measured times of
 * its phases are multiplied.
 *
 * A factor of prefill rows (PHASE_ATTEND) depends on a batch's mean number of attended keys per
 * row.  A factor of decode rows (PHASE_DECODE) depends on the number of attended keys of all decode
 * rows.  The kernels read these keys, and a kernel's fixed time counts less the more it reads.
 */
#ifndef AR_DENSE_AS_H
#define AR_DENSE_AS_H

#include "replay/cost/cost.h"
#include "replay/engine/backend.h"

enum { DENSE_AS_POINTS_MAX = 64 };

/* Linear in log(keys) between the points, constant before the first and after the last. */
struct dense_as_curve {
	int n; /* 1 to DENSE_AS_POINTS_MAX */
	struct {
		double keys, factor; /* keys >= 1, ascending; factor from 0.1 to 100 */
	} point[DENSE_AS_POINTS_MAX];
};

struct dense_as {
	struct dense_as_curve prefill, decode;
	bool file;	 /* from a file; else the curves have one point each */
	char about[128]; /* of the file: engine and GPU; may be empty */
};

/*
 * value: the name of a file that exists, else "PREFILL" or "PREFILL,DECODE", one factor for both or
 * one each.  A file is a JSON object: "prefill" and "decode" are arrays of [keys, factor], "about"
 * is text and may be missing.
 * AR_USAGE: neither a file nor factors in range.  AR_DATA: a bad file; the message names the line
 * or the key.
 */
enum ar_status dense_as_load(struct dense_as *d, const char *value, struct ar_err *err);

double dense_as_factor(const struct dense_as_curve *c, double keys);

/* Return the cost of batch b in ns: c->cost_ns, in which the two phases take their factors' times.
 * The phases of c cover n_run_layers of n_layers.  From 0 to INT64_MAX. */
int64_t dense_as_cost(const struct dense_as *d, const struct batch *b, const struct iter_cost *c,
		      int64_t n_layers, int64_t n_run_layers);

/* The factors of a run, and the layers as above. */
struct dense_as_run {
	struct dense_as factors;
	int64_t n_layers, n_run_layers;
};

struct cost cost_dense_as(const struct dense_as_run *r);

#endif
