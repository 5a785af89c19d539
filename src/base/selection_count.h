/* How much a selection kept, as raw counts, of which every density is made: a name here is a column
 * of the database and a member of what bench writes. */
#ifndef AR_SELECTION_COUNT_H
#define AR_SELECTION_COUNT_H

#include <stdint.h>

#define SELECTION_COUNTS(X)                     \
	X(tiles_total)  X(tiles_sel)            \
	X(qunion_total) X(qunion_sel)           \
	X(group_total)  X(group_sel)            \
	X(exec_total)   X(exec_sel)

/* Over the past blocks only (j < ctx / page_tok), summed over the heads of one KV head.  Where
 * tokens are selected, or runs and columns, a block is one token and the past all tokens before the
 * chunk; a token list is a head group's.  Query blocks of the tail are not counted but for their
 * pairs.
 *
 *   tiles    (head, query block, block)
 *   qunion   (head, block)
 *   group    (head group, block), after the method's union; without one the tiles
 *   exec     causal (query row, key) pairs, chunk included
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
