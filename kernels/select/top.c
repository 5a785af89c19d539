/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "kernels/select/top.h"

#include <stdlib.h>

#include "base/order.h"

static int by_key(const void *x, const void *y)
{
	const struct top_cell *a = x, *b = y;
	const int c = ORDER(b->key, a->key);

	return c ? c : ORDER(a->at, b->at);
}

void top_sort(struct top_cell *cell, int64_t n)
{
	if (n > 0)
		qsort(cell, (size_t)n, sizeof *cell, by_key);
}

void top_of(struct top_cell *cell, const float *key, int n)
{
	for (int i = 0; i < n; i++)
		cell[i] = (struct top_cell){ (double)key[i], i };
	top_sort(cell, n);
}
