/* SPDX-License-Identifier: Apache-2.0 */
/* The first and the last pieces of a decode: shared by the reference and the CUDA file. */
#ifndef AR_STREAMING_H
#define AR_STREAMING_H

#include "kernels/select/pieces.h"
#include "kernels/select/selector.h"

#ifdef __cplusplus
extern "C" {
#endif

struct streaming {
	int64_t sink, recent; /* tokens */
	int64_t page;	      /* tokens of a piece */
};

/* The pieces that a row lists: the first `sink`, and of its n pieces the last ones. */
struct streaming_list {
	int sink, n, kept;
};

/* Pieces of a list, where rows have more. */
AR_BOTH static inline int streaming_most(const struct streaming *p)
{
	return pieces_of(p->sink, (int)p->page) + pieces_of(p->recent, (int)p->page);
}

AR_BOTH static inline struct streaming_list streaming_list(const struct streaming *p,
							   const struct piece_lists *l, int len)
{
	struct streaming_list own = { pieces_of(p->sink, l->tok), pieces_of(len, l->tok),
				      pieces_kept(l, len, streaming_most(p)) };

	return own;
}

/* Write list i, from its entry `first` on each `step`-th. */
AR_BOTH static inline void streaming_write(const struct streaming_list *own,
					   const struct piece_lists *l, int i, int first, int step)
{
	int32_t *piece = l->piece + (size_t)i * (size_t)l->stride;

	l->n[i] = own->kept;
	for (int k = first; k < own->kept; k += step)
		piece[k] = k < own->sink ? k : own->n - own->kept + k;
}

selector_fn streaming_enqueue;

#ifdef __cplusplus
}
#endif
#endif
