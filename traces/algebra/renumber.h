/* SPDX-License-Identifier: Apache-2.0 */
/* Renumbering of prefix blocks, so that the blocks of two origins stay apart. */
#ifndef AR_RENUMBER_H
#define AR_RENUMBER_H

#include "traces/intern.h"
#include "traces/trace.h"

/* Number of blocks of all requests; a block that two requests share counts twice. */
size_t blocks_count(const struct trace *t);

/* Append the blocks of q to t->block.  from: the array that q->block indexes.  A block's new number
 * follows the first appearance of (origin, number) in ids.  The caller makes room in t->block.
 * False: no memory. */
bool blocks_put(struct trace *t, struct request *q, const uint64_t *from, uint64_t origin,
		struct chain *ids);

/* Renumber all blocks 0 .. *n_ids - 1.  Then each request has its own part of t->block, in order of
 * requests. */
enum ar_status trace_number_blocks(struct trace *t, uint64_t *n_ids, struct ar_err *err);

#endif
