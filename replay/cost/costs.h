/* SPDX-License-Identifier: Apache-2.0 */
/* The iterations of an earlier run as costs: its record, and the table of what they cost. */
#ifndef AR_COSTS_H
#define AR_COSTS_H

#include "profiler/store/store.h"
#include "replay/cost/cost_table.h"

struct costs {
	char *name;			/* "runs.db:1" */
	/* What the costs are those of: model, method, layers, device, pool and options of the run.
	 * The rest is absent. */
	struct store_run run;
	struct store_gpu gpu;
	int64_t max_len;		/* of the model, 0: none */
	struct cost_table *table;

	char *text[5];			/* what run points to */
	int n_text;
};

/* where: DB or DB:RUN; without a number the only finished run is taken.  AR_USAGE: there is no such
 * run, it did not finish, or several did.  AR_DATA: the database or the run cannot be used. */
enum ar_status costs_open(struct costs **out, const char *where, struct ar_err *err);
void costs_close(struct costs *c);	/* NULL is fine */

#endif
