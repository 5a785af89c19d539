/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/ranks/barrier.h"

#include <stddef.h>
#include <stdlib.h>

#include "base/order.h"

struct barrier_spread barrier_spread(int64_t *ns, int ranks, int n)
{
	for (int i = 0; i < n; i++) {
		int64_t least = ns[i], most = ns[i];

		for (int k = 1; k < ranks; k++) {
			const int64_t x = ns[(ptrdiff_t)k * n + i];

			least = x < least ? x : least;
			most = x > most ? x : most;
		}
		ns[i] = most - least;
	}
	qsort(ns, (size_t)n, sizeof *ns, order_i64);
	return (struct barrier_spread){ ns[(n - 1) / 2], ns[(n * 99 + 99) / 100 - 1] };
}
