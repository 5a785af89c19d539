/* SPDX-License-Identifier: Apache-2.0 */
/* The fewest tokens of a list with most of the attention: shared by the reference and the CUDA
 * file. */
#ifndef AR_TWILIGHT_H
#define AR_TWILIGHT_H

#include <math.h>

#include "kernels/select/pieces.h"
#include "kernels/select/selector.h"

#ifdef __cplusplus
extern "C" {
#endif

struct twilight {
	double mass;
	int estimate; /* index into int4, exact */
	bool keep_newest;
};

enum { TWILIGHT_INT4, TWILIGHT_EXACT };

/* A key of 4 bits: channel d is low + step * code d.  After this come head_dim / 2 bytes of codes,
 * even channels in the lower halves, up to where the next key may begin. */
struct twilight_key {
	float low, step;
};

AR_BOTH static inline size_t twilight_key_bytes(int head_dim)
{
	return sizeof(struct twilight_key) + ((size_t)head_dim / 2 + 3) / 4 * 4;
}

/* The key at position t of request r. */
AR_BOTH static inline struct twilight_key *twilight_key(const struct attn_batch *b, int r, int kv,
							int t, void *state)
{
	size_t dim = (size_t)b->shape.head_dim;

	return (struct twilight_key *)((char *)state + pieces_key(b, r, kv, t) / dim *
							       twilight_key_bytes((int)dim));
}

AR_BOTH static inline uint8_t twilight_code(float x, float low, float step)
{
	float code = rintf((x - low) / step);

	return (uint8_t)(code < 0 ? 0 : code > 15 ? 15 : code);
}

/* The candidates of a list: its tokens, in order. */
AR_BOTH static inline int twilight_candidates(const struct piece_lists *from, int list, int len)
{
	int n = from->n[list];
	int last = n ? from->piece[(size_t)list * (size_t)from->stride + (size_t)n - 1] : 0;
	int past = (last + 1) * from->tok - len;

	return n * from->tok - (n && past > 0 ? past : 0);
}

/* The position of the i-th candidate, or -1 if head h of the list does not see it. */
AR_BOTH static inline int twilight_at(const struct piece_lists *from, int list, int h, int i)
{
	size_t at = (size_t)list * (size_t)from->stride + (size_t)(i / from->tok);

	if (from->mask && !(from->mask[at] >> h & 1))
		return -1;
	return from->piece[at] * from->tok + i % from->tok;
}

/* Weights are integers, so their sums do not depend on the order. */
AR_BOTH static inline uint64_t twilight_goal(double mass, uint64_t sum)
{
	double goal = ceil(mass * (double)sum);

	return goal < 1 ? 1 : goal < (double)sum ? (uint64_t)goal : sum;
}

selector_append_fn twilight_append;
selector_work_fn twilight_work_bytes;
selector_fn twilight_enqueue;

#ifdef __cplusplus
}
#endif
#endif
