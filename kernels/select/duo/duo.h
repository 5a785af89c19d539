/* SPDX-License-Identifier: Apache-2.0 */
/* Heads that see everything beside heads that see the first and the last tokens: shared by the
 * reference and the CUDA file. */
#ifndef AR_DUO_H
#define AR_DUO_H

#include "kernels/select/streaming/streaming.h"

#ifdef __cplusplus
extern "C" {
#endif

struct duo {
	struct streaming near; /* of heads that stream */
	double sparsity;       /* share of the heads that stream */
	char *file;
};

enum { DUO_HEADS = 256 };
/* Bit h: KV head h sees everything. */
struct duo_layer {
	uint32_t full[DUO_HEADS / 32];
};

struct duo_self {
	struct streaming near;
	struct duo_layer layer[]; /* of the model */
};

/* The pieces that a row of len keys lists under KV head h. */
AR_BOTH static inline struct streaming_list duo_list(const struct streaming *near,
						     const struct duo_layer *x, int h,
						     const struct piece_lists *l, int len)
{
	struct streaming_list own = streaming_list(near, l, len);

	own.kept = x->full[h / 32] >> h % 32 & 1 ? own.n : own.kept;
	return own;
}

selector_fn duo_enqueue;

#ifdef __cplusplus
}
#endif
#endif
