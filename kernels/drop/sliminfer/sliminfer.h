/* SPDX-License-Identifier: Apache-2.0 */
/* SlimInfer: shared by the reference and the CUDA file. */
#ifndef AR_SLIMINFER_H
#define AR_SLIMINFER_H

#include "kernels/drop/dropper.h"
#include "kernels/drop/layer_list.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sliminfer {
	char *layers; /* NULL: the list for 32 layers */
	int64_t block, unit, window, sinks;
};

enum { SLIMINFER_BLOCK = 128 }; /* the largest */

struct sliminfer_self {
	struct sliminfer rule;
	struct layer_list layers;
};

/* Blocks that stay because of their score.  A value up to 1 is a share of the chunk's blocks before
 * any drop, a larger one their number. */
AR_BOTH static inline int sliminfer_budget(const struct sliminfer *p, double value, int chunk)
{
	int64_t n = (chunk + p->block - 1) / p->block;

	return (int)(value > 1 ? value : value * (double)n);
}

/* Room on the device for the blocks of all requests. */
AR_BOTH static inline int64_t sliminfer_room(const struct sliminfer *p, const struct attn_shape *s,
					     int64_t n_page, int n_req)
{
	return n_page * s->page_tok / p->block + n_req;
}

/* Whether a chunk of this many rows keeps everything. */
AR_BOTH static inline bool sliminfer_short(const struct sliminfer *p, int rows)
{
	return rows < p->sinks + p->window + p->block;
}

/* Whether block blk of a chunk stays whatever its score is.  pos0: tokens before the chunk. */
AR_BOTH static inline bool sliminfer_stays(const struct sliminfer *p, int pos0, int rows, int blk)
{
	return pos0 + blk * p->block < p->sinks || (blk + 1) * p->block > rows - p->window;
}

/* The reference's scores of request r, one per block of its chunk. */
void sliminfer_scores(const struct attn_call *call, const struct sliminfer *p, int r, float *score);

dropper_fn sliminfer_enqueue;
size_t sliminfer_work_bytes(const void *self, int ranks, const struct attn_shape *s,
			    const struct attn_limits *l);

#ifdef __cplusplus
}
#endif
#endif
