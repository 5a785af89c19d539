/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The id of a communicator, which rank 0 makes and all ranks need before they can join.
 *
 * NCCL listens in the process that makes it.  So rank 0 makes it, never its parent.  It goes to the
 * others through the page that ranks of one host share; through a file; or not at all, if
 * NCCL_COMM_ID names an address, from which every rank gets the same id.
 *
 * The file: "ATRPNCCL", u32 version 1, u32 ranks, 32 characters of a key, 128 bytes of the id; in
 * the byte order of the host.  It appears complete, and rank 0 removes it when all have joined.
 */
#ifndef AR_RANK_ID_H
#define AR_RANK_ID_H

#include "replay/ranks/world.h"

/* How ranks without a page find each other.  The ranks of one start have equal ones. */
struct rank_meeting {
	const char *file; /* NULL: NCCL_COMM_ID is set */
	const char *key; /* at most 32 characters that tell this start from others; "": not known */
};

/* Join the other ranks: world_open() with the id that rank 0 makes, by join->meeting or page.
 * AR_NODEV: they do not come within join->join_ns.  AR_DATA: the file is there, but not of these
 * ranks.  AR_IO, AR_INTERRUPTED.  Else errors of world_open(). */
enum ar_status rank_join(struct world **out, const struct world_join *join, struct ar_err *err);

#endif
