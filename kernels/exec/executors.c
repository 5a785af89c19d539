/* SPDX-License-Identifier: Apache-2.0 */
/* The executors, in the order of --help. */
#include "config.h"

#include "kernels/exec/executor.h"

#include <string.h>

#include "kernels/support.h"

extern const struct executor executor_paged, executor_blocksparse, executor_copy, executor_gather;
extern const struct executor executor_columns, executor_decode, executor_lists;

const struct executor *const executors[] = { &executor_paged,	&executor_blocksparse,
					     &executor_copy,	&executor_gather,
					     &executor_columns, &executor_decode,
					     &executor_lists,	NULL };

const struct executor *executor_find(const char *name)
{
	for (int i = 0; executors[i]; i++)
		if (!strcmp(executors[i]->name, name))
			return executors[i];
	return NULL;
}

int executor_n_sm(const struct executor *x, const struct attn_shape *s, const struct gpu *g)
{
	const struct support *row = support_find(x->kernel, s, NULL, g->cc);

	return row && row->parts ? g->n_sm : 0;
}

int executor_count_parts(const struct attn_tile *tile, int n)
{
	int parts = 0;

	for (int i = 0; i < n; i++)
		parts += tile[i].n_part > 1;
	return parts;
}
