/* How much a selection kept, as raw counts, of which every density is made: a name here is a column
 * of the database and a member of what bench writes. */
#ifndef AR_SELECTION_COUNT_H
#define AR_SELECTION_COUNT_H

#include <stdint.h>

#define SELECTION_COUNTS(X)                     \
	X(tiles_total)  X(tiles_sel)            \
	X(chunk_total)  X(chunk_sel)            \
	X(chunk_full)   X(chunk_open)           \
	X(qunion_total) X(qunion_sel)           \
	X(sub_total)    X(sub_sel)              \
	X(kv_total)     X(kv_sel)               \
	X(group_total)  X(group_sel)            \
	X(exec_total)   X(exec_sel)             \
	X(blind)

/* Summed over the heads of one KV head, and but for chunk and exec over the past blocks only
 * (j < ctx / page_tok).  Where tokens are selected, or runs and columns, a block is one token, the
 * past all tokens before the chunk, and the chunk is in exec alone.  Query blocks of the tail are
 * not counted but for their pairs.
 *
 *   tiles    (head, query block, block)
 *   chunk    the same in the chunk up to the query block's own; full: all in the chunk; open: the
 *            chunk's blocks, which a union opens, one time
 *   qunion   (head, block) after a union over query blocks, whatever the method's
 *   sub, kv  (head group, block) after one over groups of four heads, and over all heads
 *   group    (head group, block) after the method's union; without one the tiles
 *   exec     causal (query row, key) pairs, chunk included
 *   blind    (head, query block) whose list is empty
 */
struct selection_count {
#define X(name) int64_t name;
	SELECTION_COUNTS(X)
#undef X
};

/* sum += weight * x. */
static inline void selection_add(struct selection_count *sum, const struct selection_count *x,
				 int weight)
{
#define X(name) sum->name += weight * x->name;
	SELECTION_COUNTS(X)
#undef X
}

#endif
