/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/ranks/again.h"

/* Run the batch.  *late: a rank was. */
static enum ar_status run_once(struct world *w, again_fn *run, void *ctx, bool whole, bool *late,
			       struct ar_err *err)
{
	char mine, all[RANKS_MAX];
	enum ar_status st;

	*late = false;
	st = run(ctx, whole, late, err);
	if (st || !w)
		return st;
	mine = *late;
	st = world_gather(w, &mine, all, 1, err);
	for (int i = 0; i < world_size(w) && !st; i++)
		*late |= all[i];
	return st;
}

enum ar_status again_if_late(struct world *w, again_fn *run, void *ctx, bool *slow, bool *again,
			     struct ar_err *err)
{
	bool late;
	enum ar_status st = run_once(w, run, ctx, false, &late, err);

	*again = !st && late && !*slow;
	if (*again)
		st = run_once(w, run, ctx, true, &late, err);
	if (!st)
		*slow = late;
	return st;
}
