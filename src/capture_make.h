/* SPDX-License-Identifier: Apache-2.0 */
/* 'attnreplay capture make': a capture of a model that runs here. */
#ifndef AR_CAPTURE_MAKE_H
#define AR_CAPTURE_MAKE_H

#include <stdint.h>

#include "base/status.h"

struct capture_make {
	const char *weights; /* folder, see weights.h */
	const char *prompt;  /* file with a prompt on each line, see prompts.h */
	int64_t index;	     /* of the prompt in it, from 0 */
	int64_t tokens;	     /* the first ones to run; 0: all */
	const int *layer;    /* ascending; n_layers 0: all layers */
	int n_layers;
	int level;	   /* zstd */
	int64_t frame_tok; /* tokens of a frame */
};

/* Run the model over the prompt in one chunk.  Write Q and K after RoPE, and V, of the layers to
 * the .arc file path.  The file appears only when it is complete. */
enum ar_status capture_make(const struct capture_make *a, const char *path, struct ar_err *err);

#endif
