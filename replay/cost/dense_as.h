/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dense attention at the cost of an engine's own kernels: factors by which the measured times of
 * its phases are multiplied.
 *
 * A factor of prefill rows (PHASE_ATTEND) depends on a batch's mean number of attended keys per
 * row.  A factor of decode rows (PHASE_DECODE) depends on the number of attended keys of all decode
 * rows.  The kernels read these keys, and a kernel's fixed time counts less the more it reads.
 *
 * An engine may attend for chunks and decodes together in one launch.  If the rows of a chunk fill
 * the GPU, the launch does not split the keys of a decode.  Then the longest decode walks all of
 * its keys in one thread block, and the launch takes the longer of that walk and of its work.
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

/* A launch with chunks and decodes: a layer takes the longer of two times.  One is prefill times
 * that of the chunks alone plus decode times that of the decodes alone.  The other is walk_us for
 * each 1,000 keys of the longest decode; fill_rows: see decode_walk.h. */
struct dense_as_mixed {
	double prefill, decode, walk_us; /* 0 to 100 each */
	double fill_rows;		 /* 0 to 1e6; 0: keys are never split */
};

struct dense_as {
	struct dense_as_curve prefill, decode;
	bool file;	/* from a file; else the curves have one point each */
	bool has_mixed; /* else chunks and decodes have launches of their own */
	struct dense_as_mixed mixed;
	char about[128];    /* of the file: engine and GPU; may be empty */
	char attention[64]; /* of the file: the engine's attention backend; may be empty */
};

/*
 * value: the name of a file that exists, else "PREFILL" or "PREFILL,DECODE", one factor for both or
 * one each.  A file is a JSON object: "prefill" and "decode" are arrays of [keys, factor].  Three
 * members may be missing: "mixed" has the members of dense_as_mixed, "about" and "attention" are
 * text.
 * AR_USAGE: neither a file nor factors in range.  AR_DATA: a bad file; the message names the line
 * or the key.
 */
enum ar_status dense_as_load(struct dense_as *d, const char *value, struct ar_err *err);

double dense_as_factor(const struct dense_as_curve *c, double keys);

/* The factors of a run, and its layers. */
struct dense_as_run {
	struct dense_as factors;
	int64_t n_layers;
	int64_t n_run_layers;  /* of n_layers, those that the phases cover */
	int64_t n_walk_layers; /* of n_run_layers, those whose decodes attend to all keys */
};

/* Set the cost of batch b in ns: c->cost_ns, in which the two phases take their factors' times.
 * From 0 to INT64_MAX.  PHASE_WALK gets what the walk of the longest decode adds. */
void dense_as_set(const struct dense_as_run *r, const struct batch *b, struct iter_cost *c);
/* The same of a batch of which the shape is known, and its decode_walk_keys(). */
void dense_as_set_shape(const struct dense_as_run *r, const struct batch_shape *s, double walk_keys,
			struct iter_cost *c);

struct cost cost_dense_as(const struct dense_as_run *r);

#endif
