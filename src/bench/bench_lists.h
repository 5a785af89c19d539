/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block lists of a real selection, as attnreplay-select(1) writes them with --json.  Real lists are
 * clustered and alike in the heads that share keys, which random ones are not.
 */
#ifndef AR_BENCH_LISTS_H
#define AR_BENCH_LISTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct bench_lists {
	int64_t q_heads, kv_heads, page_tok;
	int64_t chunk, context; /* rows; keys of the last row, the chunk included */
	int n_blk, n_qblk;	/* blocks of the context, query blocks of the chunk */
	bool *block;		/* [q_heads][n_qblk][n_blk] which are kept; NULL: not in the file */
	bool *table;		/* [kv_heads][n_blk] the same */
	/* Shares of the blocks before the chunk that they keep; 0 where they are NULL. */
	double block_density, table_density;
};

/* Read the only selection of a file, or of a data file of that name.  AR_DATA: it has none, or one
 * without blocks and tables. */
enum ar_status bench_lists_read(struct bench_lists *l, const char *path, struct ar_err *err);
void bench_lists_release(struct bench_lists *l); /* may be called twice */

/* Whether the list of query block i of a query head keeps a block; whether the table of a KV head
 * does.  More heads than the file's repeat them. */
bool bench_lists_block(const struct bench_lists *l, int head, int i, int block);
bool bench_lists_table(const struct bench_lists *l, int kv_head, int block);

#endif
