/* SPDX-License-Identifier: Apache-2.0 */
/* Unions turn a mask into block tables that groups of heads share.  Metadata turns masks and tables
 * into block lists. */
#ifndef AR_UNION_H
#define AR_UNION_H

#include "base/status.h"
#include "kernels/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which query heads of a request share a table.  UNION_NONE: there are no tables, and lists stay
 * per (query block, query head). */
enum union_kind { UNION_NONE, UNION_QBLOCK, UNION_SUBGROUP, UNION_GROUP };

struct union_rule {
	const char *name; /* "none", "q-block", "sub-group", "group" */
	const char *title;
	enum union_kind kind;
};
extern const struct union_rule unions[]; /* ends with name == NULL */

/* Query heads that share a table.  q-block: 1; sub-group: min(4, G); group: G; none: 0; a KV head
 * has G query heads.  If G is no multiple of it, the last group of each KV head is smaller. */
int union_heads(enum union_kind u, const struct attn_shape *s);
int union_groups(int heads, const struct attn_shape *s); /* groups per request */

/* table: [r * groups + g][mask_words].  For blocks before the chunk (j < ctx / page_tok): the OR of
 * the masks of g's heads, over the query blocks of r before the dense tail.  Every block of the
 * chunk itself is set, none past it. */
void union_ref(const struct attn_batch *b, int heads, const uint32_t *mask, uint32_t *table);

/* The bits of n_rows mask rows as ascending lists.  lists->stride may be less than 32 * words: a
 * row has at most max_kv_blk bits set. */
void lists_ref(const uint32_t *mask, int n_rows, int words, struct block_lists *lists);

/* CUDA. */
enum ar_status union_enqueue(const struct attn_batch *b, int heads, const uint32_t *mask,
			     uint32_t *table, void *stream, struct ar_err *err);
enum ar_status lists_enqueue(const uint32_t *mask, int n_rows, int words, struct block_lists *lists,
			     void *stream, struct ar_err *err);

#ifdef __cplusplus
}
#endif
#endif
