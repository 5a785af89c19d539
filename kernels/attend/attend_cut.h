/* SPDX-License-Identifier: Apache-2.0 */
/* Cut and sort tiles by the lengths of their lists, which only the device knows. */
#ifndef AR_ATTEND_CUT_H
#define AR_ATTEND_CUT_H

#include "base/workspace.h"
#include "kernels/attend/attend.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { ATTEND_CUT_TILES = 1024 }; /* most tiles to cut, parts included */

/* A part of a tile: blocks [first, first + n) of its list.  tile: index in b->tile, which says the
 * number of the part; n_part: parts of the tile after cutting. */
struct attend_piece { /* one access of 16 bytes */
	alignas(16) int32_t tile;
	int32_t first, n, n_part;
};

/* Bytes of the pieces of n tiles, and of one more for their number. */
static inline size_t attend_piece_bytes(int n)
{
	return workspace_aligned(((size_t)n + 1) * sizeof(struct attend_piece));
}

/* The number of tiles, at the end of a plan with block lists, to make pieces of.  A plan with parts
 * takes all of its tiles.  Of other plans tiles are sorted, all that come after the first round of
 * thread blocks; these run meanwhile.  0: contexts are short, all tiles run at once, or blocks have
 * 64 tokens.  Tiles of such blocks use a key half as often.  If sorting moves them apart, they wait
 * for keys. */
int attend_cut_tiles(const struct attn_batch *b);

/* CUDA.  Make pieces of the last n tiles of b->tile, cut for the thread blocks that b->n_sm
 * multiprocessors run at once.  Write piece[n + 1], the longest first in each run of tiles.  A tile
 * may get fewer parts than planned: the rest of its pieces are empty, and their part number is
 * n_part or more.  They come last; piece[n].n is the number of the others.  A kernel that is
 * launched to overlap this one starts at once. */
enum ar_status attend_cut_enqueue(const struct attn_batch *b, int n,
				  const struct block_lists *lists, struct attend_piece *piece,
				  void *stream, struct ar_err *err);

/* The same for vertical-slash lists: each run counts as a block, and so do page_tok columns. */
enum ar_status attend_cut_columns_enqueue(const struct attn_batch *b, int n,
					  const struct column_lists *lists,
					  struct attend_piece *piece, void *stream,
					  struct ar_err *err);

#ifdef __cplusplus
}
#endif
#endif
