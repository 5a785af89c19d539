/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of droppers by ranks that share the heads of a case, one rank after another. */
#ifndef AR_TESTS_DROP_RANKS_H
#define AR_TESTS_DROP_RANKS_H

#include "kernels/drop/dropper.h"
#include "tests/batch_case.h"

enum { DROP_RANKS = 2 };

/* The case with the heads of a rank: its q and kv are its own, all else is of the whole.  Bails
 * out. */
struct batch_case drop_rank_case(const struct batch_case *whole, int rank);
void drop_rank_free(struct batch_case *c);

/* Let ranks gather in one process.  The first time each rank makes its calls alone, and this keeps
 * its messages.  The second time each rank gets the messages of all. */
struct drop_meeting {
	void (*copy)(void *to, const void *from, size_t bytes); /* here or on a device */
	bool together;						/* the second time */
	int rank;
	int n[DROP_RANKS]; /* messages of a rank */
	struct drop_message {
		void *bytes; /* on the host */
		size_t size;
	} sent[DROP_RANKS][16];
};

/* Let the rank make its calls. */
struct drop_ranks drop_meet(struct drop_meeting *m, int rank, bool together);
void drop_meeting_free(struct drop_meeting *m);

#endif
