/* SPDX-License-Identifier: Apache-2.0 */
/* The chunk of a capture that 'attnreplay select' looks at. */
#ifndef AR_SELECT_CHUNK_H
#define AR_SELECT_CHUNK_H

#include "model/model.h"
#include "src/select/select_args.h"
#include "traces/capture/capture.h"

struct select_chunk {
	struct capture *capture;
	struct model model;
	int *layer, n_layers; /* layers of the model to select in */
	int *captured;	      /* [model.n_layers] index within the capture */
	int ctx, chunk, known;
};

/* Open the capture at path and find the chunk that a asks for.  Zero *c before; release it also
 * after a failure.  AR_USAGE: the capture lacks tokens, layers or heads that a names. */
enum ar_status select_chunk_load(struct select_chunk *c, const char *path,
				 const struct select_args *a, struct ar_err *err);
void select_chunk_release(struct select_chunk *c);

#endif
