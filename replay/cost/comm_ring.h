/* SPDX-License-Identifier: Apache-2.0 */
/* A ring model of collectives: each of n ranks passes its part of the message to the next, n - 1
 * times to gather, twice as often to reduce. */
#ifndef AR_COMM_RING_H
#define AR_COMM_RING_H

#include <cjson/cJSON.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

/* share: of the link's rate that the ranks reach, 0: not known.  fixed_ns: of a collective; hop_ns:
 * of each time that a part is passed on. */
struct comm_ring {
	double share;
	int64_t fixed_ns, hop_ns;
};

/* Read the member "ring" of o, which may be missing, from a file of a GPU.  prefix: of its name in
 * messages.  AR_DATA: it is no object with the three members in range. */
enum ar_status comm_ring_load(struct comm_ring *r, const cJSON *o, const char *prefix,
			      const char *path, struct ar_err *err);
/* Write it behind the member before it, which indent is in front of; nothing if it is not known. */
void comm_ring_put(const struct comm_ring *r, const char *indent, FILE *f);

/* Time of a collective in which the parts are passed on `hops` times over links of gbps GB/s.
 * part: bytes of a rank.  0 to INT64_MAX ns. */
int64_t comm_ring_ns(const struct comm_ring *r, double gbps, int hops, double part);

#endif
