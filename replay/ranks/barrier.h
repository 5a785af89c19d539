/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How evenly ranks leave a barrier.
 *
 * Each rank's clock of an iteration begins where it leaves a barrier, so the ranks' times of one
 * iteration are this far from a common start.  Of two barriers in a row each rank times the second,
 * with its own clock.  What these times differ by is how differently it left the two.
 */
#ifndef AR_BARRIER_H
#define AR_BARRIER_H

#include <stdint.h>

/* Differences between the longest and the shortest time of a repeat. */
struct barrier_spread {
	int64_t p50_ns, p99_ns;
};

/* ns: [ranks][n] times of n repeats; its values are lost.  A repeat with a time of -1 does not
 * count.  -1: none counts. */
struct barrier_spread barrier_spread(int64_t *ns, int ranks, int n);

#endif
