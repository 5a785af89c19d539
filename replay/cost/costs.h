/* SPDX-License-Identifier: Apache-2.0 */
/* Costs from an earlier run in a database: the record of the run, and the table of the costs of its
 * iterations. */
#ifndef AR_COSTS_H
#define AR_COSTS_H

#include "profiler/store/store.h"
#include "replay/cost/cost_table.h"
#include "replay/cost/dense_as.h"

struct costs {
	char *name; /* "runs.db:1" */
	/* The run: its model, method, layers, device, pool, options and key; other members are 0.
	 * The key of a run without one is its version and its start. */
	struct store_run run;
	struct store_gpu gpu;
	int64_t max_len; /* of the model, 0: none */
	/* Kernels that the method launches beside attention in an iteration with a prompt. */
	int64_t select_kernels;
	struct cost_table *table;
	bool dense_as;	 /* dense attention costs what costs_open_as() was told */
	bool no_longest; /* BATCH_LONGEST_DECODE is not known: 0 in the table, and to be 0 in what
			  * is looked up */

	char *text[6]; /* strings that run points to */
	int n_text;
};

/* where: DB or DB:RUN; without a number the only finished run is taken.  AR_USAGE: there is no such
 * run, it did not finish, or several did.  AR_DATA: the database or the run cannot be used. */
enum ar_status costs_open(struct costs **out, const char *where, struct ar_err *err);
/* The same with dense attention at the cost of an engine's kernels, by the stored times of phases.
 * A run that has such costs keeps them.  AR_USAGE: these times are not there, or are not of dense
 * attention.  as NULL: the costs as they are. */
enum ar_status costs_open_as(struct costs **out, const char *where, const struct dense_as *as,
			     struct ar_err *err);
/* where: a list of such runs with commas between.  The table has the iterations of all of them, and
 * the record is that of the first. */
enum ar_status costs_open_list(struct costs **out, const char *where, struct ar_err *err);
/* The record of the run alone, without its table. */
enum ar_status costs_open_run(struct costs **out, const char *where, struct ar_err *err);
void costs_close(struct costs *c); /* NULL is fine */

#endif
