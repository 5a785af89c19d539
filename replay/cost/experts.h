/* SPDX-License-Identifier: Apache-2.0 */
/*
 * To which experts the rows of an iteration go.  Each row goes to k different ones of n experts,
 * which stand on ranks in their order, as many on each.  Rules:
 *
 *   even      all experts get the same number of rows, give or take one
 *   uniform   each set of k experts is as likely
 *   zipf:A    k draws without replacement, by weights 1 / (i + 1)^A, i from 0; which expert has
 *             which weight is drawn for each layer
 *   FILE      text.  After the line "layer expert weight", each line has a weight, and rows draw as
 *             by zipf; experts without a line get no rows.  After the line "token layer experts",
 *             each line has the k experts of a token, and a row draws one of the tokens.  If the
 *             file has n layers and not layer i, that one takes layer i mod n.
 *
 * A stream of EXPERTS_ROWS rows is drawn for a layer.  An iteration takes as many of them as it
 * has rows, in a ring, from a place that (seed, iteration, layer) draws.  So all ranks draw the
 * same, and it costs less than to draw each row.
 */
#ifndef AR_EXPERTS_H
#define AR_EXPERTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { EXPERTS_ROWS = 1 << 14 };

struct experts;

struct experts_shape {
	int experts, per_tok; /* of a layer: 1 to 65536; 1 to experts */
	int ranks;	      /* divides experts */
	int layers;	      /* of the model */
	const int *kind; /* [layers] the same for layers that are alike; below 0: without experts */
};

/* Whether rule is a word and no file; AR_USAGE: it is a word that is malformed. */
enum ar_status experts_check(const char *rule, bool *is_file, struct ar_err *err);

/* AR_USAGE: the rule is malformed.  AR_DATA: the file cannot be read or does not fit the shape; the
 * message names it. */
enum ar_status experts_open(struct experts **r, const char *rule, const struct experts_shape *shape,
			    uint64_t seed, struct ar_err *err);
void experts_close(struct experts *r); /* NULL is fine */

/* Draw the experts of rows in a layer.  load: [experts] rows of each.  sent: [ranks] rows that go
 * to one of the rank's experts or more. */
void experts_draw(const struct experts *r, int64_t iter, int layer, int64_t rows, int64_t *load,
		  int64_t *sent);

/* The most that a rank has in a layer of this kind, below 0: of any; the mean over these layers. */
struct experts_most {
	double experts; /* that get rows */
	double rows;	/* of its experts together */
	double sent;	/* see experts_draw() */
};
struct experts_most experts_most(struct experts *r, int64_t iter, int kind, int64_t rows);

/* Expected ranks that a row goes to, if each set of experts is as likely. */
double experts_spread(const struct experts_shape *s);

#endif
