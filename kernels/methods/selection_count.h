/* SPDX-License-Identifier: Apache-2.0 */
/* How much a selection kept, as raw counts, of which every density is made.  A name here is a
 * column of the database and of what bench writes. */
#ifndef AR_SELECTION_COUNT_H
#define AR_SELECTION_COUNT_H

#include <stdint.h>

/* X(name, doc).  An empty doc: the next one says it for both, as for _total (all) and _sel
 * (selected).
 *
 * Summed over the heads of one KV head.  All but chunk and exec are counted over the past blocks
 * only (j < ctx / page_tok).  Where tokens are selected, or runs and columns, a block is one token,
 * the past all tokens before the chunk, and the chunk is in exec alone.  Query blocks of the tail
 * are not counted but for their pairs. */
#define SELECTION_COUNTS(X) \
	X(tiles_total, "") \
	X(tiles_sel, "(head, query block, block) before any union.") \
	X(chunk_total, "") \
	X(chunk_sel, "The same in the chunk, up to the query block's own block.") \
	X(chunk_full, "All (head, query block, block) in the chunk.") \
	X(chunk_open, "The chunk's blocks, each counted once: a union opens them all.") \
	X(qunion_total, "") \
	X(qunion_sel, "(head, block) after a union over query blocks, whatever the method.") \
	X(sub_total, "") \
	X(sub_sel, "(head group, block) after a union over each group of four query heads.") \
	X(kv_total, "") \
	X(kv_sel, "(head group, block) after a union over all query heads of the KV head.") \
	X(group_total, "") \
	X(group_sel, "(head group, block) after the method's own union; without one the tiles.") \
	X(exec_total, "") \
	X(exec_sel, "(query row, key) pairs as executed, causal, the chunk included.") \
	X(empty_rows, "Empty rows: (head, query block) whose list is empty.  Their output is 0.")

struct selection_count {
#define X(name, doc) int64_t name;
	SELECTION_COUNTS(X)
#undef X
};

/* sum += weight * x. */
static inline void selection_add(struct selection_count *sum, const struct selection_count *x,
				 int weight)
{
#define X(name, doc) sum->name += weight * x->name;
	SELECTION_COUNTS(X)
#undef X
}

#endif
