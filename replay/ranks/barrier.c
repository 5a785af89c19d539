/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/ranks/barrier.h"

#include <stddef.h>
#include <stdlib.h>

#include "base/order.h"

/* The difference between the longest and the shortest time of repeat i; -1: a rank has none. */
static int64_t spread_of(const int64_t *ns, int ranks, int n, int i)
{
	int64_t least = ns[i], most = ns[i];

	for (int k = 1; k < ranks; k++) {
		const int64_t x = ns[(ptrdiff_t)k * n + i];

		least = x < least ? x : least;
		most = x > most ? x : most;
	}
	return least < 0 ? -1 : most - least;
}

struct barrier_spread barrier_spread(int64_t *ns, int ranks, int n)
{
	int timed = 0;

	for (int i = 0; i < n; i++) {
		const int64_t x = spread_of(ns, ranks, n, i);

		if (x >= 0)
			ns[timed++] = x;
	}
	if (!timed)
		return (struct barrier_spread){ -1, -1 };
	qsort(ns, (size_t)timed, sizeof *ns, order_i64);
	return (struct barrier_spread){ ns[(timed - 1) / 2], ns[(timed * 99 + 99) / 100 - 1] };
}
