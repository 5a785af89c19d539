/* SPDX-License-Identifier: Apache-2.0 */
/* Renumbering of prefix blocks, so that the blocks of two origins stay apart. */
#ifndef AR_RENUMBER_H
#define AR_RENUMBER_H

#include "traces/intern.h"
#include "traces/trace.h"

/* Append the blocks of q, a request of `from`, to those of t.  A block's new number follows the
 * first appearance of (origin, number) in ids.  False: no memory. */
bool blocks_put(struct trace *t, struct request *q, const struct trace *from, uint64_t origin,
		struct chain *ids);

/* Renumber all blocks 0 .. *n_ids - 1.  Then each request has its own part of t->run, in order of
 * requests. */
enum ar_status trace_number_blocks(struct trace *t, uint64_t *n_ids, struct ar_err *err);

#endif
