/* SPDX-License-Identifier: Apache-2.0 */
/* Prefix blocks get new numbers, so that those of two origins stay apart. */
#ifndef AR_RENUMBER_H
#define AR_RENUMBER_H

#include "traces/intern.h"
#include "traces/trace.h"

/* Blocks of all requests; a block that two requests share counts twice. */
size_t blocks_count(const struct trace *t);

/* Append the blocks of q, whose numbers lie in from, to t->block, numbered by first appearance of
 * (origin, number) in ids.  The caller makes room in t->block.  False: no memory. */
bool blocks_put(struct trace *t, struct request *q, const uint64_t *from, uint64_t origin,
		struct chain *ids);

/* Give the blocks ids 0 .. *n_ids - 1, and each request blocks of its own, in its order. */
enum ar_status trace_number_blocks(struct trace *t, uint64_t *n_ids, struct ar_err *err);

#endif
