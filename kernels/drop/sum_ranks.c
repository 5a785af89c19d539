/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "kernels/drop/sum_ranks.h"

#include <stdlib.h>

enum ar_status sum_ranks(const struct drop_ranks *ranks, float *score, int n, struct ar_err *err)
{
	float *all;
	enum ar_status st;

	if (ranks->n < 2)
		return AR_OK;
	all = malloc((size_t)ranks->n * (size_t)n * sizeof *all);
	if (!all)
		return ar_nomem(err);
	st = ranks->gather(ranks->ctx, score, all, (size_t)n * sizeof *all, NULL, err);
	for (int i = 0; i < n && !st; i++) {
		score[i] = 0;
		for (int k = 0; k < ranks->n; k++)
			score[i] += all[(ptrdiff_t)k * n + i];
	}
	free(all);
	return st;
}
