/* SPDX-License-Identifier: Apache-2.0 */
/* How much a selection kept, as raw counts; every density is a ratio of counts.  A name here is a
 * column of the database and a JSON key of bench. */
#ifndef AR_SELECTION_COUNT_H
#define AR_SELECTION_COUNT_H

#include <stdint.h>

/* X(name, doc).  An empty doc: the next doc is for both, as with _total (all) and _sel
 * (selected).
 *
 * Counts are sums over the query heads of one KV head.  All but chunk_*, exec_* and empty_rows
 * count past blocks only (j < ctx / page_tok).  In token lists and vertical-slash lists a block is
 * one token, the past is all tokens before the chunk.  There only exec_* counts the chunk.  Query
 * blocks of the dense tail count in exec_* and empty_rows only. */
#define SELECTION_COUNTS(X) \
	X(tiles_total, "") \
	X(tiles_sel, "(head, query block, past block) before any union.") \
	X(chunk_total, "") \
	X(chunk_sel, "(head, query block, block) in the chunk, up to the query block's own.") \
	X(chunk_full, "All (head, query block, block) in the chunk.") \
	X(chunk_open, "Blocks of the chunk, each counted once, as after a union.") \
	X(qunion_total, "") \
	X(qunion_sel, "(head, past block) after a union over query blocks, whatever the method.") \
	X(sub_total, "") \
	X(sub_sel, "(head group, past block) after a union over each group of four query heads.") \
	X(kv_total, "") \
	X(kv_sel, "(head group, past block) after a union over all query heads of the KV head.") \
	X(group_total, "") \
	X(group_sel, "(head group, past block) after the method's union.  " \
		     "Without a union equal to `tiles_*`; if tokens are selected, to `kv_*`.") \
	X(exec_total, "") \
	X(exec_sel, "(query row, key) pairs computed under the causal mask, chunk included.  " \
		    "`exec_total` also counts keys that an evictor took.") \
	X(empty_rows, "Empty rows: (head, query block) whose list is empty.  Their output is 0.")

/* Of methods that skip; 0 of others. */
#define SKIP_COUNTS(X) \
	X(skip_total, "") \
	X(skip_sel, "Tiles that attention walked, and those of them that it skipped.")

struct selection_count {
#define X(name, doc) int64_t name;
	SELECTION_COUNTS(X)
	SKIP_COUNTS(X)
#undef X
};

/* Set what attention walked and skipped; n: [kv_heads][2], of attn_skip.count. */
static inline void selection_set_skips(struct selection_count *count, const int64_t *n,
				       int kv_heads)
{
	for (int h = 0; h < kv_heads; h++) {
		count[h].skip_total = n[2 * h];
		count[h].skip_sel = n[2 * h + 1];
	}
}

/* sum += weight * x. */
static inline void selection_add(struct selection_count *sum, const struct selection_count *x,
				 int weight)
{
#define X(name, doc) sum->name += weight * x->name;
	SELECTION_COUNTS(X)
	SKIP_COUNTS(X)
#undef X
}

#endif
