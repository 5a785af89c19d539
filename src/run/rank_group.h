/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of one host: each is a process, forked before any of them uses a GPU or NCCL. */
#ifndef AR_RANK_GROUP_H
#define AR_RANK_GROUP_H

#include "replay/ranks/world.h"

struct rank_group {
	int n;			     /* at most RANKS_MAX */
	int64_t join_ns, timeout_ns; /* as in struct world_join */
	bool calls;		     /* ranks have no iterations: messages number calls */
};

/* What a rank does in its process.  It joins the others with rank_join(). */
typedef enum ar_status rank_fn(void *self, const struct world_join *j, struct ar_err *err);

/* Run fn(self, ...) in a process for each rank and wait for all.  When one fails, the others end as
 * well, at the latest by signals.  Returns how the rank that failed first has ended. */
enum ar_status rank_group_run(const struct rank_group *g, rank_fn *fn, void *self,
			      struct ar_err *err);

/* The GPU of a rank, and the number of GPUs, of a list as 0,2,4-7.  False: it is no such list. */
bool rank_device(const char *list, int rank, int64_t *n, int *device);

#endif
