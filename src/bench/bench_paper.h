/* SPDX-License-Identifier: Apache-2.0 */
/* The measurements that the rows of a published table are made of. */
#ifndef AR_BENCH_PAPER_H
#define AR_BENCH_PAPER_H

#include "src/bench/bench_papers.h"
#include "src/bench/bench_session.h"
#include "src/bench/bench_table.h"
#include "src/bench/bench_whole.h"

/* A measurement, shared by the rows of one method and column. */
struct paper_known {
	const char *method; /* the rows' method */
	int col;
	char text[BENCH_MATCH_TEXT]; /* the method that ran */
	char note[160];
	double sparsity; /* in percent, as paper_sparsity() means it */
	struct bench_sum sum;
	struct bench_whole_result whole; /* of whole models, in place of sum */
	char why[256];			 /* not "": it was refused */
};

/* The rows of one published table, as they are measured here. */
struct paper {
	const struct paper_table *t;
	struct bench_session session;
	struct bench_table table;
	struct model model; /* of one rank, where whole models run */
	const char *model_name;
	int64_t tp;
	struct paper_known *known;
	int n_known, n_off;
};

/* Set the shape of a column, with the heads that run here. */
enum ar_status paper_shape(const struct paper *p, int col, struct bench_shape *s,
			   struct ar_err *err);

/* The measurement of a row's method in a column, made once.  *out points into p->known. */
enum ar_status paper_measured(struct paper *p, const struct paper_row *r, int col,
			      const struct paper_known **out, struct ar_err *err);

/* Whether a quantity is a share, in percent. */
bool paper_is_share(enum paper_quantity what);

#endif
