/* SPDX-License-Identifier: Apache-2.0 */
/* Piece lists, as selectors of decodes make them. */
#ifndef AR_PIECES_H
#define AR_PIECES_H

#include "base/both.h"
#include "kernels/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Pieces of tok tokens that len keys have. */
AR_BOTH static inline int pieces_of(int64_t len, int tok)
{
	return (int)((len + tok - 1) / tok);
}

/* How many of the pieces of a row of len keys are listed, by a rule that keeps `most`. */
AR_BOTH static inline int pieces_kept(const struct piece_lists *l, int len, int64_t most)
{
	int n = pieces_of(len, l->tok);

	return len < l->all_below || n < most ? n : (int)most;
}

/* Lists of a request. */
AR_BOTH static inline int pieces_groups(const struct attn_shape *s, const struct piece_lists *l)
{
	return s->q_heads / l->heads;
}

/* Where the key or value at position t of request r lies. */
AR_BOTH static inline size_t pieces_key(const struct attn_batch *b, int r, int kv_head, int t)
{
	const struct attn_shape *s = &b->shape;
	size_t page = (size_t)b->keys.page[b->keys.page0[r] + t / s->page_tok];

	return ((page * (size_t)s->kv_heads + (size_t)kv_head) * (size_t)s->page_tok +
		(size_t)(t % s->page_tok)) *
	       (size_t)s->head_dim;
}

/* In references: write list i, the pieces that have a bit in head[0..n), and their bits to a
 * mask. */
void pieces_write(const struct piece_lists *l, int i, const uint16_t *head, int n);

#ifdef __cplusplus
}
#endif
#endif
